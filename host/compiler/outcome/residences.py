"""Residences as reports show them: what lies in the feature memory in an inference, and which commands touch it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ....golden.program import outline
from ....golden.units import Queue
from ..data.command import Command
from ..data.plan import Plan
from ..data.residence import Residence
from ..data.storage import Storage


@dataclass(eq=False)
class _Touched:
    """A residence with the commands that move what lies there, and those that read it."""

    residence: Residence
    moved: list[Command] = field(default_factory=list)
    read: list[Command] = field(default_factory=list)


def residences_of(plan: Plan) -> list[outline.Residence]:
    """Every residence of a finished plan that some command touches, in the order of the first job that does."""
    position = {command: number for number, command in enumerate(plan.commands)}
    #: Where the commands of each job stand in the order in which all could run one by one.
    places = [[position[command] for command in of_job] for of_job in plan.computes]
    found = [_Touched(residence) for residence in plan.residences]
    for residence, touched in zip(plan.residences, found, strict=True):
        for job in range(max(residence.first, 0), min(residence.last, len(plan.jobs) - 1) + 1):
            if _holds(residence, plan.jobs[job].target):
                touched.moved.extend(plan.computes[job])
            elif any(_holds(residence, source) for source in plan.jobs[job].sources):
                touched.read.extend(plan.computes[job])
    for command in plan.commands:
        address = _address(command)
        if address is not None:
            owner = _owner(plan.residences, places, address, position[command], command.opcode)
            found[owner].moved.append(command)
    # A part that lies wholly in the border has no bytes.
    numbers = {id(command): number for queue in Queue for number, command in enumerate(plan.queue(queue))}
    return [_shown(plan, touched, numbers) for touched in found if touched.moved or touched.read]


def _shown(plan: Plan, touched: _Touched, numbers: Mapping[int, int]) -> outline.Residence:
    name, storage = touched.residence.tensor, touched.residence.storage
    return outline.Residence(
        name,
        storage.address,
        storage.size_bytes,
        is_whole=name in plan.spans and plan.storages[name] == storage,
        dma=tuple(numbers[id(command)] for command in touched.moved if command.queue is Queue.DMA),
        written=tuple(numbers[id(command)] for command in touched.moved if command.queue is Queue.COMPUTE),
        read=tuple(numbers[id(command)] for command in touched.read),
    )


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
