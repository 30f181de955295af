"""The float model that is quantised: read and checked, and written as what is quantised well."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from onnxruntime.quantization.shape_inference import quant_pre_process

from ..frontend import ModelError
from ..frontend.parse import check_file, check_inputs, fix_batch, measure
from ..frontend.source import Source
from ..model.arrays import check_feeds, describe_model
from ..model.as_read import reads
from ..model.model import Model
from ..model.model_graph import keep_inputs, model_inputs
from .names import rename_shapes
from .normalised_rows import normalised_rows
from .rewriting import WRITTEN_OUT, Rewritten, rewrite
from .rewriting.norms.group_norm import as_instances

#: The first operator set whose QuantizeLinear knows a scale for each channel.
_OPSET = 13
#: The first whose Resize has a choice of coordinates.
_COORDINATES = 11


def check_samples(model: Model, samples: Mapping[str, np.ndarray], origin: str) -> dict[str, np.ndarray]:
    """Check samples for a model; gives them with the first axis counting them.

    Raises
    ------
    ValueError
        If a name, a shape, a type or a value is wrong.
    """
    inputs = describe_model(model)[0]
    try:
        check_feeds(inputs, samples)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{origin}: {error}") from error
    for input_name, array in samples.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{origin}: input {input_name} must be finite in all samples, and is not")
    return {info.name: info.with_samples(samples[info.name]) for info in inputs}


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
    fix_batch(sample.model)
    measure(sample)
    return model


def _check_float(model: onnx.ModelProto, name: str) -> None:
    for node in model.graph.node:
        if node.op_type.startswith(("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize")):
            raise ModelError(
                f"{name}: must be a float model, and {node.op_type} '{node.name}' shows that it is quantised; "
                "use it as it is, or quantise the float model that it was made from"
            )


def prepare(
    model: onnx.ModelProto, name: str, folder: Path, samples: Mapping[str, np.ndarray] | None = None
) -> tuple[onnx.ModelProto, list[Rewritten]]:
    """The model with constants computed, batch normalisation folded and shapes known, rewritten, and what was.

    Normalisations whose sizes vary much in the samples are spelled otherwise.
    """
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if version < _OPSET:
        try:
            model = onnx.version_converter.convert_version(model, _OPSET)
        except (RuntimeError, onnx.version_converter.ConvertError) as error:
            raise ModelError(
                f"{name}: cannot be converted from operator set {version} to {_OPSET}, which scales for each channel "
                f"need: {str(error).splitlines()[0]}; export it with operator set {_OPSET} or later"
            ) from error
        if version < _COORDINATES:
            _keep_coordinates(model)
    # Shapes are known then, and with them what ONNX Runtime fuses and what is a constant, such as initial states.
    fix_batch(model)
    as_instances(model)
    # From a file: of a model in memory it takes the constants away.
    source, target = folder / "float.onnx", folder / "prepared.onnx"
    onnx.save(model, source)
    quant_pre_process(source, target, skip_symbolic_shape=True)
    model = onnx.load(target)
    rename_shapes(model)
    found = rewrite(model, {}, WRITTEN_OUT)
    found += rewrite(model, normalised_rows(model, samples) if samples else {})
    drop_unread(model)
    return model, found


def _keep_coordinates(model: onnx.ModelProto) -> None:
    """Let every Resize mean what it meant before there was a choice, which onnx' conversion forgets."""
    for node in model.graph.node:
        if node.op_type == "Resize":
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", "floor"))


def drop_unread(model: onnx.ModelProto) -> None:
    """Drop constants that nothing reads any more: ONNX Runtime warns of each."""
    read = {name for node in model.graph.node for name in reads(node)} | {value.name for value in model.graph.output}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
