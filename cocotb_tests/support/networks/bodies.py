"""Bodies of ONNX functions, written otherwise or altered, for tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper


def shuffle(function: onnx.FunctionProto, seed: int) -> None:
    """Other names, another order of the nodes and of what they add and multiply."""
    rng = np.random.default_rng(seed)
    names = {name: f"t{rng.integers(1 << 60)}" for node in function.node for name in node.output}
    names[function.input[0]] = "input"
    for node in function.node:
        node.name = ""
        operands = [names[name] for name in node.input]
        if node.op_type in ("Add", "Mul") and rng.integers(2):
            operands.reverse()
        node.input[:], node.output[:] = operands, [names[name] for name in node.output]
    function.input[:], function.output[:] = ["input"], [names[function.output[0]]]
    constants = [node for node in function.node if node.op_type == "Constant"]
    rest = [node for node in function.node if node.op_type != "Constant"]
    nodes = [constants[at] for at in rng.permutation(len(constants))] + rest
    del function.node[:]
    function.node.extend(nodes)


Change = Callable[[onnx.FunctionProto], None]


def node(function: onnx.FunctionProto, name: str) -> onnx.NodeProto:
    return next(node for node in function.node if node.name == name)


def value(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Another value of a constant."""

    def apply(function: onnx.FunctionProto) -> None:
        tensor = node(function, name).attribute[0].t
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(change(numpy_helper.to_array(tensor).copy())), name))

    return apply


def operator(name: str, other: str) -> Change:
    def apply(function: onnx.FunctionProto) -> None:
        node(function, name).op_type = other

    return apply


def reads(name: str, at: int, other: str) -> Change:
    def apply(function: onnx.FunctionProto) -> None:
        node(function, name).input[at] = other

    return apply


def attribute(name: str, **values: object) -> Change:
    def apply(function: onnx.FunctionProto) -> None:
        changed = node(function, name)
        del changed.attribute[:]
        changed.attribute.extend(helper.make_attribute(key, value) for key, value in values.items())

    return apply


def extra(name: str) -> Change:
    """A node that nothing reads."""

    def apply(function: onnx.FunctionProto) -> None:
        function.node.append(helper.make_node("Relu", [name], ["more"], "more"))

    return apply


def at(index: int, new: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array.reshape(-1)[index] = new
        return array

    return change
