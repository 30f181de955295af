"""Registers of fixed-latency pipelines: delay lines, and copies of a value beside their users."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Const, Module, Signal, Value, ValueCastable

__all__ = ["copy_of", "delay", "parts", "spread"]

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
