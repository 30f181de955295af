"""Whether an exported file computes what the model does: layer by layer, on samples, in ONNX Runtime."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

from ..host.reference import expose, model_inputs, plain_session
from .functions import LayerFunction, Scale

#: So many samples are compared, evenly spread over those that there are.
_MOST_SAMPLES = 64
#: How much more than independent roundings give, each passed on as it is, is still put down to them.
_ROOM = 4.0
#: What float32 may add up otherwise, and what no int8 network loses that is of use; shares of the RMS.
_LEAST, _MOST = 1e-3, 0.5
#: The standard deviation of a rounding, in steps.
_ROUNDING = 12**-0.5
_REMEDY = "write it with modules and operators whose meaning ONNX has, and give samples that are typical"


def compare(
    model: nn.Module, data: onnx.ModelProto, functions: Mapping[str, tuple[LayerFunction, Scale]], samples: np.ndarray
) -> None:
    """Refuse a file that differs from the model it was made of by more than rounding explains.

    The file is run first. Then the model is, with what the file gave in place of what each function layer gives, so
    that no error is met twice, and no sign that has flipped in one layer spoils the next. Three things are compared,
    in the order of the calls:

    * What a layer gives for the codes that enter it in the file: the same codes, every one. (Real results of a binary
      layer, a product in float32, may be the other neighbour where they lie half-way between two codes.)
    * What enters a layer, and what the model gives. Between function layers everything is rounded: weights once, and
      activations wherever they are quantised. A rounding to a step has the RMS ``step / sqrt(12)``; relative to how
      far the tensor varies within its channels (a mean tells nothing, and batch normalisation takes it away) this is
      its noise. Independent noises add up as squares. The limit is 4 times their root sum of squares since the last
      function layer: room for stretches that amplify. At most it is half of the RMS, at least a thousandth. Numbers
      beyond the codes are taken for the last code: where signs have flipped, some are that calibration has not met.

    Parameters
    ----------
    model : nn.Module
        Not changed.
    data : onnx.ModelProto
    functions : mapping of str to (LayerFunction, Scale)
        By the names of the layers, which those of the calls in the file are: what they became, and of what scale the
        codes are that enter.
    samples : float32[samples, ...]

    Raises
    ------
    ValueError
        With the first layer that is off, by how much, and the limit.
    """
    chosen = samples[np.unique(np.linspace(0, len(samples) - 1, _MOST_SAMPLES).round().astype(int))]
    file = _File(data, chosen)
    calls = {node.name: node for node in data.graph.node if node.name in functions}
    forced = {
        name: _real(file.tensors[calls[name].output[0]], function.leaving) for name, (function, _) in functions.items()
    }
    entered, output = _run(model, chosen, forced)
    for name, values in entered.items():
        function, scale = functions[name]
        codes, results = (file.tensors[names[0]] for names in (calls[name].input, calls[name].output))
        noise = file.noise(calls[name].input[0])
        _check(f"what enters {name}", _within(values, scale), _real(codes, scale), noise)
        off = function.differences(codes, results, scale)
        if off.any():
            raise ValueError(
                f"{name}: codes of the file must be those of the layer for the same codes that enter, and "
                f"{np.count_nonzero(off)} of {off.size} are not, by up to {off.max():.0f}; "
                "leave its forward pass and its attributes as the package has them"
            )
    (result,) = data.graph.output
    output = _within(output, file.scale(result.name))
    _check(f"what the model gives ({result.name})", output, file.tensors[result.name], file.noise(result.name))


def _check(what: str, wanted: np.ndarray, found: np.ndarray, noise: float) -> None:
    if wanted.dtype.kind != "f":
        # A class, say: how far two of them are apart says nothing.
        return
    limit = float(np.clip(_ROOM * noise, _LEAST, _MOST))
    error = _rms(found - wanted) / max(_rms(wanted), np.finfo(np.float32).tiny)
    if not error <= limit:
        raise ValueError(
            f"{what} must be within {limit:.1%} (RMS) of that of PyTorch, which rounding to int8 explains, "
            f"and is off by {error:.1%}; {_REMEDY}"
        )


def _run(
    model: nn.Module, samples: np.ndarray, forced: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What enters the layers in PyTorch, in the order of their calls, and the output; they give what is forced."""
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


class _File:
    """The tensors of a file for samples, and how much rounding there is in them."""

    def __init__(self, data: onnx.ModelProto, samples: np.ndarray) -> None:
        nodes = data.graph.node
        self._constants = {tensor.name: tensor for tensor in data.graph.initializer}
        self._producer = {name: node for node in nodes for name in node.output}
        shown = [node.output[0] for node in nodes if node.op_type == "QuantizeLinear"]
        shown += [name for node in nodes if node.domain for name in (node.input[0], node.output[0])]
        names = list(dict.fromkeys([*shown, *(value.name for value in data.graph.output)]))
        (entry,) = model_inputs(data)
        session = plain_session(expose(data, names))
        rows = [session.run(names, {entry.name: sample[None]}) for sample in samples]
        self.tensors = {name: np.concatenate(parts) for name, *parts in zip(names, *rows, strict=True)}

    def scale(self, tensor: str) -> Scale | None:
        """Of the codes that a tensor is made of."""
        node = self._producer.get(tensor)
        if node is None or node.op_type != "DequantizeLinear":
            return None
        step, zero_point = (numpy_helper.to_array(self._constants[name]).item() for name in node.input[1:])
        return Scale(step, zero_point)

    def noise(self, tensor: str) -> float:
        """What the roundings since the last function layer add up to, as a share of the RMS."""
        squares, met, waiting = 0.0, set(), [tensor]
        while waiting:
            name = waiting.pop()
            node = self._producer.get(name)
            if name in met or node is None:
                continue
            met.add(name)
            if node.domain:
                # Exact, for the codes that it was forced to give; that they are codes is a rounding.
                squares += self._of_codes(name) if name == tensor else 0.0
                continue
            if node.op_type == "QuantizeLinear":
                squares += self._of_codes(name)
            elif node.op_type == "DequantizeLinear" and node.input[0] in self._constants:
                squares += self._of_weights(node)
            waiting += node.input
        return float(np.sqrt(squares))

    def _of_codes(self, name: str) -> float:
        """A step is 1 in codes."""
        codes = self.tensors[name].astype(np.float64)
        spread = codes - codes.mean(axis=(0, *range(2, codes.ndim)), keepdims=True) if codes.ndim > 1 else codes
        return _ROUNDING**2 / max(float(np.square(spread).mean()), _ROUNDING**2)

    def _of_weights(self, node: onnx.NodeProto) -> float:
        codes = numpy_helper.to_array(self._constants[node.input[0]])
        if codes.dtype != np.int8 or not codes.any():
            # A bias has 32 bits.
            return 0.0
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1) % codes.ndim
        steps = np.atleast_1d(numpy_helper.to_array(self._constants[node.input[1]])).astype(np.float64)
        steps = steps.reshape([-1 if at == axis else 1 for at in range(codes.ndim)]) if steps.size > 1 else steps
        steps = np.broadcast_to(steps, codes.shape)
        return _ROUNDING**2 * float(np.square(steps).mean() / np.square(steps * codes).mean())


def _real(codes: np.ndarray, scale: Scale) -> np.ndarray:
    return ((codes.astype(np.float32) - scale.zero_point) * np.float32(scale.step)).astype(np.float32)


def _within(values: np.ndarray, scale: Scale | None) -> np.ndarray:
    """With what no code stands for as the nearest one that does."""
    if scale is None:
        return values
    return np.clip(values, *((code - scale.zero_point) * scale.step for code in (-128, 127)))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))
