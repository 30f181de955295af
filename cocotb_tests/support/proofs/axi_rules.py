"""Rules of AXI as assertions, for proofs of what drives a port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amaranth.hdl import Assert, Cat, Module, Signal


def offers_stay(m: Module, bus, channels: Mapping[str, Sequence[str]]) -> None:
    """What is offered on these channels, with these names, stays until it is taken."""
    for channel, names in channels.items():
        payload = Cat(getattr(bus, channel + name) for name in names)
        valid, waits = getattr(bus, f"{channel}valid"), Signal(name=f"{channel}_waits")
        before = Signal(len(payload), name=f"{channel}_before")
        m.d.sync += [before.eq(payload), waits.eq(valid & ~getattr(bus, f"{channel}ready"))]
        m.d.comb += Assert(~waits | valid & (payload == before))
