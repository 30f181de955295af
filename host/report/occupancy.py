"""What lies in the feature memory from when to when: the compiler's addresses, with the times of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...golden.isa import LocalMemory, Opcode
from ..compiler.jobs import Residence
from ..compiler.plan import Command, Plan
from ..compiler.storage import Storage
from .observe import Observation

#: First cycle, and the one behind the last.
_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Occupant:
    """A tensor, or a part of one, in the feature memory.

    Bytes that nobody reads any more may hold another one before its end.

    Attributes
    ----------
    tensor : str
    address, size_bytes : int
        Where, with its border.
    begin, end : int
        From when the first command that writes it begins until the last that writes it ends, or the last step that
        reads it is issued: measured, in cycles.
    is_whole : bool
        Whether it is the whole tensor.
    """

    tensor: str
    address: int
    size_bytes: int
    begin: int
    end: int
    is_whole: bool


def occupants(plan: Plan, observation: Observation) -> list[Occupant]:
    """Everything that lies in the feature memory in the course of an inference, in the order of its first use."""
    commands = {id(ran.command): ran for ran in (*observation.dma, *observation.compute)}
    position = {id(command): number for number, command in enumerate(plan.commands)}
    #: Where the commands of each job stand in the order in which all could run one by one.
    places = [[position[id(command)] for command in of_job] for of_job in plan.computes]
    touched: list[list[_Span]] = [[] for _ in plan.residences]
    for number, residence in enumerate(plan.residences):
        for job in range(max(residence.first, 0), min(residence.last, len(plan.jobs) - 1) + 1):
            ran = [commands[id(command)] for command in plan.computes[job]]
            if _holds(residence, plan.jobs[job].target):
                touched[number] += [(command.begin, command.end) for command in ran]
            elif _reads(plan, job, residence):
                touched[number] += [(command.begin, command.issued) for command in ran]
    for command in plan.commands:
        address = _address(command)
        if address is not None:
            owner = _owner(plan.residences, places, address, position[id(command)], command.opcode)
            ran = commands[id(command)]
            touched[owner].append((ran.begin, ran.end))
    # A part that lies wholly in the border has no bytes.
    found = zip(plan.residences, touched, strict=True)
    return [_occupant(plan, residence, spans) for residence, spans in found if spans]


def used_bytes(found: Sequence[Occupant]) -> Mapping[int, int]:
    """Bytes of the feature memory that are taken, from each cycle on in which that may change."""
    levels = {}
    for cycle in sorted({cycle for occupant in found for cycle in (occupant.begin, occupant.end)}):
        spans = sorted(
            (occupant.address, occupant.address + occupant.size_bytes)
            for occupant in found
            if occupant.begin <= cycle < occupant.end
        )
        level = covered = 0
        for start, end in spans:
            level += max(end - max(start, covered), 0)
            covered = max(covered, end)
        levels[cycle] = level
    return levels


def _reads(plan: Plan, job: int, residence: Residence) -> bool:
    return any(_holds(residence, source) for source in plan.jobs[job].sources)


def _holds(residence: Residence, storage: Storage) -> bool:
    """Whether what a job reads or writes is a tensor, a view of it, or a part of it that is there."""
    return residence.storage.address <= storage.address < residence.storage.address + residence.storage.size_bytes


def _address(command: Command) -> int | None:
    """An address of the feature memory that a command of the DMA queue writes or reads; None where it does not."""
    if command.opcode is Opcode.STORE:
        return int(command.reads[0])
    is_feature = command.opcode is Opcode.FILL or (
        command.opcode is Opcode.LOAD and command.fields["memory"] == LocalMemory.FEATURE
    )
    return int(command.writes[0]) if is_feature else None


def _owner(
    residences: Sequence[Residence], places: Sequence[Sequence[int]], address: int, position: int, opcode: Opcode
) -> int:
    """Whose bytes a command moves, of all that lie at an address one after the other.

    What is written is for the first that is still needed, what is stored is the last that has begun.
    """
    here = [
        number
        for number, residence in enumerate(residences)
        if residence.storage.address <= address < residence.storage.address + residence.storage.size_bytes
    ]
    if opcode is Opcode.STORE:
        return [
            number for number in here if residences[number].first < 0 or places[residences[number].first][0] < position
        ][-1]
    return next(
        number
        for number in here
        if residences[number].last >= len(places) or places[residences[number].last][-1] > position
    )


def _occupant(plan: Plan, residence: Residence, spans: Sequence[_Span]) -> Occupant:
    storage = residence.storage
    return Occupant(
        residence.tensor,
        storage.address,
        storage.size_bytes,
        min(begin for begin, _ in spans),
        max(end for _, end in spans),
        residence.tensor in plan.spans and plan.storages[residence.tensor] == storage,
    )
