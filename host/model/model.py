"""An ONNX model: the bytes of its file, and what they say, which is parsed once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

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
