"""The graph itself: layers, and the tensors between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.model import Model
from .layer import Layer
from .tensor import Tensor


@dataclass
class Graph:
    """Layers in order of execution, and the tensors between them.

    ``head`` and ``tail`` are ONNX models that run on the host; empty where there is none. The graph's inputs
    are the head's outputs (or the model's inputs), its outputs the tail's inputs (or the model's outputs). Tensors hold
    ``batch`` samples, head and tail one, see :func:`~lutterfly.host.compiler.rewrite.batch.batched`.
    """

    tensors: dict[str, Tensor]
    layers: list[Layer]
    inputs: list[str]
    outputs: list[str]
    model: Model = field(default_factory=Model)
    head: Model = field(default_factory=Model)
    tail: Model = field(default_factory=Model)
    notes: list[str] = field(default_factory=list)
    batch: int = 1

    def ends(self, layer: Layer) -> tuple[Tensor, Tensor]:
        """A layer's first input and its output."""
        return self.tensors[layer.input], self.tensors[layer.output]

    def kind_of(self, layer: Layer) -> str:
        """What a layer is called."""
        source, target = self.ends(layer)
        return layer.kind(source.shape, target.shape)
