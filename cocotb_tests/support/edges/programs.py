"""Programs with other commands, and arenas that hold them."""

from __future__ import annotations

import dataclasses

import numpy as np

from lutterfly.golden.program.program import Program, QueueProgram, Queues
from lutterfly.golden.units import Queue


def with_body(program: Program, body: Queues) -> Program:
    """The program with other commands for an inference."""
    return dataclasses.replace(program, cores=(dataclasses.replace(program.cores[0], body=body),))


def with_commands(queues: Queues, queue: Queue, commands: bytes) -> Queues:
    """The same with other commands in one queue, at the same place."""
    return dataclasses.replace(queues, **{queue.value: QueueProgram(commands, queues[queue].address)})


def place(arena: np.ndarray, queues: Queues) -> None:
    """Put the commands where they belong in the arena uint8[arena_bytes]."""
    for queue in Queue:
        start, commands = queues[queue].address, queues[queue].commands
        arena[start : start + len(commands)] = np.frombuffer(commands, np.uint8)
