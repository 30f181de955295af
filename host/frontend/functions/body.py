"""Reader of ONNX function bodies, the base of the readers of all kinds of layers.

A body is followed from its result to its input, with any names of tensors, and any order of nodes and of the operands
of a sum or product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper

from ...model.functions.onnx_function import LEAST_OPSET
from ...model.onnx_graph import OnnxGraph, attributes_of
from ..source import LayerBody


class BodyError(ValueError):
    """A body is not that of a layer; the message names the difference."""


@dataclass(frozen=True, eq=False)
class Requantised:
    """The requantisation of sums: ``clip(rint(float32(sum) * scale) + zero_point, low, high)``; scale as in the
    body."""

    sums: str
    scale: np.ndarray
    zero_point: int
    low: int
    high: int


class BodyReader(OnnxGraph):
    """The nodes of a function, with its Constants.

    Attributes
    ----------
    unread : list of NodeProto
        Nodes that have not been read yet.
    spatial : int or None
        Number of dimensions after the channels; None as long as no constant has determined it.
    """

    def __init__(self, function: FunctionProto):
        self.function = function
        written = ((node, _constant(node)) for node in function.node if node.op_type == "Constant")
        constants = {node.output[0]: value for node, value in written if value is not None}
        super().__init__(function, function.node, constants)
        self.unread = [node for node in function.node if node.op_type != "Constant"]
        self.spatial: int | None = None

    def read(self) -> LayerBody:
        """Follow the body from its result to its input."""
        raise NotImplementedError

    def check_signature(self) -> None:
        """Refuse a function whose signature is not a layer's, or whose operator set is older."""
        function = self.function
        if len(function.input) != 1 or len(function.output) != 1 or function.attribute or function.attribute_proto:
            raise BodyError("it must have one input, one output and no attributes")
        if 0 < self.opset < LEAST_OPSET:
            raise BodyError(f"its operator set must be at least {LEAST_OPSET}, not {self.opset}")

    def check_all_read(self) -> None:
        """Refuse nodes that have not been read."""
        if self.unread:
            raise BodyError(f"{shown(self.unread[0])} is no part of it")

    def take(self, name: str, operators: tuple[str, ...], place: str) -> tuple[NodeProto, dict[str, object]]:
        """Return the node that computes a tensor, which must be one of some operators, and its attributes without
        defaults."""
        node = self.producer.get(name)
        if node is None or node.op_type not in operators or node.domain not in ("", "ai.onnx"):
            found = f"the input {name!r}" if node is None else shown(node)
            raise BodyError(f"{place} must be computed by {' or '.join(operators)}, not by {found}")
        if node in self.unread:
            self.unread.remove(node)
        given = attributes_of(node).items()
        return node, {key: value for key, value in given if _DEFAULTS.get((node.op_type, key)) != value}

    def node(self, name: str, operator: str, place: str, **wanted: int) -> NodeProto:
        """Return the node that computes a tensor, which must be this operator with exactly these attributes."""
        node, given = self.take(name, (operator,), place)
        if given != wanted:
            raise BodyError(f"{shown(node)} must have the attributes {wanted or 'by default'}, not {given}")
        return node

    def operator(self, name: str) -> str:
        """Return the operator that computes a tensor; empty for the input."""
        return self.producer[name].op_type if name in self.producer else ""

    def entered(self, name: str) -> None:
        """Check that a tensor is the function's input in float32."""
        node = self.node(name, "Cast", "the codes", to=TensorProto.FLOAT)
        if node.input[0] != self.function.input[0]:
            raise BodyError(f"{shown(node)} must read the input {self.function.input[0]!r}, not {node.input[0]!r}")

    def operands(self, name: str, operator: str, place: str) -> tuple[str, np.ndarray]:
        """Return the computed operand of a node, and the constant one."""
        node = self.node(name, operator, place)
        known = [at for at, operand in enumerate(node.input) if operand in self.constants]
        if len(node.input) != 2 or len(known) != 1 or (operator in _ORDERED and known != [1]):
            raise BodyError(f"{shown(node)} must have a computed operand and a Constant")
        return node.input[1 - known[0]], self.constants[node.input[known[0]]]

    def clip(self, name: str, place: str) -> tuple[str, float, float]:
        """Return the tensor that is clipped, and the limits."""
        node = self.node(name, "Clip", f"the limits of {place}")
        limits = [self.constants.get(operand) for operand in node.input[1:]]
        if len(limits) != 2 or any(limit is None for limit in limits):
            raise BodyError(f"{shown(node)} must have two limits that are Constants")
        return node.input[0], *(self.scalar(limit, f"a limit of {place}") for limit in limits)

    def requantised(self, name: str) -> Requantised:
        """Return the requantisation that computes a tensor of codes in float32."""
        clipped, low, high = self.clip(name, "the result")
        shifted, zero_point = self.operands(clipped, "Add", "the result's zero point")
        node = self.node(shifted, "Round", "the result's rounding")
        sums, scale = self.operands(node.input[0], "Mul", "the result's scale")
        limits = (whole(value, name) for name, value in (("low", low), ("high", high)))
        zero = whole(self.scalar(zero_point, "the result's zero point"), "the result's zero point")
        return Requantised(sums, scale, zero, *limits)

    def listed(self, node: NodeProto, at: int) -> list[int] | None:
        """Return the constant at an input of a node as a list; None if there is none."""
        value = self.constants.get(node.input[at]) if at < len(node.input) and node.input[at] else None
        return None if value is None else value.reshape(-1).tolist()

    def scalar(self, array: np.ndarray, place: str) -> float:
        """Return a constant that must be one number."""
        if array.size != 1 or array.ndim > 1:
            raise BodyError(f"{place} must be one number, not of the shape {list(array.shape)}")
        return float(array.item())

    def channels(self, array: np.ndarray, place: str, count: int, dtype: type = np.float32) -> np.ndarray:
        """Return a number for each of ``count`` channels, of a constant that has as many along axis 1, or only one."""
        if array.dtype != dtype:
            raise BodyError(f"{place} must be {np.dtype(dtype)}, not {array.dtype}")
        if array.size == 1 and array.ndim < 2:
            return np.full(count, array.item(), dtype)
        if array.shape != (count, *[1] * (array.ndim - 1)):
            raise BodyError(
                f"{place} must have the shape [{count}, 1, ...] with a 1 for each dimension after the channels, "
                f"not {list(array.shape)}"
            )
        self.agree(array.ndim - 1, place)
        return array.reshape(-1)

    def agree(self, spatial: int, place: str) -> None:
        """Note the number of dimensions after the channels, and refuse a number that differs from an earlier one."""
        if self.spatial not in (None, spatial):
            raise BodyError(f"{place} must be for {self.spatial} dimensions after the channels, not for {spatial}")
        self.spatial = spatial


