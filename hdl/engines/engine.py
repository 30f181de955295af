"""The interface of all engines: the same word in, the same lanes out. See ``docs/adding-an-engine.md``."""

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
from ...golden.engines.specification import EngineSpecification, Epilogue
from ...golden.memories import LocalMemory
from ...golden.numerics import requant
from ..parts.isa import EngineCommand, field_shape

__all__ = [
    "ACCUMULATOR_BITS",
    "SELECT_LATENCY",
    "AddendsComponent",
    "EngineComponent",
    "EpilogueComponent",
    "Step",
    "WholeEpilogueComponent",
    "addend_of",
    "addends_layout",
    "built_epilogues",
    "codes_layout",
    "component_name",
    "engine_members",
    "epilogue_fields",
    "epilogue_flag",
    "epilogue_settings_layout",
    "further_pitch",
    "further_results",
    "has_whole_epilogue",
    "is_chosen",
    "is_whole",
    "most_further",
    "result_layout",
    "step_fields",
    "step_layout",
    "take_epilogue_settings",
    "take_fields",
    "values_layout",
]


# Fields of single engines, which travel with each step and with each group of results.


def step_fields(config: Config, codes: Iterable[int]) -> dict[str, data.StructLayout]:
    """Return the member ``fields`` of a step: by engine name, the fields in :attr:`.Issue.fields` that the
    configuration has. There is no member if no engine has any."""
    wanted = {}
    for one in map(specification_of, codes):
        absent = config.engines[one.engine].absent_fields()
        wanted[one.engine] = [name for name in one.issue.fields if name not in absent]
    return _member(wanted)


def epilogue_fields(codes: Iterable[int]) -> dict[str, data.StructLayout]:
    """Return the member ``fields`` of a group of results: the fields that the epilogues of these engines name."""
    engines = map(specification_of, codes)
    return _member({one.engine: [name for epilogue in one.epilogues for name in epilogue.fields] for one in engines})


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
    """Return the greatest number of further results of a window, of any engine."""
    return max(specification_of(code).issue.most_further(config) for code in config.engines)


def further_results(command: data.View, config: Config) -> Value:
    """Return the number of further results that a command asks for; 0 if its engine has none."""
    return _of_engine(command, config, lambda further: further.count)


def further_pitch(command: data.View, config: Config) -> Value:
    """Return the distance of further results in bytes; undefined if there are none."""
    return _of_engine(command, config, lambda further: further.pitch)


def _of_engine(command: data.View, config: Config, name) -> Value:
    """Return a field of the further results of the command's engine, or 0."""
    value: Value = Const(0)
    for code in config.engines:
        further = specification_of(code).issue.further
        if further is not None and further.most(config):
            own = EngineCommand(command, code)[name(further)]
            value = Mux(command.engine == code, own, value)
    return value


# The interface of all epilogues, and the one that a command chooses. See ``docs/adding-an-engine.md``.

_CODES = ("zero_point", "low", "high")


def built_epilogues(config: Config) -> Iterator[tuple[EngineSpecification, Epilogue]]:
    """Yield the epilogues of a configuration that have hardware of their own, each with its engine."""
    for one in map(specification_of, config.engines):
        for epilogue in one.epilogues:
            if epilogue.has_hardware and epilogue.is_built(config):
                yield one, epilogue


def has_whole_epilogue(config: Config) -> bool:
    """Whether a configuration has an epilogue of all lanes at a time."""
    return any(epilogue.is_whole for _, epilogue in built_epilogues(config))


def epilogue_flag(engine: EngineSpecification, epilogue: Epilogue) -> str:
    """Return the name of the flag of a group of results whose codes this epilogue of this engine makes."""
    return f"is_{engine.name}_{epilogue.name}"


