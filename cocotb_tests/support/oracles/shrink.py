"""Makes a network on which something fails smaller: the shortest beginning of it that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper

from lutterfly.host.model import model_graph, reference
from lutterfly.host.model.arrays import describe_model
from lutterfly.host.model.model import Model


def shrink(model: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The first of the networks that end at an inner tensor of codes that fails, in the order of the file; else all."""
    return next((part for part in beginnings(model) if fails(part)), model)


def beginnings(model: bytes) -> Iterator[bytes]:
    """For each tensor of codes that is computed: the network that ends there."""
    rng = np.random.default_rng(0)
    feeds = {}
    for info in describe_model(Model(model))[0]:
        whole = rng.integers(0, 128, (1, *info.sample_shape))
        feeds[info.name] = whole.astype(info.dtype)
    loaded = onnx.load_from_string(model)
    codes = {
        name: value for name, value in reference.run(Model(model), feeds).items() if value.dtype in (np.int8, np.uint8)
    }
    for name in model_graph.computed_tensors(loaded):
        if name in codes:
            yield _until(loaded, name, codes[name]).SerializeToString()


def _until(model: onnx.ModelProto, name: str, value: np.ndarray) -> onnx.ModelProto:
    """The part of a model that computes one tensor."""
    needed, nodes = {name}, []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            nodes.append(node)
    inputs = [entry for entry in model.graph.input if entry.name in needed]
    constants = [entry for entry in model.graph.initializer if entry.name in needed]
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    batch = inputs[0].type.tensor_type.shape.dim[0]
    output = helper.make_tensor_value_info(name, kind, [batch.dim_param or batch.dim_value, *value.shape[1:]])
    graph = helper.make_graph(nodes[::-1], model.graph.name, inputs, [output], constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
