"""How many bits of each byte of a word agree with a weight: what XNOR-popcount has in the place of a multiplier."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..parts.device import MULTIPLIER_LATENCY

__all__ = ["COUNT_BITS", "Agreement"]

#: Of a count, 0 to 8.
COUNT_BITS = 4


class Agreement(wiring.Component):
    """Count the bits in which each byte of a word agrees with its weight, a word each cycle.

    A count comes as late as a product would, ``MULTIPLIER_LATENCY`` cycles after the word, over three levels with a
    register behind each. They are written for look-up tables of four inputs, of which a byte takes 19: two pairs of
    bits to a number of at most 2, which has its two bits from one table each; two of these to one of at most 4, in
    three tables; two of these to the count in five.

    Parameters
    ----------
    lanes : int
        Bytes of a word.

    Members
    -------
    word : In(8 * lanes)
    weights : In(lanes x signed(8))
    counts : Out(lanes x 4)
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__(
            {
                "word": In(8 * lanes),
                "weights": In(data.ArrayLayout(signed(8), lanes)),
                "counts": Out(data.ArrayLayout(unsigned(COUNT_BITS), lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        assert MULTIPLIER_LATENCY == 3, "a register behind each level"
        m = Module()
        for lane in range(self.lanes):
            agrees = ~(self.word.word_select(lane, 8) ^ self.weights[lane].as_unsigned())
            numbers = list(agrees)
            for level, add in enumerate((_of_bits, _of_pairs, _of_quads)):
                sums = [add(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
                numbers = [
                    Signal.like(total, name=f"sum_{lane}_{level}_{index}", reset_less=True)
                    for index, total in enumerate(sums)
                ]
                m.d.sync += [number.eq(total) for number, total in zip(numbers, sums, strict=True)]
            m.d.comb += self.counts[lane].eq(numbers[0])
        return m


def _of_bits(a: Value, b: Value) -> Value:
    """Of two bits."""
    return Cat(a ^ b, a & b)


def _of_pairs(a: Value, b: Value) -> Value:
    """Of two numbers of at most 2: whichever is 2 is even."""
    return Cat(a[0] ^ b[0], a[1] ^ b[1] ^ (a[0] & b[0]), a[1] & b[1])


def _of_quads(a: Value, b: Value) -> Value:
    """Of two numbers of at most 4: whichever is 4 brings no carry from below."""
    carry = (a[1] & b[1]) | (a[0] & b[0] & (a[1] | b[1]))
    return Cat(a[0] ^ b[0], a[1] ^ b[1] ^ (a[0] & b[0]), a[2] ^ b[2] ^ carry, a[2] & b[2])
