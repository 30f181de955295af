"""Cut parts out of the model as models of their own: regions to tabulate, head and tail that run on the host."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import onnx
from onnx import NodeProto, helper

from ...model.as_read import reads
from ...model.model_graph import mark_form
from .source import Source

Dimensions = Sequence[int | str]


def cut(
    source: Source, nodes: Sequence[NodeProto], inputs: Mapping[str, Dimensions], outputs: Sequence[str]
) -> onnx.ModelProto:
    """Make a model of some nodes and of the constants that they need.

    Parameters
    ----------
    source : Source
    nodes : sequence of NodeProto
        In order of execution.
    inputs : mapping of str to dimensions
        What the model reads.
    outputs : sequence of str
        What it computes.
    """
    computed = set(inputs) | {name for node in nodes for name in node.output}
    constant_nodes = _constant_nodes(source, {*outputs, *(name for node in nodes for name in reads(node))} - computed)
    all_nodes = [*constant_nodes, *(_without(node, inputs) for node in nodes)]
    read = {name for node in all_nodes for name in reads(node)} | set(outputs)
    called = {(node.domain, node.op_type) for node in all_nodes}
    graph = helper.make_graph(
        all_nodes,
        "part",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(source.types[name]), list(shape))
            for name, shape in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [tensor for tensor in source.model.graph.initializer if tensor.name in read - inputs.keys()],
    )
    model = helper.make_model(
        graph,
        opset_imports=source.model.opset_import,
        functions=[function for function in source.model.functions if (function.domain, function.name) in called],
        ir_version=source.model.ir_version,
    )
    mark_form(model, qdq=source.qdq)
    return model


def cut_between(source: Source, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """Cut out everything between ``inputs`` and ``outputs``; the model's own inputs are added where they are needed."""
    needed, nodes = set(outputs) - set(inputs), []
    for node in reversed(source.nodes):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(source.dynamic_inputs(node)) - set(inputs)
    read = {name for node in nodes for name in source.dynamic_inputs(node)} | set(outputs)
    ends = [name for name in [*source.inputs, *inputs] if name in read]
    return cut(source, nodes[::-1], {name: source.shapes[name] for name in dict.fromkeys(ends)}, outputs)


def _without(node: NodeProto, given: Container[str]) -> NodeProto:
    """A node of which some outputs are given already, under other names: others of it are needed."""
    if not any(name in given for name in node.output):
        return node
    other = NodeProto()
    other.CopyFrom(node)
    other.output[:] = [f"{name} once more" if name in given else name for name in node.output]
    return other


def _constant_nodes(source: Source, needed: set[str]) -> list[NodeProto]:
    nodes = []
    for node in reversed(source.model.graph.node):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(reads(node))
    return nodes[::-1]
