"""The float model that is quantised: read and checked, and written as what is quantised well."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization.shape_inference import quant_pre_process

from ..frontend import ModelError
from ..frontend.reading.measure import fix_batch, measure
from ..frontend.reading.parse import check_file, check_inputs
from ..frontend.reading.source import Source
from ..model.arrays import check_feeds, describe_model
from ..model.model import Model
from ..model.model_graph import keep_inputs, model_inputs
from .normalisation import affine, fold_into_gemm
from .transposed import spell_transposed

#: The first operator set whose QuantizeLinear knows a scale for each channel.
_OPSET = 13


def check_samples(model: Model, samples: Mapping[str, np.ndarray], origin: str) -> None:
    """Check samples for a model.

    Raises
    ------
    ValueError
        If a name, a shape, a type or a value is wrong.
    """
    try:
        check_feeds(describe_model(model)[0], samples)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{origin}: {error}") from error
    for input_name, array in samples.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{origin}: input {input_name} must be finite in all samples, and is not")


def read_float_model(file: Model, name: str) -> onnx.ModelProto:
    """The model that an ONNX file holds, to be changed.

    Raises
    ------
    ModelError
        If it is none that ONNX Runtime runs, is quantised already, or has a dynamic dimension beside the batch.
    """
    check_file(file, name)
    model = file.copy()
    _check_float(model, name)
    keep_inputs(model, [value.name for value in model_inputs(model)])
    sample = Source(name, copy.deepcopy(model), file, qdq=False)
    check_inputs(sample)
    fix_batch(sample)
    measure(sample)
    return model


def _check_float(model: onnx.ModelProto, name: str) -> None:
    for node in model.graph.node:
        if node.op_type.startswith(("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize")):
            raise ModelError(
                f"{name}: must be a float model, and {node.op_type} '{node.name}' shows that it is quantised; "
                "use it as it is, or quantise the float model that it was made from"
            )


def prepare(model: onnx.ModelProto, name: str, folder: Path) -> onnx.ModelProto:
    """The model with constants computed, batch normalisation folded and shapes known."""
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if version < _OPSET:
        try:
            model = onnx.version_converter.convert_version(model, _OPSET)
        except (RuntimeError, onnx.version_converter.ConvertError) as error:
            raise ModelError(
                f"{name}: cannot be converted from operator set {version} to {_OPSET}, which scales for each channel "
                f"need: {str(error).splitlines()[0]}; export it with operator set {_OPSET} or later"
            ) from error
    # From a file: of a model in memory it takes the constants away.
    source, target = folder / "float.onnx", folder / "prepared.onnx"
    onnx.save(model, source)
    quant_pre_process(source, target, skip_symbolic_shape=True)
    model = onnx.load(target)
    fold_into_gemm(model)
    _name_averages(model)
    spell_transposed(model, _shapes(model))
    _spell_depthwise(model)
    drop_unread(model)
    return model


def _name_averages(model: onnx.ModelProto) -> None:
    """Spell the average of a whole map as GlobalAveragePool: only that is exact, and is quantised."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    shapes = _shapes(model)
    nodes = []
    for node in model.graph.node:
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        axes = constants.get(node.input[1], ()) if len(node.input) > 1 else attributes.get("axes", ())
        shape = shapes.get(node.input[0], [])
        rank = len(shape)
        if node.op_type == "AveragePool" and shape[2:] == attributes["kernel_shape"] and _counts_alike(attributes):
            nodes.append(onnx.helper.make_node("GlobalAveragePool", node.input, node.output, node.name))
            continue
        if node.op_type != "ReduceMean" or rank < 3 or sorted(axis % rank for axis in axes) != list(range(2, rank)):
            nodes.append(node)
            continue
        keeps = attributes.get("keepdims", 1)
        mean = node.output[0] if keeps else f"{node.output[0]}_map"
        nodes.append(onnx.helper.make_node("GlobalAveragePool", [node.input[0]], [mean], node.name))
        if not keeps:
            nodes.append(onnx.helper.make_node("Flatten", [mean], node.output, f"{node.name}_flatten"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _spell_depthwise(model: onnx.ModelProto) -> None:
    """Spell two operators as depthwise convolutions, which are exact where they are not: batch normalisation that has
    nothing to fold it into, as after a concatenation, and the average of windows in which every element counts."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    shapes = _shapes(model)
    for node in model.graph.node:
        shape = shapes.get(node.input[0], [])
        given = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        if len(shape) < 3 or not shape[1]:
            continue
        if node.op_type == "BatchNormalization" and all(name in constants for name in node.input[1:]):
            factor, offset = affine(node, constants)
            weights = factor.reshape(-1, 1, *[1] * (len(shape) - 2))
            attributes = {"kernel_shape": weights.shape[2:]}
        elif node.op_type == "AveragePool" and _counts_alike(given):
            kernel = given["kernel_shape"]
            weights, offset = np.full((shape[1], 1, *kernel), 1 / np.prod(kernel)), None
            attributes = {name: given[name] for name in given.keys() - {"count_include_pad", "ceil_mode"}}
        else:
            continue
        names = [node.input[0]]
        for kind, array in (("weights", weights), ("offset", offset)):
            if array is not None:
                names.append(f"{node.output[0]}_{kind}")
                model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), names[-1]))
        node.CopyFrom(onnx.helper.make_node("Conv", names, node.output[:1], node.name, group=shape[1], **attributes))


def drop_unread(model: onnx.ModelProto) -> None:
    """Drop constants that nothing reads any more: ONNX Runtime warns of each."""
    read = {*_read(model.graph), *(value.name for value in model.graph.output)}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _read(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the tensors that the nodes of a graph read, and those of the graphs within them."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _read(inner)


def _shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """The shapes of all tensors but the outputs; dimensions that are not fixed are 0."""
    return {
        value.name: [item.dim_value for item in value.type.tensor_type.shape.dim]
        for value in [*model.graph.input, *model.graph.value_info]
    }


def _counts_alike(given: Mapping[str, Any]) -> bool:
    """Whether every element of every window of an AveragePool counts alike."""
    bordered = any(given.get("pads") or ()) or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    return not given.get("ceil_mode", 0) and (not bordered or bool(given.get("count_include_pad", 0)))
