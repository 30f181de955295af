"""Layers that are written as ONNX functions, for tests: called otherwise, written otherwise, or altered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.functions.body import BodyError


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


def codes(*shape: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random codes for the input ``x``."""
    return {"x": np.random.default_rng(seed).integers(-128, 128, (1, *shape)).astype(np.int8)}


def call_from_another(network: Any) -> None:
    """Move the last node of a network, a call, into a function ``Block`` of the domain ``com.example``, as exporters
    write modules of modules."""
    call = network.nodes.pop()
    opsets = [helper.make_opsetid("", network.opset), helper.make_opsetid(call.domain, 1)]
    body = [helper.make_node(call.op_type, ["a"], ["b"], "mix", domain=call.domain)]
    network.functions.append(helper.make_function("com.example", "Block", ["a"], ["b"], body, opsets))


def rename(model: onnx.ModelProto, domain: str) -> None:
    """Give the one function of a model another name, and its domain another one if ``domain`` says any."""
    (function,), (caller,) = model.functions, model.graph.node
    function.name = caller.op_type = "mixing"
    if domain:
        function.domain = caller.domain = domain
        model.opset_import.add(domain=domain, version=3)


def assert_refused(
    model: onnx.ModelProto, read_body: Callable[[onnx.FunctionProto], object], message: str, *, called: str, page: str
) -> None:
    """The one function is refused with what differs, and the model with the function's name and the remedy.

    ``called``: the function's name, its node's and what its body must be, as the message has them.
    """
    with pytest.raises(BodyError, match=re.escape(message)):
        read_body(model.functions[0])
    place = re.escape(f"net.onnx: function lutterfly.{called}, and has another: ")
    remedy = re.escape(f"; write it as {page} says, or call it otherwise to have its operators taken one by one")
    with pytest.raises(ModelError, match=f"^{place}.*{remedy}$"):
        import_model(model.SerializeToString(), "net.onnx")
