"""Why a run stopped: what the error registers say, in words, with the command and a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.program.program import Program
from ...golden.program.queues import CoreProgram, Queues
from ...golden.units import ErrorCode, Queue, Unit
from .errors import AcceleratorError

#: The queue whose command a unit executes.
_QUEUES = dict.fromkeys((Unit.DMA_QUEUE, Unit.LOAD, Unit.STORE, Unit.FILL, Unit.BARRIER), Queue.DMA) | dict.fromkeys(
    (Unit.COMPUTE_QUEUE, Unit.FETCH, Unit.WRITE_BACK), Queue.COMPUTE
)
#: ERROR_ADDRESS means something with these: a local address, or an external one relative to EXTERNAL_BASE.
_WITH_ADDRESS = (ErrorCode.ADDRESS_RANGE, ErrorCode.AXI_SLAVE, ErrorCode.AXI_DECODE)
_REMEDIES = {
    ErrorCode.ILLEGAL_OPCODE: "compile the model again: the program is damaged",
    ErrorCode.ILLEGAL_ENGINE: "compile the model for the configuration of this hardware",
    ErrorCode.ILLEGAL_FIELD: "compile the model again: the program is damaged",
    ErrorCode.ADDRESS_RANGE: "compile the model for the configuration of this hardware",
    ErrorCode.AXI_SLAVE: "check the external memory at that address",
    ErrorCode.AXI_DECODE: "check that the arena lies in external memory",
    ErrorCode.WATCHDOG: "check that the external memory answers, or raise the watchdog's limit",
    ErrorCode.TOKENS_LEFT: "compile the model again: the program is damaged",
    ErrorCode.PROGRAM_END: "compile the model again: the program is damaged",
    ErrorCode.OVERFLOW: "report it with the model: a result found no place in the core, which is a fault of the core",
    ErrorCode.BARRIER: "compile the model again: the cores' programs are not of one network",
}


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
    code, unit, index = ErrorCode(word & 0xFF), Unit(word >> 8 & 0xFF), word >> 16
    command = _describe(program.cores[core], cores[core], unit, index)
    where = f" at address {address:#x}" if code in _WITH_ADDRESS else ""
    of_core = f" of core {core}" if len(cores) > 1 else ""
    return AcceleratorError(
        f"{code.name} in {unit.name}{of_core}{where}, {command}; {_REMEDIES.get(code, 'reset the hardware')}",
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
