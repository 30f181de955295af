"""The model, measured: its constants, and the shape and type of every tensor for one sample."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx
from onnx import NodeProto

from ...model.as_read import reads
from ...model.model import Model
from ...model.model_graph import model_inputs
from .layer_body import LayerBody


@dataclass
class Source:
    """A model as the passes see it.

    Attributes
    ----------
    name : str
        For messages.
    model : ModelProto
        The model with a unique name for every node; with a batch of 1 once that is fixed.
    file : Model
        The model as the user gave it, or as it was rewritten from QONNX.
    qdq : bool
        Whether it has the QDQ form.
    constants : dict of str to array
        Initializers, and whatever the nodes compute from them alone.
    shapes, types : dict
        Of every activation, for one sample.
    nodes : list of NodeProto
        The nodes that depend on the inputs and that an output depends on, in order of execution.
    producer, consumers : dict
        Node that computes a tensor; nodes that read it.
    functions : dict of (str, str) to LayerBody
        By domain and name, those of the model that are layers.
    """

    name: str
    model: onnx.ModelProto
    file: Model
    qdq: bool
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    types: dict[str, np.dtype] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    producer: dict[str, NodeProto] = field(default_factory=dict)
    consumers: dict[str, list[NodeProto]] = field(default_factory=dict)
    functions: dict[tuple[str, str], LayerBody] = field(default_factory=dict)

    @property
    def inputs(self) -> list[str]:
        """The model's inputs."""
        return [value.name for value in model_inputs(self.model)]

    @property
    def outputs(self) -> list[str]:
        """The model's outputs."""
        return [value.name for value in self.model.graph.output]

    @cached_property
    def named(self) -> dict[str, NodeProto]:
        """The nodes by their names, as they are when somebody asks first."""
        return {node.name: node for node in self.model.graph.node}

    @cached_property
    def float_initializers(self) -> frozenset[str]:
        """The initializers of float32, as they are when somebody asks first."""
        float32 = onnx.TensorProto.FLOAT
        return frozenset(tensor.name for tensor in self.model.graph.initializer if tensor.data_type == float32)

    def is_codes(self, tensor: str) -> bool:
        """Whether a tensor is an activation of int8 or uint8 codes."""
        return tensor in self.types and self.types[tensor] in (np.int8, np.uint8)

    def function(self, node: NodeProto) -> LayerBody | None:
        """The layer that a node calls, if it calls one."""
        return self.functions.get((node.domain, node.op_type))

    def dynamic_inputs(self, node: NodeProto) -> list[str]:
        """The inputs of a node that are activations."""
        return [name for name in reads(node) if name in self.shapes]


def connect(source: Source) -> None:
    """Find the nodes that an output depends on, and who computes and reads each tensor."""
    source.producer, source.consumers = {}, {}
    needed = set(source.outputs)
    live = []
    for node in reversed(source.model.graph.node):
        if needed & set(node.output):
            needed |= set(reads(node))
            if source.dynamic_inputs(node):
                live.append(node)
    source.nodes = live[::-1]
    for node in source.nodes:
        for name in node.output:
            source.producer[name] = node
        for name in dict.fromkeys(reads(node)):
            source.consumers.setdefault(name, []).append(node)


def size(shape: tuple[int, ...]) -> int:
    """Elements of a tensor."""
    return math.prod(shape)
