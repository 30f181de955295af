"""Times of bits that are no whole cycles: what is left over counts for the next one."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value

from ...golden.link import frames

__all__ = ["last_cycle"]


def last_cycle(m: Module, bit_time: Value, part_bits: int, *, begins: Value) -> Signal:
    """Whether this cycle is the last one of the time at hand; the next one follows.

    Parameters
    ----------
    m : Module
    bit_time : Value
        How long a time is, in parts of a cycle: at least one cycle.
    part_bits : int
        A cycle has 2 ** part_bits parts.
    begins : Value
        The next cycle is the first one of a time, whatever is at hand.
    """
    left = Signal(range(frames.MOST_BIT_TIME + (1 << part_bits)), name="left", reset_less=True)
    ends, again = Signal(name="ends"), Signal(name="again")
    part, whole = left[:part_bits], left[part_bits:]
    m.d.comb += [ends.eq(whole == 1), again.eq(ends | begins)]
    # One addition for both: a whole cycle less, or the next time and the part that is left over.
    cycle_less = Const(-1 << part_bits, len(left))
    m.d.sync += left.eq(Mux(again, bit_time, left) + Mux(again, Mux(begins, 0, part), cycle_less))
    return ends
