"""Read the body of an ONNX function: whether it is a fast pointwise convolution, and which.

What :func:`lutterfly.host.fpc_function.make_function` writes is read back, whatever the names of its tensors, the order
of its nodes and of the operands of a sum or product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper

from ...golden.butterfly import Density, Pattern
from ...golden.fpc import FRACTION_BITS, GROWTH_SHIFTS, MOST_INPUT_SHIFT, UNIT_WEIGHT, Finish, Stages
from ..fpc_function import GREATEST_VALUE, LEAST_VALUE
from ..onnx_function import LEAST_OPSET


@dataclass(frozen=True, eq=False)
class FastPointwiseBody:
    """What a function computes.

    Attributes
    ----------
    stages : Stages
    finish : Finish
    zero_point : int
        int8 code, of the input.
    spatial : int or None
        Dimensions behind the channels; None where no constant tells.
    """

    stages: Stages
    finish: Finish
    zero_point: int
    spatial: int | None


class BodyError(ValueError):
    """A body that is no fast pointwise convolution; the message says where it differs."""


def read_body(function: FunctionProto) -> FastPointwiseBody:
    """Read a function.

    Raises
    ------
    BodyError
        If its body is no fast pointwise convolution.
    """
    try:
        return _Reader(function).read()
    except BodyError:
        raise
    except ValueError as error:
        # The golden functions refuse what they cannot compute, and ONNX constants whose bytes do not fit their shapes.
        raise BodyError(str(error)) from error


@dataclass
class _Stage:
    """A stage as it is read, from behind: names of the tensors that enter it and that skips bring."""

    distance: int
    density: Density
    own: np.ndarray
    cross: np.ndarray
    growth_shift: int
    entering: str
    skipped: list[str]


class _Reader:
    def __init__(self, function: FunctionProto):
        self.function = function
        self.producer = {name: node for node in function.node for name in node.output}
        self.constants = {
            node.output[0]: value
            for node in function.node
            if node.op_type == "Constant" and (value := _constant(node)) is not None
        }
        self.unread = [node for node in function.node if node.op_type != "Constant"]
        self.spatial: int | None = None

    def read(self) -> FastPointwiseBody:
        """Follow the body from its result to its input."""
        self._check_signature()
        orders = [self._order(node) for node in self.function.node if node.op_type == "Gather"]
        if not orders:
            raise BodyError("it has no stages, each with a Gather")
        width = len(orders[0])
        values, outputs, finish = self._finish(width)
        found: list[_Stage] = []
        for number in reversed(range(len(orders))):
            found.append(self._stage(f"stage {number}", values, width))
            values = found[-1].entering
        stages = found[::-1]
        inputs, input_shift, zero_point = self._enter(values, width)
        if self.unread:
            raise BodyError(f"{_shown(self.unread[0])} is no part of it")
        pattern = Pattern(
            inputs,
            outputs,
            tuple(stage.distance for stage in stages),
            tuple(stage.density for stage in stages),
            self._skips(stages),
        )
        if pattern.width != width:
            raise BodyError(f"its stages must be of {pattern.width} values for its channels, not {width}")
        weights = (tuple(getattr(stage, kind) for stage in stages) for kind in ("own", "cross"))
        shifts = tuple(stage.growth_shift for stage in stages)
        return FastPointwiseBody(Stages(pattern, *weights, shifts, input_shift), finish, zero_point, self.spatial)

    def _check_signature(self) -> None:
        function = self.function
        if len(function.input) != 1 or len(function.output) != 1 or function.attribute or function.attribute_proto:
            raise BodyError("it must have one input, one output and no attributes")
        for entry in function.opset_import:
            if not entry.domain and entry.version < LEAST_OPSET:
                raise BodyError(f"its operator set must be at least {LEAST_OPSET}, not {entry.version}")

    def _finish(self, width: int) -> tuple[str, int, Finish]:
        """What leaves the last stage, the channels that are kept of it, and what becomes of them."""
        node = self._node(self.function.output[0], "Cast", "the result", to=TensorProto.INT8)
        clipped, low, high = self._clip(node.input[0], "the result")
        node, zero_point = self._binary(clipped, "Add", "the result's zero point")
        node = self._node(node, "Round", "the result's rounding")
        biased, scale = self._binary(node.input[0], "Mul", "the result's scale")
        values, bias = self._binary(biased, "Add", "the bias")
        outputs = width
        if self._operator(values) == "Slice":
            node = self._node(values, "Slice", "the kept channels")
            values, outputs = node.input[0], self._kept(node)
        limits = (_whole(value, name) for name, value in (("low", low), ("high", high)))
        finish = Finish(
            _integers(self._channels(bias, "the bias", outputs), "the bias"),
            self._channels(scale, "the result's scale", outputs),
            _whole(self._scalar(zero_point, "the result's zero point"), "the result's zero point"),
            *limits,
        )
        return values, outputs, finish

    def _kept(self, node: NodeProto) -> int:
        starts, ends, axes, steps = ([self._listed(node, at) for at in range(1, 5)] + [None] * 4)[:4]
        if starts != [0] or axes != [1] or steps not in (None, [1]) or ends is None or len(ends) != 1:
            raise BodyError(f"{_shown(node)} must keep the first channels of axis 1")
        return ends[0]

    def _stage(self, place: str, values: str, width: int) -> _Stage:
        values, *limits = self._clip(values, place)
        if limits != [LEAST_VALUE, GREATEST_VALUE]:
            raise BodyError(f"{place} must saturate at {LEAST_VALUE:g} and {GREATEST_VALUE:g}, not {limits}")
        skipped = []
        while self._operator(values) == "Add":
            node = self._node(values, "Add", f"a skip into {place}")
            # What a skip brings is saturated or has just entered; what the stage computes is rounded.
            ahead = [name for name in node.input if self._operator(name) in ("Round", "Add")]
            if len(ahead) != 1 or len(node.input) != 2:
                raise BodyError(f"{_shown(node)} must add what enters a stage to the rounded sum of {place}")
            skipped += [name for name in node.input if name != ahead[0]]
            values = ahead[0]
        node = self._node(values, "Round", f"the rounding of {place}")
        total, unit = self._binary(node.input[0], "Mul", f"the unit of {place}")
        entering, order, own, cross = self._products(total, place)
        indices = np.arange(width)
        distance = int(order[0])
        if not np.array_equal(order, indices ^ distance) or distance.bit_count() != 1:
            raise BodyError(f"{place} must pair values whose indices differ in one bit, not {order.tolist()}")
        density = self._density(place, own, cross)
        units = {2.0 ** -(FRACTION_BITS + shift): shift for shift in GROWTH_SHIFTS}
        value = self._scalar(unit, f"the unit of {place}")
        if value not in units:
            raise BodyError(f"the unit of {place} must be {' or '.join(map(repr, units))}, not {value}")
        own, cross = (
            _integers(self._channels(array, f"the weights of {place}", width), f"the weights of {place}")
            for array in (own, cross)
        )
        return _Stage(distance, density, own, cross, units[value], entering, skipped)

    def _products(self, total: str, place: str) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
        """What enters a stage, the order of its other values, and both weights."""
        node = self._node(total, "Add", f"the sum of {place}")
        products = [self._binary(name, "Mul", f"a product of {place}") for name in node.input]
        others = [at for at, (name, _) in enumerate(products) if self._operator(name) == "Gather"]
        if len(products) != 2 or len(others) != 1:
            raise BodyError(f"{_shown(node)} must add the product of each value and that of the other one of its pair")
        (other, cross), (entering, own) = products[others[0]], products[1 - others[0]]
        gather = self._node(other, "Gather", f"the pairs of {place}", axis=1)
        if gather.input[0] != entering:
            raise BodyError(f"{_shown(gather)} must read what enters {place}, {entering!r}, not {gather.input[0]!r}")
        return entering, self._order(gather), own, cross

    def _density(self, place: str, own: np.ndarray, cross: np.ndarray) -> Density:
        """Weights that are trained are as many as values, and one that is fixed is the weight one."""
        for name, array in (("own", own), ("cross", cross)):
            if array.size == 1 and array.item() != UNIT_WEIGHT:
                raise BodyError(f"the one {name} weight of {place} must be {UNIT_WEIGHT}, not {array.item():g}")
        if own.size > 1 and cross.size == 1:
            raise BodyError(f"{place} must have cross weights where it has own weights")
        if own.size > 1:
            return Density.FULL
        return Density.CROSS if cross.size > 1 else Density.UNIT

    def _enter(self, values: str, width: int) -> tuple[int, int, int]:
        """Channels that enter, their shift and their zero point."""
        inputs = width
        if self._operator(values) == "Pad":
            node = self._node(values, "Pad", "the null channels")
            inputs = width - self._null_channels(node)
            values = node.input[0]
        centred, shift = self._binary(values, "Mul", "the shift of the codes")
        numbers, zero_point = self._binary(centred, "Sub", "the zero point")
        node = self._node(numbers, "Cast", "the codes", to=TensorProto.FLOAT)
        if node.input[0] != self.function.input[0]:
            raise BodyError(f"{_shown(node)} must read the input {self.function.input[0]!r}, not {node.input[0]!r}")
        value = self._scalar(shift, "the shift of the codes")
        shifts = {2.0**exponent: exponent for exponent in range(MOST_INPUT_SHIFT + 1)}
        if value not in shifts:
            raise BodyError(
                f"the shift of the codes must be a power of two between 1 and {1 << MOST_INPUT_SHIFT}, not {value:g}"
            )
        zero = _whole(self._scalar(zero_point, "the zero point"), "the zero point")
        if not -128 <= zero <= 127:
            raise BodyError(f"the zero point must be between -128 and 127, not {zero}")
        return inputs, shifts[value], zero

    def _null_channels(self, node: NodeProto) -> int:
        pads = self._listed(node, 1) or []
        spatial, others = len(pads) // 2 - 2, [pad for at, pad in enumerate(pads) if at != len(pads) // 2 + 1]
        value = self.constants.get(node.input[2], np.ones(1)) if len(node.input) > 2 and node.input[2] else np.zeros(1)
        if spatial < 0 or any(others) or value.any() or len(node.input) > 3:
            raise BodyError(f"{_shown(node)} must put zeros behind the channels of axis 1")
        self._agree(spatial, _shown(node))
        return pads[len(pads) // 2 + 1]

    def _skips(self, stages: Sequence[_Stage]) -> tuple[tuple[int, int], ...]:
        first = {stage.entering: number for number, stage in enumerate(stages)}
        skips = [(name, last) for last, stage in enumerate(stages) for name in stage.skipped[::-1]]
        for name, last in skips:
            if first.get(name, last + 1) > last:
                raise BodyError(f"what stage {last} adds to its sum, {name!r}, must enter it or a stage before it")
        return tuple((first[name], last) for name, last in skips)

    def _node(self, name: str, operator: str, place: str, **wanted: int) -> NodeProto:
        """The node that computes a tensor, which must be this operator with these attributes alone."""
        node = self.producer.get(name)
        if node is None or node.op_type != operator or node.domain not in ("", "ai.onnx"):
            found = f"the input {name!r}" if node is None else _shown(node)
            raise BodyError(f"{place} must be computed by {operator}, not by {found}")
        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        given = {key: value for key, value in given.items() if _DEFAULTS.get((operator, key)) != value}
        if given != wanted:
            raise BodyError(f"{_shown(node)} must have the attributes {wanted or 'by default'}, not {given}")
        if node in self.unread:
            self.unread.remove(node)
        return node

    def _operator(self, name: str) -> str:
        return self.producer[name].op_type if name in self.producer else ""

    def _binary(self, name: str, operator: str, place: str) -> tuple[str, np.ndarray]:
        """The operand of a node that is computed, and the one that is constant."""
        node = self._node(name, operator, place)
        known = [at for at, operand in enumerate(node.input) if operand in self.constants]
        if len(node.input) != 2 or len(known) != 1 or (operator == "Sub" and known != [1]):
            raise BodyError(f"{_shown(node)} must have a computed operand and a Constant")
        return node.input[1 - known[0]], self.constants[node.input[known[0]]]

    def _clip(self, name: str, place: str) -> tuple[str, float, float]:
        node = self._node(name, "Clip", f"the limits of {place}")
        limits = [self.constants.get(operand) for operand in node.input[1:]]
        if len(limits) != 2 or any(limit is None for limit in limits):
            raise BodyError(f"{_shown(node)} must have two limits that are Constants")
        return node.input[0], *(self._scalar(limit, f"a limit of {place}") for limit in limits)

    def _order(self, node: NodeProto) -> np.ndarray:
        order = self.constants.get(node.input[1])
        if order is None or order.ndim != 1 or order.dtype.kind != "i" or not order.size:
            raise BodyError(f"the indices of {_shown(node)} must be a Constant list of integers")
        return order

    def _listed(self, node: NodeProto, at: int) -> list[int] | None:
        value = self.constants.get(node.input[at]) if at < len(node.input) and node.input[at] else None
        return None if value is None else value.reshape(-1).tolist()

    def _scalar(self, array: np.ndarray, place: str) -> float:
        if array.size != 1 or array.ndim > 1:
            raise BodyError(f"{place} must be one number, not of the shape {list(array.shape)}")
        return float(array.item())

    def _channels(self, array: np.ndarray, place: str, count: int) -> np.ndarray:
        """float32[count] of a constant with a number for each channel of axis 1, or one for all."""
        if array.dtype != np.float32:
            raise BodyError(f"{place} must be float32, not {array.dtype}")
        if array.size == 1 and array.ndim < 2:
            return np.full(count, array.item(), np.float32)
        if array.shape != (count, *[1] * (array.ndim - 1)):
            raise BodyError(
                f"{place} must have the shape [{count}, 1, ...] with a 1 for each dimension behind the channels, "
                f"not {list(array.shape)}"
            )
        self._agree(array.ndim - 1, place)
        return array.reshape(-1)

    def _agree(self, spatial: int, place: str) -> None:
        if self.spatial not in (None, spatial):
            raise BodyError(f"{place} must be for {self.spatial} dimensions behind the channels, not for {spatial}")
        self.spatial = spatial


#: Attributes that say what the operator does without them.
_DEFAULTS = {("Pad", "mode"): b"constant", ("Cast", "saturate"): 1}


def _shown(node: NodeProto) -> str:
    return f"{node.op_type} {node.name or node.output[0]!r}"


def _constant(node: NodeProto) -> np.ndarray | None:
    """The value of a Constant; None where it is no array of numbers."""
    if len(node.attribute) != 1 or node.attribute[0].ref_attr_name:
        return None
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.array(value, dtype[attribute.name]) if attribute.name in dtype else None


def _whole(value: float, place: str) -> int:
    if not float(value).is_integer():
        raise BodyError(f"{place} must be a whole number, not {value:g}")
    return int(value)


def _integers(values: np.ndarray, place: str) -> np.ndarray:
    """int64 of whole numbers."""
    broken = values[~(np.isfinite(values) & (values == np.rint(values)))]
    if broken.size:
        raise BodyError(f"{place} must be whole numbers, not {broken[0]:g}")
    return values.astype(np.int64)
