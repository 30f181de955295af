"""Room: whether an inference fits an arena on the chip, and what takes most of it."""

from __future__ import annotations

from collections.abc import Iterator

from ....golden.program.program import Program
from ....golden.units import Queue
from ..data.errors import CompileError
from ..data.spread import Spread

#: Layers that are named at most.
_NAMED = 3


def check_room(spread: Spread, program: Program) -> None:
    """Refuse a program of which an inference does not fit the arena on the chip; the prologue comes in windows.

    Raises
    ------
    CompileError
        With what takes how much, and the layers whose constants come in every inference.
    """
    room = spread.config.arena.on_chip_bytes
    if not room or program.body_bytes <= room:
        return
    parts = ", ".join(f"{size} for {what}" for what, size in _parts(spread, program) if size)
    raise CompileError(
        f"an inference needs {program.body_bytes} bytes of the arena ({parts}), the configuration has {room} on the "
        "chip; choose a --config with larger memories or with external memory"
    )


def _parts(spread: Spread, program: Program) -> Iterator[tuple[str, int]]:
    commands = sum(len(core.body[queue].commands) for core in program.cores for queue in Queue)
    yield "inputs, outputs and what does not fit the feature memory", program.streamed_address
    yield f"constants of {_streaming(spread)} that do not stay on the chip", len(program.streamed)
    yield "commands", commands


def _streaming(spread: Spread) -> str:
    """The layers whose constants are streamed, the first of them by name."""
    names = dict.fromkeys(
        plan.graph.layers[plan.jobs[arrival.deadline].index].name
        for plan in spread.plans
        for arrival in plan.arrivals
        if not arrival.tensor
    )
    shown = [*names][:_NAMED]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(shown)}{more}"
