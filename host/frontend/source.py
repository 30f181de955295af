"""The measured model, the frontend's exceptions, and parts that are cut out of the model as models of their own."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np
import onnx
from onnx import NodeProto, helper

from ..model.as_read import reads
from ..model.model import Model
from ..model.model_graph import mark_form, model_inputs
from ..model.onnx_graph import OnnxGraph

# The frontend's exceptions, and remedies that their messages end with.

FOLD = (
    "fold it into the weights of a layer before quantising, as `lutterfly quantize` does after convolutions and Gemm "
    "(Brevitas: brevitas.nn.utils.merge_bn)"
)
FOLD_AFTER = FOLD.replace("merge_bn)", "merge_bn, or export_qonnx, which needs no folding)")
NORMALISE = (
    "train the network with batch normalisation, whose mean and deviation are constants that are folded into weights, "
    "or end the quantised network before it"
)
SPELL = (
    "quantise the float model with `lutterfly quantize`, which spells it as a convolution and DepthToSpace, or use "
    "scales that are powers of two"
)
REWRITE = (
    "quantise the float model with `lutterfly quantize`, which spells it with operators that run, or end the quantised "
    "network before it"
)
ATTEND = (
    "do without softcap, earlier keys and computed masks; quantise the float model with `lutterfly quantize`, which "
    "spells all other attention as products and a softmax, or end the quantised network before it"
)
ONE_TYPE = "quantise all activations to one type, as `lutterfly quantize` does with the float model"
REPLACE = "replace it, or end the quantised network before it"


#: Matches a remedy that names `lutterfly quantize`, at the end of a message.
_QUANTISING = re.compile(r"[^;]*\blutterfly quantize\b.*", re.DOTALL)


def without_quantising(text: str) -> str:
    """Return a message without the advice to use `lutterfly quantize`, for a model from that command."""
    return _QUANTISING.sub(f" {REPLACE}", text)


class ModelError(ValueError):
    """The model cannot run on the accelerator; the message names file, node or tensor, and the remedy."""


class UnsupportedError(Exception):
    """The accelerator cannot run a fragment; at an end of the network the host does.

    Attributes
    ----------
    reason, remedy : str
        The cause, and what the user can do.
    """

    def __init__(self, reason: str, remedy: str = REPLACE):
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class OperandError(UnsupportedError):
    """The weights or the bias of a product are no integers.

    Parameters
    ----------
    operand : str
        Kind of the operand, for messages.
    name : str
        Name of the tensor.
    problem : str
        Continuation of a sentence after the name.
    remedy : str
    """

    def __init__(self, operand: str, name: str, problem: str, remedy: str):
        super().__init__(f"the {operand} {name!r} {problem}", remedy)
        self.operand = operand
        self.problem = problem

    def of(self, name: str, remedy: str) -> OperandError:
        """Return the error with the user's name of the tensor, which may differ from ONNX Runtime's."""
        return OperandError(self.operand, name, self.problem, remedy)


# The properties that all functions that are layers have.


@dataclass(frozen=True)
class KernelGeometry:
    """A kernel of a convolution with its ONNX attributes; the kernel of a pointwise one has no sizes."""

    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()

    @property
    def attributes(self) -> dict[str, tuple[int, ...]]:
        """The ONNX attributes of a convolution; empty if it has no kernel."""
        names = ("strides", "dilations", "pads")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class LayerBody(Protocol):
    """The body of a function that is a layer, of any kind.

    Attributes
    ----------
    inputs, outputs : int
        Numbers of channels.
    spatial : int or None
        Number of dimensions after the channels; None where no constant determines it.
    geometry : KernelGeometry
    zero_point, result_zero_point : int
        Zero points of input and output, int8 codes.
    """

    inputs: int
    outputs: int
    spatial: int | None
    geometry: KernelGeometry
    zero_point: int
    result_zero_point: int


class Source(OnnxGraph):
    """A model in the form that the passes read.

    Parameters
    ----------
    name : str
        Name of the model, for messages.
    model : ModelProto
        The model with a unique name for every node; with a batch of 1 once that is fixed.
    file : Model
        The user's model, or its rewriting from QONNX.
    qdq : bool
        Whether it has the QDQ form.
    functions : mapping of (str, str) to LayerBody
        The model's functions that are layers, by domain and name.

    Attributes
    ----------
    constants : dict of str to array
        Initializers, and tensors that nodes compute from them alone.
    shapes, types : dict
        Shape and type of every activation, for one sample.
    nodes : list of NodeProto
        The nodes that depend on the inputs and that an output depends on, in order of execution; none before the model
        is measured.
    """

    shapes: dict[str, tuple[int, ...]]

    def __init__(
        self,
        name: str,
        model: onnx.ModelProto,
        file: Model,
        qdq: bool,
        functions: Mapping[tuple[str, str], LayerBody] = MappingProxyType({}),
    ):
        super().__init__(model, (), {})
        self.name, self.file, self.qdq, self.functions = name, file, qdq, functions
        self.types: dict[str, np.dtype] = {}

    @property
    def inputs(self) -> list[str]:
        """The model's inputs."""
        return [value.name for value in model_inputs(self.model)]

    @cached_property
    def named(self) -> dict[str, NodeProto]:
        """The nodes by name, at the time of the first access."""
        return {node.name: node for node in self.model.graph.node}

    @cached_property
    def float_initializers(self) -> frozenset[str]:
        """The names of float32 initializers, at the time of the first access."""
        float32 = onnx.TensorProto.FLOAT
        return frozenset(tensor.name for tensor in self.model.graph.initializer if tensor.data_type == float32)

    def is_codes(self, tensor: str) -> bool:
        """Return whether a tensor is an activation of int8 or uint8 codes."""
        return tensor in self.types and self.types[tensor] in (np.int8, np.uint8)

    def function(self, node: NodeProto) -> LayerBody | None:
        """Return the layer that a node calls, if it calls one."""
        return self.functions.get((node.domain, node.op_type))

    def dynamic_inputs(self, node: NodeProto) -> list[str]:
        """Return the inputs of a node that are activations."""
        return [name for name in reads(node) if name in self.shapes]


