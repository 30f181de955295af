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


#: The producer name in models of `lutterfly quantize`.
QUANTISER = "lutterfly quantize"


def model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller must give; exporters of IR version 3 list every initializer among the inputs."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initializers]


def keep_inputs(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Remove all other inputs from a model's list; they are initializers, and become constants."""
    kept = [value for value in model.graph.input if value.name in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, FREE_INITIALIZERS)


def is_qdq(model: onnx.ModelProto) -> bool:
    """Return whether a model has the QDQ form: convolutions and matrix products read dequantised weights, or, if there
    are none, no operator has codes and scales as operands.

    A part that was cut out of a model carries a mark with the model's form, see :func:`mark_form`.
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
    """Mark a part of a model with the model's form, as ONNX Runtime must treat both equally."""
    part.metadata_props.add(key=_QDQ_KEY, value=_QDQ if qdq else "")


def has_unsigned(model: onnx.ModelProto) -> bool:
    """Return whether some activations are uint8; as weights are int8, any uint8 constant is the zero point of one."""
    written = [attribute.t for node in model.graph.node if node.op_type == "Constant" for attribute in node.attribute]
    return any(tensor.data_type == onnx.TensorProto.UINT8 for tensor in [*model.graph.initializer, *written])


def expose(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Return a copy of the model with ``names`` as further outputs, whose types ONNX Runtime infers."""
    exposed = copy.deepcopy(model)
    present = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in present)
    return exposed


def computed_tensors(model: onnx.ModelProto) -> list[str]:
    """Return the names of all tensors that nodes of the model compute, in order."""
    return [name for node in model.graph.node for name in node.output if name]


def free_name(name: str, taken: set[str]) -> str:
    """Return the name, or one derived from it that is not taken, and add it to ``taken``."""
    chosen = name
    number = 0
    while chosen in taken:
        number += 1
        chosen = f"{name}_{number}"
    taken.add(chosen)
    return chosen


def tensor_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of a graph's tensors, without those of inner graphs; some come several times."""
    for values in (graph.input, graph.initializer, graph.output, graph.value_info):
        yield from (value.name for value in values if value.name)
    yield from (value.values.name for value in graph.sparse_initializer)
    for node in graph.node:
        yield from (name for name in (*node.input, *node.output) if name)


def rename_tensors(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors in a graph and in its inner graphs, which read them too."""
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
