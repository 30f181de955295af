"""The measured model, what is raised of it, and parts that are cut out of it as models of their own."""

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

# What the frontend raises.

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


#: Remedies that name `lutterfly quantize`: they end a message.
_QUANTISING = re.compile(r"[^;]*\blutterfly quantize\b.*", re.DOTALL)


def without_quantising(text: str) -> str:
    """A message without the advice to quantise with `lutterfly quantize`, for a model that this has made."""
    return _QUANTISING.sub(f" {REPLACE}", text)


class ModelError(ValueError):
    """The model cannot run on the accelerator; the message names file, node or tensor, and the remedy."""


class UnsupportedError(Exception):
    """The accelerator cannot run a fragment; at an end of the network the host does.

    Attributes
    ----------
    reason, remedy : str
        What is wrong, and what the user can do.
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
        Which of them, for messages.
    name : str
        Of the tensor.
    problem : str
        What it is, as a sentence goes on behind the name.
    remedy : str
    """

    def __init__(self, operand: str, name: str, problem: str, remedy: str):
        super().__init__(f"the {operand} {name!r} {problem}", remedy)
        self.operand = operand
        self.problem = problem

    def of(self, name: str, remedy: str) -> OperandError:
        """The same of a tensor that the user calls otherwise than ONNX Runtime does."""
        return OperandError(self.operand, name, self.problem, remedy)


# What functions of the model that are layers compute, as far as all kinds of them have it.


@dataclass(frozen=True)
class Geometry:
    """A kernel of a convolution, its attributes as ONNX has them; the kernel of a pointwise one has no sizes."""

    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()

    @property
    def attributes(self) -> dict[str, tuple[int, ...]]:
        """Of a convolution; none where it has no kernel."""
        names = ("strides", "dilations", "pads")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class LayerBody(Protocol):
    """What a function computes, as far as all kinds of layers have it.

    Attributes
    ----------
    inputs, outputs : int
        Channels.
    spatial : int or None
        Dimensions after the channels; None where no constant tells.
    geometry : Geometry
    zero_point, result_zero_point : int
        int8 codes, of input and output.
    """

    inputs: int
    outputs: int
    spatial: int | None
    geometry: Geometry
    zero_point: int
    result_zero_point: int


class Source(OnnxGraph):
    """A model as the passes see it.

    Parameters
    ----------
    name : str
        For messages.
    model : ModelProto
        The model with a unique name for every node; with a batch of 1 once that is fixed.
    file : Model
        The model as the user gave it, or as it was rewritten from QONNX.
    qdq : bool
        Whether it has the QDQ form.
    functions : mapping of (str, str) to LayerBody
        By domain and name, those of the model that are layers.

    Attributes
    ----------
    constants : dict of str to array
        Initializers, and whatever the nodes compute from them alone.
    shapes, types : dict
        Of every activation, for one sample.
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
    """Elements of a tensor."""
    return math.prod(shape)


# Cut parts out of the model as models of their own: regions to tabulate, head and tail that run on the host.

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
        What the model reads.
    outputs : sequence of str
        What it computes.
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
    """Cut out everything between ``inputs`` and ``outputs``; the model's own inputs are added where they are needed."""
    needed, nodes = set(outputs) - set(inputs), []
    for node in reversed(source.nodes):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(source.dynamic_inputs(node)) - set(inputs)
    read = {name for node in nodes for name in source.dynamic_inputs(node)} | set(outputs)
    ends = [name for name in [*source.inputs, *inputs] if name in read]
    return cut(source, nodes[::-1], {name: source.shapes[name] for name in dict.fromkeys(ends)}, outputs)


def _without(node: NodeProto, given: Container[str]) -> NodeProto:
    """A node of which some outputs are given already, under other names: others of it are needed."""
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
