"""Whether a program's tensors are those of its model."""

from __future__ import annotations

from collections.abc import Sequence

from ...golden.elements import BINARY_BITS, CODE_BITS
from ...golden.program.program import Program, SpilledTensor, WrittenTensor
from ..graph import Graph

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
