"""A column of the multiply-accumulate array: a multiplier for each lane, an adder tree and an accumulator."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.elements import CODE_BITS, DIFFERENCE_BITS, NARROW_BITS
from ...golden.numerics.winograd import WEIGHT_BITS, WORD_BITS
from ..parts.device import DOUBLE, MULTIPLIER_LATENCY, Multiplier, MultiplierBank
from ..parts.pipeline import Assertions, Sleep, delay
from .engine import ACCUMULATOR_BITS
from .multipliers import lender_members
from .winograd import TAP_CONTROL, WinogradTaps, WinogradTotals

__all__ = [
    "UNCOUNTED_DELAY",
    "Agreement",
    "MacColumn",
    "column_latency",
]


# How many bits of each byte of a word agree with a weight: what XNOR-popcount has in the place of a multiplier.

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


#: Cycles in which what counted last has left the registers of a column.
_LINGERS = 2 * MULTIPLIER_LATENCY

PRODUCT_BITS = 16
#: Of the factors of Winograd steps.
FACTORED_BITS = WORD_BITS + WEIGHT_BITS


def column_latency(lanes: int) -> int:
    """Cycles from a word to the total that it completes: multiply, one for each level of the adder tree, accumulate."""
    return MULTIPLIER_LATENCY + ceil_log2(lanes) + 1


class MacColumn(wiring.Component):
    """Add up the products of each word with its weights, one word per cycle, into one accumulator; or into two, see
    :class:`~lutterfly.hdl.engines.winograd.WinogradTotals`.

    A result comes ``latency`` cycles (:func:`column_latency`) after the word that fires it. Bit-exact with
    :func:`lutterfly.golden.engines.mac.accumulate`.

    Parameters
    ----------
    lanes : int
        Products per word, a power of two.
    step : StructLayout
        As the array's steps are; one whose flag ``chain`` is set does not fire. If it has a ``phase``, words are those
        of :class:`~lutterfly.hdl.engines.winograd.WinogradWords`, and totals come as much later as
        :class:`~lutterfly.golden.engines.engine.ArrayWaits` says.
    is_borrowed : bool
        Whether another engine multiplies here.
    is_weighed : bool
        Whether it may do so by weights of its own.
    is_binary : bool
        Whether words may be binary.
    is_pumped : bool
        Whether the multipliers are others', and not its own.
    is_ahead : bool
        Whether words, weights and their control come a cycle before, and what is made of them passes registers of the
        faster clock: for the first turn of :class:`~lutterfly.hdl.parts.device.PumpedMultipliers`.

    Members
    -------
    step : In(step)
    word : In(lanes x 8 or 9 bits)
    weights : In(lanes x signed(8))
        In the cycle of ``word``, or a cycle before.
    control : In(TAP_CONTROL), if there is a ``phase``
        Of ``weights``.
    products : Out(lanes x signed(16))
        ``MULTIPLIER_LATENCY`` cycles after ``word``.
    borrowed_multipliers : In(borrowed_multipliers of one column), if ``is_borrowed``
        Words are zero where factors are not, and factors where words are not.
    binary : In(lanes x 1), if ``is_binary``
        Products are zero; stays while words are under way.
    bank : Out(MultiplierBank), if ``is_pumped``
    uncounted : In(lanes x 1), if ``is_binary``
        Of the word ``UNCOUNTED_DELAY`` cycles before: else add up twice the bits in which it and its weights agree.
    fired : Out(1)
        ``total`` is a result.
    total : Out(signed(32))
        The accumulator, modulo 2**32.
    """

    def __init__(
        self,
        *,
        lanes: int,
        step: data.StructLayout,
        is_borrowed: bool = False,
        is_weighed: bool = False,
        is_binary: bool = False,
        is_pumped: bool = False,
        is_ahead: bool = False,
    ):
        self.is_pumped, self.is_ahead = is_pumped, is_ahead
        self.lanes = lanes
        self.is_borrowed = is_borrowed
        self.is_weighed = is_weighed
        self.is_binary = is_binary
        self.latency = column_latency(lanes)
        self.is_winograd = "phase" in step.members
        self.lane_bits = WORD_BITS if self.is_winograd else 8
        widths = {
            "a_width": max(self.lane_bits, NARROW_BITS * is_borrowed),
            "b_width": max(WEIGHT_BITS if self.is_winograd else CODE_BITS, DIFFERENCE_BITS * is_weighed),
        }
        super().__init__(
            {
                "step": In(step),
                "word": In(self.lane_bits * lanes),
                "weights": In(data.ArrayLayout(signed(8), lanes)),
                "products": Out(data.ArrayLayout(signed(PRODUCT_BITS), lanes)),
                "fired": Out(1),
                "total": Out(signed(ACCUMULATOR_BITS)),
                **lender_members(int(is_borrowed), lanes, int(is_weighed)),
                **({"binary": In(lanes), "uncounted": In(lanes)} if is_binary else {}),
                **({"control": In(TAP_CONTROL)} if self.is_winograd else {}),
                **({"bank": Out(MultiplierBank(lanes, **widths, is_early=is_ahead))} if is_pumped else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        weights = self.weights
        if self.is_winograd:
            m.submodules.taps = taps = WinogradTaps(self.lanes)
            m.d.comb += [taps.control.eq(self.control), taps.weights.eq(self.weights)]
            weights = taps.taps

        terms = [self._term(m, lane, weights[lane]) for lane in range(self.lanes)]
        level, term_bits = 0, FACTORED_BITS if self.is_winograd else PRODUCT_BITS
        if self.is_binary:
            agreement = self._counter(m, platform)
            m.d.comb += [
                *self._give(m, agreement, weights),
                agreement.uncounted.eq(self.uncounted),
            ]
            # One of both is zero here as well.
            for lane, count in enumerate(agreement.counts):
                terms[lane] = (terms[lane].as_unsigned() | Cat(Const(0, 1), count)).as_signed()
        while len(terms) > 1:
            sums = [
                Signal(signed(term_bits + level + 1), name=f"sum_{level}_{pair}", reset_less=True)
                for pair in range(len(terms) // 2)
            ]
            m.d.sync += [total.eq(terms[2 * pair] + terms[2 * pair + 1]) for pair, total in enumerate(sums)]
            terms, level = sums, level + 1

        step = delay(m, self.step, self.latency - 1, name="step")
        if self.is_winograd:
            self._elaborate_totals(m, step, terms[0])
            return m
        fires = step.valid & step.fire
        if "chain" in step.shape().members:
            fires &= ~step.chain
        m.d.comb += self.fired.eq(delay(m, fires, 1, name="fired"))
        total = Signal.like(self.total, reset_less=True)
        with m.If(step.valid):
            m.d.sync += total.eq(Mux(step.clear, 0, total) + terms[0])
        m.d.comb += self.total.eq(total)

        return m

    def _term(self, m: Module, lane: int, b: Value) -> Value:
        """A lane's product as it is added up."""
        a = self.word.word_select(lane, self.lane_bits).as_signed()
        if self.is_binary:
            # Masked, not chosen: see PairLine.
            a = (a.as_unsigned() & ~self.binary[lane].replicate(self.lane_bits)).as_signed()
        if self.is_borrowed:
            # One of both is zero: nothing is to be chosen.
            a |= self.borrowed_multipliers.factors[0][lane]
        if self.is_weighed:
            b = Mux(self.borrowed_multipliers.weighs[lane], self.borrowed_multipliers.weights[0][lane], b)
            if self.is_pumped:
                # A table of its own, which has a cycle: with that of the turn it would be one of five inputs, and
                # nextpnr puts no register beside such a one.
                weighed = Signal(b.shape(), name=f"weighed_{lane}", attrs={"keep": 1})
                m.d.comb += weighed.eq(b)
                b = weighed
        if self.is_ahead:
            early_a, early_b = (
                Signal.like(factor, name=f"early_{name}_{lane}", reset_less=True)
                for name, factor in (("a", a), ("b", b))
            )
            m.d[DOUBLE] += [early_a.eq(a), early_b.eq(b)]
            a, b = early_a, early_b
        if self.is_pumped:
            m.d.comb += [self.bank.a[lane].eq(a), self.bank.b[lane].eq(b)]
            product = self.bank.products[lane]
        else:
            m.submodules[f"multiplier_{lane}"] = multiplier = Multiplier(a_width=len(a), b_width=len(b))
            m.d.comb += [multiplier.a.eq(a), multiplier.b.eq(b)]
            product = multiplier.product
        m.d.comb += self.products[lane].eq(product)
        if self.is_borrowed:
            m.d.comb += self.borrowed_multipliers.products[0][lane].eq(product)
        return product[:FACTORED_BITS].as_signed() if self.is_winograd else self.products[lane]

    def _elaborate_totals(self, m: Module, step: data.View, value: Value) -> None:
        """Both totals, of the sum of a step."""
        m.submodules.totals = totals = WinogradTotals(
            step=self.step.shape(), sum_bits=len(value), total_bits=ACCUMULATOR_BITS
        )
        m.d.comb += [
            totals.step.eq(step),
            totals.sum.eq(value),
            self.fired.eq(totals.fired),
            self.total.eq(totals.total),
        ]

    def _give(self, m: Module, agreement: Agreement, weights: Value) -> list:
        """The bits of words and weights that count."""
        word = self.word
        if self.is_ahead:
            word, weights = delay(m, word, 1, name="counted_word"), delay(m, weights, 1, name="counted_weights")
        if not self.is_winograd:
            return [agreement.word.eq(word), agreement.weights.eq(weights)]
        own = [word.word_select(lane, self.lane_bits)[:8] for lane in range(self.lanes)]
        return [agreement.word.eq(Cat(own)), *(agreement.weights[lane].eq(weights[lane]) for lane in range(self.lanes))]

    def _counter(self, m: Module, platform) -> Agreement:
        """What counts bits; asleep while no word is binary, when it gives zeros."""
        agreement, checks = Agreement(self.lanes), Assertions(m, platform)
        # A step that is none may count before the array is told.
        counts = ~self.uncounted.all()
        sleep = Sleep(m, platform, self.binary.any() | counts, cycles=_LINGERS)
        m.submodules.agreement = sleep.of(agreement)
        if checks.wanted:
            since = Signal(UNCOUNTED_DELAY, init=-1, name="awake_since")
            m.d.sync += since.eq(Cat(sleep.awake, since))
            counted = delay(m, self.step.valid, UNCOUNTED_DELAY, name="valid_when_counted") & counts
            checks.never(counted & ~since.all(), "MAC array: bits that count in a column that is asleep")
            left = ~sleep.awake & agreement.counts.as_value().any()
            checks.never(left, "MAC array: counts of a column that is asleep")
        return agreement
