"""What every engine looks like from outside: the same word in, the same lanes out. See ``docs/adding-an-engine.md``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.engines import specification_of
from ...golden.engines.engine import Engine
from ...golden.memories import LocalMemory
from .fields import step_fields
from .finish import FinishComponent

__all__ = [
    "ACCUMULATOR_BITS",
    "SELECT_LATENCY",
    "EngineComponent",
    "Step",
    "component_name",
    "engine_members",
    "result_layout",
    "step_layout",
]

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
