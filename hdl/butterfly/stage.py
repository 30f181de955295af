"""One stage of a fast pointwise convolution: pairs of values, products with their weights, sums."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.engines.fpc import ROUND_LATENCY
from ...golden.numerics.butterfly import Density, lane_exchange
from ...golden.numerics.fpc import FRACTION_BITS, VALUE_BITS
from ..parts.device import MULTIPLIER_LATENCY, MultiplierColumns
from ..parts.pipeline import delay
from .pair_line import PairLine, values_layout
from .stage_sum import StageSum, sum_latency

__all__ = ["WEIGHT_BITS", "Stage", "stage_multipliers"]

WEIGHT_BITS = 8


def stage_multipliers(columns: int, lanes: int) -> MultiplierColumns:
    """Multipliers of values by weights."""
    return MultiplierColumns(columns, lanes, a_width=VALUE_BITS, b_width=WEIGHT_BITS)


class Stage(wiring.Component):
    """One stage, a word each cycle; bit-exact with :func:`lutterfly.golden.numerics.fpc.run_stages`.

    Parameters
    ----------
    lanes : int
        Values in a word, a power of two.
    distance : int
        Of the pairs, in values.
    density : Density
        A trained weight is a column of multipliers, one for each lane, outside.
    skip_bits : int
        See :class:`.stage_sum.StageSum`.

    Attributes
    ----------
    columns : int
        Of multipliers, 0 to 2: those of own values, and a cycle later those of partners.
    weight_times : list of int
        For each of them, cycles from a word of values to its factors, which are multiplied by their weights.
    skip_time, latency : int
        Cycles from a word of values to what is skipped, and to its results.

    Members
    -------
    values : In(lanes x signed(16))
    is_second : In(1)
        See :class:`.pair_line.PairLine`; a cycle before the partners' factors.
    multipliers : Out(stage_multipliers), if there are any columns
        A partner within the word is multiplied in its own lane.
    halves : In(1)
    is_used : In(1)
        Else partners are zero, and values pass, with own weights of one where there are any.
    skipped : In(lanes x signed(skip_bits)), if there are any
    results : Out(lanes x signed(16))
    """

    def __init__(self, *, lanes: int, distance: int, density: Density, skip_bits: int = 0):
        self.lanes = lanes
        self.words = distance // lanes
        # Within a word the partner is this many lanes away: a bit of the lane's number.
        self.exchange = lane_exchange(distance, lanes)
        self.density = density
        self.skip_bits = skip_bits
        self.columns = density.trains_own + density.trains_cross
        # Words of weights may come from memory one after the other.
        self.partner_time = self.words + density.trains_own
        self.weight_times = list(range(self.words, self.words + self.columns))
        # Two products are added before they are rounded.
        self.terms_time = self.partner_time + (MULTIPLIER_LATENCY + density.trains_own if self.columns else 0)
        self.skip_time = self.terms_time + ROUND_LATENCY
        self.latency = self.terms_time + sum_latency(has_skip=bool(skip_bits))
        values = values_layout(lanes)
        super().__init__(
            {
                "values": In(values),
                "is_second": In(1),
                **({"multipliers": Out(stage_multipliers(self.columns, lanes))} if self.columns else {}),
                "halves": In(1),
                "is_used": In(1),
                **({"skipped": In(data.ArrayLayout(signed(skip_bits), lanes))} if skip_bits else {}),
                "results": Out(values),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        has_own = not self.density.trains_own
        m.submodules.pairs = line = PairLine(
            lanes=self.lanes,
            distance=self.words,
            own_delay=self.terms_time - self.words if has_own else 0,
            partner_delay=self.partner_time - self.words,
        )
        m.d.comb += [line.values.eq(self.values), line.is_second.eq(self.is_second), line.enable.eq(self.is_used)]
        terms = self._terms(m, line)
        m.submodules.sum = total = StageSum(
            lanes=self.lanes, term_bits=len(terms[0]), has_own=has_own, skip_bits=self.skip_bits
        )
        m.d.comb += [total.halves.eq(self.halves), self.results.eq(total.values)]
        m.d.comb += [total.terms[lane].eq(term) for lane, term in enumerate(terms)]
        if has_own:
            m.d.comb += total.own.eq(line.own)
        if self.skip_bits:
            m.d.comb += total.skipped.eq(self.skipped)
        return m

    def _terms(self, m: Module, line: PairLine) -> list:
        """What partners bring, and own values if these have weights, by the lane of the result."""
        lanes = range(self.lanes)
        if not self.columns:
            return [line.partner[lane ^ self.exchange] << FRACTION_BITS for lane in lanes]
        factors, all_products = self.multipliers.factors, self.multipliers.products
        m.d.comb += factors[self.columns - 1].eq(line.partner)
        products = [all_products[self.columns - 1][lane ^ self.exchange] for lane in lanes]
        if not self.density.trains_own:
            return products
        m.d.comb += factors[0].eq(line.own)
        totals = []
        for lane in lanes:
            waiting = delay(m, all_products[0][lane], 1, name=f"own_product_{lane}")
            total = Signal.like(waiting + products[lane], name=f"both_{lane}", reset_less=True)
            m.d.sync += total.eq(waiting + products[lane])
            totals.append(total)
        return totals
