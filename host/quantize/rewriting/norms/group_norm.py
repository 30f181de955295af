"""Instance and group normalisation as averages of a map, differences and products by channel, and tables."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from ..float_graph import FloatGraph, Rewriting, depthwise, given, spelled
from .passes import Step, normalising


class _Groups(NamedTuple):
    """What is normalised, a map in groups of channels, and what each channel is multiplied by and gets added.

    ``rows`` are values of the groups in the samples, where they are known.
    """

    source: str
    target: str
    groups: int
    factor: np.ndarray
    offset: np.ndarray
    rows: np.ndarray | None


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    # A GroupNormalization is an InstanceNormalization by now, unless nobody knows how many axes it has.
    found = _found(graph, node) if node.op_type == "InstanceNormalization" else None
    if found is None:
        return None
    channels, *sizes = graph.spatial(found.source)
    target, ones = found.target, [1] * len(sizes)
    groups = np.repeat(np.eye(found.groups), channels // found.groups, axis=0)
    weights = (groups @ groups.T * (found.groups / channels)).reshape(channels, channels, *ones)
    held, is_together = graph.constant(f"{target}_groups", weights), found.groups < channels

    def averaged(operand: str, result: str) -> list[Step]:
        joined = [("Conv", [result, held], f"group_{result}")] if is_together else []
        return [("GlobalAveragePool", [operand], result), *joined]

    def centred(operand: str, result: str) -> list[Step]:
        mean = averaged(operand, "mean")
        return [*mean, ("Sub", [operand, mean[-1][2]], result)]

    epsilon = given(node).get("epsilon", 1e-5)
    steps = normalising(graph, target, found.source, epsilon, found.rows, centred=centred, averaged=averaged)
    if (found.factor == 1).all() and not found.offset.any():
        return spelled(node, target, steps)
    made = spelled(node, f"{target}_normalised", steps)
    weights = found.factor.reshape(channels, *ones)
    operator, operands, attributes = depthwise(graph, target, weights, found.offset, group=channels)
    return [*made, helper.make_node(operator, [made[-1].output[0], *operands], [target], node.name, **attributes)]


def _found(graph: FloatGraph, node: NodeProto) -> _Groups | None:
    if not graph.are_constant(node.input[1:]):
        return None
    factor, offset = (graph.constants[name].astype(np.float64) for name in node.input[1:3])
    source, target, groups = node.input[0], node.output[0], len(factor)
    # Exporters write groups of channels as one channel each.
    around = graph.maker(source), graph.reader(target)
    if all(other is not None and other.op_type == "Reshape" for other in around):
        outer = around[0].input[0], around[1].output[0]
        if graph.spatial(outer[0]) and graph.shapes[outer[0]] == graph.shapes.get(outer[1]):
            source, target = outer
            for reshape in around:
                graph.drop(reshape)
    channels, *_ = graph.spatial(source) or [0]
    if not channels:
        return None
    factor, offset = (np.repeat(values, channels // groups) for values in (factor, offset))
    rows = graph.rows.get((node.input[0], tuple(range(2, len(graph.shapes[node.input[0]])))))
    return _Groups(source, target, groups, factor, offset, rows)


def as_instances(model: onnx.ModelProto) -> None:
    """Write every GroupNormalization as exporters do that lack it; ONNX Runtime would write it out in full.

    As channels of a map with as many channels as groups: Reshape, InstanceNormalization, Reshape, Mul, Add. Before
    operator set 21 each group, not each channel, has a factor and an offset.
    """
    found = True
    # What is behind one has a shape once that is written so.
    while found and any(node.op_type == "GroupNormalization" for node in model.graph.node):
        inferred = onnx.shape_inference.infer_shapes(model).graph
        ranks = {
            value.name: len(value.type.tensor_type.shape.dim)
            for value in (*inferred.input, *inferred.value_info, *inferred.output)
        }
        nodes: list[NodeProto] = []
        for node in model.graph.node:
            rank = ranks.get(node.input[0], 0) if node.op_type == "GroupNormalization" else 0
            nodes += _as_instances(model, node, rank) if rank > 2 else [copy.deepcopy(node)]
        found = len(nodes) > len(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend(nodes)


def _as_instances(model: onnx.ModelProto, node: NodeProto, rank: int) -> list[NodeProto]:
    attributes, name = given(node), node.output[0]
    groups = int(attributes["num_groups"])
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    arrays = {
        "split": np.array([0, groups, -1], np.int64),
        "ones": np.ones(groups, np.float32),
        "zeros": np.zeros(groups, np.float32),
        "along": np.array([-1, *[1] * (rank - 2)], np.int64),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, f"{name}_{key}") for key, array in arrays.items())
    source, factor, offset = node.input
    has_own = version >= 21
    inner = ["apart", *([f"{name}_ones", f"{name}_zeros"] if has_own else [factor, offset])]
    steps = [
        ("Reshape", [source, f"{name}_split"], "apart"),
        ("InstanceNormalization", inner, "apart_normalised"),
        ("Shape", [source], "shape"),
        ("Reshape", ["apart_normalised", "shape"], "normalised"),
    ]
    if has_own:
        steps += [
            ("Reshape", [factor, f"{name}_along"], "factors"),
            ("Mul", ["normalised", "factors"], "scaled"),
            ("Reshape", [offset, f"{name}_along"], "offsets"),
            ("Add", ["scaled", "offsets"], "whole"),
        ]
    made = spelled(node, name, steps)
    made[1].attribute.append(helper.make_attribute("epsilon", attributes.get("epsilon", 1e-5)))
    made[1].name = node.name
    return made


GROUP_NORMALISATION = Rewriting(
    "instance or group normalisation as averages, products and tables",
    "Means, differences, variances and factors have a scale each; in two passes where sizes differ much.",
    _spell,
    ("GroupNormalization", "InstanceNormalization"),
)
