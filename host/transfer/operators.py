"""Chains of ONNX operators, ``LeakyRelu:alpha=0.1``, as an ONNX model and as a function of numbers."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import defs, helper, numpy_helper

from ...golden.transfer.schemes import Float32
from ..model.model import Model
from ..model.model_graph import model_inputs
from ..model.runtime import RUNTIME_ERRORS, plain_session

OPSET = 21
#: Axes of the tensors of a chain of words: as many as most operators accept.
_RANK = 4

_PARSERS = {
    defs.OpSchema.AttrType.FLOAT: float,
    defs.OpSchema.AttrType.INT: int,
    defs.OpSchema.AttrType.STRING: str,
}


def chain_of(words: Sequence[str]) -> onnx.ModelProto:
    """Make a model of operators, in the order of execution.

    Parameters
    ----------
    words : sequence of str
        The ONNX name of each operator; after a colon and separated by commas its attributes, and numbers for inputs
        other than that of the chain: ``LeakyRelu:alpha=0.1``, ``Clip:min=0,max=6``, ``Sub:A=1``.

    Returns
    -------
    ModelProto
        A model from a float tensor of any four-dimensional shape to another one.

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
    """Read a model from a file and remove its shapes; only the number of axes is kept.

    Raises
    ------
    ValueError
        If it is not a model, or does not have one float input and one output.
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
    """Append the node of ``word`` and its constants; return the name of its result."""
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


# A chain of ONNX operators as a function of numbers, evaluated by ONNX Runtime once it has proved to be pointwise.

#: Lengths of pieces into which the numbers are cut for comparison: long ones, all of them, and single numbers.
_PIECES = (255, 1)
#: The most pieces of a length whose results are compared.
_MOST_PIECES = 512
#: ONNX Runtime's kernels may round a result differently at the end of a tensor; results that depend on other places
#: differ by more. A table holds the results of one tensor with all codes.
_ROUNDING = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}


class PointwiseError(ValueError):
    """The result of the chain at a place depends on more than the number there."""


class PointwiseFunction:
    """An elementwise function of float32 numbers.

    Parameters
    ----------
    model : ModelProto
        One float input of any shape with a known number of axes, one output.
    name : str
        The name in messages.
    """

    def __init__(self, model: onnx.ModelProto, name: str):
        self.model = model
        self.name = name

    def __call__(self, values: Float32) -> Float32:
        """Evaluate the chain.

        Parameters
        ----------
        values : float32[n]

        Returns
        -------
        float32[n]

        Raises
        ------
        PointwiseError
            If a result depends on its number's place in a tensor, on the numbers beside it, or on the tensor's shape;
            the message names the first operator for which that is so.
        ValueError
            If ONNX Runtime does not run the chain, or the result is not float.
        """
        try:
            return self._checked(self.model, values)
        except PointwiseError:
            for node, part in self._beginnings():
                try:
                    self._checked(part, values)
                except PointwiseError as error:
                    raise PointwiseError(f"{self.name}: {node.op_type} must be pointwise: {error}") from None
            raise

    def _checked(self, model: onnx.ModelProto, values: Float32) -> np.ndarray:
        try:
            session = plain_session(model, threads=1)
        except RUNTIME_ERRORS as error:
            raise self._refused(error) from None
        (given,) = session.get_inputs()
        # An unknown number of axes counts as one.
        rank = max(len(given.shape), 1)

        def run(array: Float32, axis: int) -> np.ndarray:
            shape = [1] * rank
            shape[axis] = array.size
            try:
                result = np.asarray(session.run(None, {given.name: array.reshape(shape)})[0])
            except RUNTIME_ERRORS as error:
                raise self._refused(error) from None
            if result.shape != tuple(shape):
                raise PointwiseError(
                    f"its result has the shape {list(result.shape)} for an input of the shape {shape}, "
                    "and must have the same"
                )
            return result.reshape(-1)

        whole = run(values, 0)
        for places in _arrangements(values.size):
            for axis in range(rank):
                _compare(values[places], whole[places], run(values[places], axis))
        return whole

    def _refused(self, error: Exception) -> ValueError:
        reason = str(error).splitlines()[0]
        return ValueError(
            f"{self.name}: must be a chain of pointwise operators that ONNX Runtime runs, on tensors of any shape, "
            f"and it does not: {reason}"
        )

    def _beginnings(self) -> Iterator[tuple[onnx.NodeProto, onnx.ModelProto]]:
        """Yield every node that depends on the input, in order, and the model that ends with it."""
        dependent = {value.name for value in model_inputs(self.model)}
        for node in self.model.graph.node:
            if dependent.isdisjoint(node.input):
                continue
            dependent.update(node.output)
            part = copy.deepcopy(self.model)
            part.graph.output[0].CopyFrom(onnx.ValueInfoProto(name=node.output[0]))
            yield node, part


def _arrangements(size: int) -> Iterator[np.ndarray]:
    """Yield arrangements of a tensor's numbers, in other orders and with other neighbours."""
    places = np.arange(size)
    yield places[::-1]
    for length in _PIECES:
        starts = places[::length]
        for start in starts[:: -(-starts.size // _MOST_PIECES)]:
            yield places[start : start + length]


def _compare(values: Float32, results: np.ndarray, others: np.ndarray) -> None:
    wrong = np.flatnonzero(~np.isclose(results, others, **_ROUNDING))
    if wrong.size:
        at = wrong[0]
        raise PointwiseError(
            f"for the input {values[at]:g} it gives {results[at]:g} or {others[at]:g}, "
            "depending on its place, or on the numbers beside it"
        )
