"""Measure a model: ONNX Runtime itself tells its constants, and the shape and type of every tensor for one sample."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, numpy_helper

from ...model.as_read import reads
from ...model.model_graph import computed_tensors, expose, model_inputs
from ...model.runtime import RUNTIME_ERRORS, plain_session
from .errors import ModelError
from .source import Source, connect, size

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


def fix_batch(model: ModelProto) -> None:
    """Set the batch to 1: the accelerator runs one sample at a time."""
    for value in model_inputs(model):
        batch = value.type.tensor_type.shape.dim[0]
        batch.Clear()
        batch.dim_value = 1
    for value in model.graph.output:
        # One without a type would get an empty one.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]


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
