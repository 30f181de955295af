"""Models in float16 or bfloat16: the same in float32, of which every value of theirs is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from ..frontend.parse import check_file
from ..model.model import Model

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Attributes that name the type of a result.
_TYPES = ("to", "dtype", "output_dtype", "stash_type", "softmax_precision")


def in_float32(
    model: Model, name: str, samples: Mapping[str, np.ndarray], *others: Mapping[str, np.ndarray] | None
) -> tuple[Model, bool, list[dict[str, np.ndarray]]]:
    """A model and its samples with float32 wherever they have float16 or bfloat16.

    Parameters
    ----------
    model : Model
    name : str
        What messages call it.
    samples, others : mapping of str to array, or None

    Returns
    -------
    model : Model
        The given one where it has neither.
    is_changed : bool
    samples : list of dict of str to array
        Those that were given.

    Raises
    ------
    ModelError
        If the file is no ONNX model.
    """
    check_file(model, name)
    given = [dict(each) for each in (samples, *others) if each is not None]
    proto = model.copy()
    if not _widen(proto):
        return model, False, given
    return Model.written(proto), True, [{name: _widened(array) for name, array in each.items()} for each in given]


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _widen(model: onnx.ModelProto) -> int:
    """Make what has one of the two types float32, and count it; so do the functions below."""
    nodes = [node for function in model.functions for node in function.node]
    return _widen_graph(model.graph) + sum(map(_widen_node, nodes))


def _widen_graph(graph: GraphProto) -> int:
    values = (*graph.input, *graph.output, *graph.value_info)
    return sum(map(_widen_value, values)) + _widen_tensors(graph.initializer) + sum(map(_widen_node, graph.node))


def _widen_value(value: ValueInfoProto) -> int:
    kind = value.type.tensor_type
    if kind.elem_type not in _HALVES:
        return 0
    kind.elem_type = TensorProto.FLOAT
    return 1


def _widen_tensors(tensors: Iterable[TensorProto]) -> int:
    found = [tensor for tensor in tensors if tensor.data_type in _HALVES]
    for tensor in found:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    return len(found)


def _widen_node(node: NodeProto) -> int:
    return sum(map(_widen_attribute, node.attribute))


def _widen_attribute(attribute: AttributeProto) -> int:
    if attribute.type == AttributeProto.INT and attribute.name in _TYPES and attribute.i in _HALVES:
        attribute.i = TensorProto.FLOAT
        return 1
    if attribute.type == AttributeProto.TENSOR:
        return _widen_tensors([attribute.t])
    if attribute.type == AttributeProto.GRAPH:
        return _widen_graph(attribute.g)
    return _widen_tensors(attribute.tensors) + sum(map(_widen_graph, attribute.graphs))
