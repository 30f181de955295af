"""Why a run stopped: what the error registers say, in words, with the command and a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.program.program import CoreProgram, Program, Queues
from ...golden.registers import error_fields
from ...golden.units import WITH_ADDRESS, ErrorCode, Queue, Unit, remedy
from .errors import AcceleratorError

#: The queue whose command a unit executes.
_QUEUES = dict.fromkeys((Unit.DMA_QUEUE, Unit.LOAD, Unit.STORE, Unit.FILL, Unit.BARRIER), Queue.DMA) | dict.fromkeys(
    (Unit.COMPUTE_QUEUE, Unit.FETCH, Unit.WRITE_BACK), Queue.COMPUTE
)


def stopped(program: Program, cores: Sequence[Queues], core: int, word: int, address: int) -> AcceleratorError:
    """The error that the registers ERROR and ERROR_ADDRESS of a core tell of.

    Parameters
    ----------
    program : Program
        What runs.
    cores : sequence of Queues
        The prologue or the body of each core.
    core : int
        The core that has stopped first.
    word, address : int
        Its two registers.
    """
    found = error_fields(word)
    code, unit, index = ErrorCode(found["code"]), Unit(found["unit"]), found["index"]
    command = _describe(program.cores[core], cores[core], unit, index)
    where = f" at address {address:#x}" if code in WITH_ADDRESS else ""
    of_core = f" of core {core}" if len(cores) > 1 else ""
    return AcceleratorError(
        f"{code.name} in {unit.name}{of_core}{where}, {command}; {remedy(code, unit)}",
        code=code,
        unit=unit,
        index=index,
        address=address,
        command=command,
        core=core,
    )


def _describe(core: CoreProgram, queues: Queues, unit: Unit, index: int) -> str:
    """The command in words, as far as its queue is known."""
    run = "body" if queues is core.body else "prologue"
    queue = _QUEUES.get(unit)
    if queue is None:
        return f"command {index} of the {run}"
    data = queues[queue].commands
    start = index * COMMAND_BYTES
    code = data[start] & 15 if start < len(data) else None
    opcode = Opcode(code).name if code in Opcode.__members__.values() else f"opcode {code}"
    words = f"command {index} ({opcode}) of the {run}'s {queue.title} queue"
    if queue is Queue.COMPUTE and run == "body":
        words += "".join(f", layer {layer.name}" for layer in core.layers if index in layer.commands)
    return words
