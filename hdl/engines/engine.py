"""What every engine looks like from outside: the same word in, the same lanes out. See ``docs/adding-an-engine.md``."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import ClassVar, Literal

from amaranth.hdl import Cat, Const, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden import requant
from ...golden.config import Config
from ...golden.engines.engine import Engine
from ...golden.engines.specifications import SPECIFICATIONS, specification
from ...golden.fpc import VALUE_BITS
from ...golden.memories import LocalMemory
from ..parts.device import MultiplierColumns
from ..parts.isa import EngineCommand, field_shape

__all__ = [
    "ACCUMULATOR_BITS",
    "LOAN_LATENCY",
    "NARROW_BITS",
    "EngineComponent",
    "Step",
    "TermsComponent",
    "borrower_members",
    "engine_members",
    "has_direct",
    "is_direct",
    "lender_members",
    "lent_columns",
    "lent_multipliers",
    "mode_members",
    "own_fields",
    "result_layout",
    "step_layout",
    "take_fields",
    "term_of",
    "terms_layout",
    "terms_settings_layout",
]

ACCUMULATOR_BITS = 32
#: Bits of the results of an engine that has no accumulators.
NARROW_BITS = VALUE_BITS
#: Cycles until multipliers have changed hands in all lanes.
LOAN_LATENCY = 2


class Step(data.Struct):
    """One step of a window, beside its activation word.

    ``clear``: a window begins here. ``fire``: its result leaves after this step.
    """

    valid: unsigned(1)
    clear: unsigned(1)
    fire: unsigned(1)


def has_direct(config: Config) -> bool:
    """Whether an engine of the configuration has direct results."""
    return any(specification(code).direct for code in config.engines)


def is_direct(command, config: Config):
    """Whether the results of a command are direct, as one bit."""
    engines = [specification(code) for code in config.engines]
    bits = [
        (command.engine == one.engine) & one.is_direct(EngineCommand(command, one.engine))
        for one in engines
        if one.direct
    ]
    return reduce(or_, bits, Const(0))


def own_fields(codes: Iterable[int], place: Literal["step_fields", "result_fields"]) -> dict[str, data.StructLayout]:
    """The member ``fields``: for each engine by its name, the fields of its commands that its specification wants in
    ``place``; no member where none wants any."""
    wanted = {}
    for one in map(specification, codes):
        names = getattr(one, place)
        if names:
            wanted[one.name] = data.StructLayout({name: field_shape(one.engine.format, name) for name in names})
    return {"fields": data.StructLayout(wanted)} if wanted else {}


def take_fields(target: data.View, source: data.View) -> list:
    """Assign the ``fields`` of ``target``, if it has any; ``source`` is a command, or has ``fields`` as well."""
    members, given = (data.Layout.cast(view.shape()).members for view in (target, source))
    if "fields" not in members:
        return []
    engines = {one.name: one.engine for one in SPECIFICATIONS.values()}
    taken = []
    for name, layout in members["fields"].members.items():
        own = source.fields[name] if "fields" in given else EngineCommand(source, engines[name])
        taken += [target.fields[name][field].eq(own[field]) for field in layout.members]
    return taken


def terms_layout(config: Config) -> data.ArrayLayout:
    """The two terms of each total of a group, with ``SUM_FRACTION_BITS`` of fraction."""
    return data.ArrayLayout(data.ArrayLayout(signed(requant.SUM_BITS), 2), config.array.requant_lanes)


def term_of(accumulator: Value) -> Value:
    """An accumulator, or its bias, as a term: its fraction is zero."""
    return Cat(Const(0, requant.SUM_FRACTION_BITS), accumulator).as_signed()


def terms_settings_layout(code: int) -> data.StructLayout:
    """What an engine's command says of the terms of its results; ``enable``: that they are its results."""
    return data.StructLayout({"enable": unsigned(1), **own_fields((code,), "result_fields")})


def step_layout(config: Config, codes: Iterable[int], flags: Iterable[str] = ()) -> data.StructLayout:
    """The step of a component that stands for these codes: a :class:`Step`, its flags, the bytes of its word that count
    (``keeps``, a bit each) if one of its engines asks for them, the engines' own ``fields``."""
    codes = list(codes)
    keeps = {"keeps": unsigned(config.array.lanes)} if any(specification(code).masks_words for code in codes) else {}
    own = {**dict.fromkeys(flags, unsigned(1)), **keeps, **own_fields(codes, "step_fields")}
    return data.StructLayout({**data.Layout.cast(Step).members, **own})


def result_layout(config: Config) -> data.StructLayout:
    """The accumulators of a window that has ended; lanes that an engine does not use are undefined."""
    return data.StructLayout(
        {"valid": unsigned(1), "lanes": data.ArrayLayout(signed(ACCUMULATOR_BITS), config.array.lanes)}
    )


