"""Tokens: make every command wait for exactly what it depends on, and prove that nothing waits for ever."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....golden.isa import Opcode
from ....golden.units import Queue
from ..data.command import Command
from ..data.plan import Plan
from ..data.storage import NO_ADDRESSES, Addresses
from ..data.units import unit_count
from .landed import Landed
from .observed import check_observed, observations
from .rehearsal import rehearse


@dataclass
class _Known:
    """What is known of one queue while its commands are taken in order.

    ``done`` and ``other_done`` are the latest commands of this and of the other queue that are complete when the
    command at hand begins, ``latest`` is the latest command of each kind, ``compared`` for each byte the one after
    which verification compares it.
    """

    size: int
    commands: list[Command] = field(default_factory=list)
    latest: dict[Opcode, int] = field(default_factory=dict)
    done: int = -1
    other_done: int = -1
    knowledge: list[tuple[int, int]] = field(default_factory=list)
    last_write: np.ndarray = None
    last_read: np.ndarray = None
    compared: np.ndarray = None

    def __post_init__(self) -> None:
        self.last_write, self.last_read, self.compared = (np.full(self.size, -1) for _ in range(3))


def synchronise(plan: Plan) -> Plan:
    """Set ``after``, ``waits_for`` and ``signal`` of all commands.

    Commands are taken in an order in which they could run one by one, so that all waiting points backwards and cannot
    go round. A command waits for the latest command of the other queue that writes what it reads or writes, or reads
    what it writes, or that it follows, or after which verification compares what it writes. Within the compute queue
    only reading what may still be under way needs `after`, and writing what may still be compared (:mod:`.landed`):
    results land, and words are read, in order. Within the DMA queue the hardware separates loads and fills from stores,
    and a barrier from everything.
    """
    queues = {name: _Known(unit_count(plan.config)) for name in Queue}
    compared, landed = observations(plan), Landed(plan)
    numbers: dict[Command, int] = {}
    for command in plan.commands:
        own, other = queues[command.queue], queues[command.queue.peer]
        index, reads, writes = len(own.commands), command.reads, command.writes

        needed = max(
            _latest(other.last_write, reads),
            _latest(other.last_write, writes),
            _latest(other.last_read, writes),
            -1 if command.follows is None else numbers[command.follows],
        )
        if needed > own.other_done:
            command.waits_for = needed
            other.commands[needed].signal += 1
            # A command that waits for another also knows what that one has waited for.
            own.other_done, own.done = needed, max(own.done, other.knowledge[needed][1])

        if command.opcode is Opcode.COMPUTE:
            # It waits on the timeline as well, which knows nothing of tokens.
            hazard = index if landed.needs_after(command, _latest(own.compared, writes)) else -1
        elif command.opcode is Opcode.BARRIER:
            # It begins when all before it have completed, and what stands behind it begins later.
            own.done, hazard = index - 1, -1
        elif command.opcode is Opcode.STORE:
            own.done = max(own.done, own.latest.get(Opcode.LOAD, -1), own.latest.get(Opcode.FILL, -1))
            hazard = -1
        else:
            landed.load(command)
            own.done = max(own.done, own.latest.get(Opcode.STORE, -1))
            hazard = _latest(own.last_write, writes)
        if hazard > own.done:
            command.after = True
            own.done = index - 1

        own.last_read[reads] = index
        own.last_read[compared.get(command, NO_ADDRESSES)] = index
        own.last_write[writes] = index
        own.compared[writes] = -1
        own.compared[compared.get(command, NO_ADDRESSES)] = index
        own.knowledge.append((own.done, own.other_done))
        own.commands.append(command)
        numbers[command] = index
        own.latest[command.opcode] = index
    return plan


def check_tokens(plan: Plan) -> None:
    """Both queues come to their end, and nothing is overwritten before verification has compared it."""
    rehearse([plan])
    check_observed(plan)


def _latest(by: np.ndarray, where: Addresses) -> int:
    return int(by[where].max(initial=-1))
