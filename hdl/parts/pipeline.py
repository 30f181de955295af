"""Delay lines for fixed-latency pipelines."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value, ValueCastable

__all__ = ["delay"]


def delay(m: Module, value: Value | ValueCastable, cycles: int, *, name: str):
    """``value`` as it was ``cycles`` cycles ago.

    Nothing is reset, flags neither: a soft reset lasts long enough for them to run out
    (:data:`lutterfly.golden.timing.RESET_CYCLES`), and its wires need not reach all over the device.
    """
    for stage in range(cycles):
        later = Signal.like(value, name=f"{name}_{stage}", reset_less=True)
        m.d.sync += later.eq(value)
        value = later
    return value
