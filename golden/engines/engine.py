"""The part of an engine's definition that the instruction set and the configuration need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..isa import ARGUMENT_BITS, COMPUTE, Compute, Field, Format, fields_end
from ..memories import OWN_MEMORY, LocalMemory
from .floorplan import ArrayWaits

if TYPE_CHECKING:
    from ..config import Config
    from ..config_parts import ArrayConfig


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The configuration of an engine: none, or the fields of a subclass, all of which have defaults."""

    def check(self, config: Config) -> None:
        """Check that the engine's configuration suits the rest of the core's.

        Raises
        ------
        ValueError
            If it does not; the message names the field, the constraint and the value.
        """

    def row_columns(self, array: ArrayConfig) -> int:
        """Return the columns in a row of the array's floorplan that the engine asks for; by default, all columns are
        one row."""
        return array.columns

    def array_waits(self) -> ArrayWaits:
        """Return the additional latencies that the engine gives the array."""
        return ArrayWaits()

    def absent_fields(self) -> tuple[str, ...]:
        """Return the fields of the engine's commands that do not exist in this configuration; their bits are zero."""
        return ()


C = TypeVar("C", bound=EngineConfig)


@dataclass(frozen=True, slots=True)
class OwnMemory:
    """A memory of an engine's own, which a LOAD writes; see :class:`~lutterfly.golden.memories.LocalMemory`.

    Attributes
    ----------
    name, title : str
    write_bytes : function of int
    unit_bytes, size_bytes : function of Config and the engine's own configuration
    """

    name: str
    title: str
    write_bytes: Callable[[int], int]
    unit_bytes: Callable[[Config, Any], int]
    size_bytes: Callable[[Config, Any], int]


class Engine(int, Generic[C]):
    """An engine: its code in the field ``engine`` of COMPUTE, and its name.

    Parameters
    ----------
    code : int
        Between 0 and 15.
    name : str
        In capitals.
    configuration : subclass of EngineConfig
        Class of the engine's configuration.
    fields : tuple of Field
        Fields of the engine's own, from bit 0 of the argument on, see :func:`~lutterfly.golden.isa.place_fields`.
    memory : OwnMemory, optional

    Attributes
    ----------
    memory : LocalMemory or None

    Raises
    ------
    ValueError
        If the code is out of range, or the fields do not fit the argument.
    """

    name: str
    configuration: type[C]
    fields: tuple[Field, ...]
    memory: LocalMemory | None

    def __new__(
        cls,
        code: int,
        name: str,
        *,
        configuration: type[C],
        fields: tuple[Field, ...] = (),
        memory: OwnMemory | None = None,
    ) -> Engine[C]:
        """Make the integer with its attributes."""
        low, high = COMPUTE.field("engine").limits
        if not low <= code <= high:
            raise ValueError(f"{name}: code must be between {low} and {high}, not {code}")
        if fields_end(fields) > ARGUMENT_BITS:
            raise ValueError(f"{name}: fields must fit {ARGUMENT_BITS} bits, not {fields_end(fields)}")
        engine = super().__new__(cls, code)
        engine.name, engine.configuration, engine.fields = name, configuration, fields
        engine.memory = None if memory is None else engine._bind(memory)
        return engine

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: object) -> Engine[C]:
        return self

    @cached_property
    def format(self) -> Format[Compute]:
        """The format of the engine's COMPUTE commands, with its own fields in the argument."""
        return COMPUTE.with_argument(self.name, self.fields)

    def _bind(self, memory: OwnMemory) -> LocalMemory:
        def size_bytes(config: Config) -> int:
            return memory.size_bytes(config, config.engines[self]) if self in config.engines else 0

        return LocalMemory(
            OWN_MEMORY + self,
            memory.name,
            memory.title,
            write_bytes=memory.write_bytes,
            unit_bytes=lambda config: memory.unit_bytes(config, config.engines[self]),
            size_bytes=size_bytes,
        )
