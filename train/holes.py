"""Binary layers on the way to an ONNX file: holes while everything else is exported and quantised, then functions.

What a binary layer gives is an input of the opened model, what enters it one of its outputs. So nothing becomes of the
layer's own operators, and the ranges of all tensors behind it are those of what it really gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn

from ..host.binary_function import NAME, add_function, make_call, make_function
from .binary import BinaryLayer

#: Operators that leave the scale of their input as it is.
_KEEPING = ("Flatten", "Identity", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_CODES = 255

#: A scale and a zero point.
_Scale = tuple[float, int]


@dataclass
class _Board:
    """Where a pass through the opened model puts what enters the layers, and finds what they give."""

    given: dict[str, torch.Tensor] = field(default_factory=dict)
    entering: dict[str, torch.Tensor] = field(default_factory=dict)


class _Hole(nn.Module):
    def __init__(self, name: str, board: _Board) -> None:
        super().__init__()
        self.name, self.board = name, board

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.board.entering[self.name] = values
        return self.board.given[self.name]


class _Opened(nn.Module):
    def __init__(self, model: nn.Module, names: list[str], board: _Board) -> None:
        super().__init__()
        self.model, self.names, self.board = model, names, board

    def forward(self, values: torch.Tensor, *results: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.board.given.update(zip(self.names, results, strict=True))
        output = self.model(values)
        return output, *(self.board.entering[name] for name in self.names)


class Holes:
    """The binary layers of a model, taken out of it.

    Parameters
    ----------
    model : nn.Module
        In evaluation; its binary layers are replaced in place.
    samples : float32[samples, ...]

    Attributes
    ----------
    opened : nn.Module
        The model itself where it has none. Else its further inputs are ``results``, and its further outputs
        ``entering``.
    prefix : str
        Of the names of the model's parameters in it.
    results : dict of str to array
        What the layers give for the samples, by the names of the inputs.
    entering : list of str
        Names of the outputs.
    scales : dict of str to (float, int)
        Scale and zero point of the inputs.

    Raises
    ------
    ValueError
        If a layer has two places in the model, or is not called once.
    """

    def __init__(self, model: nn.Module, samples: np.ndarray) -> None:
        self._layers = _layers(model)
        self.opened, self.prefix = model, ""
        self.results: dict[str, np.ndarray] = {}
        self.scales: dict[str, _Scale] = {}
        self.entering = [f"{name}.input" for name in self._layers]
        if not self._layers:
            return
        met, given = _run(model, self._layers, samples)
        self.results = {f"{name}.result": given[name] for name in self._layers}
        self._entering_scales = {f"{name}.input": _symmetric(met[name]) for name in self._layers}
        for name, layer in self._layers.items():
            self.scales[f"{name}.result"] = (1.0, 0) if layer.signs else _asymmetric(given[name])
        board = _Board()
        for name in self._layers:
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, _Hole(name, board))
        self.opened, self.prefix = _Opened(model, list(self._layers), board), "model."

    def fill(self, model: onnx.ModelProto) -> None:
        """Put functions into the quantised model, in place of inputs and outputs."""
        graph, ends = model.graph, {*self.results, *self.entering}
        scales = {name: self._scale_of(graph, f"{name}.input") for name in self._layers}
        for number, (name, layer) in enumerate(self._layers.items(), 1):
            function_name = NAME if len(self._layers) == 1 else f"{NAME}_{number}"
            _put(model, name, layer, function_name, scales[name], self.scales[f"{name}.result"])
        for values in (graph.input, graph.output):
            kept = [value for value in values if value.name not in ends]
            del values[:]
            values.extend(kept)

    def _scale_of(self, graph: onnx.GraphProto, entering: str) -> _Scale:
        """Scale and zero point of what enters a layer: those that it has already, where it is quantised."""
        producer = {node.output[0]: node for node in graph.node}
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        name = entering
        while name in producer and producer[name].op_type in _KEEPING:
            name = producer[name].input[0]
        if name in producer and producer[name].op_type == "DequantizeLinear":
            scale, zero_point = (constants[operand].item() for operand in producer[name].input[1:])
            return scale, zero_point
        return self.scales.get(name, self._entering_scales[entering])


def _layers(model: nn.Module) -> dict[str, BinaryLayer]:
    """The binary layers of a model by name, each in one place."""
    modules = model.named_modules(remove_duplicate=False)
    layers = {name: module for name, module in modules if isinstance(module, BinaryLayer)}
    for name, layer in layers.items():
        places = [other for other in layers if layers[other] is layer]
        if len(places) > 1:
            raise ValueError(
                f"{name} must have one place in the model, not {', '.join(places)}; give each its own layer"
            )
    return layers


def _run(
    model: nn.Module, layers: dict[str, BinaryLayer], samples: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What enters the layers and what they give, for all samples."""
    calls: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in layers}

    def note(name: str) -> Callable[..., None]:
        return lambda _, given, result: calls[name].append((given[0].numpy(), result.numpy()))

    hooks = [layer.register_forward_hook(note(name)) for name, layer in layers.items()]
    with torch.no_grad():
        model(torch.from_numpy(samples))
    for hook in hooks:
        hook.remove()
    for name, found in calls.items():
        if len(found) != 1:
            raise ValueError(
                f"{name} must be called once by the model, not {len(found)} times; give each call its own layer"
            )
    return tuple({name: found[0][at] for name, found in calls.items()} for at in range(2))


def _symmetric(values: np.ndarray) -> _Scale:
    greatest = float(np.abs(values).max())
    return float(np.float32(greatest / 127)) if greatest else 1.0, 0


def _asymmetric(values: np.ndarray) -> _Scale:
    least, greatest = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = float(np.float32((greatest - least) / _CODES)) or 1.0
    return scale, int(np.clip(round(-128 - least / scale), -128, 127))


def _put(
    model: onnx.ModelProto, name: str, layer: BinaryLayer, function_name: str, entering: _Scale, leaving: _Scale
) -> None:
    """Add QuantizeLinear, the function and DequantizeLinear of a layer."""
    (opset,) = (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    folded = layer.fold()
    finish = {}
    if folded.scale is not None:
        finish = {"scale": (folded.scale / np.float32(leaving[0])).astype(np.float32), "zero_point": leaving[1]}
    function = make_function(
        folded.weights,
        bias=folded.bias,
        input_zero_point=entering[1],
        name=function_name,
        opset=opset,
        **finish,
        **layer.geometry,
    )
    add_function(model, function)
    before, behind = (
        _operands(model.graph, f"{name}.{kind}", *numbers)
        for kind, numbers in (("entering", entering), ("leaving", leaving))
    )
    codes, result = f"{name}.codes", f"{name}.result_codes"
    model.graph.node.extend(
        [
            helper.make_node("QuantizeLinear", [f"{name}.input", *before], [codes], f"{name}.quantise"),
            make_call(function, codes, result, name),
            helper.make_node("DequantizeLinear", [result, *behind], [f"{name}.result"], f"{name}.dequantise"),
        ]
    )


def _operands(graph: onnx.GraphProto, name: str, scale: float, zero_point: int) -> list[str]:
    """Names of a new scale and zero point."""
    values = {f"{name}_scale": np.float32(scale), f"{name}_zero_point": np.int8(zero_point)}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in values.items())
    return list(values)
