"""Pipelines of fixed latency: delay lines, copies of a value beside its users, clock gating in simulations,
assertions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from amaranth.hdl import Assert, Const, Elaboratable, EnableInserter, Module, Signal, Value, ValueCastable, ValueLike

from ...golden.pins import AWAKE

__all__ = [
    "ASSERTED",
    "GENERIC",
    "SIMULATED",
    "Assertions",
    "Platform",
    "Primitives",
    "Sleep",
    "copy_of",
    "delay",
    "parts",
    "platform_of",
    "spread",
]


_PART_BITS = 64


def delay(m: Module, value: Value | ValueCastable, cycles: int, *, name: str):
    """Delay ``value`` by ``cycles`` cycles.

    Nothing is reset, flags neither: a soft reset lasts long enough for them to run out
    (:func:`lutterfly.golden.timing.latencies.reset_cycles`), and its wires need not reach all over the device.
    """
    for stage in range(cycles):
        later = Signal.like(value, name=f"{name}_{stage}", reset_less=True)
        m.d.sync += later.eq(value)
        value = later
    return value


def copy_of(value: Value, number: int, *, name: str, reset_less: bool = False) -> Signal:
    """Create a register for one of two copies of ``value``, 0 and 1, each beside its own users.

    They begin with different values in every bit: synthesis would merge registers that are always equal.
    """
    return Signal.like(value, name=name, init=Const(-number, value.shape()).value, reset_less=reset_less)


def spread(m: Module, value: Value, lanes: int, *, cycles: int, name: str) -> list[Signal]:
    """Delay ``value`` by ``cycles`` cycles for each lane, by a tree of registers whose last ones, two to the power of
    ``cycles``, are beside their own lanes.

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
    """Split the bits of a word into parts of 64 or more, if it has so many.

    The bits of a wide word are spread over the device: each part of a memory of them has address registers of its own
    beside it. These have to begin with a different value in each part, see :func:`copy_of`.
    """
    count = max(1, width // _PART_BITS)
    return [slice(*bounds) for bounds in pairwise(part * width // count for part in range(count + 1))]


# Targets of elaboration: a simulation with assertions, an FPGA with its primitives, or neither.


class Primitives:
    """Cells of a device family that replace the generic bodies of :mod:`.device` and :mod:`.pll`: here none.

    A family (:mod:`lutterfly.synth.families`) overrides what it has. Each method adds to the module of a component, and
    returns whether it did; ports and latency of the component stay as they are.

    Attributes
    ----------
    widest_factor : int
        The bits of unsigned factors that one multiplier takes: 18 where tools infer it.
    """

    widest_factor: int = 18

    def multiplier(self, m: Module, part: Any) -> bool:
        """Build a :class:`~lutterfly.hdl.parts.device.Multiplier`."""
        return False

    def pll(self, m: Module, part: Any) -> bool:
        """Build a :class:`~lutterfly.hdl.parts.pll.Pll`."""
        return False

    def pin_registers(self, m: Module, part: Any) -> bool:
        """Build :class:`~lutterfly.hdl.parts.device.PinRegisters`."""
        return False

    def bidirectional_pins(self, m: Module, part: Any) -> bool:
        """Build :class:`~lutterfly.hdl.parts.device.BidirectionalPins`."""
        return False

    def clock_pin(self, m: Module, part: Any) -> bool:
        """Build a :class:`~lutterfly.hdl.parts.device.ClockPin`."""
        return False


NO_PRIMITIVES = Primitives()


@dataclass(frozen=True, slots=True)
class Platform:
    """The target that ``elaborate`` of a component is given; ports and latencies are the same for all.

    Attributes
    ----------
    is_asserted : bool
        Whether there are assertions, for a simulation.
    sleeps : bool
        Whether the clock of unused parts is gated, for a fast simulation.
    primitives : Primitives
        Cells of a device family in place of generic bodies.
    """

    is_asserted: bool = False
    sleeps: bool = False
    primitives: Primitives = NO_PRIMITIVES


GENERIC = Platform()
ASSERTED = Platform(is_asserted=True)
SIMULATED = Platform(is_asserted=True, sleeps=True)


def platform_of(platform: object) -> Platform:
    """Return the platform that ``elaborate`` was given, or the generic one for any that is not ours, as Amaranth's
    None."""
    return platform if isinstance(platform, Platform) else GENERIC


# Clock gating of parts that are not used, in simulations only.


class Sleep:
    """Gate the clock of a part of a component in simulations, if it is elaborated for :data:`.pipeline.SIMULATED`.

    A register without a clock costs a simulation nothing, nor does the logic between such registers
    (``host/simulation/rewriting.py``). While the clock is off, the part keeps values of a time when it was not used; in
    hardware it has other values of such a time when it is used again.

    Parameters
    ----------
    m : Module
        The component's module.
    platform : object
        The target for which the component is elaborated.
    used : Value
        The part is used in this cycle, or will be. Combinational to :attr:`awake`.
    cycles : int
        Cycles for which the clock stays on afterwards: until all data have left the part.

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
        # The clock is on at first: the initial values of a simulation are not values of an unused part.
        left = Signal(range(cycles + 1), init=cycles, name="awake_left")
        m.d.comb += self.awake.eq(Value.cast(used) | left.any())
        with m.If(used):
            m.d.sync += left.eq(cycles)
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)

    def of(self, part: Elaboratable) -> Elaboratable:
        """Return the part, as a submodule to add."""
        return EnableInserter(self.awake)(part) if self._wanted else part


# Assertions, checked in every cycle of a simulation; they are not in built hardware.


class Assertions:
    """The assertions of one component: none unless it is elaborated for :data:`.pipeline.ASSERTED`.

    Parameters
    ----------
    m : Module
        The component's module.
    platform : object
        The target for which the component is elaborated.

    Attributes
    ----------
    wanted : bool
        Whether there are assertions, and logic that only they need is built.
    """

    def __init__(self, m: Module, platform: object):
        self.wanted = platform_of(platform).is_asserted
        self._module = m
        # While a component is reset, others continue, and its queues are closed for their words.
        self._runs = Signal(name="asserted")
        if self.wanted:
            m.d.sync += self._runs.eq(1)

    def never(self, condition: ValueLike, message: str) -> None:
        """Assert that ``condition`` is false in every cycle out of reset; ``message`` describes the failure."""
        if self.wanted:
            self._module.d.sync += Assert(~(self._runs & condition), message)
