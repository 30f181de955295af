"""Delay lines for fixed-latency pipelines."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value, ValueCastable

__all__ = ["delay"]


def delay(m: Module, value: Value | ValueCastable, cycles: int, *, name: str, reset_less: bool = True):
    """``value`` as it was ``cycles`` cycles ago.

    Data needs no reset; flags that make something happen do (``reset_less=False``).
    """
    for stage in range(cycles):
        later = Signal.like(value, name=f"{name}_{stage}", init=None if reset_less else 0, reset_less=reset_less)
        m.d.sync += later.eq(value)
        value = later
    return value
