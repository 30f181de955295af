"""The model, measured: its constants, and the shape and type of every tensor for one sample."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, numpy_helper

from ..reference import RUNTIME_ERRORS, computed_tensors, expose, model_inputs, plain_session
from .body import LayerBody
from .errors import ModelError

_OF_SHAPE = ("Shape", "Size")
_TENSOR = re.compile(r"tensor\((\w+)\)")
#: What ONNX Runtime hands over as NumPy arrays.
_NUMPY_ELEMENTS = (
    "float",
    "double",
    "float16",
    "bool",
    "string",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


@dataclass
class Source:
    """A model as the passes see it.

    Attributes
    ----------
    name : str
        For messages.
    model : ModelProto
        The model with a unique name for every node; with a batch of 1 once that is fixed.
    data : bytes
        The file as the user gave it.
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
    data: bytes
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

    def is_codes(self, tensor: str) -> bool:
        """Whether a tensor is an activation of int8 or uint8 codes."""
        return tensor in self.types and self.types[tensor] in (np.int8, np.uint8)

    def function(self, node: NodeProto) -> LayerBody | None:
        """The layer that a node calls, if it calls one."""
        return self.functions.get((node.domain, node.op_type))

    def dynamic_inputs(self, node: NodeProto) -> list[str]:
        """The inputs of a node that are activations."""
        return [name for name in reads(node) if name in self.shapes]


def fix_batch(source: Source) -> None:
    """Set the batch to 1: the accelerator runs one sample at a time."""
    for value in model_inputs(source.model):
        batch = value.type.tensor_type.shape.dim[0]
        batch.Clear()
        batch.dim_value = 1
    for value in source.model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del source.model.graph.value_info[:]


def measure(source: Source) -> None:
    """Run the model once on zeros: every constant, and the shape and type of every activation, as ONNX Runtime has
    them.

    Raises
    ------
    ModelError
        If ONNX Runtime cannot run the model, or an output is a single number for all samples of a batch.
    """
    model = source.model
    source.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    dynamic = set(source.inputs)
    for node in model.graph.node:
        # A shape is known once the batch is fixed, whatever the values.
        if node.op_type not in _OF_SHAPE and (dynamic & set(reads(node)) or node.op_type.startswith("Random")):
            dynamic |= set(node.output)
    dynamic.discard("")
    names = computed_tensors(model)
    try:
        session = plain_session(expose(model, names))
        _check_elements(source, session)
        feeds = {value.name: np.zeros(value.shape, _numpy_type(value.type)) for value in session.get_inputs()}
        values = dict(zip(names, session.run(names, feeds), strict=True)) | feeds
    except RUNTIME_ERRORS as error:
        raise ModelError(f"{source.name}: ONNX Runtime cannot run the model: {str(error).splitlines()[0]}") from error
    except MemoryError as error:
        raise ModelError(
            f"{source.name}: the network must fit this machine's memory, and does not: {error}; export it "
            "for smaller inputs"
        ) from error
    for name, value in values.items():
        if name not in dynamic and isinstance(value, np.ndarray):
            source.constants[name] = value
        elif isinstance(value, np.ndarray):
            source.shapes[name] = value.shape
            source.types[name] = value.dtype
    _fold_shapes(source)
    _spell_reshapes(source)
    _spell_identities(source)
    connect(source)
    _check_outputs(source)


def _check_outputs(source: Source) -> None:
    for name in source.outputs:
        if source.shapes.get(name) == ():
            node = next(node for node in source.model.graph.node if name in node.output)
            raise ModelError(
                f"{source.name}: output {name!r} must have a batch dimension, and {node.op_type} "
                f"{node.name!r} gives a single number; keep its dimensions (keepdims), or end the network "
                "before it"
            )
        if name not in source.shapes and name in source.constants and source.constants[name].shape == ():
            raise ModelError(
                f"{source.name}: output {name!r} must have a batch dimension, and is a constant number, whatever the "
                "input; take it out of the outputs (Brevitas: return_quant_tensor=False in the last layer)"
            )


def _fold_shapes(source: Source) -> None:
    """Write shapes of activations as the constants that they are, so that nothing reads the activation for them."""
    graph = source.model.graph
    for node in [node for node in graph.node if node.op_type in _OF_SHAPE]:
        graph.node.remove(node)
        graph.initializer.append(numpy_helper.from_array(source.constants[node.output[0]], node.output[0]))


def _spell_reshapes(source: Source) -> None:
    """Write a Gather that takes every element once and in order, as PyTorch exports views of strides, as a Reshape."""
    for node in source.model.graph.node:
        if node.op_type != "Gather" or node.input[0] not in source.shapes or node.input[1] not in source.constants:
            continue
        shape = source.shapes[node.input[0]]
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        taken = np.arange(size(shape)).reshape(shape).take(source.constants[node.input[1]], axis)
        if not np.array_equal(taken.reshape(-1), np.arange(size(shape))):
            continue
        target = f"{node.output[0]} shape"
        source.constants[target] = np.array(taken.shape)
        source.model.graph.initializer.append(numpy_helper.from_array(source.constants[target], target))
        node.op_type, node.input[1] = "Reshape", target
        del node.attribute[:]


def _spell_identities(source: Source) -> None:
    """Write a Slice of everything, a Split into one part and a Concat of one tensor, as exporters leave them, as the
    Identity that they are.
    """
    for node in source.model.graph.node:
        if _is_identity(source, node):
            node.op_type = "Identity"
            del node.input[1:]
            del node.attribute[:]


def _is_identity(source: Source, node: NodeProto) -> bool:
    if node.op_type == "Slice":
        steps = source.constants.get(node.input[4]) if len(node.input) > 4 else np.ones(1)
        forwards = steps is not None and (steps == 1).all()
        return forwards and source.shapes.get(node.input[0]) == source.shapes.get(node.output[0])
    return (node.op_type, len(node.output)) == ("Split", 1) or (node.op_type, len(node.input)) == ("Concat", 1)


def reads(node: NodeProto) -> list[str]:
    """The tensors that a node reads, those that its branches and bodies take from outside included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {item.name for item in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            inside = [*(name for inner in graph.node for name in reads(inner)), *(item.name for item in graph.output)]
            names += [name for name in inside if name not in own]
    return names


def _check_elements(source: Source, session: onnxruntime.InferenceSession) -> None:
    for value in [*session.get_inputs(), *session.get_outputs()]:
        found = _TENSOR.fullmatch(value.type)
        if found is not None and found[1] not in _NUMPY_ELEMENTS:
            maker = next((node for node in source.model.graph.node if value.name in node.output), None)
            made = "" if maker is None else f" of {maker.op_type} {maker.name!r}"
            raise ModelError(
                f"{source.name}: {value.name!r}{made} must be of a type that NumPy has, not {found[1]}; "
                "export the model with float32 instead"
            )


def _numpy_type(name: str) -> np.dtype:
    element = name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(element, element))


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
