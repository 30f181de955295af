"""Check a program file: its ONNX models, its ports and its tensors must fit one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError

from ...golden.elements import BINARY_BITS, CODE_BITS
from ...golden.program.program import Port, Program, SpilledTensor, WrittenTensor
from ..driver.ports import port_dtype
from ..graph import Graph
from ..model.runtime import RUNTIME_ERRORS, reason_of
from .loading import Loaded, require

# Whether the ONNX models in a program file and the accelerator's ports hand one another what they need.


def check_parts(loaded: Loaded) -> None:
    """Run head and tail once, on zeros for one sample.

    Raises
    ------
    ValueError
        If one of the models is none, or what it or a port needs is missing, or of another type or shape.
    """
    try:
        _check(loaded)
    except (DecodeError, *RUNTIME_ERRORS) as error:
        raise _damaged(
            f"{loaded.name}: program must hold models that ONNX Runtime runs, and does not: {reason_of(error)}"
        ) from error
    except ValueError as error:
        raise _damaged(f"{loaded.name}: program: {error}") from error


def _check(loaded: Loaded) -> None:
    program, (inputs, outputs) = loaded.program, loaded.ends
    values = {info.name: np.zeros((1, *info.sample_shape), info.dtype) for info in inputs}
    values |= loaded.head_part.run(values)
    for port in program.inputs:
        require("accelerator", port.name, values)
        _check_form(port, values[port.name], program.batch)
    for port in program.outputs:
        values[port.name] = np.zeros(_sample_shape(port, program.batch), port_dtype(port))
    values |= loaded.tail_part.run(values)
    for info in outputs:
        require("user", info.name, values)


def _check_form(port: Port, array: np.ndarray, batch: int) -> None:
    wanted = (port_dtype(port), _sample_shape(port, batch))
    if (array.dtype, array.shape) != wanted:
        raise ValueError(
            f"{port.name} must be {wanted[0]}{list(wanted[1])} for a sample, not {array.dtype}{list(array.shape)}"
        )


def _sample_shape(port: Port, batch: int) -> tuple[int, ...]:
    return (port.onnx_shape[0] // batch, *port.onnx_shape[1:])


def _damaged(message: str) -> ValueError:
    return ValueError(f"{message}; the file is damaged: compile again")


# Whether a program's tensors are those of its model.

#: What elements are called by their bits.
_KINDS = {CODE_BITS: "int8", BINARY_BITS: "binary"}


def check_tensors(program: Program, graph: Graph, name: str) -> None:
    """Raise ValueError if what a program says of its tensors is not what its model has; ``name`` is the file's."""
    ports = [*zip(program.inputs, graph.inputs, strict=False), *zip(program.outputs, graph.outputs, strict=False)]
    places = [(known, port.shape, port.bits) for port, known in ports]
    parts = [tensor for core in program.cores for tensor in (*core.written, *core.spilled)]
    places += [(part, _extent([other for other in parts if other.name == part]), bits) for part, bits in _kinds(parts)]
    for tensor, shape, bits in places:
        known = graph.tensors.get(tensor)
        if known is None:
            raise ValueError(f"{name}: {tensor} must be in the model, and is not; the file is damaged: compile again")
        if (known.shape, known.bits) != (shape, bits):
            wanted, found = (
                f"{_KINDS[width]}{list(size)}" for size, width in ((known.shape, known.bits), (shape, bits))
            )
            raise ValueError(f"{name}: {tensor} must be {wanted}, not {found}; the file is damaged: compile again")


def _kinds(parts: Sequence[WrittenTensor | SpilledTensor]) -> list[tuple[str, int]]:
    """Names and bits of the tensors that these are parts of."""
    return list(dict.fromkeys((part.name, part.bits) for part in parts))


def _extent(parts: Sequence[WrittenTensor | SpilledTensor]) -> tuple[int, int, int]:
    """The shape of a tensor that has such parts."""
    height = max(part.row + part.shape[0] for part in parts)
    channels = max(part.channel + part.shape[2] for part in parts)
    return height, max(part.shape[1] for part in parts), channels
