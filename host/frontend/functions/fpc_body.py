"""Read the body of an ONNX function as a fast pointwise convolution.

Functions of :func:`lutterfly.host.model.functions.fpc_function.make_function` are recognised with any names of tensors,
and any order of nodes and of the operands of a sum or product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto

from ....golden.numerics.butterfly import Density, Pattern
from ....golden.numerics.fpc import FRACTION_BITS, GROWTH_SHIFTS, MOST_INPUT_SHIFT, UNIT_WEIGHT, FpcEpilogue, Stages
from ...model.functions.fpc_function import GREATEST_VALUE, LEAST_VALUE
from ..source import KernelGeometry
from .body import BodyError, BodyReader, code, read_with, shown, whole_numbers


@dataclass(frozen=True, eq=False)
class FastPointwiseBody:
    """A function that is a fast pointwise convolution.

    Attributes
    ----------
    stages : Stages
    epilogue : FpcEpilogue
    zero_point : int
        Zero point of the input, an int8 code.
    spatial : int or None
        Number of dimensions after the channels; None where no constant determines it.
    """

    stages: Stages
    epilogue: FpcEpilogue
    zero_point: int
    spatial: int | None

    @property
    def inputs(self) -> int:
        """The number of input channels."""
        return self.stages.pattern.inputs

    @property
    def outputs(self) -> int:
        """The number of output channels."""
        return self.stages.pattern.outputs

    @property
    def geometry(self) -> KernelGeometry:
        """The geometry of a pointwise convolution."""
        return KernelGeometry()

    @property
    def result_zero_point(self) -> int:
        """The zero point of the output, an int8 code."""
        return self.epilogue.zero_point


def read_body(function: FunctionProto) -> FastPointwiseBody:
    """Read a function.

    Raises
    ------
    BodyError
        If its body is no fast pointwise convolution.
    """
    return read_with(_FastPointwiseReader, function)


@dataclass
class _Stage:
    """A stage of the body, read from its end, with the names of its input and of tensors that skips add."""

    distance: int
    density: Density
    own: np.ndarray
    cross: np.ndarray
    growth_shift: int
    entering: str
    skipped: list[str]


class _FastPointwiseReader(BodyReader):
    def read(self) -> FastPointwiseBody:
        """Follow the body from its result to its input."""
        self.check_signature()
        orders = [self._order(node) for node in self.function.node if node.op_type == "Gather"]
        if not orders:
            raise BodyError("it has no stages, each with a Gather")
        width = len(orders[0])
        values, outputs, epilogue = self._epilogue(width)
        found: list[_Stage] = []
        for number in reversed(range(len(orders))):
            found.append(self._stage(f"stage {number}", values, width))
            values = found[-1].entering
        stages = found[::-1]
        inputs, input_shift, zero_point = self._enter(values, width)
        self.check_all_read()
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
        return FastPointwiseBody(Stages(pattern, *weights, shifts, input_shift), epilogue, zero_point, self.spatial)

    def _epilogue(self, width: int) -> tuple[str, int, FpcEpilogue]:
        """Return the result of the last stage, the number of channels that are kept, and the epilogue."""
        node = self.node(self.function.output[0], "Cast", "the result", to=TensorProto.INT8)
        found = self.requantised(node.input[0])
        values, bias = self.operands(found.sums, "Add", "the bias")
        outputs = width
        if self.operator(values) == "Slice":
            node = self.node(values, "Slice", "the kept channels")
            values, outputs = node.input[0], self._kept(node)
        epilogue = FpcEpilogue(
            whole_numbers(self.channels(bias, "the bias", outputs), "the bias"),
            self.channels(found.scale, "the result's scale", outputs),
            found.zero_point,
            found.low,
            found.high,
        )
        return values, outputs, epilogue

    def _kept(self, node: NodeProto) -> int:
        starts, ends, axes, steps = ([self.listed(node, at) for at in range(1, 5)] + [None] * 4)[:4]
        if starts != [0] or axes != [1] or steps not in (None, [1]) or ends is None or len(ends) != 1:
            raise BodyError(f"{shown(node)} must keep the first channels of axis 1")
        return ends[0]

    def _stage(self, place: str, values: str, width: int) -> _Stage:
        values, *limits = self.clip(values, place)
        if limits != [LEAST_VALUE, GREATEST_VALUE]:
            raise BodyError(f"{place} must saturate at {LEAST_VALUE:g} and {GREATEST_VALUE:g}, not {limits}")
        skipped = []
        while self.operator(values) == "Add":
            node = self.node(values, "Add", f"a skip into {place}")
            # The operand of a skip is saturated or an input value; that of the stage is rounded.
            ahead = [name for name in node.input if self.operator(name) in ("Round", "Add")]
            if len(ahead) != 1 or len(node.input) != 2:
                raise BodyError(f"{shown(node)} must add what enters a stage to the rounded sum of {place}")
            skipped += [name for name in node.input if name != ahead[0]]
            values = ahead[0]
        node = self.node(values, "Round", f"the rounding of {place}")
        total, unit = self.operands(node.input[0], "Mul", f"the unit of {place}")
        entering, order, own, cross = self._products(total, place)
        indices = np.arange(width)
        distance = int(order[0])
        if not np.array_equal(order, indices ^ distance) or distance.bit_count() != 1:
            raise BodyError(f"{place} must pair values whose indices differ in one bit, not {order.tolist()}")
        density = self._density(place, own, cross)
        units = {2.0 ** -(FRACTION_BITS + shift): shift for shift in GROWTH_SHIFTS}
        value = self.scalar(unit, f"the unit of {place}")
        if value not in units:
            raise BodyError(f"the unit of {place} must be {' or '.join(map(repr, units))}, not {value}")
        own, cross = (
            whole_numbers(self.channels(array, f"the weights of {place}", width), f"the weights of {place}")
            for array in (own, cross)
        )
        return _Stage(distance, density, own, cross, units[value], entering, skipped)

    def _products(self, total: str, place: str) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
        """Return the input of a stage, the order of partners, and both weights."""
        node = self.node(total, "Add", f"the sum of {place}")
        products = [self.operands(name, "Mul", f"a product of {place}") for name in node.input]
        others = [at for at, (name, _) in enumerate(products) if self.operator(name) == "Gather"]
        if len(products) != 2 or len(others) != 1:
            raise BodyError(f"{shown(node)} must add the product of each value and that of the other one of its pair")
        (other, cross), (entering, own) = products[others[0]], products[1 - others[0]]
        gather = self.node(other, "Gather", f"the pairs of {place}", axis=1)
        if gather.input[0] != entering:
            raise BodyError(f"{shown(gather)} must read what enters {place}, {entering!r}, not {gather.input[0]!r}")
        return entering, self._order(gather), own, cross

    def _density(self, place: str, own: np.ndarray, cross: np.ndarray) -> Density:
        """Return the density: trained weights are as many as values, and a fixed one must be the weight one."""
        for name, array in (("own", own), ("cross", cross)):
            if array.size == 1 and array.item() != UNIT_WEIGHT:
                raise BodyError(f"the one {name} weight of {place} must be {UNIT_WEIGHT}, not {array.item():g}")
        if own.size > 1 and cross.size == 1:
            raise BodyError(f"{place} must have cross weights where it has own weights")
        if own.size > 1:
            return Density.FULL
        return Density.CROSS if cross.size > 1 else Density.UNIT

    def _enter(self, values: str, width: int) -> tuple[int, int, int]:
        """Return the number of input channels, their shift and their zero point."""
        inputs = width
        if self.operator(values) == "Pad":
            node = self.node(values, "Pad", "the null channels")
            inputs = width - self._null_channels(node)
            values = node.input[0]
        centred, shift = self.operands(values, "Mul", "the shift of the codes")
        numbers, zero_point = self.operands(centred, "Sub", "the zero point")
        self.entered(numbers)
        value = self.scalar(shift, "the shift of the codes")
        shifts = {2.0**exponent: exponent for exponent in range(MOST_INPUT_SHIFT + 1)}
        if value not in shifts:
            raise BodyError(
                f"the shift of the codes must be a power of two between 1 and {1 << MOST_INPUT_SHIFT}, not {value:g}"
            )
        return inputs, shifts[value], code(self.scalar(zero_point, "the zero point"), "the zero point")

    def _null_channels(self, node: NodeProto) -> int:
        pads = self.listed(node, 1) or []
        spatial, others = len(pads) // 2 - 2, [pad for at, pad in enumerate(pads) if at != len(pads) // 2 + 1]
        value = self.constants.get(node.input[2], np.ones(1)) if len(node.input) > 2 and node.input[2] else np.zeros(1)
        if spatial < 0 or any(others) or value.any() or len(node.input) > 3:
            raise BodyError(f"{shown(node)} must put zeros after the channels of axis 1")
        self.agree(spatial, shown(node))
        return pads[len(pads) // 2 + 1]

    def _skips(self, stages: Sequence[_Stage]) -> tuple[tuple[int, int], ...]:
        first = {stage.entering: number for number, stage in enumerate(stages)}
        skips = [(name, last) for last, stage in enumerate(stages) for name in stage.skipped[::-1]]
        for name, last in skips:
            if first.get(name, last + 1) > last:
                raise BodyError(f"what stage {last} adds to its sum, {name!r}, must enter it or a stage before it")
        return tuple((first[name], last) for name, last in skips)

    def _order(self, node: NodeProto) -> np.ndarray:
        order = self.constants.get(node.input[1])
        if order is None or order.ndim != 1 or order.dtype.kind != "i" or not order.size:
            raise BodyError(f"the indices of {shown(node)} must be a Constant list of integers")
        return order