def read_with(reader: type[BodyReader], function: FunctionProto) -> LayerBody:
    """Read a function.

    Raises
    ------
    BodyError
        If its body differs.
    """
    try:
        return reader(function).read()
    except BodyError:
        raise
    except (ValueError, TypeError) as error:
        # The golden functions refuse impossible values, and ONNX refuses constants whose bytes do not fit their shapes.
        raise BodyError(str(error)) from error


#: Operators whose second operand must be the constant one.
_ORDERED = ("Sub", "GreaterOrEqual", "MatMul")

#: Default values of attributes.
_DEFAULTS: Mapping[tuple[str, str], object] = {("Pad", "mode"): b"constant", ("Cast", "saturate"): 1}


def shown(node: NodeProto) -> str:
    """Return a node as text for messages."""
    return f"{node.op_type} {node.name or node.output[0]!r}"


def _constant(node: NodeProto) -> np.ndarray | None:
    """Return the value of a Constant; None if it is no array of numbers."""
    if len(node.attribute) != 1 or node.attribute[0].ref_attr_name:
        return None
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.array(value, dtype[attribute.name]) if attribute.name in dtype else None


def whole(value: float, place: str) -> int:
    """Return a number that must be whole, as an integer."""
    if not float(value).is_integer():
        raise BodyError(f"{place} must be a whole number, not {value:g}")
    return int(value)


def code(value: float, place: str) -> int:
    """Return a number that must be an int8 code."""
    if not -128 <= whole(value, place) <= 127:
        raise BodyError(f"{place} must be between -128 and 127, not {value:g}")
    return int(value)


def whole_numbers(values: np.ndarray, place: str) -> np.ndarray:
    """Return numbers that must be whole as int64."""
    broken = values[~(np.isfinite(values) & (values == np.rint(values)))]
    if broken.size:
        raise BodyError(f"{place} must be whole numbers, not {broken[0]:g}")
    return values.astype(np.int64)
