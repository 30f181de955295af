"""Meetings: proof that no core waits for ever for another one, and that none reads what another one is yet to store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ....golden.units import Queue
from ..data.plan import Plan
from ..data.storage import Addresses, pieces


def check_meetings(plans: Sequence[Plan]) -> None:
    """Run all queues of all cores on tokens and barriers alone: all must come to their end, with no token left.

    What one queue does never takes from another what that could go on with: tokens have one taker, and who waits at a
    barrier waits until it meets the others. So if all come to their end in one order, they do in every order.
    """
    sides = [(core, queue) for core in range(len(plans)) for queue in Queue]
    commands = {(core, queue): plans[core].queue(queue) for core, queue in sides}
    position = dict.fromkeys(sides, 0)
    tokens: Counter[tuple[int, Queue]] = Counter()

    def step(core: int, queue: Queue) -> bool:
        """Execute the next command, if it waits for nothing but a barrier's group; the group's cores do so together."""
        own = commands[core, queue]
        if position[core, queue] == len(own):
            return False
        command = own[position[core, queue]]
        if tokens[core, queue] < (command.waits_for is not None):
            return False
        if command.opcode is Opcode.BARRIER and not _all_there(command.fields["group"], commands, position, tokens):
            return False
        cores = _members(command.fields["group"]) if command.opcode is Opcode.BARRIER else [core]
        for member in cores:
            done = commands[member, queue][position[member, queue]]
            tokens[member, queue] -= done.waits_for is not None
            tokens[member, queue.peer] += done.signal
            position[member, queue] += 1
        return True

    while any(step(*side) for side in sides):
        pass
    assert all(position[side] == len(commands[side]) for side in sides), f"deadlock at {position}"
    assert not any(tokens.values()), f"tokens left: {tokens}"
    check_arena(plans)


def _members(group: int) -> list[int]:
    return [core for core in range(group.bit_length()) if group >> core & 1]


def _all_there(group: int, commands: Mapping, position: Mapping, tokens: Mapping) -> bool:
    """Whether each core of a group is at a barrier of this group."""
    for core in _members(group):
        side = core, Queue.DMA
        if position[side] == len(commands[side]):
            return False
        command = commands[side][position[side]]
        if command.opcode is not Opcode.BARRIER or command.fields["group"] != group:
            return False
        if tokens[side] < (command.waits_for is not None):
            return False
    return True


def check_arena(plans: Sequence[Plan]) -> None:
    """Where one core stores bytes that another one stores or loads, before or after, there is a barrier between both.

    All cores meet at every barrier, so what lies between two of them is an epoch, and what stands in one may happen in
    any order.
    """
    size, cores = plans[0].external_bytes, range(len(plans))
    counts = {sum(command.opcode is Opcode.BARRIER for command in plan.commands) for plan in plans}
    assert len(counts) == 1, f"cores with {counts} barriers"
    touched = [[*_epochs(plan)] for plan in plans]
    #: The last core that has stored each byte, and in which epoch; in which epoch each core has loaded it last.
    writer, written = np.full(size, -1), np.full(size, -1)
    loaded = np.full((len(plans), size), -1)
    for epoch in range(counts.pop() + 1):
        for core in cores:
            for addresses in touched[core][epoch][Opcode.STORE]:
                is_clear = (writer[addresses] == core) | (written[addresses] < epoch)
                assert is_clear.all(), f"core {core} stores what another one stores before barrier {epoch}"
                writer[addresses], written[addresses] = core, epoch
            for addresses in touched[core][epoch][Opcode.LOAD]:
                loaded[core][addresses] = epoch
        for core in cores:
            meets = (written == epoch) & (writer != core) & (loaded[core] == epoch)
            assert not meets.any(), f"core {core} loads what another one stores before barrier {epoch}"


def _epochs(plan: Plan) -> Iterator[dict[Opcode, list[Addresses]]]:
    """What a core loads and stores of the tensors in the arena, from each barrier to the next."""
    epoch: dict[Opcode, list[Addresses]] = {Opcode.LOAD: [], Opcode.STORE: []}
    for command in plan.queue(Queue.DMA):
        fields = command.fields
        if command.opcode is Opcode.BARRIER:
            yield epoch
            epoch = {Opcode.LOAD: [], Opcode.STORE: []}
        elif command.opcode is Opcode.STORE:
            epoch[Opcode.STORE].append(
                pieces(fields["external"], fields["row_bytes"], fields["rows"], fields["external_row"])
            )
        elif command.opcode is Opcode.LOAD and fields["memory"] == LocalMemory.FEATURE:
            size, pitch = fields["row_pieces"] * fields["piece_bytes"], fields.get("external_row", 0)
            epoch[Opcode.LOAD] += [
                pieces(fields["external"] + fold * fields.get("external_fold", 0), size, fields["rows"], pitch)
                for fold in range(fields["folds"])
            ]
    yield epoch
