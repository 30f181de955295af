"""An ONNX model: the bytes of its file, which are parsed once, and what its graph says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from ..files.files import read_file
from .as_read import as_onnx_runtime_reads

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Model:
    """An ONNX model. Hand it on as it is, not as bytes: these would be parsed again.

    Attributes
    ----------
    data : bytes
        The serialised ModelProto; empty where there is no model.
    """

    data: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, given: bytes | Model) -> Model:
        """The model that a user hands in, as the bytes of a file or read already."""
        return given if isinstance(given, Model) else cls(given)

    @classmethod
    def written(cls, proto: onnx.ModelProto) -> Model:
        """The model that was written in memory; nobody may change ``proto`` from now on."""
        model = cls(proto.SerializeToString())
        model.__dict__["proto"] = proto
        return model

    def __bool__(self) -> bool:
        """Whether there is a model."""
        return bool(self.data)

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """What the bytes say to ONNX Runtime, with nodes in order. It is shared: take a :meth:`copy` to change it.

        Raises
        ------
        google.protobuf.message.DecodeError
            If they are no ONNX model.
        """
        # It takes a while to import, which program files without host parts need not wait for.
        import onnx  # noqa: PLC0415

        proto = onnx.load_from_string(self.data)
        as_onnx_runtime_reads(proto)
        return proto

    def copy(self) -> onnx.ModelProto:
        """What the bytes say, to be changed."""
        # A model that is copied has been parsed.
        import onnx  # noqa: PLC0415

        copied = onnx.ModelProto()
        copied.CopyFrom(self.proto)
        return copied


# ONNX files, with the weights that they keep in files of their own beside them.


def read_model_file(path: str | Path) -> Model:
    """The model in a file, with everything that it refers to inside.

    Raises
    ------
    ValueError
        If the file cannot be read, or what it refers to.
    """
    return with_external_data(Model(read_file(path)), Path(path))


def external_files(model: onnx.ModelProto) -> list[str]:
    """Names of the files in which a model keeps tensors."""
    from onnx.external_data_helper import uses_external_data  # noqa: PLC0415

    # Not by ONNX's own reader, which fails where an offset is no number.
    entries = (entry for one in _tensors(model.graph) if uses_external_data(one) for entry in one.external_data)
    return sorted({entry.value for entry in entries if entry.key == "location"})


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def with_external_data(model: Model, path: Path) -> Model:
    """The model of an ONNX file with everything that it refers to inside; what is no ONNX model stays as it is.

    Raises
    ------
    ValueError
        If what it refers to cannot be read.
    """
    # It takes a while to import, which program files need not wait for.
    import onnx  # noqa: PLC0415
    from google.protobuf.message import DecodeError, EncodeError  # noqa: PLC0415
    from onnx.external_data_helper import load_external_data_for_model  # noqa: PLC0415

    try:
        files = external_files(model.proto)
    except DecodeError:
        # The frontend says what is wrong with it.
        return model
    if not files:
        return model
    shown = ", ".join(map(repr, files))
    whole = model.copy()
    try:
        load_external_data_for_model(whole, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{path}: keeps weights in {shown}, which must be readable in the same folder ({reason}); "
            "copy these files with it, or export the model again with external_data=False"
        ) from error
    try:
        return Model.written(whole)
    except (ValueError, EncodeError) as error:
        raise ValueError(f"{path}: must be less than 2 GB with its weights in {shown}: {error}") from error


# What the graph of a model says: inputs, tensors, and in which of the quantised forms it is.

_QDQ_KEY, _QDQ = "lutterfly.qdq", "1"


#: The first IR version in which an initializer need not be an input.
FREE_INITIALIZERS = 4


INTEGER_PRODUCTS = ("QLinearConv", "QGemm", "QLinearMatMul")


_PRODUCTS = ("Conv", "Gemm", "MatMul", "QGemm")


#: The producer of models that `lutterfly quantize` made.
QUANTISER = "lutterfly quantize"


def model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller must give; exporters of IR version 3 list every initializer among them."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initializers]


def keep_inputs(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Take all other inputs out of a model's list: they are initializers, and constants from then on."""
    kept = [value for value in model.graph.input if value.name in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, FREE_INITIALIZERS)


def is_qdq(model: onnx.ModelProto) -> bool:
    """Whether a model has the QDQ form: convolutions and matrix products work on dequantised weights, or, where it has
    none, no operator works on codes with scales of its own.

    A part that was cut out of a model says itself which form that has, see :func:`mark_form`.
    """
    for entry in model.metadata_props:
        if entry.key == _QDQ_KEY:
            return entry.value == _QDQ
    operators = {node.op_type for node in model.graph.node}
    if not any(operator in _PRODUCTS or operator.startswith("QLinear") for operator in operators):
        return "DequantizeLinear" in operators
    dequantised = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return any(node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in dequantised for node in model.graph.node)


def mark_form(part: onnx.ModelProto, *, qdq: bool) -> None:
    """Note in a part of a model which form the model has: ONNX Runtime must treat it as it treats the model."""
    part.metadata_props.add(key=_QDQ_KEY, value=_QDQ if qdq else "")


def has_unsigned(model: onnx.ModelProto) -> bool:
    """Whether some activations are uint8: their zero points are, since weights are int8."""
    written = [attribute.t for node in model.graph.node if node.op_type == "Constant" for attribute in node.attribute]
    return any(tensor.data_type == onnx.TensorProto.UINT8 for tensor in [*model.graph.initializer, *written])


def expose(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """A copy of the model with ``names`` as further outputs; ONNX Runtime infers their types."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    present = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in present)
    return exposed


def computed_tensors(model: onnx.ModelProto) -> list[str]:
    """Names of everything that the nodes of the model compute, in order."""
    return [name for node in model.graph.node for name in node.output if name]


def free_name(name: str, taken: set[str]) -> str:
    """The name, or one made of it that is not taken; it is then."""
    chosen = name
    number = 0
    while chosen in taken:
        number += 1
        chosen = f"{name}_{number}"
    taken.add(chosen)
    return chosen


def tensor_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the tensors of a graph, not of those within it; some several times."""
    for values in (graph.input, graph.initializer, graph.output, graph.value_info):
        yield from (value.name for value in values if value.name)
    yield from (value.values.name for value in graph.sparse_initializer)
    for node in graph.node:
        yield from (name for name in (*node.input, *node.output) if name)


def rename_tensors(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors in a graph and in those within it, which read them too."""
    for values in (graph.input, graph.initializer, graph.output, graph.value_info):
        for value in values:
            value.name = names.get(value.name, value.name)
    for value in graph.sparse_initializer:
        value.values.name = names.get(value.values.name, value.values.name)
    del graph.quantization_annotation[:]
    for node in graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
        for inner in _graphs(node):
            rename_tensors(inner, names)


def _graphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
