"""An ONNX model: the bytes of its file, which are parsed once, and the weights that it keeps in files beside it."""

from __future__ import annotations

import copy
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
    """An ONNX model. Pass this object on instead of its bytes, which would be parsed again.

    Attributes
    ----------
    data : bytes
        The serialised ModelProto; empty where there is no model.
    """

    data: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, given: bytes | Model) -> Model:
        """Return the model of a user, given as the bytes of a file or as a model."""
        return given if isinstance(given, Model) else cls(given)

    @classmethod
    def written(cls, proto: onnx.ModelProto) -> Model:
        """Return the model of ``proto``, which must not be changed from now on."""
        model = cls(proto.SerializeToString())
        model.__dict__["proto"] = proto
        return model

    def __bool__(self) -> bool:
        """Whether there is a model."""
        return bool(self.data)

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The parsed model, as ONNX Runtime reads it, with nodes in order. It is shared: use :meth:`copy` to change it.

        Raises
        ------
        google.protobuf.message.DecodeError
            If the bytes are not an ONNX model.
        """
        # The import takes a while, and program files without host parts do not need it.
        import onnx  # noqa: PLC0415

        proto = onnx.load_from_string(self.data)
        as_onnx_runtime_reads(proto)
        return proto

    def copy(self) -> onnx.ModelProto:
        """Return the parsed model as a copy that may be changed."""
        return copy.deepcopy(self.proto)


# ONNX files, including external data files with weights.


def read_model_file(path: str | Path) -> Model:
    """Read a model from a file, with its external data inside.

    Raises
    ------
    ValueError
        If the file, or a file of external data, cannot be read.
    """
    return with_external_data(Model(read_file(path)), Path(path))


def external_files(model: onnx.ModelProto) -> list[str]:
    """Return the names of the external data files of a model."""
    from onnx.external_data_helper import uses_external_data  # noqa: PLC0415

    # ONNX's own reader is not used, as it fails where an offset is not a number.
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
    """Return the model of an ONNX file with its external data inside; data that are not an ONNX model stay unchanged.

    Raises
    ------
    ValueError
        If external data cannot be read.
    """
    # The import takes a while, and program files do not need it.
    import onnx  # noqa: PLC0415
    from google.protobuf.message import DecodeError, EncodeError  # noqa: PLC0415
    from onnx.external_data_helper import load_external_data_for_model  # noqa: PLC0415

    try:
        files = external_files(model.proto)
    except DecodeError:
        # The frontend reports the error.
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
