"""The files of an export that are compared: the exporter's float file, and the quantised one with its rounding
noise."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from ...host.model.model_graph import computed_tensors, expose, model_inputs
from ...host.model.onnx_graph import OnnxGraph, attributes_of
from ...host.model.runtime import plain_session
from .functions import Scale

#: The standard deviation of a rounding, in steps.
_ROUNDING = 12**-0.5


@dataclass(frozen=True)
class FloatFile:
    """A model as the exporter wrote it, in float, without the layers that became functions.

    Attributes
    ----------
    model : ModelProto
        The file; results of these layers are inputs, and their inputs are outputs.
    results, entering : dict of str to str
        Names of these inputs and outputs, by the names of the layers.
    modules : dict of str to str
        The module that computes a tensor; empty for the model itself.
    """

    model: onnx.ModelProto
    results: dict[str, str]
    entering: dict[str, str]
    modules: dict[str, str]

    def run(
        self, samples: np.ndarray, forced: Mapping[str, np.ndarray], wanted: Collection[str]
    ) -> dict[str, np.ndarray]:
        """Run the file with forced results of layers; return those of the wanted tensors that it has."""
        feeds = {name: forced[layer] for layer, name in self.results.items()}
        entry, *_ = (value.name for value in model_inputs(self.model) if value.name not in feeds)
        names = [name for name in computed_tensors(self.model) if name in wanted]
        values = plain_session(expose(self.model, names)).run(names, {entry: samples} | feeds)
        return dict(zip(names, values, strict=True)) | feeds

    def place(self, tensor: str) -> str:
        """Describe the origin of a tensor."""
        module = self.modules.get(tensor)
        return f"what {module} gives ({tensor})" if module else f"what the model's own operators give ({tensor})"


class QuantisedFile:
    """The tensors of a file for samples, and their rounding noise."""

    def __init__(self, data: onnx.ModelProto, samples: np.ndarray) -> None:
        self._graph = OnnxGraph.of(data)
        nodes = self._graph.nodes
        shown = [node.output[0] for node in nodes if node.op_type == "QuantizeLinear"]
        shown += [name for node in nodes if node.domain for name in (node.input[0], node.output[0])]
        names = list(dict.fromkeys([*shown, *(value.name for value in data.graph.output)]))
        (entry,) = model_inputs(data)
        session = plain_session(expose(data, names))
        rows = [session.run(names, {entry.name: sample[None]}) for sample in samples]
        self.tensors = {name: np.concatenate(parts) for name, *parts in zip(names, *rows, strict=True)}

    def scale(self, tensor: str) -> Scale | None:
        """Return the scale of a tensor's codes."""
        node = self._graph.producer.get(tensor)
        return self.scale_of(node) if node is not None and node.op_type == "DequantizeLinear" else None

    def scale_of(self, node: onnx.NodeProto) -> Scale:
        """Return the scale of a QuantizeLinear or a DequantizeLinear."""
        step, zero_point = (self._graph.constants[name].item() for name in node.input[1:])
        return Scale(step, zero_point)

    def quantised(self, node: onnx.NodeProto) -> str:
        """Return the float file's tensor whose codes a QuantizeLinear gives, by the names of
        onnxruntime.quantization."""
        return node.output[0].removesuffix("_QuantizeLinear_Output") if node.op_type == "QuantizeLinear" else ""

    def noise(self, tensor: str) -> float:
        """Return the rounding noise since the last function layer, as a share of the RMS."""
        squares, met, waiting = 0.0, set(), [tensor]
        while waiting:
            name = waiting.pop()
            node = self._graph.producer.get(name)
            if name in met or node is None:
                continue
            met.add(name)
            if node.domain:
                # The layer's result is exact for the forced codes; only the quantisation to codes is a rounding.
                squares += self._of_codes(name) if name == tensor else 0.0
                continue
            if node.op_type == "QuantizeLinear":
                squares += self._of_codes(name)
            elif node.op_type == "DequantizeLinear" and node.input[0] in self._graph.constants:
                squares += self._of_weights(node)
            waiting += node.input
        return float(np.sqrt(squares))

    def _of_codes(self, name: str) -> float:
        """Return the noise of a tensor of codes, in which a step is 1."""
        codes = self.tensors[name].astype(np.float64)
        spread = codes - codes.mean(axis=(0, *range(2, codes.ndim)), keepdims=True) if codes.ndim > 1 else codes
        return _ROUNDING**2 / max(float(np.square(spread).mean()), _ROUNDING**2)

    def _of_weights(self, node: onnx.NodeProto) -> float:
        codes = self._graph.constants[node.input[0]]
        if codes.dtype != np.int8 or not codes.any():
            # A bias has 32 bits.
            return 0.0
        axis = attributes_of(node).get("axis", 1) % codes.ndim
        steps = np.atleast_1d(self._graph.constants[node.input[1]]).astype(np.float64)
        steps = steps.reshape([-1 if at == axis else 1 for at in range(codes.ndim)]) if steps.size > 1 else steps
        steps = np.broadcast_to(steps, codes.shape)
        return _ROUNDING**2 * float(np.square(steps).mean() / np.square(steps * codes).mean())