def connect(source: Source) -> None:
    """Find the nodes that an output depends on, and index the producer and the consumers of each tensor."""
    needed = set(source.outputs)
    live = []
    for node in reversed(source.model.graph.node):
        if needed & set(node.output):
            needed |= set(reads(node))
            if source.dynamic_inputs(node):
                live.append(node)
    source.nodes = live[::-1]
    source.index()


def size(shape: tuple[int, ...]) -> int:
    """Return the number of elements of a tensor."""
    return math.prod(shape)


# Parts of the model are cut out as models of their own: regions to tabulate, and head and tail for the host.

Dimensions = Sequence[int | str]


def cut(
    source: Source, nodes: Sequence[NodeProto], inputs: Mapping[str, Dimensions], outputs: Sequence[str]
) -> onnx.ModelProto:
    """Make a model of some nodes and of the constants that they need.

    Parameters
    ----------
    source : Source
    nodes : sequence of NodeProto
        In order of execution.
    inputs : mapping of str to dimensions
        Inputs of the new model, with their dimensions.
    outputs : sequence of str
        Outputs of the new model.
    """
    computed = set(inputs) | {name for node in nodes for name in node.output}
    constant_nodes = _constant_nodes(source, {*outputs, *(name for node in nodes for name in reads(node))} - computed)
    all_nodes = [*constant_nodes, *(_without(node, inputs) for node in nodes)]
    read = {name for node in all_nodes for name in reads(node)} | set(outputs)
    called = {(node.domain, node.op_type) for node in all_nodes}
    ends = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(source.types[name]), list(shape))
        for name, shape in inputs.items()
    ]
    held = [tensor for tensor in source.model.graph.initializer if tensor.name in read - inputs.keys()]
    model = source.part(all_nodes, ends, outputs, held)
    model.functions.extend(one for one in source.model.functions if (one.domain, one.name) in called)
    mark_form(model, qdq=source.qdq)
    return model


def cut_between(source: Source, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """Cut out the nodes between ``inputs`` and ``outputs``; the model's own inputs are added where they are needed."""
    needed, nodes = set(outputs) - set(inputs), []
    for node in reversed(source.nodes):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(source.dynamic_inputs(node)) - set(inputs)
    read = {name for node in nodes for name in source.dynamic_inputs(node)} | set(outputs)
    ends = [name for name in [*source.inputs, *inputs] if name in read]
    return cut(source, nodes[::-1], {name: source.shapes[name] for name in dict.fromkeys(ends)}, outputs)


def _without(node: NodeProto, given: Container[str]) -> NodeProto:
    """Return a node with other names for outputs that are inputs of the part; its other outputs are needed."""
    if not any(name in given for name in node.output):
        return node
    other = copy.deepcopy(node)
    other.output[:] = [f"{name} once more" if name in given else name for name in node.output]
    return other


def _constant_nodes(source: Source, needed: set[str]) -> list[NodeProto]:
    nodes = []
    for node in reversed(source.model.graph.node):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(reads(node))
    return nodes[::-1]
