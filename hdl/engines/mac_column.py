"""A column of the multiply-accumulate array: a multiplier for each lane, an adder tree and an accumulator."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..parts.assertions import Assertions
from ..parts.device import MULTIPLIER_LATENCY, Multiplier
from ..parts.fabric_multiplier import FabricMultiplier
from ..parts.pipeline import delay
from ..parts.sleep import Sleep
from .agreement import UNCOUNTED_DELAY, Agreement
from .engine import ACCUMULATOR_BITS
from .multipliers import lender_members

__all__ = ["MacColumn", "column_latency"]

#: Cycles in which what counted last has left the registers of a column.
_LINGERS = 2 * MULTIPLIER_LATENCY

PRODUCT_BITS = 16


def column_latency(lanes: int) -> int:
    """Cycles from a word to the total that it completes: multiply, one for each level of the adder tree, accumulate."""
    return MULTIPLIER_LATENCY + ceil_log2(lanes) + 1


class MacColumn(wiring.Component):
    """Add up the products of each word with its weights, one word per cycle, into one accumulator.

    A result comes ``latency`` cycles (:func:`column_latency`) after the word that fires it. Bit-exact with
    :func:`lutterfly.golden.engines.mac.specification.accumulate`.

    Parameters
    ----------
    lanes : int
        Products per word, a power of two.
    step : StructLayout
        As the array's steps are; one whose flag ``chain`` is set does not fire.
    is_borrowed : bool
        Whether another engine multiplies here.
    is_weighed : bool
        Whether it may do so by weights of its own.
    is_binary : bool
        Whether words may be binary.
    is_block : bool
        Whether the multipliers are blocks; else they are look-up tables.

    Members
    -------
    step : In(step)
    word : In(8 * lanes)
    weights : In(lanes x signed(8))
        In the cycle of ``word``.
    products : Out(lanes x signed(16))
        ``MULTIPLIER_LATENCY`` cycles after ``word``.
    borrowed_multipliers : In(borrowed_multipliers of one column), if ``is_borrowed``
        Words are zero where factors are not, and factors where words are not.
    binary : In(lanes x 1), if ``is_binary``
        Products are zero; stays while words are under way.
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
        is_block: bool = True,
    ):
        self.is_block = is_block
        self.lanes = lanes
        self.is_borrowed = is_borrowed
        self.is_weighed = is_weighed
        self.is_binary = is_binary
        self.latency = column_latency(lanes)
        super().__init__(
            {
                "step": In(step),
                "word": In(8 * lanes),
                "weights": In(data.ArrayLayout(signed(8), lanes)),
                "products": Out(data.ArrayLayout(signed(PRODUCT_BITS), lanes)),
                "fired": Out(1),
                "total": Out(signed(ACCUMULATOR_BITS)),
                **lender_members(int(is_borrowed), lanes, int(is_weighed)),
                **({"binary": In(lanes), "uncounted": In(lanes)} if is_binary else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()

        for lane in range(self.lanes):
            a = self.word.word_select(lane, 8).as_signed()
            if self.is_binary:
                # Masked, not chosen: see PairLine.
                a = (a.as_unsigned() & ~self.binary[lane].replicate(8)).as_signed()
            if self.is_borrowed:
                # One of both is zero: nothing is to be chosen.
                a |= self.borrowed_multipliers.factors[0][lane]
            b = self.weights[lane]
            if self.is_weighed:
                b = Mux(self.borrowed_multipliers.weighs[lane], self.borrowed_multipliers.weights[0][lane], b)
            kind = Multiplier if self.is_block else FabricMultiplier
            m.submodules[f"multiplier_{lane}"] = multiplier = kind(a_width=len(a), b_width=len(b))
            m.d.comb += [
                multiplier.a.eq(a),
                multiplier.b.eq(b),
                self.products[lane].eq(multiplier.product),
            ]
            if self.is_borrowed:
                m.d.comb += self.borrowed_multipliers.products[0][lane].eq(multiplier.product)

        terms, level = list(self.products), 0
        if self.is_binary:
            agreement = self._counter(m, platform)
            m.d.comb += [
                agreement.word.eq(self.word),
                agreement.weights.eq(self.weights),
                agreement.uncounted.eq(self.uncounted),
            ]
            # One of both is zero here as well.
            for lane, count in enumerate(agreement.counts):
                terms[lane] = (terms[lane].as_unsigned() | Cat(Const(0, 1), count)).as_signed()
        while len(terms) > 1:
            sums = [
                Signal(signed(PRODUCT_BITS + level + 1), name=f"sum_{level}_{pair}", reset_less=True)
                for pair in range(len(terms) // 2)
            ]
            m.d.sync += [total.eq(terms[2 * pair] + terms[2 * pair + 1]) for pair, total in enumerate(sums)]
            terms, level = sums, level + 1

        step = delay(m, self.step, self.latency - 1, name="step")
        fires = step.valid & step.fire
        if "chain" in step.shape().members:
            fires &= ~step.chain
        m.d.comb += self.fired.eq(delay(m, fires, 1, name="fired"))
        total = Signal.like(self.total, reset_less=True)
        with m.If(step.valid):
            m.d.sync += total.eq(Mux(step.clear, 0, total) + terms[0])
        m.d.comb += self.total.eq(total)

        return m

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
