"""Residences as reports show them: what lies in the feature memory in an inference, and which commands touch it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ....golden.program import outline
from ....golden.units import Queue
from ..data.command import Command
from ..data.plan import Plan
from ..data.residence import Residence


@dataclass(eq=False)
class _Touched:
    """A residence with the commands that move what lies there, and those that read it."""

    residence: Residence
    moved: list[Command] = field(default_factory=list)
    read: list[Command] = field(default_factory=list)


def residences_of(plan: Plan) -> list[outline.Residence]:
    """Every residence of a finished plan that some command touches, in the order of the first job that does."""
    found = [_Touched(residence) for residence in plan.residences]
    _add_computes(plan, found)
    owners = _owners(plan)
    for command in plan.commands:
        if command in owners:
            found[owners[command]].moved.append(command)
    # A part that lies wholly in the border has no bytes.
    numbers = {id(command): number for queue in Queue for number, command in enumerate(plan.queue(queue))}
    return [_shown(plan, touched, numbers) for touched in found if touched.moved or touched.read]


def _add_computes(plan: Plan, found: Sequence[_Touched]) -> None:
    """Add the commands of each job to what it writes and to what it reads."""
    latest, begun = _nobody(plan), 0
    for number, (job, commands) in enumerate(zip(plan.jobs, plan.computes, strict=True)):
        while begun < len(found) and found[begun].residence.first <= number:
            latest[_place(found[begun].residence)] = begun
            begun += 1
        # What is there at one time does not overlap, and residences are in the order of their first job.
        target, *sources = (int(latest[storage.address]) for storage in (job.target, *job.sources))
        here = {owner for owner in (target, *sources) if owner >= 0 and found[owner].residence.last >= number}
        if target in here:
            found[target].moved.extend(commands)
        for owner in here - {target}:
            found[owner].read.extend(commands)


def _owners(plan: Plan) -> dict[Command, int]:
    """Whose bytes each command of the DMA queue moves, of all that lie at an address one after the other.

    What is written is for the first that is still needed, what is stored is of the last that has begun. Both are walked
    in the order in which residences come to be asked about, so that each of them is taken once.
    """
    position = {command: number for number, command in enumerate(plan.commands)}
    moving = [(command, address) for command in plan.commands if (address := _address(command)) is not None]
    owners: dict[Command, int] = {}

    def begin(residence: Residence) -> int:
        return -1 if residence.first < 0 else position[plan.computes[residence.first][0]]

    def end(residence: Residence) -> int:
        return len(position) if residence.last >= len(plan.jobs) else position[plan.computes[residence.last][-1]]

    latest, begun = _nobody(plan), 0
    for command, address in moving:
        if command.opcode is Opcode.STORE:
            while begun < len(plan.residences) and begin(plan.residences[begun]) < position[command]:
                latest[_place(plan.residences[begun])] = begun
                begun += 1
            owners[command] = int(latest[address])
    ending = sorted(range(len(plan.residences)), key=lambda number: end(plan.residences[number]))
    earliest = np.full(plan.config.memory.feature_bytes, len(plan.residences))
    for command, address in reversed(moving):
        if command.opcode is not Opcode.STORE:
            while ending and end(plan.residences[ending[-1]]) > position[command]:
                number = ending.pop()
                place = _place(plan.residences[number])
                earliest[place] = np.minimum(earliest[place], number)
            owners[command] = int(earliest[address])
    return owners


def _nobody(plan: Plan) -> npt.NDArray[np.int64]:
    """The number of a residence for each byte of the feature memory: of none yet."""
    return np.full(plan.config.memory.feature_bytes, -1)


def _place(residence: Residence) -> slice:
    """Its bytes in the feature memory."""
    storage = residence.storage
    return slice(storage.address, storage.address + storage.size_bytes)


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


def _address(command: Command) -> int | None:
    """An address of the feature memory that a command of the DMA queue writes or reads; None where it does not."""
    if command.opcode is Opcode.STORE:
        return int(command.reads[0])
    is_feature = command.opcode is Opcode.FILL or (
        command.opcode is Opcode.LOAD and command.fields["memory"] == LocalMemory.FEATURE
    )
    return int(command.writes[0]) if is_feature else None
