"""Pointwise operators that stay in float: on two activations that are functions of one, and limits that no code has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from ..frontend.fragments import EXTREMES, MULTIPLICATION, POINTWISE, SUBTRACTION, has_elements
from ..model.onnx_graph import OnnxGraph

#: What is quantised, unless it is a function of one tensor.
_TABLES = (*SUBTRACTION, *MULTIPLICATION, *EXTREMES)
#: What onnxruntime.quantization leaves out, and the steps between two codes of a range.
_LIMITING, _STEPS = ("Relu", "Clip"), 255


def pointwise_nodes(model: onnx.ModelProto) -> Iterator[str]:
    """Names of operators on two operands of which one is constant, or that both are functions of one tensor: a table.

    ``x * sigmoid(x)`` is one of them.
    """
    graph = OnnxGraph.of(model)
    for node in graph.nodes:
        if node.op_type not in ("Add", *_TABLES):
            continue
        is_table = node.op_type in _TABLES and len(_origins(graph, node)) == 1
        held = [graph.constants[name] for name in node.input if name in graph.constants]
        if is_table or any(not has_elements(values.shape) for values in held):
            yield node.name


def _origins(graph: OnnxGraph, node: NodeProto) -> set[str]:
    """The tensors that a pointwise node is a function of: those that no pointwise operator computes, or that two
    operands meet in."""
    found: set[str] = set()
    waiting = graph.computed(node)
    while waiting:
        name = waiting.pop()
        producer = graph.producer.get(name)
        inner = graph.computed(producer) if producer is not None else []
        if producer is None or producer.op_type not in POINTWISE or len(inner) > 1:
            found.add(name)
        else:
            waiting += inner
    return found


def limiting_nodes(model: onnx.ModelProto, given: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Names of Relu and Clip whose limits the codes of their output do not have.

    onnxruntime.quantization leaves both out: codes end where the range of the output ends, which is within the limits
    if it comes of samples. A range that is ``given`` may be wider, as one around 0 is, and every range holds 0, which
    need not be between the limits.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node, least, greatest in _limits(model, constants):
        override = given.get(node.output[0], [{}])[0]
        low, high = _ends(override)
        step = (high - low) / _STEPS
        # Of samples that reach one limit, a range around 0 ends there on the other side too.
        is_wider = "rmin" not in override and override.get("symmetric") and least != -greatest
        if is_wider or low < least - step or high > greatest + step:
            yield node.name


def lost_nodes(model: onnx.ModelProto, quantised: onnx.ModelProto) -> list[str]:
    """Names of Relu and Clip of a float model whose output is 0 for all samples.

    From such a range follows no scale: onnxruntime.quantization takes 1 and the zero point 0, and leaves the node out
    all the same, so that what it cuts off passes.
    """
    values = {tensor.name: tensor for tensor in quantised.graph.initializer}

    def is_unscaled(name: str) -> bool:
        held = [values[key] for part in ("scale", "zero_point") if (key := f"{name}_{part}") in values]
        return [float(numpy_helper.to_array(one).flat[0]) for one in held] == [1, 0]

    return [node.name for node in model.graph.node if node.op_type in _LIMITING and is_unscaled(node.output[0])]


def _limits(
    model: onnx.ModelProto, constants: Mapping[str, onnx.TensorProto]
) -> Iterator[tuple[NodeProto, float, float]]:
    """Every Relu, and every Clip between constants, with the limits."""
    for node in model.graph.node:
        ends = [*node.input[1:3], "", ""][:2]
        if node.op_type == "Relu":
            yield node, 0.0, np.inf
        elif node.op_type == "Clip" and all(name in constants or not name for name in ends):
            least, greatest = (
                float(numpy_helper.to_array(constants[name]).flat[0]) if name else other
                for name, other in zip(ends, (-np.inf, np.inf), strict=True)
            )
            yield node, least, greatest


def _ends(override: Mapping[str, Any]) -> tuple[float, float]:
    """The least and the greatest number that surely has a code, of a tensor of which so much is given."""
    if "scale" in override:
        scale, zero = float(override["scale"]), int(override["zero_point"])
        return (-128 - zero) * scale, (127 - zero) * scale
    low, high = min(float(override.get("rmin", 0)), 0.0), max(float(override.get("rmax", 0)), 0.0)
    if override.get("symmetric"):
        low, high = -max(-low, high), max(-low, high)
    return low, high
