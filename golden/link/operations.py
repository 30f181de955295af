"""The requests of a host to a board and the board's answers: codes and their meaning."""

from __future__ import annotations

import enum
from dataclasses import dataclass

#: Version of the link: frames, operations, statuses. A client refuses another one.
LINK_VERSION = 2
#: Bytes of data in a frame, at most.
MAX_DATA = 1024
#: Bytes that the bridge keeps while it carries out a request: a client may have as many on the way.
QUEUE_BYTES = 2048
#: The status of a request that is carried out only after the one before it.
AFTER = 1
#: Bytes of a register, of a rate and of the other words in the data of frames.
WORD_BYTES = 4
#: Registers that one request reads, at most.
MOST_WORDS = 16
#: Words in the data of the answer to IDENTIFY, by name.
IDENTITY = {
    "link_version": "version of the link",
    "clock_hz": "cycles in a second, as the hardware was told when it was generated",
    "arena_bytes": "bytes of the arena",
    "max_data": "bytes of data in a frame, at most",
    "cycles": "cycles since reset, modulo 2^32: two answers and the time between them measure the clock",
}


class Operation(enum.IntEnum):
    """The operation of a request; an answer repeats it."""

    NAK = 0
    IDENTIFY = 1
    READ_REGISTER = 2
    WRITE_REGISTER = 3
    READ = 4
    WRITE = 5
    CHECKSUM = 6
    SET_RATE = 7
    WAIT = 8
    READ_REGISTERS = 9


class Status(enum.IntEnum):
    """The result of a request, in the answer to it."""

    OK = 0
    UNKNOWN_OPERATION = 1
    LENGTH = 2
    ADDRESS = 3
    REGISTER_REFUSED = 4
    SEQUENCE = 5
    RATE = 6
    DAMAGED = 7
    TIMED_OUT = 8


class Counts(enum.Enum):
    """Kinds of the field ``length`` of a request: the text for the manual, the least value, the greatest, and the step
    between them."""

    NOTHING = ("0", 0, 0, 1)
    WORD = (str(WORD_BYTES), WORD_BYTES, WORD_BYTES, 1)
    WORDS = (
        f"{WORD_BYTES} to {MOST_WORDS * WORD_BYTES}, a multiple of {WORD_BYTES}",
        WORD_BYTES,
        MOST_WORDS * WORD_BYTES,
        WORD_BYTES,
    )
    DATA = (f"1 to {MAX_DATA} bytes", 1, MAX_DATA, 1)
    RANGE = ("bytes, at least 1", 1, 0xFFFF_FFFF, 1)
    CYCLES = ("cycles, below 2^24", 0, (1 << 24) - 1, 1)

    def fits(self, length: int) -> bool:
        """Return whether a request may have this length."""
        _, least, most, step = self.value
        return least <= length <= most and length % step == 0


@dataclass(frozen=True, slots=True)
class Rule:
    """The form of an operation's request and of its answer.

    Attributes
    ----------
    length : Counts
        The kind of the field ``length``.
    has_data : bool
        Whether the request has data, ``length`` bytes of it.
    once : bool
        Whether a request that arrives twice is carried out once, because carrying it out again would do harm.
    address : str
        The meaning of the field ``address``, which is ignored where this is empty.
    answer : str
        The data of the answer if its status is OK; otherwise there is none.
    doc : str
        The effect of the operation.
    """

    length: Counts
    has_data: bool = False
    once: bool = False
    address: str = ""
    answer: str = ""
    doc: str = ""


#: The form of each operation.
RULES: dict[Operation, Rule] = {
    Operation.IDENTIFY: Rule(
        Counts.NOTHING,
        answer=f"{len(IDENTITY)} words",
        doc="Who is there. The number of the last request is forgotten: a new client begins with this.",
    ),
    Operation.READ_REGISTER: Rule(
        Counts.WORD, address="of the register", answer="a word", doc="Read a register of the accelerator."
    ),
    Operation.WRITE_REGISTER: Rule(
        Counts.WORD, True, once=True, address="of the register", doc="Write a register of the accelerator."
    ),
    Operation.READ: Rule(
        Counts.DATA, address="in the arena", answer="`length` bytes", doc=f"Read 1 to {MAX_DATA} bytes of the arena."
    ),
    Operation.WRITE: Rule(
        Counts.DATA, True, once=True, address="in the arena", doc=f"Write 1 to {MAX_DATA} bytes of the arena."
    ),
    Operation.CHECKSUM: Rule(
        Counts.RANGE, address="in the arena", answer="a word", doc="CRC-32 of a range of the arena, all of it at most."
    ),
    Operation.SET_RATE: Rule(
        Counts.WORD,
        True,
        doc="The data is a bit's time in sixteenths of a cycle. The answer still comes at the old rate.",
    ),
    Operation.WAIT: Rule(
        Counts.CYCLES, doc="Wait until the interrupt line is high; refused if it is still low after `length` cycles."
    ),
    Operation.READ_REGISTERS: Rule(
        Counts.WORDS,
        address="of the first register",
        answer="`length` bytes",
        doc="Read registers that follow one another. One that there is not, or that may not be read, is zero.",
    ),
}

#: The meaning of each status.
STATUS_MEANINGS: dict[Status, str] = {
    Status.OK: "done",
    Status.UNKNOWN_OPERATION: "there is no such operation, or the request's own status is above 1",
    Status.LENGTH: "`length` is none that the operation has, or the data is not as long",
    Status.ADDRESS: "the range ends beyond the arena or the registers' addresses, or a register's address is no "
    "multiple of 4",
    Status.REGISTER_REFUSED: "the accelerator has answered with an error: no such register, or not this access to it",
    Status.SEQUENCE: "the number is the last request's, and the frame another one; or the request comes after another "
    "one, and that is not the last one or was refused",
    Status.RATE: "the bit's time is out of range",
    Status.DAMAGED: "of NAK only: a frame whose CRC or encoding is wrong, that is too short or too long, or has a byte "
    "without its stop bit",
    Status.TIMED_OUT: "of WAIT only: the interrupt line is still low",
}
