"""How many bits of each byte of a word agree with a weight: what XNOR-popcount has in the place of a multiplier."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..parts.device import MULTIPLIER_LATENCY

__all__ = ["UNCOUNTED_DELAY", "Agreement"]

#: Cycles from a word to what says which of its bytes do not count.
UNCOUNTED_DELAY = MULTIPLIER_LATENCY - 1
#: Of a count, 0 to 8.
_COUNT_BITS = 4


class Agreement(wiring.Component):
    """Count the bits in which each byte of a word agrees with its weight, a word each cycle.

    A count comes as late as a product would, ``MULTIPLIER_LATENCY`` cycles after the word, over two levels with a
    register after each, and one more that can be cleared. Three bits become a number of at most 3, and so do three
    others and the last two; these are added. A byte takes 15 look-up tables of four inputs, or 10 of six: every bit of
    both levels is a function of six.

    Parameters
    ----------
    lanes : int
        Bytes of a word.

    Members
    -------
    word : In(8 * lanes)
    weights : In(lanes x signed(8))
    uncounted : In(lanes x 1)
        ``UNCOUNTED_DELAY`` cycles after the word: the count is zero. It clears a register, without an inverter.
    counts : Out(lanes x 4)
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__(
            {
                "word": In(8 * lanes),
                "weights": In(data.ArrayLayout(signed(8), lanes)),
                "uncounted": In(lanes),
                "counts": Out(data.ArrayLayout(unsigned(_COUNT_BITS), lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        assert MULTIPLIER_LATENCY == 3, "a register after each level, and one more"
        m = Module()
        for lane in range(self.lanes):
            agrees = ~(self.word.word_select(lane, 8) ^ self.weights[lane].as_unsigned())
            numbers = []
            for first in (0, 3, 6):
                number = Signal(2, name=f"number_{lane}_{first}", reset_less=True)
                m.d.sync += number.eq(_of_bits(*agrees[first : first + 3]))
                numbers.append(number)
            total = Signal(_COUNT_BITS, name=f"total_{lane}", reset_less=True)
            m.d.sync += total.eq(_of_numbers(*numbers))
            count = Signal(_COUNT_BITS, name=f"count_{lane}", reset_less=True)
            with m.If(self.uncounted[lane]):
                m.d.sync += count.eq(0)
            with m.Else():
                m.d.sync += count.eq(total)
            m.d.comb += self.counts[lane].eq(count)
        return m


def _of_bits(a: Value, b: Value, c: Value | None = None) -> Value:
    """The sum of two or three bits."""
    if c is None:
        return Cat(a ^ b, a & b)
    return Cat(a ^ b ^ c, (a & b) | (c & (a ^ b)))


def _of_numbers(a: Value, b: Value, c: Value) -> Value:
    """The sum of three numbers of two bits, at most 8: what is above their lowest bits is at most 4."""
    low = _of_bits(a[0], b[0], c[0])
    highs = (a[1], b[1], c[1], low[1])
    odd, every = Cat(highs).xor(), Cat(highs).all()
    pairs = _of_bits(highs[0], highs[1]), _of_bits(highs[2], highs[3])
    two = (pairs[0][1] | pairs[1][1] | (pairs[0][0] & pairs[1][0])) & ~every
    return Cat(low[0], odd, two, every)