def engine_members(config: Config, step: data.ShapeLike = Step) -> dict[str, wiring.Member]:
    """The members that every engine has, see :class:`EngineComponent`."""
    return {
        "step": In(step),
        "word": In(8 * config.array.lanes),
        "result": Out(result_layout(config)),
    }


def mode_members(modes: Iterable[str]) -> dict[str, wiring.Member]:
    """The members of an engine with these modes."""
    layout = dict.fromkeys(modes, unsigned(1))
    return {"mode": In(data.StructLayout(layout))} if layout else {}


def lent_columns(config: Config) -> int:
    """Columns of the array, the first ones, whose multipliers another engine of the configuration borrows."""
    return sum(specification(code).borrowed_columns(config) for code in config.engines)


def lent_multipliers(columns: int, lanes: int) -> MultiplierColumns:
    """Multipliers of the array, by the weights of their columns."""
    return MultiplierColumns(columns, lanes, a_width=VALUE_BITS, b_width=8)


def borrower_members(columns: int, lanes: int) -> dict[str, wiring.Member]:
    """The members of an engine that borrows so many columns."""
    if not columns:
        return {}
    return {"active": In(1), "borrowed_multipliers": Out(lent_multipliers(columns, lanes))}


def lender_members(columns: int, lanes: int) -> dict[str, wiring.Member]:
    """The members of the array, of which so many columns are borrowed."""
    if not columns:
        return {}
    return {"lent": In(1), "lent_multipliers": In(lent_multipliers(columns, lanes))}


class TermsComponent(wiring.Component):
    """What makes the two terms that the requantiser adds, one group each cycle, with a latency of ``finish_latency``
    of the engine's specification; or lets accumulator and bias pass.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    memory : LocalMemory
        What a LOAD writes to it, through ``write``.

    Members
    -------
    settings : In(terms_settings_layout)
    write : Out(memory.WritePort.Signature)
        One unit of ``memory``.
    accumulators, biases : In(requant_lanes x signed(32))
    terms : Out(terms_layout)
        Where it is not enabled, accumulator and bias (:func:`term_of`).
    """

    memory: ClassVar[LocalMemory]


class EngineComponent(wiring.Component):
    """An engine, or several that share hardware.

    A component is built if one of its codes is among the engines of the configuration, and builds nothing for those of
    its codes that are not. What it needs and nobody else has, a port or a memory, is told by its specification or by
    the attributes below; no other file names it.

    A configuration's engines take a step each cycle, give one result for each window and do so a fixed time after its
    last step. An engine that needs more says so here, and its user, :class:`~lutterfly.hdl.compute.windows.Windows`,
    has one place for each: an interval between steps, the gate that lets them pass
    (:class:`~lutterfly.hdl.compute.foresight.Foresight`); several groups of results from one window, its ``work``; a
    latency that depends on the command, the latency that it adds when a window has ended, for which the specification's
    ``latency`` is a function of the command already.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    latencies : dict of Engine to int
        For each code that it stands for in this configuration, cycles from a word to the result that it completes.
    flags : dict of str to Engine
        Bits of its step that say that the step is one of that code.
    modes : sequence of str
        Members of ``mode``: those flags that it has to know before the first step.
    weight_times : list of int or None
        For each column of weights, cycles from an activation word to the word of weights that belongs to it; None for j
        cycles in column j.
    memory : LocalMemory or None
        One of its own, which a LOAD writes through the member ``write``.
    terms : subclass of TermsComponent or None
        What its results become on the way to the requantiser, if they are no accumulators.
    is_narrow : bool
        Its results are signed numbers of ``NARROW_BITS`` bits; no others are kept. Those of bursts must be.

    Members
    -------
    step : In(step_layout), word : In(8 * lanes)
        Belong together and come in any cycle; nothing can be held back.
    weights : In(columns x lanes x signed(8)), if the engine takes any
        ``weights[j]`` is the word of weights for column j, by default j cycles after the activation word that it
        belongs to.
    result : Out(result_layout)
    mode : In(a bit for each of ``modes``), if there are any
        Which of its engines works: set ``LOAN_LATENCY`` cycles before its first word or earlier, cleared as long before
        the first word of another engine.
    active : In(1), borrowed_multipliers : Out(lent_multipliers), if the engine borrows columns of the array
        It works: set ``LOAN_LATENCY`` cycles before its first word or earlier, cleared as long before the first word of
        another engine. When it does not work, its factors are zero.
    lent : In(1), lent_multipliers : In(lent_multipliers), if it is the array and another engine borrows of it
        The same from the other side: while it is set, words count as zero.
    """

    latencies: Mapping[Engine, int]
    flags: Mapping[str, Engine] = {}
    modes: Sequence[str] = ()
    weight_times: Sequence[int] | None = None
    memory: LocalMemory | None = None
    terms: ClassVar[type[TermsComponent] | None] = None
    is_narrow: ClassVar[bool] = False
