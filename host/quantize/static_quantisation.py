"""From a float model to the quantised one that the accelerator runs best, through onnxruntime.quantization."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from ..files.progress import Progress, silent
from ..frontend import ModelError
from ..frontend.reading.measure import fix_batch, measure
from ..frontend.reading.parse import check_inputs, read_model
from ..frontend.reading.source import Source
from ..model.arrays import check_feeds, describe_model, sample_count
from ..model.executed import open_session
from ..model.model_graph import keep_inputs, model_inputs
from .normalisation import affine, fold_into_gemm

#: Operators that are quantised. All others stay in float: a chain of pointwise ones between two quantised tensors
#: becomes one table, in which nothing is rounded on the way; a Softmax at the end runs on the host.
OPERATORS = (
    *("Conv", "Gemm", "MatMul", "Add", "Relu", "Clip"),
    *("MaxPool", "GlobalAveragePool", "AveragePool"),
    *("Concat", "Split", "Pad", "Reshape", "Squeeze", "Unsqueeze", "Transpose"),
)
#: The first operator set whose QuantizeLinear knows a scale for each channel.
_OPSET = 13


def quantize(
    data: bytes,
    samples: Mapping[str, np.ndarray],
    *,
    name: str = "model",
    origin: str = "samples",
    overrides: Mapping[str, tuple[float, int]] | None = None,
    progress: Progress = silent,
) -> bytes:
    """Quantise a float model: QDQ form, int8 activations, symmetric int8 weights with a scale for each channel.

    Batch normalisation is folded into the convolution or the fully connected layer in front of it. The scale of every
    activation follows from the least and the greatest value that it has for ``samples``.

    Parameters
    ----------
    data : bytes
        The ONNX file.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.
    name, origin : str
        What messages call the model and the samples.
    overrides : mapping of str to (float, int)
        Scale and zero point, an int8 code, of activations for which they are known already.
    progress : callable

    Returns
    -------
    bytes
        The quantised ONNX file.

    Raises
    ------
    ModelError
        If the file is no ONNX model that ONNX Runtime runs, is quantised already, or has a dynamic dimension beside
        the batch.
    ValueError
        If a name, a shape, a type or a value of the samples is wrong.
    """
    model = read_float_model(data, name)
    check_samples(data, samples, origin)
    return quantize_checked(model, samples, name=name, overrides=overrides or {}, progress=progress)


def quantize_checked(
    model: onnx.ModelProto,
    samples: Mapping[str, np.ndarray],
    *,
    name: str,
    overrides: Mapping[str, tuple[float, int]],
    progress: Progress,
) -> bytes:
    """Quantise what :func:`read_float_model` gives, with what :func:`check_samples` accepts; as :func:`quantize`."""
    progress("preparing")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepared, target = _prepare(model, name, folder), folder / "quantised.onnx"
        quantization.quantize_static(
            prepared,
            target,
            _Reader(samples, progress),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            op_types_to_quantize=list(OPERATORS),
            nodes_to_exclude=_sums_with_constants(prepared),
            extra_options={"MatMulConstBOnly": True, "TensorQuantOverrides": _overrides(overrides)},
        )
        return target.read_bytes()


def check_samples(data: bytes, samples: Mapping[str, np.ndarray], origin: str) -> None:
    """Check samples for a model.

    Raises
    ------
    ValueError
        If a name, a shape, a type or a value is wrong.
    """
    try:
        check_feeds(describe_model(data)[0], samples)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{origin}: {error}") from error
    for input_name, array in samples.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{origin}: input {input_name} must be finite in all samples, and is not")


def read_float_model(data: bytes, name: str) -> onnx.ModelProto:
    """The model that an ONNX file holds.

    Raises
    ------
    ModelError
        If it is none that ONNX Runtime runs, is quantised already, or has a dynamic dimension beside the batch.
    """
    model = read_model(data, name)
    _check_float(model, name)
    keep_inputs(model, [value.name for value in model_inputs(model)])
    sample = Source(name, copy.deepcopy(model), data, qdq=False)
    check_inputs(sample)
    fix_batch(sample)
    measure(sample)
    return model


def _overrides(known: Mapping[str, tuple[float, int]]) -> dict[str, list[dict[str, Any]]]:
    return {
        tensor: [
            {
                "quant_type": quantization.QuantType.QInt8,
                "scale": np.array(scale, np.float32),
                "zero_point": np.array(zero, np.int8),
            }
        ]
        for tensor, (scale, zero) in known.items()
    }


def relative_errors(
    data: bytes, quantised: bytes, samples: Mapping[str, np.ndarray], progress: Progress = silent
) -> dict[str, float]:
    """How far the float outputs of the quantised model are from those of the float model, in ONNX Runtime.

    Returns
    -------
    dict of str to float
        ``rms(quantised - float) / rms(float)`` of each float output over all samples.
    """
    sessions = [open_session(model) for model in (data, quantised)]
    names = [info.name for info in sessions[0].get_outputs() if info.type == "tensor(float)"]
    squares = dict.fromkeys(names, np.zeros(2))
    count = sample_count(samples)
    for index in range(count):
        progress("comparing with the float model", index, count)
        feeds = {name: array[index : index + 1] for name, array in samples.items()}
        for name, wanted, found in zip(names, *(session.run(names, feeds) for session in sessions), strict=True):
            arrays = np.stack([found - wanted, wanted]).astype(np.float64)
            squares[name] = squares[name] + np.square(arrays).reshape(2, -1).sum(axis=1)
    return {name: float(np.sqrt(error / max(size, np.finfo(float).tiny))) for name, (error, size) in squares.items()}


class _Reader(quantization.CalibrationDataReader):
    """Hands the samples to the calibrator, one by one, as the accelerator will get them."""

    def __init__(self, samples: Mapping[str, np.ndarray], progress: Progress):
        self._feeds = self._slices(samples, progress)

    @staticmethod
    def _slices(samples: Mapping[str, np.ndarray], progress: Progress) -> Iterator[dict[str, np.ndarray]]:
        count = sample_count(samples)
        for index in range(count):
            progress("calibrating", index, count)
            yield {name: array[index : index + 1] for name, array in samples.items()}

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample, or None behind the last."""
        return next(self._feeds, None)


def _check_float(model: onnx.ModelProto, name: str) -> None:
    for node in model.graph.node:
        if node.op_type.startswith(("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize")):
            raise ModelError(
                f"{name}: must be a float model, and {node.op_type} '{node.name}' shows that it is quantised; "
                "use it as it is, or quantise the float model that it was made from"
            )


def _prepare(model: onnx.ModelProto, name: str, folder: Path) -> onnx.ModelProto:
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
    nothing to fold it into, as behind a concatenation, and the average of windows in which every element counts."""
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


def _sums_with_constants(model: onnx.ModelProto) -> list[str]:
    """Names of the sums of one activation and a constant: pointwise operators."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [node.name for node in model.graph.node if node.op_type == "Add" and constants & set(node.input)]
