"""What every finish looks like from outside; and which finish a command chooses. See ``docs/adding-an-engine.md``."""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any, ClassVar

from amaranth.hdl import Cat, Const, Value, signed, unsigned
from amaranth.lib import data, wiring

from ...golden import isa
from ...golden.config import Config
from ...golden.elements import NARROW_BITS
from ...golden.engines import specification_of
from ...golden.engines.specification import EngineSpecification, Finish
from ...golden.memories import LocalMemory
from ...golden.numerics import requant
from ..parts.isa import EngineCommand, field_shape
from .fields import finish_fields, take_fields

__all__ = [
    "AddendsComponent",
    "FinishComponent",
    "WholeFinishComponent",
    "addend_of",
    "addends_layout",
    "built_finishes",
    "codes_layout",
    "finish_flag",
    "finish_settings_layout",
    "has_whole_finish",
    "is_chosen",
    "is_whole",
    "take_finish_settings",
    "values_layout",
]

_CODES = ("zero_point", "low", "high")


def built_finishes(config: Config) -> Iterator[tuple[EngineSpecification, Finish]]:
    """The finishes of a configuration that have hardware of their own, each with its engine."""
    for one in map(specification_of, config.engines):
        for finish in one.finishes:
            if finish.has_hardware and finish.is_built(config):
                yield one, finish


def has_whole_finish(config: Config) -> bool:
    """Whether a configuration has a finish of all lanes at a time."""
    return any(finish.is_whole for _, finish in built_finishes(config))


def finish_flag(engine: EngineSpecification, finish: Finish) -> str:
    """The flag of a group of results that says that this finish of this engine makes its codes."""
    return f"is_{engine.name}_{finish.name}"


def is_chosen(command: data.View, engine: EngineSpecification, finish: Finish) -> Value:
    """Whether a command is one of ``engine`` and chooses ``finish``, as one bit."""
    choices = engine.choices(EngineCommand(command, engine.engine))
    bits: list[Any] = [bit for one, bit in choices if one == finish]
    others = reduce(or_, (bit for _, bit in choices), Const(0))
    return (command.engine == engine.engine) & (bits[0] if bits else ~others)


def is_whole(command: data.View, config: Config) -> Value:
    """Whether a command chooses a finish of all lanes at a time, as one bit."""
    bits = [is_chosen(command, engine, finish) for engine, finish in built_finishes(config) if finish.is_whole]
    return reduce(or_, bits, Const(0))


def finish_settings_layout(code: int) -> data.StructLayout:
    """What a command says of a finish of this engine: the codes' zero point and limits, and its own ``fields``."""
    codes = {name: field_shape(isa.COMPUTE, name) for name in _CODES}
    return data.StructLayout({**codes, **finish_fields((code,))})


def take_finish_settings(target: data.View, settings: data.View) -> list:
    """Assign the settings of a finish, of those of a group of results."""
    return [*(target[name].eq(settings[name]) for name in _CODES), *take_fields(target, settings)]


def addends_layout(config: Config) -> data.ArrayLayout:
    """The two addends of each total of a group, with ``SUM_FRACTION_BITS`` of fraction."""
    return data.ArrayLayout(data.ArrayLayout(signed(requant.SUM_BITS), 2), config.array.requant_lanes)


def addend_of(accumulator: Value) -> Value:
    """An accumulator, or its bias, as an addend: its fraction is zero."""
    return Cat(Const(0, requant.SUM_FRACTION_BITS), accumulator).as_signed()


def values_layout(lanes: int) -> data.ArrayLayout:
    """The values of all lanes that a whole finish takes, or its biases."""
    return data.ArrayLayout(signed(NARROW_BITS), lanes)


def codes_layout(lanes: int) -> data.ArrayLayout:
    """The codes that it gives."""
    return data.ArrayLayout(unsigned(8), lanes)


class FinishComponent(wiring.Component):
    """The hardware of a finish: one that gives the requantiser addends, or one that makes codes by itself.

    Each takes a group in every cycle and gives what becomes of it a fixed time later, whether its command has chosen it
    or not: its user chooses.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    finish : Finish
        What its specification says of it.
    memory : LocalMemory or None
        One of its own, which a LOAD writes through the member ``write``.
    """

    finish: ClassVar[Finish]
    memory: ClassVar[LocalMemory | None] = None


class AddendsComponent(FinishComponent):
    """A finish that gives the requantiser two addends for each total of a group, ``finish.addends_latency`` cycles
    later.

    Members
    -------
    settings : In(finish_settings_layout)
    accumulators, biases : In(requant_lanes x signed(32))
    addends : Out(addends_layout)
    write : Out(memory.WritePort.Signature), if it has a memory
        One unit of it.
    """


class WholeFinishComponent(FinishComponent):
    """A finish that makes the codes of all lanes of a result, ``latency`` cycles later.

    Attributes
    ----------
    latency : int
        At most what requantiser and tables take.

    Members
    -------
    settings : In(finish_settings_layout)
    values, biases : In(values_layout)
    codes : Out(codes_layout)
    """

    latency: ClassVar[int]
