"""Compare an exported file with the model: layer by layer, on samples, in ONNX Runtime.

The file is run first. Then the model and the exporter's float file are run with the file's results in place of those of
each function layer, so that no error counts twice, and no sign that has flipped in one layer affects the next. There
are three comparisons:

* The exporter's file with the model: inputs of each function layer, and the outputs, within a hundredth of the RMS.
  Nothing is rounded to codes there, so that nothing hides an operator with another meaning.
* The file with the exporter's: every tensor that has become codes, in the order in which the file computes them.
  Between function layers everything is rounded: weights once, and activations wherever they are quantised. A rounding
  to a step has the RMS ``step / sqrt(12)``; relative to how far the tensor varies within its channels (a mean tells
  nothing, and batch normalisation takes it away) this is its noise. Independent noises add up as squares. The limit is
  4 times their root sum of squares since the last function layer: room for stretches that amplify. At most it is half
  of the RMS, at least a thousandth. Numbers beyond the codes are taken for the last code: where signs have flipped,
  some are that calibration has not met.
* The results of a function layer for its input codes in the file, with those of the layer itself: all codes are equal.
  (Real results of a binary layer, a product in float32, may be the other neighbour where they lie half-way between two
  codes.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import torch
from torch import nn

from .exported import FloatFile, QuantisedFile
from .functions import LayerFunction, Scale

#: The number of compared samples, evenly spread over all; it is less where each has many values, all of which are in
#: memory at once.
_MOST_SAMPLES, _MOST_VALUES = 64, 1 << 26
#: The tolerated factor above the noise of independent rounding errors that are passed on unchanged.
_ROOM = 4.0
#: The least and the greatest limit, as shares of the RMS: float32's order of additions, and a useless int8 network.
_LEAST, _MOST = 1e-3, 0.5
#: The tolerance of the exporter's float file: discontinuous operators such as signs seldom differ.
_FLOAT = 1e-2
_REMEDY = "write it with modules and operators whose meaning ONNX has, and give samples that are typical"


def compare(
    model: nn.Module,
    exported: FloatFile,
    data: onnx.ModelProto,
    functions: Mapping[str, tuple[LayerFunction, Scale]],
    samples: np.ndarray,
) -> None:
    """Refuse a file that differs from its model by more than rounding explains.

    Parameters
    ----------
    model : nn.Module
        The model, which is not changed.
    exported : FloatFile
        The exporter's file before quantisation.
    data : onnx.ModelProto
    functions : mapping of str to (LayerFunction, Scale)
        For each layer, by the name that its call in the file has: its function, and the scale of its input codes.
    samples : float32[samples, ...]

    Raises
    ------
    ValueError
        With the first place that differs too much, the error, and the limit.
    """
    values = sum(tensor.size for tensor in QuantisedFile(data, samples[:1]).tensors.values())
    most = max(1, min(_MOST_SAMPLES, _MOST_VALUES // values))
    chosen = samples[np.unique(np.linspace(0, len(samples) - 1, most).round().astype(int))]
    file = QuantisedFile(data, chosen)
    calls = {node.name: node for node in data.graph.node if node.name in functions}
    entering = {call.input[0] for call in calls.values()}
    forced = {
        name: _real(file.tensors[calls[name].output[0]], function.leaving) for name, (function, _) in functions.items()
    }
    (result,) = data.graph.output
    entered, output = _run(model, chosen, forced)
    wanted = {result.name, *exported.entering.values(), *map(file.quantised, data.graph.node)}
    real = exported.run(chosen, forced, wanted)
    for name, values in entered.items():
        _check_float(f"what enters {name}", values, real[exported.entering[name]])
    _check_float(f"what the model gives ({result.name})", output, real[result.name])
    for node in data.graph.node:
        if node.name in calls:
            _check_call(node, exported, file, functions[node.name], real)
        elif node.output[0] not in entering:
            _check_tensor(node, exported, file, real)
    output = _within(real[result.name], file.scale(result.name))
    _check(f"what the model gives ({result.name})", output, file.tensors[result.name], file.noise(result.name))


def _check_call(
    node: onnx.NodeProto,
    exported: FloatFile,
    file: QuantisedFile,
    function: tuple[LayerFunction, Scale],
    real: Mapping[str, np.ndarray],
) -> None:
    """Compare the input and the result of a function layer."""
    layer, scale = function
    codes, results = (file.tensors[names[0]] for names in (node.input, node.output))
    entering = _within(real[exported.entering[node.name]], scale)
    _check(f"what enters {node.name}", entering, _real(codes, scale), file.noise(node.input[0]))
    _check_function(node.name, layer, codes, results, scale)


def _check_tensor(
    node: onnx.NodeProto, exported: FloatFile, file: QuantisedFile, real: Mapping[str, np.ndarray]
) -> None:
    """Compare a tensor that has become codes, if this node gives one that the exporter's file has too."""
    tensor = file.quantised(node)
    if tensor not in real or real[tensor].shape != file.tensors[node.output[0]].shape:
        return
    codes, scale = file.tensors[node.output[0]], file.scale_of(node)
    _check(exported.place(tensor), _within(real[tensor], scale), _real(codes, scale), file.noise(node.output[0]))


