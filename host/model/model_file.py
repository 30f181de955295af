"""Model files: an ONNX file with the weights that it keeps in files of their own beside it, or a program file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...golden.program.program import MAGIC
from ..files.reading import read_file

if TYPE_CHECKING:
    import onnx


def read_model_file(path: str | Path) -> bytes:
    """The contents of a file, with everything that an ONNX file refers to inside.

    Raises
    ------
    ValueError
        If the file cannot be read, or what it refers to.
    """
    data = read_file(path)
    return data if data.startswith(MAGIC) else _with_external_data(data, Path(path))


def external_files(model: onnx.ModelProto) -> list[str]:
    """Names of the files in which a model keeps tensors."""
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data  # noqa: PLC0415

    return sorted({ExternalDataInfo(tensor).location for tensor in _tensors(model.graph) if uses_external_data(tensor)})


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _with_external_data(data: bytes, path: Path) -> bytes:
    # It takes a while to import, which program files need not wait for.
    import onnx  # noqa: PLC0415
    from google.protobuf.message import DecodeError, EncodeError  # noqa: PLC0415
    from onnx.external_data_helper import load_external_data_for_model  # noqa: PLC0415

    try:
        model = onnx.load_from_string(data)
    except DecodeError:
        # Who reads the model says what is wrong with it.
        return data
    files = external_files(model)
    if not files:
        return data
    shown = ", ".join(map(repr, files))
    try:
        load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{path}: keeps weights in {shown}, which must be readable in the same folder ({reason}); "
            "copy these files with it, or export the model again with external_data=False"
        ) from error
    try:
        return model.SerializeToString()
    except (ValueError, EncodeError) as error:
        raise ValueError(f"{path}: must be less than 2 GB with its weights in {shown}: {error}") from error
