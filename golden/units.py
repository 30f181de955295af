"""Queues and units of the core, and the errors that stop a run. Standard library only."""

from __future__ import annotations

import enum

#: Cores of an accelerator at most.
MOST_CORES = 8


class ErrorCode(enum.IntEnum):
    """The error that stopped a run."""

    NONE = 0
    ILLEGAL_OPCODE = 1
    ILLEGAL_ENGINE = 2
    ILLEGAL_FIELD = 3
    ADDRESS_RANGE = 4
    AXI_SLAVE = 5
    AXI_DECODE = 6
    WATCHDOG = 7
    TOKENS_LEFT = 8
    PROGRAM_END = 9
    OVERFLOW = 10
    BARRIER = 11
    STOPPED = 12


_DAMAGED = "compile the model again: the program is damaged"
_OTHER_HARDWARE = "compile the model for the configuration of this hardware"
_REMEDIES = {
    ErrorCode.ILLEGAL_OPCODE: _DAMAGED,
    ErrorCode.ILLEGAL_ENGINE: _OTHER_HARDWARE,
    ErrorCode.ILLEGAL_FIELD: _DAMAGED,
    ErrorCode.ADDRESS_RANGE: _OTHER_HARDWARE,
    ErrorCode.AXI_SLAVE: "check the external memory at that address",
    ErrorCode.AXI_DECODE: "check that the arena lies in external memory",
    ErrorCode.WATCHDOG: "check that the external memory answers, or raise the watchdog's limit",
    ErrorCode.TOKENS_LEFT: _DAMAGED,
    ErrorCode.PROGRAM_END: _DAMAGED,
    ErrorCode.OVERFLOW: "report it with the model: a result found no place in the core, which is a fault of the core",
    ErrorCode.BARRIER: "compile the model again: the cores' programs are not of one network",
}


#: Errors with a valid ERROR_ADDRESS: a local address, or an external one relative to EXTERNAL_BASE.
WITH_ADDRESS = (ErrorCode.ADDRESS_RANGE, ErrorCode.AXI_SLAVE, ErrorCode.AXI_DECODE)


class Unit(enum.IntEnum):
    """The unit at which a run stopped."""

    NONE = 0
    DMA_QUEUE = 1
    COMPUTE_QUEUE = 2
    PREFETCH = 3
    LOAD = 4
    STORE = 5
    FILL = 6
    FETCH = 7
    WRITE_BACK = 8
    BARRIER = 9


#: These units wait for results, not for external memory.
_NO_RESULT = "a result never came: compile the model again; if it stops again, report it with the model"
#: Remedies of errors for which a unit has its own.
REMEDIES_OF_UNITS = {(ErrorCode.WATCHDOG, unit): _NO_RESULT for unit in (Unit.FETCH, Unit.WRITE_BACK)}


def remedy(code: ErrorCode, unit: Unit = Unit.NONE) -> str:
    """Return the remedy of an error, for messages."""
    return REMEDIES_OF_UNITS.get((code, unit)) or _REMEDIES.get(code, "reset the hardware")


class Queue(enum.Enum):
    """A queue of a core: it executes its commands in order, at its own pace. The values are prefixes of names."""

    DMA = "dma"
    COMPUTE = "compute"

    @property
    def unit(self) -> Unit:
        """The unit that error registers name for this queue."""
        return Unit.DMA_QUEUE if self is Queue.DMA else Unit.COMPUTE_QUEUE

    @property
    def title(self) -> str:
        """The name in messages."""
        return "DMA" if self is Queue.DMA else "compute"

    @property
    def peer(self) -> Queue:
        """The other queue, with which this one exchanges tokens."""
        return Queue.COMPUTE if self is Queue.DMA else Queue.DMA
