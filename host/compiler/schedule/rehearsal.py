"""Rehearsal: queues on tokens and barriers alone, to see that all come to their end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ....golden.isa import Opcode
from ....golden.units import Queue
from ..data.command import Command
from ..data.plan import Plan

#: A queue of a core.
_Side = tuple[int, Queue]


def rehearse(plans: Sequence[Plan]) -> None:
    """Run all queues of some cores, the first ones; all must come to their end, with no token left.

    What one queue does never takes from another what that could go on with: tokens have one taker, and who waits at a
    barrier waits until it meets the others. So if all come to their end in one order, they do in every order. Cores of
    a group that are not among these are taken to be there: a core alone waits for nobody.
    """
    sides = [(core, queue) for core in range(len(plans)) for queue in Queue]
    commands = {(core, queue): plans[core].queue(queue) for core, queue in sides}
    position = dict.fromkeys(sides, 0)
    # Given and not taken, of each queue that they are for.
    tokens: Counter[_Side] = Counter()

    def step(side: _Side) -> bool:
        """Execute the next command, if it waits for nothing; those of a barrier's group do so together."""
        command = _next(side, commands, position, tokens)
        if command is None:
            return False
        together = [side]
        if command.opcode is Opcode.BARRIER:
            group = command.fields["group"]
            together = [(core, Queue.DMA) for core in range(len(plans)) if group >> core & 1]
            others = [_next(other, commands, position, tokens) for other in together]
            if any(other is None or other.fields.get("group") != group for other in others):
                return False
        for core, queue in together:
            done = commands[core, queue][position[core, queue]]
            tokens[core, queue] -= done.waits_for is not None
            tokens[core, queue.peer] += done.signal
            position[core, queue] += 1
        return True

    while any(step(side) for side in sides):
        pass
    assert all(position[side] == len(commands[side]) for side in sides), f"deadlock at {position}"
    assert not any(tokens.values()), f"tokens left: {tokens}"


def _next(
    side: _Side, commands: Mapping[_Side, Sequence[Command]], position: Mapping[_Side, int], tokens: Mapping[_Side, int]
) -> Command | None:
    """The next command of a queue, if it has the token that it waits for."""
    own, index = commands[side], position[side]
    if index == len(own) or tokens[side] < (own[index].waits_for is not None):
        return None
    return own[index]