def is_chosen(command: data.View, engine: EngineSpecification, epilogue: Epilogue) -> Value:
    """Whether a command is one of ``engine`` and chooses ``epilogue``, as one bit."""
    choices = engine.choices(EngineCommand(command, engine.engine))
    bits: list[Any] = [bit for one, bit in choices if one == epilogue]
    others = reduce(or_, (bit for _, bit in choices), Const(0))
    return (command.engine == engine.engine) & (bits[0] if bits else ~others)


def is_whole(command: data.View, config: Config) -> Value:
    """Whether a command chooses an epilogue of all lanes at a time, as one bit."""
    bits = [is_chosen(command, engine, epilogue) for engine, epilogue in built_epilogues(config) if epilogue.is_whole]
    return reduce(or_, bits, Const(0))


def epilogue_settings_layout(code: int) -> data.StructLayout:
    """Return the settings of this engine's epilogues: the codes' zero point and limits, and the epilogues' own
    ``fields``."""
    codes = {name: field_shape(isa.COMPUTE, name) for name in _CODES}
    return data.StructLayout({**codes, **epilogue_fields((code,))})


def take_epilogue_settings(target: data.View, settings: data.View) -> list:
    """Assign the settings of an epilogue from those of a group of results."""
    return [*(target[name].eq(settings[name]) for name in _CODES), *take_fields(target, settings)]


def addends_layout(config: Config) -> data.ArrayLayout:
    """Return the layout of two addends for each total of a group, with ``SUM_FRACTION_BITS`` fractional bits."""
    return data.ArrayLayout(data.ArrayLayout(signed(requant.SUM_BITS), 2), config.array.requant_lanes)


def addend_of(accumulator: Value) -> Value:
    """Return an accumulator, or its bias, as an addend, whose fraction is zero."""
    return Cat(Const(0, requant.SUM_FRACTION_BITS), accumulator).as_signed()


def values_layout(lanes: int) -> data.ArrayLayout:
    """Return the layout of the values of all lanes that a whole epilogue takes, or of its biases."""
    return data.ArrayLayout(signed(NARROW_BITS), lanes)


def codes_layout(lanes: int) -> data.ArrayLayout:
    """Return the layout of the codes that a whole epilogue gives."""
    return data.ArrayLayout(unsigned(8), lanes)


class EpilogueComponent(wiring.Component):
    """The hardware of an epilogue: one that gives the requantiser addends, or one that makes codes by itself.

    Each takes a group in every cycle and gives its result a fixed time later, whether the command has chosen this
    epilogue or not; the user of the component selects.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    epilogue : Epilogue
        The specification.
    memory : LocalMemory or None
        A memory of its own, which a LOAD writes through the member ``write``.
    """

    epilogue: ClassVar[Epilogue]
    memory: ClassVar[LocalMemory | None] = None


class AddendsComponent(EpilogueComponent):
    """Give the requantiser two addends for each total of a group, ``epilogue.addends_latency`` cycles later.

    Members
    -------
    settings : In(epilogue_settings_layout)
    accumulators, biases : In(requant_lanes x signed(32))
    addends : Out(addends_layout)
    write : Out(memory.WritePort.Signature), if it has a memory
        One unit of the memory.
    """


class WholeEpilogueComponent(EpilogueComponent):
    """Make the codes of all lanes of a result, ``latency`` cycles later.

    Attributes
    ----------
    latency : int
        At most the latency of requantiser and tables.

    Members
    -------
    settings : In(epilogue_settings_layout)
    values, biases : In(values_layout)
    codes : Out(codes_layout)
    """

    latency: ClassVar[int]


ACCUMULATOR_BITS = 32
#: Cycles until the selected engine is known in all lanes.
SELECT_LATENCY = 2


class Step(data.Struct):
    """One step of a window, beside its activation word.

    ``clear`` begins a window; ``fire`` gives its result after this step.
    """

    valid: unsigned(1)
    clear: unsigned(1)
    fire: unsigned(1)


