"""What every engine looks like from outside: the same word in, the same lanes out. See ``docs/adding-an-engine.md``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar

from amaranth.hdl import Cat, Const, Mux, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.elements import NARROW_BITS
from ...golden.engines import SPECIFICATIONS, specification_of
from ...golden.engines.engine import Engine
from ...golden.engines.specification import EngineSpecification, Finish
from ...golden.memories import LocalMemory
from ...golden.numerics import requant
from ..parts.isa import EngineCommand, field_shape

__all__ = [
    "ACCUMULATOR_BITS",
    "SELECT_LATENCY",
    "AddendsComponent",
    "EngineComponent",
    "FinishComponent",
    "Step",
    "WholeFinishComponent",
    "addend_of",
    "addends_layout",
    "built_finishes",
    "codes_layout",
    "component_name",
    "engine_members",
    "finish_fields",
    "finish_flag",
    "finish_settings_layout",
    "further_pitch",
    "further_results",
    "has_whole_finish",
    "is_chosen",
    "is_whole",
    "most_further",
    "result_layout",
    "step_fields",
    "step_layout",
    "take_fields",
    "take_finish_settings",
    "values_layout",
]


# Fields of single engines on their way: with each step, and with each group of results.


def step_fields(config: Config, codes: Iterable[int]) -> dict[str, data.StructLayout]:
    """The member ``fields`` of a step: by the names of engines what :attr:`.Issue.fields` of these engines name and the
    configuration has; no member where there is nothing."""
    wanted = {}
    for one in map(specification_of, codes):
        absent = config.engines[one.engine].absent_fields()
        wanted[one.engine] = [name for name in one.issue.fields if name not in absent]
    return _member(wanted)


def finish_fields(codes: Iterable[int]) -> dict[str, data.StructLayout]:
    """The member ``fields`` of a group of results: what the finishes of these engines name."""
    engines = map(specification_of, codes)
    return _member({one.engine: [name for finish in one.finishes for name in finish.fields] for one in engines})


def _member(wanted: Mapping[Engine, Iterable[str]]) -> dict[str, data.StructLayout]:
    layouts = {
        engine.name.lower(): data.StructLayout({name: field_shape(engine.format, name) for name in names})
        for engine, names in wanted.items()
        if names
    }
    return {"fields": data.StructLayout(layouts)} if layouts else {}


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


def most_further(config: Config) -> int:
    """How many a window has at most, of any engine."""
    return max(specification_of(code).issue.most_further(config) for code in config.engines)


def further_results(command: data.View, config: Config) -> Value:
    """How many a command asks for; 0 if its engine has none."""
    return _of_engine(command, config, lambda further: further.count)


def further_pitch(command: data.View, config: Config) -> Value:
    """How far apart they are, in bytes; of any value if there are none."""
    return _of_engine(command, config, lambda further: further.pitch)


def _of_engine(command: data.View, config: Config, name) -> Value:
    """The field of that name, of whichever engine a command is for."""
    value: Value = Const(0)
    for code in config.engines:
        further = specification_of(code).issue.further
        if further is not None and further.most(config):
            own = EngineCommand(command, code)[name(further)]
            value = Mux(command.engine == code, own, value)
    return value


# What every finish looks like from outside; and which finish a command chooses. See ``docs/adding-an-engine.md``.

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


ACCUMULATOR_BITS = 32
#: Cycles until all lanes know which engine is selected.
SELECT_LATENCY = 2


class Step(data.Struct):
    """One step of a window, beside its activation word.

    ``clear``: a window begins here. ``fire``: its result leaves after this step.
    """

    valid: unsigned(1)
    clear: unsigned(1)
    fire: unsigned(1)


def step_layout(config: Config, codes: Iterable[int], flags: Iterable[str] = ()) -> data.StructLayout:
    """The step of a component that stands for these codes: a :class:`Step`, its flags, the bytes of its word that count
    (``keeps``, a bit each) if one of its engines asks for them, the engines' own ``fields``."""
    codes = list(codes)
    masks_words = any(specification_of(code).issue.masks_words for code in codes)
    keeps = {"keeps": unsigned(config.array.lanes)} if masks_words else {}
    own = {**dict.fromkeys(flags, unsigned(1)), **keeps, **step_fields(config, codes)}
    return data.StructLayout({**data.Layout.cast(Step).members, **own})


def result_layout(config: Config) -> data.StructLayout:
    """The accumulators of a window that has ended; lanes that an engine does not use are undefined."""
    return data.StructLayout(
        {"valid": unsigned(1), "lanes": data.ArrayLayout(signed(ACCUMULATOR_BITS), config.array.lanes)}
    )


def engine_members(config: Config, codes: Iterable[int], flags: Iterable[str] = ()) -> dict[str, wiring.Member]:
    """The members that every engine has, see :class:`EngineComponent`; those of a component that stands for ``codes``
    and whose steps have ``flags``."""
    codes = list(codes)
    return {
        "step": In(step_layout(config, codes, flags)),
        "word": In(8 * config.array.lanes),
        "selected": In(data.StructLayout({specification_of(code).name: unsigned(1) for code in codes})),
        "result": Out(result_layout(config)),
    }


def component_name(component: "EngineComponent") -> str:
    """A component in the names of modules and signals: the engines that it stands for."""
    return "_".join(specification_of(code).name for code in component.latencies)


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
    weight_times : list of int or None
        For each column of weights, cycles from an activation word to the factors that are multiplied by the word of
        weights that belongs to it; None for j cycles in column j.
    memory : LocalMemory or None
        One of its own, which a LOAD writes through the member ``write``.
    finishes : tuple of FinishComponent classes
        The hardware of those finishes of its engines that have any of their own.
    is_narrow : bool
        Its results are signed numbers of ``NARROW_BITS`` bits; no others are kept. Those of bursts must be.
    sleeps : bool
        In a simulation the whole of it may stand still while none of its engines is selected and nothing is written to
        its memory: no other engine needs it then, and it has no part that sleeps by itself.

    Members
    -------
    step : In(step_layout), word : In(8 * lanes)
        Belong together and come in any cycle; nothing can be held back.
    weights : In(columns x lanes x signed(8)), if the engine takes any
        ``weights[j]`` is the word of weights for column j, by default j cycles after the activation word that it
        belongs to.
    result : Out(result_layout)
    selected : In(a bit for each of its engines, by name)
        Which of them is selected: set ``SELECT_LATENCY`` cycles before its first word or earlier, cleared as long
        before the first word of another engine.
    borrowed_multipliers : Out(borrowed_multipliers), if the engine borrows columns of the array
        Its factors are zero while none of its engines is selected.
    borrowed_multipliers : In(borrowed_multipliers), if it is the array and another engine borrows of it
        While none of its engines is selected, words count as zero.
    """

    latencies: Mapping[Engine, int]
    flags: Mapping[str, Engine] = {}
    weight_times: Sequence[int] | None = None
    memory: LocalMemory | None = None
    finishes: ClassVar[tuple[type[FinishComponent], ...]] = ()
    is_narrow: ClassVar[bool] = False
    sleeps: ClassVar[bool] = True
