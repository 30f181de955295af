"""The local memories: one table for the hardware, the golden machine and the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from .isa import LIST_ENTRY_BYTES, TABLE_BYTES

if TYPE_CHECKING:
    from .config import Config

#: Bytes of a channel's parameters, see :mod:`~lutterfly.golden.numerics.requant`.
PARAMETER_BYTES = 8


class LocalMemory(int):
    """A memory that a LOAD can write, with its code in the field ``memory``.

    Local addresses are in bytes; a LOAD to a memory other than FEATURE is one run, aligned to the memory's unit. The
    memories of every core are defined here; an engine may have its own, see :class:`.engines.engine.OwnMemory`.

    Attributes
    ----------
    name, title : str
        Its names: in the manual and in error reports, and in messages.
    write_bytes : function of int
        Bytes that are written at a time, given the lanes of the array: ``local`` and ``piece_bytes`` of a LOAD are
        multiples of it.
    unit_bytes : function of Config
        The unit of a COMPUTE command's addresses, in bytes; a multiple of ``write_bytes``.
    size_bytes : function of Config
        Its size, a power of two; 0 if a configuration has none.
    """

    name: str
    title: str
    write_bytes: Callable[[int], int]
    unit_bytes: Callable[[Config], int]
    size_bytes: Callable[[Config], int]

    FEATURE: ClassVar[LocalMemory]
    WEIGHT: ClassVar[LocalMemory]
    PARAMETER: ClassVar[LocalMemory]
    TABLE: ClassVar[LocalMemory]
    LIST: ClassVar[LocalMemory]

    def __new__(
        cls,
        code: int,
        name: str,
        title: str,
        *,
        write_bytes: Callable[[int], int],
        unit_bytes: Callable[[Config], int],
        size_bytes: Callable[[Config], int],
    ) -> LocalMemory:
        """Make a memory from its code, which is also its integer value, and its attributes."""
        memory = super().__new__(cls, code)
        memory.name, memory.title = name, title
        memory.write_bytes, memory.unit_bytes, memory.size_bytes = write_bytes, unit_bytes, size_bytes
        return memory

    def __repr__(self) -> str:
        return f"LocalMemory.{self.name}"


LocalMemory.FEATURE = LocalMemory(
    0,
    "FEATURE",
    "feature memory",
    write_bytes=lambda lanes: 1,
    unit_bytes=lambda config: 1,
    size_bytes=lambda config: config.memory.feature_bytes,
)
LocalMemory.WEIGHT = LocalMemory(
    1,
    "WEIGHT",
    "weight memory",
    write_bytes=lambda lanes: lanes,
    unit_bytes=lambda config: config.weight_word_bytes,
    size_bytes=lambda config: config.memory.weight_bytes,
)
LocalMemory.PARAMETER = LocalMemory(
    2,
    "PARAMETER",
    "parameter memory",
    write_bytes=lambda lanes: PARAMETER_BYTES,
    unit_bytes=lambda config: config.parameter_word_bytes,
    size_bytes=lambda config: config.memory.parameter_bytes,
)
LocalMemory.TABLE = LocalMemory(
    3,
    "TABLE",
    "table memory",
    write_bytes=lambda lanes: 1,
    unit_bytes=lambda config: TABLE_BYTES,
    size_bytes=lambda config: config.memory.tables * TABLE_BYTES,
)
LocalMemory.LIST = LocalMemory(
    4,
    "LIST",
    "list memory",
    write_bytes=lambda lanes: LIST_ENTRY_BYTES,
    unit_bytes=lambda config: LIST_ENTRY_BYTES,
    size_bytes=lambda config: config.memory.list_entries * LIST_ENTRY_BYTES,
)
#: The memories of every core.
SHARED_MEMORIES = (
    LocalMemory.FEATURE,
    LocalMemory.WEIGHT,
    LocalMemory.PARAMETER,
    LocalMemory.TABLE,
    LocalMemory.LIST,
)
#: The code of an engine's own memory is the sum of this and the engine's code.
OWN_MEMORY = 16


def memories(config: Config) -> list[LocalMemory]:
    """Return the memories that a core has: the common ones, and those of its engines."""
    own = [engine.memory for engine in config.engines if engine.memory is not None]
    return [*SHARED_MEMORIES, *(memory for memory in own if memory.size_bytes(config))]


def constant_memories(config: Config) -> list[LocalMemory]:
    """Return the memories that hold constants: all but the feature memory."""
    return [memory for memory in memories(config) if memory is not LocalMemory.FEATURE]
