"""The prologue in stages: constants in windows, for an arena that does not hold all of them at once.

The constants of a prologue are read once. So a window of them may lie where an inference has its tensors and commands
later, and the next window in the same place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from ..isa import COMMAND_BYTES, END, LOAD, Load
from ..units import Queue
from .program import Program, QueueProgram, Queues

#: Constants may be cut at multiples of this, which the bytes that each local memory writes at a time divide.
CUT_BYTES = 256


@dataclass(frozen=True, slots=True)
class Stage:
    """A run that loads some of the constants.

    Attributes
    ----------
    contents : tuple of (int, bytes)
        Address and bytes of the constants and commands that must lie in the arena before it.
    cores : tuple of Queues
        The queues of each core.
    """

    contents: tuple[tuple[int, bytes], ...]
    cores: tuple[Queues, ...]


def stages(program: Program, arena_bytes: int) -> tuple[Stage, ...]:
    """Divide the prologue: the runs that leave the local memories as it does, in order.

    Parameters
    ----------
    program : Program
    arena_bytes : int
        Size of the arena. Where it holds the whole program, the only stage is the prologue itself, and lies beside the
        body; else the body's contents are overwritten, and have to be written after the last stage.

    Raises
    ------
    ValueError
        If the arena is too small for an inference, or for any constants.
    """
    if program.body_bytes > arena_bytes:
        raise ValueError(
            f"program must fit the arena of {arena_bytes} bytes, not need {program.body_bytes} bytes for an inference"
        )
    if program.arena_bytes <= arena_bytes:
        return (_stage(program.constants_address, program.constants, [core.prologue for core in program.cores]),)
    loads = [_loads(program, number) for number in range(len(program.cores))]
    # Each core has all its LOADs at most, and an END in each queue.
    commands = sum(len(own) + len(Queue) for own in loads) * COMMAND_BYTES
    window = (arena_bytes - commands) // CUT_BYTES * CUT_BYTES
    if window <= 0:
        raise ValueError(
            f"program must fit the arena of {arena_bytes} bytes, not need {commands + CUT_BYTES} bytes for its prologue"
        )
    starts = range(0, len(program.constants), window)
    return tuple(_window(program, loads, start, start + window) for start in starts)


def _loads(program: Program, core: int) -> list[Load]:
    """Return the fields of each LOAD of a core's prologue."""
    dma, compute = (program.cores[core].prologue[queue].commands for queue in Queue)
    if compute != END.encode() or not all(_loads_constants(program, command) for command in _commands(dma)):
        raise ValueError(
            "program.prologue must do nothing but load constants, for an arena that does not hold all of them; "
            "compile the model again"
        )
    return [LOAD.read(command) for command in _commands(dma)]


def _commands(queue: bytes) -> Iterator[bytes]:
    """Give all commands but END, which is the last."""
    yield from (queue[at : at + COMMAND_BYTES] for at in range(0, len(queue) - COMMAND_BYTES, COMMAND_BYTES))


def _loads_constants(program: Program, command: bytes) -> bool:
    load = LOAD.read(command)
    place = load.external - program.constants_address
    plain = Load(
        external=load.external,
        local=load.local,
        memory=load.memory,
        row_pieces=1,
        piece_bytes=load.piece_bytes,
        rows=1,
        folds=1,
    )
    return (
        command == LOAD.encode(**plain)
        and place >= 0
        and place % CUT_BYTES == 0
        and place + load.piece_bytes <= len(program.constants)
    )


def _window(program: Program, loads: list[list[Load]], start: int, stop: int) -> Stage:
    """Make the stage that loads the constants from byte ``start`` to byte ``stop``: constants first, then commands."""
    constants = program.constants[start:stop]
    address = -(-len(constants) // COMMAND_BYTES) * COMMAND_BYTES
    cores = []
    for own in loads:
        commands = b"".join(_parts(own, start + program.constants_address, stop + program.constants_address))
        dma = QueueProgram(commands + END.encode(), address)
        compute = QueueProgram(END.encode(), address + len(dma.commands))
        address = compute.address + len(compute.commands)
        cores.append(Queues(dma, compute))
    return _stage(0, constants, cores)


def _parts(loads: list[Load], start: int, stop: int) -> Iterator[bytes]:
    """Give the LOADs of the constants between two addresses, moved to the arena's start."""
    for load in loads:
        first, last = load.external, load.external + load.piece_bytes
        begin, end = max(first, start), min(last, stop)
        if begin < end:
            local = load.local + begin - first
            part = dataclasses.replace(load, external=begin - start, local=local, piece_bytes=end - begin)
            yield LOAD.encode(**part)


def _stage(address: int, constants: bytes, cores: list[Queues]) -> Stage:
    commands = ((queues[queue].address, queues[queue].commands) for queues in cores for queue in Queue)
    return Stage(((address, constants), *commands), tuple(cores))