def _check_function(name: str, function: LayerFunction, codes: np.ndarray, results: np.ndarray, scale: Scale) -> None:
    off = function.differences(codes, results, scale)
    if off.any():
        raise ValueError(
            f"{name}: codes of the file must be those of the layer for the same codes that enter, and "
            f"{np.count_nonzero(off)} of {off.size} are not, by up to {off.max():.0f}; "
            "leave its forward pass and its attributes as the package has them"
        )


def _check_float(what: str, wanted: np.ndarray, found: np.ndarray) -> None:
    error = _error(wanted, found)
    if not error <= _FLOAT:
        raise ValueError(
            f"{what} must be that of PyTorch in the exporter's file, before anything is quantised, and is off by "
            f"{error:.1%} (RMS); {_REMEDY}"
        )


def _check(what: str, wanted: np.ndarray, found: np.ndarray, noise: float) -> None:
    limit, error = float(np.clip(_ROOM * noise, _LEAST, _MOST)), _error(wanted, found)
    if not error <= limit:
        raise ValueError(
            f"{what} must be within {limit:.1%} (RMS) of that of PyTorch, which rounding to int8 explains, "
            f"and is off by {error:.1%}; {_REMEDY}"
        )


def _error(wanted: np.ndarray, found: np.ndarray) -> float:
    """Return the error relative to the RMS; for other types, such as class numbers, a distance has no meaning."""
    if wanted.dtype.kind != "f":
        return 0.0
    return _rms(found - wanted) / max(_rms(wanted), np.finfo(np.float32).tiny)


def _run(
    model: nn.Module, samples: np.ndarray, forced: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Run the model in PyTorch with forced results of layers; return the layers' inputs, in order of calls, and the
    output."""
    copied, entered = copy.deepcopy(model).eval(), {}

    def exchange(name: str) -> Callable[..., torch.Tensor]:
        def hook(_: nn.Module, given: tuple[torch.Tensor], __: torch.Tensor) -> torch.Tensor:
            entered[name] = given[0].numpy()
            return torch.from_numpy(forced[name])

        return hook

    for name in forced:
        copied.get_submodule(name).register_forward_hook(exchange(name))
    with torch.no_grad():
        output = copied(torch.from_numpy(samples))
    return entered, output.numpy()


def _real(codes: np.ndarray, scale: Scale) -> np.ndarray:
    return ((codes.astype(np.float32) - scale.zero_point) * np.float32(scale.step)).astype(np.float32)


def _within(values: np.ndarray, scale: Scale | None) -> np.ndarray:
    """Clip values to the range of the codes."""
    if scale is None:
        return values
    return np.clip(values, *((code - scale.zero_point) * scale.step for code in (-128, 127)))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))
