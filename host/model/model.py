"""An ONNX model: the bytes of its file, which are parsed once, and the weights that it keeps in files beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

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
