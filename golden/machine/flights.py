"""The commands of a queue in the golden machine: decoded and checked, and those that have begun and not completed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .. import isa
from ..config import Config
from ..engines import find_engine, format_of
from ..isa import COMMAND_BYTES, CommandFields, Opcode
from ..memories import LocalMemory
from ..units import ErrorCode, Queue, Unit
from .write_back import EarlyReads

UInt8 = npt.NDArray[np.uint8]
Memories = dict[LocalMemory, UInt8]


class MachineError(Exception):
    """A run that stopped, with the contents of the hardware's error registers.

    Attributes
    ----------
    code : ErrorCode
    unit : Unit
    index : int
        The command's index in its queue.
    address : int
        The address out of range; 0 where there is none.
    core : int
        The core that stopped.
    """

    def __init__(self, code: ErrorCode, unit: Unit, index: int, address: int = 0, core: int = 0):
        super().__init__(f"core {core}, {unit.name}: {code.name} in command {index} at address {address:#x}")
        self.code = code
        self.unit = unit
        self.index = index
        self.address = address
        self.core = core


@dataclass(eq=False)
class BegunCommand:
    """A command between its beginning and its completion, with the memories as it sees them.

    ``early`` holds the bytes that a COMPUTE command may read before they are written back, ``complete`` is the cycle by
    which it has completed, on the same timeline.
    """

    index: int
    fields: CommandFields
    memories: Memories
    early: EarlyReads | None = None
    complete: int = 0

    @property
    def opcode(self) -> Opcode:
        """Of the command."""
        return self.fields.opcode


@dataclass(eq=False)
class QueueState:
    """A queue in a run.

    Attributes
    ----------
    queue : Queue
    config : Config
    core : int
        The core that it belongs to.
    commands : bytes
    next : int
        Index of the next command.
    done : bool
        END has begun.
    flights : deque of BegunCommand
        Commands that have begun and not completed, oldest first.
    """

    queue: Queue
    config: Config
    core: int
    commands: bytes
    next: int = 0
    done: bool = False
    flights: deque[BegunCommand] = field(default_factory=deque)
    _peeked: tuple[int, CommandFields] | None = None

    def peek(self) -> CommandFields:
        """Return the fields of the next command, checked as the hardware's queue does."""
        # It is asked for until it may begin.
        if self._peeked is None or self._peeked[0] != self.next:
            self._peeked = self.next, self._checked()
        return self._peeked[1]

    def _checked(self) -> CommandFields:
        command = self.commands[self.next * COMMAND_BYTES : (self.next + 1) * COMMAND_BYTES]
        if len(command) < COMMAND_BYTES:
            raise self.error(ErrorCode.PROGRAM_END, self.next)
        code = command[0] & 15
        if code not in isa.opcodes(self.queue, self.config.cores):
            raise self.error(ErrorCode.ILLEGAL_OPCODE, self.next)
        opcode = Opcode(code)
        engine = isa.COMPUTE.read(command).engine
        if opcode is Opcode.COMPUTE and engine not in self.config.engines:
            raise self.error(ErrorCode.ILLEGAL_ENGINE, self.next)
        fmt = format_of(opcode, engine)
        fields = fmt.read(command)
        absent = self.config.engines[find_engine(engine)].absent_fields() if opcode is Opcode.COMPUTE else ()
        if fmt.encode(**{**fields, "reserved": 0, **dict.fromkeys(absent, 0)}) != command:
            raise self.error(ErrorCode.ILLEGAL_FIELD, self.next)
        return fields

    def error(self, code: ErrorCode, index: int) -> MachineError:
        """Return an error that the queue itself finds at one of its commands."""
        return MachineError(code, self.queue.unit, index, core=self.core)


# The error with which the hardware refuses a command, or stops at it.


class CommandError(Exception):
    """A command that the hardware refuses or stops at.

    Attributes
    ----------
    code : ErrorCode
    unit : Unit
    address : int
        The address out of range; 0 where there is none.
    """

    def __init__(self, code: ErrorCode, unit: Unit, address: int = 0):
        super().__init__(f"{unit.name}: {code.name} at address {address:#x}")
        self.code = code
        self.unit = unit
        self.address = address
