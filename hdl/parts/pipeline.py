"""Pipelines of fixed latency: delay lines, copies of a value beside its users, parts that sleep, and assertions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from amaranth.hdl import Assert, Const, Elaboratable, EnableInserter, Module, Signal, Value, ValueCastable, ValueLike

from ...golden.pins import AWAKE

__all__ = [
    "ASSERTED",
    "ECP5",
    "GENERIC",
    "SIMULATED",
    "Assertions",
    "Platform",
    "Sleep",
    "copy_of",
    "delay",
    "parts",
    "platform_of",
    "spread",
]


_PART_BITS = 64


def delay(m: Module, value: Value | ValueCastable, cycles: int, *, name: str):
    """``value`` as it was ``cycles`` cycles ago.

    Nothing is reset, flags neither: a soft reset lasts long enough for them to run out
    (:func:`lutterfly.golden.timing.latencies.reset_cycles`), and its wires need not reach all over the device.
    """
    for stage in range(cycles):
        later = Signal.like(value, name=f"{name}_{stage}", reset_less=True)
        m.d.sync += later.eq(value)
        value = later
    return value


def copy_of(value: Value, number: int, *, name: str, reset_less: bool = False) -> Signal:
    """A register for one of two copies of ``value``, 0 and 1, each beside its own users.

    They begin with other values in every bit: synthesis would take registers that are always equal for one.
    """
    return Signal.like(value, name=name, init=Const(-number, value.shape()).value, reset_less=reset_less)


def spread(m: Module, value: Value, lanes: int, *, cycles: int, name: str) -> list[Signal]:
    """``value`` as it was ``cycles`` cycles ago, for each lane, from a tree of registers whose last ones, two to the
    power of ``cycles``, are beside their own lanes.

    A wire from one register to all the lanes of a stage would be the slowest there is.
    """
    copies = [value]
    for cycle in range(cycles):
        sources, copies = copies, []
        for source in sources:
            copies += [
                copy_of(source, number, name=f"{name}_{cycle}_{len(copies) + number}", reset_less=True)
                for number in range(2)
            ]
        m.d.sync += [copy.eq(sources[number // 2]) for number, copy in enumerate(copies)]
    return [copies[lane * len(copies) // lanes] for lane in range(lanes)]


def parts(width: int) -> list[slice]:
    """The bits of a word in parts of 64 or more, if it has so many.

    Bits of a wide word lie where there is room: each part of a memory of them has registers of its own, beside it, for
    where it is written and read. These have to begin at another place in each part, see :func:`copy_of`.
    """
    count = max(1, width // _PART_BITS)
    return [slice(*bounds) for bounds in pairwise(part * width // count for part in range(count + 1))]


# What components are elaborated for: a simulation with assertions, an FPGA with its primitives, or neither.


@dataclass(frozen=True, slots=True)
class Platform:
    """What ``elaborate`` of a component is given; ports and latencies are the same for all.

    Attributes
    ----------
    is_asserted : bool
        With assertions (:mod:`.pipeline`): for a simulation.
    sleeps : bool
        With parts that stand still while nobody uses them (:mod:`.pipeline`): for a simulation that is to be fast.
    has_ecp5_primitives : bool
        With primitives of an ECP5 instead of generic bodies.
    is_pumped : bool
        Each two columns of the multiplier array have the multipliers of one, which work twice a cycle
        (:mod:`.device`): for a device that has too few. There is a second clock then.
    """

    is_asserted: bool = False
    sleeps: bool = False
    has_ecp5_primitives: bool = False
    is_pumped: bool = False


GENERIC = Platform()
ASSERTED = Platform(is_asserted=True)
SIMULATED = Platform(is_asserted=True, sleeps=True)
ECP5 = Platform(has_ecp5_primitives=True)


def platform_of(platform: object) -> Platform:
    """What ``elaborate`` was given, or the generic platform for anything that is not ours, as Amaranth's None."""
    return platform if isinstance(platform, Platform) else GENERIC


# Parts that stand still in a simulation while nobody uses them; hardware that is built has none of it.


class Sleep:
    """When a part of a component is awake: always, unless it is elaborated for :data:`.pipeline.SIMULATED`.

    A register that stands still costs a simulation nothing, nor does the logic between such registers
    (``host/simulation/rewriting.py``). What a part holds when it falls asleep is what came by while nobody used it, as
    it is in hardware when it is used again.

    Parameters
    ----------
    m : Module
        Of the component.
    platform : object
        What the component is elaborated for.
    used : Value
        Somebody uses the part, or will, in this cycle. Combinational to :attr:`awake`.
    cycles : int
        How long it goes on afterwards: as long as anything of what it has been given is under way in it.

    Attributes
    ----------
    awake : Value
        The part's registers take new values at the end of this cycle.
    """

    def __init__(self, m: Module, platform: object, used: ValueLike, *, cycles: int):
        self._wanted = platform_of(platform).sleeps
        self.awake: Value = Const(1)
        if not self._wanted:
            return
        self.awake = Signal(name=AWAKE)
        # At first it is awake: what a simulation begins with is not what comes by.
        left = Signal(range(cycles + 1), init=cycles, name="awake_left")
        m.d.comb += self.awake.eq(Value.cast(used) | left.any())
        with m.If(used):
            m.d.sync += left.eq(cycles)
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)

    def of(self, part: Elaboratable) -> Elaboratable:
        """The part, to be made a submodule."""
        return EnableInserter(self.awake)(part) if self._wanted else part


# What must never happen, looked at in every cycle of a simulation; hardware that is built has none of it.


class Assertions:
    """The assertions of one component: none unless it is elaborated for :data:`.pipeline.ASSERTED`.

    Parameters
    ----------
    m : Module
        Of the component.
    platform : object
        What the component is elaborated for.

    Attributes
    ----------
    wanted : bool
        There are assertions: what only they need may be built.
    """

    def __init__(self, m: Module, platform: object):
        self.wanted = platform_of(platform).is_asserted
        self._module = m
        # While a component is reset, others go on, and what they send finds its queues closed.
        self._runs = Signal(name="asserted")
        if self.wanted:
            m.d.sync += self._runs.eq(1)

    def never(self, condition: ValueLike, message: str) -> None:
        """Assert that ``condition`` is false in every cycle out of reset; ``message`` says what it would mean."""
        if self.wanted:
            self._module.d.sync += Assert(~(self._runs & condition), message)
