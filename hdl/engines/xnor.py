"""XNOR-popcount on the words and weights of the array: bits that agree are counted beside each multiplier."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..parts.device import MULTIPLIER_LATENCY
from ..parts.pipeline import Assertions, Sleep, delay, spread
from .engine import SELECT_LATENCY
from .stage import ArrayStage

if TYPE_CHECKING:
    from .mac_array import MacArray
    from .mac_column import MacColumn

__all__ = [
    "UNCOUNTED_DELAY",
    "Agreement",
    "XnorStage",
]


# Counting the bits of a byte that agree with a weight takes the place of multiplication.

#: Cycles from a word to the mask of its bytes that do not count.
UNCOUNTED_DELAY = MULTIPLIER_LATENCY - 1
#: Bits of a count, 0 to 8.
_COUNT_BITS = 4


class Agreement(wiring.Component):
    """Count the bits in which each byte of a word agrees with its weight, a word each cycle.

    A count has the latency of a product, ``MULTIPLIER_LATENCY`` cycles: two levels with a register after each, and one
    more register that can be cleared. Three bits become a number of at most 3, as do three others and the last two;
    these are added. A byte takes 15 look-up tables of four inputs, or 10 of six, as every bit of both levels is a
    function of six.

    Parameters
    ----------
    lanes : int
        Bytes of a word.

    Members
    -------
    word : In(8 * lanes)
    weights : In(lanes x signed(8))
    uncounted : In(lanes x 1)
        Forces the count to zero, ``UNCOUNTED_DELAY`` cycles after the word. It clears a register, without an inverter.
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
    """Return the sum of two or three bits."""
    if c is None:
        return Cat(a ^ b, a & b)
    return Cat(a ^ b ^ c, (a & b) | (c & (a ^ b)))


def _of_numbers(a: Value, b: Value, c: Value) -> Value:
    """Return the sum of three numbers of two bits, which is at most 8; the sum of their upper bits is at most 4."""
    low = _of_bits(a[0], b[0], c[0])
    highs = (a[1], b[1], c[1], low[1])
    odd, every = Cat(highs).xor(), Cat(highs).all()
    pairs = _of_bits(highs[0], highs[1]), _of_bits(highs[2], highs[3])
    two = (pairs[0][1] | pairs[1][1] | (pairs[0][0] & pairs[1][0])) & ~every
    return Cat(low[0], odd, two, every)


#: Cycles until the last count has left the registers of a column.
_LINGERS = 2 * MULTIPLIER_LATENCY


class XnorStage(ArrayStage):
    """Add up twice the bits in which words and weights agree, in the place of products, which are zero.

    ``keeps`` in a step has a bit for each byte of its word that counts. A column has two ports with a bit for each
    lane: ``binary``, which masks words in front of multipliers and is stable while words are under way, and
    ``uncounted``, for the word of ``UNCOUNTED_DELAY`` cycles before. Bit-exact with
    :func:`lutterfly.golden.engines.xnor.agreeing`.
    """

    flag: ClassVar = "binary"
    multiplies: ClassVar = False

    def column_members(self, column: int) -> dict[str, wiring.Member]:
        lanes = self.config.array.lanes
        return {"binary": In(lanes), "uncounted": In(lanes)}

    def connect(self, m: Module, platform: object, array: MacArray, column: MacColumn) -> None:
        """Pass the mask of bytes that do not count from column to column."""
        index = column.index
        first = None if index else self._uncounted(m, platform, array)
        uncounted = array.pass_on(m, "uncounted", index, first)
        # No register stands in front of the first column's multipliers; there one mask serves XNOR and loans.
        is_masked = array.selected[self.name] if index or not array.is_lent(index) else ~array.multiplies
        binary = spread(m, is_masked, array.lanes, cycles=SELECT_LATENCY, name=f"binary_{index}")
        m.d.comb += [column.binary.eq(Cat(binary)), column.uncounted.eq(uncounted)]

    def _uncounted(self, m: Module, platform: object, array: MacArray) -> Value:
        """Return the mask of bytes of the first column's words that do not count."""
        step = array.entering_step
        counted = step.keeps & step.binary.replicate(array.lanes)
        uncounted = delay(m, ~counted, UNCOUNTED_DELAY, name="uncounted")
        settled = delay(m, array.selected[self.name], SELECT_LATENCY, name="binary_settled")
        Assertions(m, platform).never(
            array.step.valid & (settled != array.step.binary), "MAC array: a step of an engine that is not selected"
        )
        return uncounted

    def masked(self, column: MacColumn) -> Value:
        return column.binary.all()

    def factors(self, m: Module, column: MacColumn, lane: int, a: Value, b: Value) -> tuple[Value, Value]:
        """Mask the word instead of choosing, for the reason that PairLine gives."""
        return (a.as_unsigned() & ~column.binary[lane].replicate(len(a))).as_signed(), b

    def sums(
        self, m: Module, platform: object, column: MacColumn, weights: data.View, terms: list[Value]
    ) -> list[Value]:
        """Return products or twice the counts, joined by ``or``, as one of both is zero."""
        agreement = self._counter(m, platform, column)
        lanes = range(column.lanes)
        m.d.comb += [
            agreement.word.eq(Cat(column.word.word_select(lane, column.word_bits)[:8] for lane in lanes)),
            agreement.weights.as_value().eq(Cat(weights[lane][:8] for lane in lanes)),
            agreement.uncounted.eq(column.uncounted),
        ]
        return [
            (term.as_unsigned() | Cat(Const(0, 1), count)).as_signed()
            for term, count in zip(terms, agreement.counts, strict=True)
        ]

    def _counter(self, m: Module, platform: object, column: MacColumn) -> Agreement:
        """Add the bit counters, whose clock a simulation stops while no word is binary; they give zeros then."""
        agreement, checks = Agreement(column.lanes), Assertions(m, platform)
        # The counters may see a word that is no step's before the array's selection arrives.
        counts = ~column.uncounted.all()
        sleep = Sleep(m, platform, column.binary.any() | counts, cycles=_LINGERS)
        m.submodules.agreement = sleep.of(agreement)
        if checks.wanted:
            since = Signal(UNCOUNTED_DELAY, init=-1, name="awake_since")
            m.d.sync += since.eq(Cat(sleep.awake, since))
            counted = delay(m, column.step.valid, UNCOUNTED_DELAY, name="valid_when_counted") & counts
            checks.never(counted & ~since.all(), "MAC array: bits that count in a column that is asleep")
            left = ~sleep.awake & agreement.counts.as_value().any()
            checks.never(left, "MAC array: counts of a column that is asleep")
        return agreement