def step_layout(config: Config, codes: Iterable[int], flags: Iterable[str] = ()) -> data.StructLayout:
    """Return the layout of the steps of a component for these engine codes: a :class:`Step`, its flags, a bit for each
    byte of the word that counts (``keeps``) if one of its engines asks for them, and the engines' own ``fields``."""
    codes = list(codes)
    masks_words = any(specification_of(code).issue.masks_words for code in codes)
    keeps = {"keeps": unsigned(config.array.lanes)} if masks_words else {}
    own = {**dict.fromkeys(flags, unsigned(1)), **keeps, **step_fields(config, codes)}
    return data.StructLayout({**data.Layout.cast(Step).members, **own})


def result_layout(config: Config) -> data.StructLayout:
    """Return the layout of a result: the accumulators of a window that has ended. Lanes that an engine does not use are
    undefined."""
    return data.StructLayout(
        {"valid": unsigned(1), "lanes": data.ArrayLayout(signed(ACCUMULATOR_BITS), config.array.lanes)}
    )


def engine_members(config: Config, codes: Iterable[int], flags: Iterable[str] = ()) -> dict[str, wiring.Member]:
    """Return the members that every engine has, see :class:`EngineComponent`, for a component with these engine codes
    whose steps have ``flags``."""
    codes = list(codes)
    return {
        "step": In(step_layout(config, codes, flags)),
        "word": In(8 * config.array.lanes),
        "selected": In(data.StructLayout({specification_of(code).name: unsigned(1) for code in codes})),
        "result": Out(result_layout(config)),
    }


def component_name(component: "EngineComponent") -> str:
    """Return the name of a component, in modules and signals: the names of its engines."""
    return "_".join(specification_of(code).name for code in component.latencies)


class EngineComponent(wiring.Component):
    """An engine, or several that share hardware.

    A component is built if one of its codes is among the engines of the configuration, and builds nothing for those of
    its codes that are not. A port or a memory that only this engine needs is stated in its specification or in the
    attributes below; no other file names the engine.

    A configuration's engines take a step each cycle, give one result for each window and do so a fixed time after its
    last step. An engine that needs more says so here, and its user, :class:`~lutterfly.hdl.compute.windows.Windows`,
    has one place for each: an interval between steps, the gate that lets them pass
    (:class:`~lutterfly.hdl.compute.issue_gate.IssueGate`); several groups of results from one window, its ``work``; a
    latency that depends on the command, the latency that it adds when a window has ended, for which the specification's
    ``latency`` is a function of the command already.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    latencies : dict of Engine to int
        For each of its engines in this configuration, cycles from a word to the result that it completes.
    flags : dict of str to Engine
        Flags of its steps, each with the engine whose steps set it.
    weight_times : list of int or None
        For each column of weights, cycles from an activation word to the factors that are multiplied by the word of
        weights that belongs to it; None for j cycles in column j.
    memory : LocalMemory or None
        A memory of its own, which a LOAD writes through the member ``write``.
    epilogues : tuple of EpilogueComponent classes
        The components of its engines' epilogues that have hardware of their own.
    is_narrow : bool
        Whether its results are signed numbers of ``NARROW_BITS`` bits; only these bits are kept. Results of bursts must
        be narrow.
    sleeps : bool
        Whether a simulation may stop its clock while none of its engines is selected and nothing is written to its
        memory: no other engine needs it then, and none of its parts stops its own clock.

    Members
    -------
    step : In(step_layout), word : In(8 * lanes)
        A step and its word, which may come in any cycle; there is no back-pressure.
    weights : In(columns x lanes x signed(8)), if the engine takes any
        ``weights[j]`` is the word of weights for column j, by default j cycles after the activation word that it
        belongs to.
    result : Out(result_layout)
    selected : In(a bit for each of its engines, by name)
        The selected engine's bit is set ``SELECT_LATENCY`` cycles before its first word or earlier, and cleared as long
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
    epilogues: ClassVar[tuple[type[EpilogueComponent], ...]] = ()
    is_narrow: ClassVar[bool] = False
    sleeps: ClassVar[bool] = True
