"""Average pooling to any number of rows and columns, which PyTorch exports as hundreds of nodes that gather and add."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from ...model.runtime import RUNTIME_ERRORS, plain_session
from .float_graph import FloatGraph, Rewriting, chained
from .probing import Run, matrices_of
from .resampling import resampled

#: What moves elements, adds them and scales them: together a linear function.
_GATHERING = ("Gather", "GatherND")
_LINEAR = (*_GATHERING, "Add", "Div", "Mul", "ReduceMean", "Squeeze", "Transpose", "Unsqueeze", "Where")


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    source = node.input[0]
    if not graph.spatial(source):
        return None
    region = _region(graph, node)
    end = region[-1].output[0]
    channels, *sizes = graph.spatial(source)
    target = graph.spatial(end)
    inner = {name for one in region[:-1] for name in one.output}
    is_read = any(inner & set(one.input) for one in graph.nodes if one not in region)
    is_read = is_read or any(map(graph.is_output, inner))
    gathers = any(one.op_type in _GATHERING for one in region)
    if len(region) < 3 or not gathers or len(target) != 3 or len(sizes) != 2 or target[0] != channels or is_read:
        return None
    run = _runner(graph, region, source, end, channels)
    matrices = None if run is None else matrices_of(run, sizes, target[1:])
    if matrices is None or not all(matrix.any(axis=1).all() for matrix in matrices):
        return None
    for other in region[1:]:
        graph.drop(other)
    made = chained(node, resampled(graph, end, source, matrices))
    made[-1].output[0] = end
    return made


def _region(graph: FloatGraph, first: NodeProto) -> list[NodeProto]:
    """All linear operators that depend on a node alone, up to the last."""
    known, found = set(first.output), [first]
    for node in graph.nodes:
        dynamic = [name for name in node.input if name and name not in graph.constants]
        if node is not first and dynamic and node.op_type in _LINEAR and known.issuperset(dynamic):
            known |= set(node.output)
            found.append(node)
    return found


def _runner(graph: FloatGraph, region: Sequence[NodeProto], source: str, end: str, channels: int) -> Run | None:
    """The region on any number of channels: some at a time."""
    names = {name for node in region for name in node.input if name in graph.constants}
    held = [numpy_helper.from_array(graph.constants[name], name) for name in names]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in ((source, (1, *graph.spatial(source))), (end, (1, *graph.spatial(end))))
    ]
    model = helper.make_model(
        helper.make_graph(list(region), "probe", ends[:1], ends[1:], held),
        opset_imports=graph.opsets,
        ir_version=graph.ir_version,
    )
    try:
        session = plain_session(model)
    except RUNTIME_ERRORS:
        return None

    def run(values: np.ndarray) -> np.ndarray:
        count = values.shape[1]
        padded = np.zeros((1, -(-count // channels) * channels, *values.shape[2:]), np.float32)
        padded[:, :count] = values
        parts = [
            session.run([end], {source: np.ascontiguousarray(padded[:, at : at + channels])})[0]
            for at in range(0, padded.shape[1], channels)
        ]
        return np.concatenate(parts, axis=1)[:, :count]

    return run


GATHERED = Rewriting(
    "gathered and added elements as convolution with fixed weights",
    "Its weights are one code for the elements of a window, and its result has a scale of its own.",
    _spell,
    ("Transpose", *_GATHERING),
)
