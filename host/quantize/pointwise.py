"""Pointwise operators that stay in float: those on two functions of one activation, and limits beyond all codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from ..frontend.fragments import EXTREMES, MULTIPLICATION, POINTWISE, SUBTRACTION, has_elements
from ..model.onnx_graph import OnnxGraph

#: Operators that are quantised, unless they are a function of one tensor.
_TABLES = (*SUBTRACTION, *MULTIPLICATION, *EXTREMES)
#: Operators that onnxruntime.quantization leaves out, and the number of steps of a range.
_LIMITING, _STEPS = ("Relu", "Clip"), 255


def pointwise_nodes(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the names of operators with a constant operand, or with two functions of one tensor, which become tables.

    An example is ``x * sigmoid(x)``.
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
    """Return the tensors that a pointwise node is a function of: those that no pointwise operator computes, or in which
    two operands meet."""
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
    """Yield the names of Relu and Clip that must remain, as codes of their output reach beyond their limits.

    onnxruntime.quantization leaves both out, as codes end at the range of the output, which is within the limits if it
    comes from samples. A range that is ``given`` may be wider, as one around 0 is, and every range includes 0, which
    need not be between the limits.
    """
    for node, least, greatest in _limits(OnnxGraph.of(model)):
        override = given.get(node.output[0], [{}])[0]
        low, high = _ends(override)
        step = (high - low) / _STEPS
        # If samples reach one limit, a range around 0 extends as far on the other side.
        is_wider = "rmin" not in override and override.get("symmetric") and least != -greatest
        if is_wider or low < least - step or high > greatest + step:
            yield node.name


def lost_nodes(model: onnx.ModelProto, quantised: onnx.ModelProto) -> list[str]:
    """Return the names of Relu and Clip of a float model whose output is 0 for all samples.

    No scale follows from such a range: onnxruntime.quantization uses 1 and the zero point 0, and still leaves the node
    out, so that values beyond its limits would pass.
    """
    values = {tensor.name: tensor for tensor in quantised.graph.initializer}

    def is_unscaled(name: str) -> bool:
        held = [values[key] for part in ("scale", "zero_point") if (key := f"{name}_{part}") in values]
        return [float(numpy_helper.to_array(one).flat[0]) for one in held] == [1, 0]

    return [node.name for node in model.graph.node if node.op_type in _LIMITING and is_unscaled(node.output[0])]


def _limits(graph: OnnxGraph) -> Iterator[tuple[NodeProto, float, float]]:
    """Yield every Relu, and every Clip between constants, with the limits."""
    for node in graph.nodes:
        ends = [*node.input[1:3], "", ""][:2]
        if node.op_type == "Relu":
            yield node, 0.0, np.inf
        elif node.op_type == "Clip" and all(name in graph.constants or not name for name in ends):
            least, greatest = (
                float(graph.constants[name].flat[0]) if name else other
                for name, other in zip(ends, (-np.inf, np.inf), strict=True)
            )
            yield node, least, greatest


def _ends(override: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the greatest number that certainly has a code, from a tensor's given quantisation."""
    if "scale" in override:
        scale, zero = float(override["scale"]), int(override["zero_point"])
        return (-128 - zero) * scale, (127 - zero) * scale
    low, high = min(float(override.get("rmin", 0)), 0.0), max(float(override.get("rmax", 0)), 0.0)
    if override.get("symmetric"):
        low, high = -max(-low, high), max(-low, high)
    return low, high
