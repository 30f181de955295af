"""Static quantisation of float models for the accelerator, through onnxruntime.quantization."""

from __future__ import annotations

import copy
import difflib
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization

from ..files.terminal import Progress, silent
from ..frontend import ModelError
from ..frontend.fragments import LAYOUT
from ..model.arrays import sample_count
from ..model.executed import open_session
from ..model.model import Model
from ..model.model_graph import QUANTISER, computed_tensors, expose, tensor_names
from ..model.onnx_graph import OnnxGraph, set_values
from ..model.runtime import plain_session
from ..model.whole_samples import mark, with_axis, without_axis
from .float_model import dynamic_batches, free_batch, prepare, read_with_samples
from .names import Names
from .outputs import quantise_outputs
from .pointwise import limiting_nodes, lost_nodes, pointwise_nodes
from .ranges import around_zero, bound_masks, common_ranges, cut_outputs
from .rewriting import Rewritten

#: Operators that are quantised. All others stay in float: a chain of pointwise ones between two quantised tensors
#: becomes one table, without roundings between; a Softmax at the end runs on the host.
OPERATORS = (
    *("Conv", "Gemm", "MatMul", "Add", "Sub", "Mul", "Max", "Min", "Relu", "Clip"),
    *("MaxPool", "GlobalAveragePool", "AveragePool"),
    *("Concat", "Split", "Pad", "Reshape", "Squeeze", "Unsqueeze", "Transpose"),
)

#: Greatest relative difference of the rewritten model from the float model, whose roundings in float32 differ.
_ROUNDING = 1e-3
#: Functions with values up to one, which float32 computes with the rounding error of one; smaller outputs are compared
#: as if they were as large as this.
_BOUNDED, _LEAST = ("HardSigmoid", "Sigmoid", "Softmax", "Softsign", "Tanh"), 2e-3


