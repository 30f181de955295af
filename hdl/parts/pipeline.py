"""Registers of fixed-latency pipelines: delay lines, and copies of a value."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value, ValueCastable

__all__ = ["copy_of", "delay", "spread"]


def delay(m: Module, value: Value | ValueCastable, cycles: int, *, name: str):
    """``value`` as it was ``cycles`` cycles ago.

    Nothing is reset, flags neither: a soft reset lasts long enough for them to run out
    (:func:`lutterfly.golden.timing.reset_cycles`), and its wires need not reach all over the device.
    """
    for stage in range(cycles):
        later = Signal.like(value, name=f"{name}_{stage}", reset_less=True)
        m.d.sync += later.eq(value)
        value = later
    return value


def copy_of(value: Value, number: int, *, name: str, reset_less: bool = False) -> Signal:
    """A register for one of several copies of ``value``, each beside its own users.

    Copies of other numbers begin with other values, as far as there are any: synthesis would take registers that are
    always equal for one.
    """
    return Signal.like(value, name=f"{name}_{number}", init=number % (1 << len(value)), reset_less=reset_less)


def spread(m: Module, value: Value, lanes: int, *, cycles: int, name: str) -> list[Signal]:
    """``value`` for each lane, from ``2 * cycles`` registers beside their own lanes: after the first cycle for those of
    the first two, after ``cycles`` for all.

    A wire from one register to all the lanes of a stage would be the slowest there is.
    """
    copies: list[Signal] = []
    for number in range(2 * cycles):
        source = copies[number - 2] if number > 1 else value
        copies.append(copy_of(source, number, name=name, reset_less=True))
        m.d.sync += copies[-1].eq(source)
    return [copies[lane * len(copies) // lanes] for lane in range(lanes)]
