"""Occupancy of the feature memory: the compiler's addresses, with the times of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...golden.program.outline import CoreOutline
from .observe import Observation


@dataclass(frozen=True, slots=True)
class Occupant:
    """A tensor, or a part of one, in the feature memory.

    Bytes that are not read any more may hold another tensor before its end.

    Attributes
    ----------
    tensor : str
    address, size_bytes : int
        The address range, with its padding.
    begin, end : int
        Measured cycles, from the beginning of the first command that writes it to the end of the last one, or to the
        issue of the last step that reads it.
    is_whole : bool
        Whether it is the whole tensor.
    """

    tensor: str
    address: int
    size_bytes: int
    begin: int
    end: int
    is_whole: bool


def occupants(outline: CoreOutline, observation: Observation) -> list[Occupant]:
    """Return all tensors in the feature memory during an inference, in the order of their first use."""
    found = []
    for placed in outline.placed:
        moved = [observation.dma[index] for index in placed.dma]
        moved += [observation.compute[index] for index in placed.written]
        read = [observation.compute[index] for index in placed.read]
        begin = min(ran.begin for ran in (*moved, *read))
        end = max([*(ran.end for ran in moved), *(ran.issued for ran in read)])
        found.append(Occupant(placed.tensor, placed.address, placed.size_bytes, begin, end, placed.is_whole))
    return found


def used_bytes(found: Sequence[Occupant]) -> Mapping[int, int]:
    """Return the used bytes of the feature memory, from each cycle on in which they may change."""
    levels = {}
    for cycle in sorted({cycle for occupant in found for cycle in (occupant.begin, occupant.end)}):
        ranges = sorted(
            (occupant.address, occupant.address + occupant.size_bytes)
            for occupant in found
            if occupant.begin <= cycle < occupant.end
        )
        level = covered = 0
        for start, end in ranges:
            level += max(end - max(start, covered), 0)
            covered = max(covered, end)
        levels[cycle] = level
    return levels