@dataclass(frozen=True)
class Quantised:
    """A quantised model with its origin.

    Attributes
    ----------
    model : Model
        The quantised network, with samples along the first axis, see :mod:`~lutterfly.host.model.whole_samples`.
    file : Model
        The same network in the form of the float model's file.
    prepared : ModelProto
        The float model that was quantised, after its rewriting.
    rewritten : list of Rewritten
    difference : float
        Relative difference of the outputs of ``prepared`` from those of the float model, on one sample.
    """

    model: Model
    file: Model
    prepared: onnx.ModelProto
    rewritten: list[Rewritten]
    difference: float


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

    Operators without an exact integer form are rewritten first, see :mod:`~lutterfly.host.quantize.rewriting`. The
    scale of every activation follows from its least and greatest value for ``samples``.

    Parameters
    ----------
    data : bytes
        The ONNX file.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.
    name, origin : str
        Names of the model and of the samples in messages.
    overrides : mapping of str to (float, int)
        Scale and zero point, an int8 code, of activations for which they are known.
    progress : callable

    Returns
    -------
    bytes
        The quantised ONNX file.

    Raises
    ------
    ModelError
        If the file is no ONNX model that ONNX Runtime runs, is quantised already, has a dynamic dimension beside the
        batch, or if its first axis is no batch.
    ValueError
        If a name, a shape, a type or a value of the samples is wrong, or if ``overrides`` name a tensor that the model
        does not have.
    """
    given = read_with_samples(Model(data), name, (origin, samples))
    known = set(tensor_names(given.model.graph))
    for tensor in overrides or {}:
        if tensor not in known:
            near = difflib.get_close_matches(tensor, known, 1)
            hint = f"did you mean '{near[0]}'?" if near else "take it out"
            raise ValueError(f"overrides must name tensors of {name}, which has no '{tensor}'; {hint}")
    (checked,) = given.samples
    return quantize_checked(given.model, checked, name=name, overrides=overrides or {}, progress=progress).file.data


def quantize_checked(
    model: onnx.ModelProto,
    samples: Mapping[str, np.ndarray],
    *,
    name: str,
    overrides: Mapping[str, tuple[float, int]],
    progress: Progress,
) -> Quantised:
    """Quantise the result of :func:`read_with_samples`, see :func:`quantize`.

    Raises
    ------
    ModelError
        If the rewritten model computes another function than the float model.
    """
    progress("preparing")
    batches = dynamic_batches(model)
    names = Names(model)
    try:
        found = _quantised(model, names.of_tensors(samples), name, names.of_tensors(overrides), progress)
    except ModelError as error:
        raise ModelError(names.told(str(error))) from error
    quantised = found.model.copy()
    names.restore(found.prepared, quantised)
    free_batch(quantised, batches, samples)
    quantised.producer_name, quantised.producer_version = QUANTISER, ""
    rewritten = [replace(one, label=names.told(one.label)) for one in found.rewritten]
    mark(quantised, model)
    file = Model.written(without_axis(quantised))
    return replace(found, model=Model.written(quantised), file=file, rewritten=rewritten)


def _quantised(
    model: onnx.ModelProto,
    samples: Mapping[str, np.ndarray],
    name: str,
    overrides: Mapping[str, tuple[float, int]],
    progress: Progress,
) -> Quantised:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (prepared, rewritten), target = prepare(model, name, folder, samples), folder / "quantised.onnx"
        groups = [*(group for one in rewritten for group in one.alike), *([one] for one in cut_outputs(prepared))]
        uncut = {key: value for one in rewritten for key, value in one.uncut.items()}
        difference = _check_rewritten(model, prepared, uncut, samples, name)
        known = bound_masks(prepared, samples, [mask for one in rewritten for mask in one.masks])
        known |= common_ranges(prepared, samples, groups)
        given = around_zero(prepared, known) | _overrides(overrides)
        kept = [*pointwise_nodes(prepared), *limiting_nodes(prepared, given)]

        def quantise(kept: list[str]) -> Model:
            with warnings.catch_warnings():
                # These warnings are about values that are not finite, which the error names.
                warnings.simplefilter("ignore", RuntimeWarning)
                quantization.quantize_static(
                    # The function moves constants of a kilobyte or more to a file that is deleted afterwards.
                    copy.deepcopy(prepared),
                    target,
                    _SampleReader(samples, progress),
                    quant_format=quantization.QuantFormat.QDQ,
                    per_channel=True,
                    activation_type=quantization.QuantType.QInt8,
                    weight_type=quantization.QuantType.QInt8,
                    op_types_to_quantize=list(OPERATORS),
                    nodes_to_exclude=kept,
                    extra_options={"MatMulConstBOnly": False, "TensorQuantOverrides": copy.deepcopy(given)},
                )
            return Model(target.read_bytes())

        try:
            quantised = quantise(kept)
            if lost := set(lost_nodes(prepared, quantised.proto)) - {*kept}:
                quantised = quantise([*kept, *lost])
        except (AssertionError, ValueError) as error:
            raise ModelError(f"{name}: {_without_a_scale(prepared, samples, error)}") from error
        changed = quantised.copy()
        quantise_outputs(changed, prepared, samples, given)
        quantised = Model.written(changed)
        # Callers with overrides may put operators between the tensors that have them, as the export of binary layers
        # does.
        if not overrides and not any(node.op_type == "QuantizeLinear" for node in quantised.proto.graph.node):
            operators = ", ".join(sorted({node.op_type for node in prepared.graph.node}))
            raise ModelError(
                f"{name}: must have an operator that is quantised, such as Conv, Gemm or MatMul, and has only "
                f"{operators}; the accelerator has nothing to compute, run it with ONNX Runtime"
            )
        return Quantised(quantised, quantised, prepared, rewritten, difference)


def _check_rewritten(
    model: onnx.ModelProto,
    prepared: onnx.ModelProto,
    uncut: Mapping[str, float],
    samples: Mapping[str, np.ndarray],
    name: str,
) -> float:
    """Return the difference of the rewritten model from the float model, which may be by rounding only.

    Values that int8 cuts off in any case are compared as well, with the constants of ``uncut``. An output that the
    first sample leaves near 0 shows nothing, and is judged by all samples.
    """
    first = {key: array[:1] for key, array in samples.items()}
    whole = copy.deepcopy(prepared)
    for tensor in whole.graph.initializer:
        if tensor.name in uncut:
            set_values(tensor, np.array(uncut[tensor.name], np.float32))
    errors = relative_errors(Model.written(model), Model.written(whole), first)
    if any(error > _ROUNDING for error in errors.values()):
        errors = relative_errors(Model.written(model), Model.written(whole), samples, least=_least(model))
    for output, error in errors.items():
        if error > _ROUNDING:
            raise ModelError(
                f"{name}: output '{output}' of the rewritten float model is {error:.2%} from the float model's, which "
                "is no rounding; report the model as one that `lutterfly quantize` rewrites wrongly"
            )
    if uncut:
        errors = relative_errors(Model.written(model), Model.written(prepared), first)
    return max(errors.values(), default=0.0)


def _least(model: onnx.ModelProto) -> dict[str, float]:
    """Return the least magnitude for the comparison of outputs, for those of bounded functions, in any shape."""
    graph, found = OnnxGraph.of(model), {}
    for output in graph.outputs:
        node = graph.producer.get(output)
        while node is not None and node.op_type in LAYOUT:
            node = graph.producer.get(node.input[0])
        if node is not None and node.op_type in _BOUNDED:
            found[output] = _LEAST
    return found


def _without_a_scale(prepared: onnx.ModelProto, samples: Mapping[str, np.ndarray], error: Exception) -> str:
    """Return a message on a tensor whose values give no scale; a damaged weight is the usual cause."""
    remedy = "look for damaged weights, or export the network again"
    for tensor in prepared.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"constant '{tensor.name}' must be finite, and is not; {remedy}"
    names = computed_tensors(prepared)
    session = plain_session(expose(prepared, names))
    for index in range(sample_count(samples)):
        feeds = {key: array[index : index + 1] for key, array in samples.items()}
        for tensor_name, array in zip(names, session.run(names, feeds), strict=True):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return f"tensor '{tensor_name}' must be finite, and is not for sample {index}; {remedy}"
    return f"onnxruntime.quantization finds no scales ({error}); {remedy}"


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
    model: Model,
    quantised: Model,
    samples: Mapping[str, np.ndarray],
    progress: Progress = silent,
    *,
    least: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the errors of the float outputs of the quantised model against those of the float model, in ONNX Runtime.

    Returns
    -------
    dict of str to float
        ``rms(quantised - float) / rms(float)`` of each float output over all samples; ``least`` is the least magnitude
        for some outputs.
    """
    sessions = [open_session(with_axis(opened)) for opened in (model, quantised)]
    names = [info.name for info in sessions[0].get_outputs() if info.type == "tensor(float)"]
    squares = dict.fromkeys(names, np.zeros(3))
    count = sample_count(samples)
    for index in range(count):
        progress("comparing with the float model", index, count)
        feeds = {name: array[index : index + 1] for name, array in samples.items()}
        for name, wanted, found in zip(names, *(session.run(names, feeds) for session in sessions), strict=True):
            # Values that are not finite are reported when scales are computed.
            with np.errstate(invalid="ignore", over="ignore"):
                arrays = np.stack([found - wanted, wanted, np.full(wanted.shape, least.get(name, 0.0))])
            squares[name] = squares[name] + np.square(arrays.astype(np.float64)).reshape(3, -1).sum(axis=1)
    return {
        name: float(np.sqrt(error / max(*sizes, np.finfo(float).tiny))) for name, (error, *sizes) in squares.items()
    }


class _SampleReader(quantization.CalibrationDataReader):
    """Reader that gives the samples to the calibrator, one by one, as the accelerator will get them."""

    def __init__(self, samples: Mapping[str, np.ndarray], progress: Progress):
        self._feeds = self._slices(samples, progress)

    @staticmethod
    def _slices(samples: Mapping[str, np.ndarray], progress: Progress) -> Iterator[dict[str, np.ndarray]]:
        count = sample_count(samples)
        for index in range(count):
            progress("calibrating", index, count)
            yield {name: array[index : index + 1] for name, array in samples.items()}

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next sample, or None after the last."""
        return next(self._feeds, None)
