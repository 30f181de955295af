"""Chains of ONNX operators as words, ``LeakyRelu:alpha=0.1``, or as a file; both become an ONNX model."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import defs, helper, numpy_helper

from ..model.model import Model, model_inputs

OPSET = 21
#: Axes of the tensors that a chain of words works on: as many as most operators know.
_RANK = 4

_PARSERS = {
    defs.OpSchema.AttrType.FLOAT: float,
    defs.OpSchema.AttrType.INT: int,
    defs.OpSchema.AttrType.STRING: str,
}


def chain_of(words: Sequence[str]) -> onnx.ModelProto:
    """Make a model of operators, the first of which works first.

    Parameters
    ----------
    words : sequence of str
        ONNX's name of an operator each; after a colon and separated by commas its attributes, and numbers for inputs
        other than the one that the chain goes through: ``LeakyRelu:alpha=0.1``, ``Clip:min=0,max=6``, ``Sub:A=1``.

    Returns
    -------
    ModelProto
        From one float tensor of any four-dimensional shape to another.

    Raises
    ------
    ValueError
        If there is no such operator, attribute or input, or one that it needs is missing.
    """
    nodes, constants, tensor = [], [], "x"
    for number, word in enumerate(words):
        try:
            tensor = _add(word, f"{number}", tensor, nodes, constants)
        except ValueError as error:
            raise ValueError(f"{word}: {error}") from None
    shape = [f"d{axis}" for axis in range(_RANK)]
    ends = [[helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)], [onnx.ValueInfoProto(name=tensor)]]
    graph = helper.make_graph(nodes, "chain", *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def read_chain(file: Model, name: str) -> onnx.ModelProto:
    """Take a model from a file, freed of the shapes that it was made for; only the number of axes is kept.

    Raises
    ------
    ValueError
        If it is no model, or does not have one float input and one output.
    """
    try:
        model = file.copy()
    except DecodeError:
        raise ValueError(f"{name}: must be an ONNX file; export the chain of operators to ONNX") from None
    inputs = model_inputs(model)
    if len(inputs) != 1 or len(model.graph.output) != 1:
        raise ValueError(
            f"{name}: must have one input and one output, not {len(inputs)} and {len(model.graph.output)}; "
            "cut the chain of operators out of the network"
        )
    kind = inputs[0].type.tensor_type
    if kind.elem_type != onnx.TensorProto.FLOAT:
        found = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
        raise ValueError(
            f"{name}: input {inputs[0].name} must be float, not {found}; "
            "leave out the quantisation, which the two schemes say"
        )
    rank = len(kind.shape.dim) if kind.HasField("shape") else _RANK
    shape = [f"d{axis}" for axis in range(rank)]
    inputs[0].CopyFrom(helper.make_tensor_value_info(inputs[0].name, onnx.TensorProto.FLOAT, shape))
    model.graph.output[0].CopyFrom(onnx.ValueInfoProto(name=model.graph.output[0].name))
    del model.graph.value_info[:]
    return model


def _add(word: str, prefix: str, tensor: str, nodes: list, constants: list) -> str:
    """Append the node of ``word`` and its constants; the name of what it computes."""
    name, colon, rest = word.partition(":")
    schema = _schema(name)
    options = _options(rest) if colon else {}
    values = {key: _attribute(schema, key, options.pop(key)) for key in list(options) if key in schema.attributes}
    numbers = {formal.name for formal in schema.inputs}
    unknown = [key for key in options if key not in numbers]
    if unknown:
        known = ", ".join([*schema.attributes, *sorted(numbers)]) or "nothing"
        raise ValueError(f"{unknown[0]} must be an attribute or an input of {name}: {known}")
    inputs, is_placed = [], False
    for formal in schema.inputs:
        if formal.name in options:
            inputs.append(f"{prefix}.{formal.name}")
            constants.append(numpy_helper.from_array(_constant(formal, options[formal.name]), inputs[-1]))
        elif not is_placed:
            inputs.append(tensor)
            is_placed = True
        elif formal.option == defs.OpSchema.FormalParameterOption.Single:
            raise ValueError(f"{formal.name} must be given, as {name}:{formal.name}=1")
        else:
            inputs.append("")
    if not is_placed:
        raise ValueError("one input must be left for the chain to go through")
    while not inputs[-1]:
        inputs.pop()
    nodes.append(helper.make_node(name, inputs, [f"{prefix}.{name}"], f"{prefix} {word}", **values))
    return f"{prefix}.{name}"


def _schema(name: str) -> defs.OpSchema:
    try:
        return defs.get_schema(name, OPSET)
    except defs.SchemaError:
        known = {schema.name for schema in defs.get_all_schemas() if not schema.domain}
        near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], 1, 0.8)
        hint = "".join(f"; did you mean {one}" for one in known if [one.lower()] == near)
        raise ValueError(f"operator must be one of ONNX's (operator set {OPSET}), as Tanh or Erf{hint}") from None


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in text.split(","):
        key, equals, value = option.partition("=")
        if not key or not equals or not value:
            raise ValueError(f"options must be NAME=VALUE, separated by commas, not {option or 'nothing'}")
        if key in found:
            raise ValueError(f"{key} must be given once, not twice")
        found[key] = value
    return found


def _attribute(schema: defs.OpSchema, key: str, text: str) -> float | int | str:
    parse = _PARSERS.get(schema.attributes[key].type)
    if parse is None:
        raise ValueError(f"{key} must be in an ONNX file: it is neither a number nor a word; name one with --model")
    try:
        return parse(text)
    except ValueError:
        raise ValueError(f"{key} must be a {'whole ' * (parse is int)}number, not {text}") from None


def _constant(formal: defs.OpSchema.FormalParameter, text: str) -> np.ndarray:
    is_float = "tensor(float)" in formal.types
    try:
        return np.array(float(text), np.float32) if is_float else np.array(int(text), np.int64)
    except (ValueError, OverflowError):
        raise ValueError(f"{formal.name} must be a {'' if is_float else 'whole '}number, not {text}") from None
