"""Layers as ONNX functions: building their bodies, and adding and calling them in a model."""

from __future__ import annotations

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ..onnx_graph import import_operators, operator_set

DOMAIN = "lutterfly"
#: Name and version of the functions' domain.
VERSION = 1
#: The first operator set with all operators of the bodies, and the default. ONNX Runtime wants that of the model.
LEAST_OPSET = 13


class Body:
    """The nodes of a function with the input ``codes`` and the output ``result``, one after the other."""

    def __init__(self, spatial: int):
        self.nodes: list[NodeProto] = []
        self.spatial = spatial

    def add(self, operator: str, name: str, *inputs: str, **attributes: object) -> str:
        """Add a node, named after its result, which is returned."""
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def constant(self, name: str, value: object, dtype: type = np.float32) -> str:
        """Add a constant."""
        self.nodes.append(
            helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(np.array(value, dtype), name))
        )
        return name

    def channels(self, name: str, values: np.ndarray, dtype: type = np.float32) -> str:
        """Add a constant with a value for each channel of axis 1."""
        return self.constant(name, values.reshape(-1, *[1] * self.spatial), dtype)

    def requantise(self, sums: str, scale: np.ndarray, zero_point: int, low: int, high: int) -> None:
        """Add nodes that requantise whole numbers in float32, with their bias added, to codes."""
        scaled = self.add("Mul", "scaled", sums, self.channels("scale", scale))
        rounded = self.add("Round", "rounded", scaled)
        shifted = self.add("Add", "shifted", rounded, self.constant("result_zero_point", zero_point))
        limits = (self.constant(name, value) for name, value in (("low", low), ("high", high)))
        self.add("Cast", "result", self.add("Clip", "clipped", shifted, *limits), to=TensorProto.INT8)

    def function(self, name: str, opset: int) -> FunctionProto:
        """Return the function of these nodes.

        Raises
        ------
        ValueError
            If the operator set is older than the operators.
        """
        if opset < LEAST_OPSET:
            raise ValueError(f"opset must be at least {LEAST_OPSET}, not {opset}")
        return helper.make_function(DOMAIN, name, ["codes"], ["result"], self.nodes, [helper.make_opsetid("", opset)])


def make_call(function: FunctionProto, codes: str, result: str, name: str) -> NodeProto:
    """Create a node, called ``name``, that calls a function."""
    return helper.make_node(function.name, [codes], [result], name, domain=function.domain)


def add_function(model: ModelProto, function: FunctionProto) -> None:
    """Add a function to a model.

    Raises
    ------
    ValueError
        If the model has another function of its name, or another operator set.
    """
    wanted, found = operator_set(function), operator_set(model)
    if found != wanted:
        raise ValueError(f"opset must be the model's, {found}, not {wanted}")
    if any((other.domain, other.name) == (function.domain, function.name) for other in model.functions):
        raise ValueError(f"name must be one that no other function of the model has, not {function.name!r}")
    model.functions.append(function)
    import_operators(model, function.domain, VERSION)
