"""The engines: the one table of what there are. Standard library only. See ``docs/adding-an-engine.md``."""

from __future__ import annotations

from typing import Any

from ..isa import COMPUTE, FORMATS, OPCODE_BITS, Format, Opcode
from ..memories import SHARED_MEMORIES, LocalMemory
from .add import ADD
from .binary_maximum import BINARY_MAXIMUM
from .depthwise import DEPTHWISE
from .engine import Engine
from .fpc import FPC
from .mac import MAC
from .maximum import MAXIMUM
from .multiply import MULTIPLY
from .winograd import WINOGRAD
from .xnor import XNOR

#: By their codes. An engine is one line here, one in :mod:`.specifications`, and one in ``hdl/engines/__init__.py``.
ENGINES: dict[int, Engine[Any]] = {
    engine: engine for engine in (MAC, MAXIMUM, DEPTHWISE, XNOR, FPC, ADD, BINARY_MAXIMUM, MULTIPLY, WINOGRAD)
}


def find_engine(code: int) -> Engine[Any]:
    """The engine with a code.

    Raises
    ------
    ValueError
        If there is none.
    """
    if code not in ENGINES:
        known = ", ".join(f"{int(engine)} ({engine.name})" for engine in ENGINES.values())
        raise ValueError(f"engine must be one of {known}, not {code}")
    return ENGINES[code]


def find_memory(code: int) -> LocalMemory:
    """The memory with a code, of any configuration.

    Raises
    ------
    ValueError
        If there is none.
    """
    own = [engine.memory for engine in ENGINES.values() if engine.memory is not None]
    known: dict[int, LocalMemory] = {memory: memory for memory in (*SHARED_MEMORIES, *own)}
    if code not in known:
        codes = ", ".join(f"{int(memory)} ({memory.name})" for memory in known.values())
        raise ValueError(f"memory must be one of {codes}, not {code}")
    return known[code]


def format_of(opcode: Opcode, engine: int) -> Format:
    """The format of a command; of COMPUTE with the fields of its engine, which does not matter to others."""
    return find_engine(engine).format if opcode is Opcode.COMPUTE else FORMATS[opcode]


def decode(command: bytes) -> tuple[Opcode, dict[str, int]]:
    """Opcode and fields of a command, those of its engine among them.

    Raises
    ------
    ValueError
        If there is no such opcode or engine.
    """
    opcode = Opcode(command[0] & (1 << OPCODE_BITS) - 1)
    return opcode, format_of(opcode, COMPUTE.decode(command)["engine"]).decode(command)
