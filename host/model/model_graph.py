"""Queries on the graph of an ONNX model: inputs, tensors, and its quantised form."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx

_QDQ_KEY, _QDQ = "lutterfly.qdq", "1"


#: The first IR version in which an initializer need not be an input.
FREE_INITIALIZERS = 4


INTEGER_PRODUCTS = ("QLinearConv", "QGemm", "QLinearMatMul")


_PRODUCTS = ("Conv", "Gemm", "MatMul", "QGemm")


#: The producer of models that `lutterfly quantize` made.
QUANTISER = "lutterfly quantize"


def model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller must give; exporters of IR version 3 list every initializer among them."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initializers]


def keep_inputs(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Take all other inputs out of a model's list: they are initializers, and constants from then on."""
    kept = [value for value in model.graph.input if value.name in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, FREE_INITIALIZERS)


def is_qdq(model: onnx.ModelProto) -> bool:
    """Whether a model has the QDQ form: convolutions and matrix products work on dequantised weights, or, where it has
    none, no operator works on codes with scales of its own.

    A part that was cut out of a model says itself which form that has, see :func:`mark_form`.
    """
    for entry in model.metadata_props:
        if entry.key == _QDQ_KEY:
            return entry.value == _QDQ
    operators = {node.op_type for node in model.graph.node}
    if not any(operator in _PRODUCTS or operator.startswith("QLinear") for operator in operators):
        return "DequantizeLinear" in operators
    dequantised = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return any(node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in dequantised for node in model.graph.node)


def mark_form(part: onnx.ModelProto, *, qdq: bool) -> None:
    """Note in a part of a model which form the model has: ONNX Runtime must treat it as it treats the model."""
    part.metadata_props.add(key=_QDQ_KEY, value=_QDQ if qdq else "")


def has_unsigned(model: onnx.ModelProto) -> bool:
    """Whether some activations are uint8: their zero points are, since weights are int8."""
    written = [attribute.t for node in model.graph.node if node.op_type == "Constant" for attribute in node.attribute]
    return any(tensor.data_type == onnx.TensorProto.UINT8 for tensor in [*model.graph.initializer, *written])


def expose(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """A copy of the model with ``names`` as further outputs; ONNX Runtime infers their types."""
    exposed = copy.deepcopy(model)
    present = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in present)
    return exposed


def computed_tensors(model: onnx.ModelProto) -> list[str]:
    """Names of everything that the nodes of the model compute, in order."""
    return [name for node in model.graph.node for name in node.output if name]


def free_name(name: str, taken: set[str]) -> str:
    """The name, or one made of it that is not taken; it is then."""
    chosen = name
    number = 0
    while chosen in taken:
        number += 1
        chosen = f"{name}_{number}"
    taken.add(chosen)
    return chosen


def tensor_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the tensors of a graph, not of those within it; some several times."""
    for values in (graph.input, graph.initializer, graph.output, graph.value_info):
        yield from (value.name for value in values if value.name)
    yield from (value.values.name for value in graph.sparse_initializer)
    for node in graph.node:
        yield from (name for name in (*node.input, *node.output) if name)


def rename_tensors(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors in a graph and in those within it, which read them too."""
    for values in (graph.input, graph.initializer, graph.output, graph.value_info):
        for value in values:
            value.name = names.get(value.name, value.name)
    for value in graph.sparse_initializer:
        value.values.name = names.get(value.values.name, value.values.name)
    del graph.quantization_annotation[:]
    for node in graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
        for inner in _graphs(node):
            rename_tensors(inner, names)


def _graphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
