"""Layers that are cut out of a model while the rest is exported and quantised, and then inserted as functions.

The result of such a layer is an input of the opened model, and its input is an output. So exporter and quantiser can
fold nothing into it, and no operator around it is lost; and the ranges of all tensors after it are those of its real
results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn

from ...host.model.functions.onnx_function import add_function, make_call
from ...host.model.onnx_graph import OnnxGraph, operator_set
from .functions import LayerFunction, Scale, find_layers, function_of

#: Operators that keep the scale of their input.
_KEEPING = ("Flatten", "Identity", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


@dataclass
class _Board:
    """The exchange of values with a forward pass of the opened model: it stores the layers' inputs, and reads their
    results."""

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
    """The layers of a model that become functions, cut out of it.

    Parameters
    ----------
    model : nn.Module
        The model, in evaluation mode; its fast pointwise convolutions and binary layers are replaced in place.
    samples : float32[samples, ...]

    Attributes
    ----------
    layers : dict of str to nn.Module
        These layers, by name.
    functions : dict of str to LayerFunction
        Their functions, by the same names.
    opened : nn.Module
        The model with ``results`` as further inputs and ``entering`` as further outputs; the model itself where it has
        no such layer.
    results : dict of str to array
        Results of the layers for the samples, by the names of the inputs.
    entering : list of str
        Names of the outputs.
    depth : int
        Depth of the model within the opened one.

    Raises
    ------
    ValueError
        If a layer is in the model twice, or is not called once, or is in float.
    """

    def __init__(self, model: nn.Module, samples: np.ndarray) -> None:
        self.layers = find_layers(model)
        self.opened = model
        met, given = _run(model, self.layers, samples) if self.layers else ({}, {})
        self.functions = {name: function_of(layer, given[name]) for name, layer in self.layers.items()}
        self.results = {f"{name}.result": given[name] for name in self.layers}
        self.entering = [f"{name}.input" for name in self.layers]
        self.depth = 1 if self.layers else 0
        self._free = {name: Scale.symmetric(met[name]) for name in self.layers}
        if not self.layers:
            return
        board = _Board()
        for name in self.layers:
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, _Hole(name, board))
        self.opened = _Opened(model, list(self.layers), board).eval()

    def scales(self, exported: onnx.ModelProto) -> dict[str, Scale]:
        """Return the scales of tensors of the exported model that are known before it is quantised."""
        known = {f"{name}.result": function.leaving for name, function in self.functions.items()}
        producer = OnnxGraph.of(exported).producer
        for name, function in self.functions.items():
            tensor = f"{name}.input"
            if function.entering is None:
                continue
            known.setdefault(tensor, function.entering)
            # An Identity is removed, and either of its two names may be kept.
            while tensor in producer and producer[tensor].op_type == "Identity":
                tensor = producer[tensor].input[0]
                known.setdefault(tensor, function.entering)
        return known

    def fill(self, model: onnx.ModelProto) -> dict[str, Scale]:
        """Insert functions into the quantised model, in place of inputs and outputs.

        Returns
        -------
        dict of str to Scale
            The scale of each function's input codes.
        """
        graph, ends = model.graph, {*self.results, *self.entering}
        families = [function.family for function in self.functions.values()]
        before = OnnxGraph.of(model)
        scales = {name: self._entering_scale(before, name) for name in self.functions}
        for number, (name, function) in enumerate(self.functions.items(), 1):
            several = families.count(function.family) > 1
            _put(model, name, function, f"{function.family}_{number}" if several else function.family, scales[name])
        for values in (graph.input, graph.output):
            kept = [value for value in values if value.name not in ends]
            del values[:]
            values.extend(kept)
        return scales

    def _entering_scale(self, graph: OnnxGraph, name: str) -> Scale:
        """Return the scale of a layer's input: the present one, if any, where the layer accepts any scale."""
        function = self.functions[name]
        if function.entering is not None:
            return function.entering
        made = graph.producer.get(tensor := f"{name}.input")
        while made is not None and made.op_type in _KEEPING:
            made = graph.producer.get(tensor := made.input[0])
        if made is not None and made.op_type == "DequantizeLinear":
            return Scale(*(graph.constants[operand].item() for operand in made.input[1:]))
        before = self.functions.get(tensor.removesuffix(".result"))
        return self._free[name] if before is None else before.leaving


def _run(
    model: nn.Module, layers: Mapping[str, nn.Module], samples: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Run all samples; return the layers' inputs and their results."""
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


def _put(model: onnx.ModelProto, name: str, function: LayerFunction, called: str, entering: Scale) -> None:
    """Add the QuantizeLinear, the function and the DequantizeLinear of a layer."""
    body = function.make(called, entering, operator_set(model))
    add_function(model, body)
    before = _operands(model.graph, f"{name}.entering", entering)
    after = _operands(model.graph, f"{name}.leaving", function.leaving)
    codes, result = f"{name}.codes", f"{name}.result_codes"
    model.graph.node.extend(
        [
            helper.make_node("QuantizeLinear", [f"{name}.input", *before], [codes], f"{name}.quantise"),
            make_call(body, codes, result, name),
            helper.make_node("DequantizeLinear", [result, *after], [f"{name}.result"], f"{name}.dequantise"),
        ]
    )


def _operands(graph: onnx.GraphProto, name: str, scale: Scale) -> list[str]:
    """Add a scale and a zero point; return their names."""
    values = {f"{name}_scale": np.float32(scale.step), f"{name}_zero_point": np.int8(scale.zero_point)}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in values.items())
    return list(values)
