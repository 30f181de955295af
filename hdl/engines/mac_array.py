"""The multiply-accumulate array: ``lanes`` x ``columns`` multipliers, output-stationary."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ...golden.engines import DEPTHWISE, MAC, XNOR
from ..parts.assertions import Assertions
from ..parts.device import MULTIPLIER_LATENCY, Multiplier
from ..parts.pipeline import delay, spread
from .agreement import UNCOUNTED_DELAY, Agreement
from .column_hop import ColumnHop
from .engine import (
    ACCUMULATOR_BITS,
    SELECT_LATENCY,
    EngineComponent,
    engine_members,
    step_layout,
)
from .multipliers import borrowed_columns, lender_members

__all__ = ["Column", "MacArray"]

PRODUCT_BITS = 16


def column_latency(lanes: int) -> int:
    """Cycles from a word to the total that it completes: multiply, one for each level of the adder tree, accumulate."""
    return MULTIPLIER_LATENCY + ceil_log2(lanes) + 1


class Column(wiring.Component):
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
    is_binary : bool
        Whether words may be binary.

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

    def __init__(self, *, lanes: int, step: data.StructLayout, is_borrowed: bool = False, is_binary: bool = False):
        self.lanes = lanes
        self.is_borrowed = is_borrowed
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
                **lender_members(int(is_borrowed), lanes),
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
            m.submodules[f"multiplier_{lane}"] = multiplier = Multiplier(a_width=len(a), b_width=8)
            m.d.comb += [
                multiplier.a.eq(a),
                multiplier.b.eq(self.weights[lane]),
                self.products[lane].eq(multiplier.product),
            ]
            if self.is_borrowed:
                m.d.comb += self.borrowed_multipliers.products[0][lane].eq(multiplier.product)

        terms, level = list(self.products), 0
        if self.is_binary:
            m.submodules.agreement = agreement = Agreement(self.lanes)
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


class MacArray(EngineComponent):
    """Multiply each activation word with one word of weights for each column, one word per cycle.

    Words travel from column to column, one column per cycle, so that a word is driven to one column's multipliers only
    and wires stay short. Each column adds its products up over lanes and steps: ``columns`` results, when the last
    column has its own. In chain mode, which is built if the configuration has DEPTHWISE, each lane adds its products
    up over the first ``taps`` columns and steps: ``lanes`` results. A step has two more members then:
    ``chain``, and ``fields.depthwise.rows``: every column sees the word of so many steps before the one that the column
    before it sees.
    With XNOR a word may be binary: each column adds up twice the bits in which words and weights agree, which it counts
    (:class:`.agreement.Agreement`) in the time that a multiplication takes; ``keeps`` in a step says which bytes count.
    Bit-exact with the twins of its engines in ``golden/engines/``: ``mac``, ``depthwise`` and ``agreeing``.

    A window of one engine may follow one of another only when the results of the one before are out. Engines that
    borrow multipliers have their factors joined by an ``or`` in front of them: the idle side drives zeros.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, selected, result, borrowed_multipliers
        See :class:`.engine.EngineComponent`. The first ``columns`` lanes of the result are accumulators, in
        chain mode all.
    weights : In(columns x lanes x signed(8))
        Column j's come j cycles after their activation word.
    """

    def __init__(self, config: Config):
        self.config = config
        self.lanes, self.columns = config.array.lanes, config.array.columns
        self.latencies = {MAC: column_latency(self.lanes) + self.columns - 1}
        self.flags = {}
        self.is_chained = DEPTHWISE in config.engines
        self.taps = config.engines[DEPTHWISE].taps if self.is_chained else 0
        if self.is_chained:
            self.latencies[DEPTHWISE] = MULTIPLIER_LATENCY + self.taps + 2
            self.flags["chain"] = DEPTHWISE
        self.is_binary = XNOR in config.engines
        if self.is_binary:
            self.latencies[XNOR] = self.latencies[MAC]
            self.flags["binary"] = XNOR
        self.step_layout = step_layout(config, self.latencies, self.flags)
        self.borrowed_columns = borrowed_columns(config)
        super().__init__(
            {
                **engine_members(config, self.latencies, self.flags),
                "weights": In(data.ArrayLayout(data.ArrayLayout(signed(8), self.lanes), self.columns)),
                **lender_members(self.borrowed_columns, self.lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        step, word, products, totals = self.step, self.word, [], []
        if self.borrowed_columns:
            step, word = self._without_words(m, platform)
        if self.is_binary:
            counted = self.step.keeps & self.step.binary.replicate(self.lanes)
            uncounted = delay(m, ~counted, UNCOUNTED_DELAY, name="uncounted")
            settled = delay(m, self.selected.xnor, SELECT_LATENCY, name="binary_settled")
            Assertions(m, platform).never(
                self.step.valid & (settled != self.step.binary), "MAC array: a step of an engine that is not selected"
            )
        for index in range(self.columns):
            if index:
                m.submodules[f"hop_{index}"] = hop = ColumnHop(
                    lanes=self.lanes, step=self.step_layout, has_line=self.is_chained and index < self.taps
                )
                m.d.comb += [hop.step.eq(step), hop.word.eq(word)]
                step, word = hop.next_step, hop.next_word
                if self.is_binary:
                    uncounted = delay(m, uncounted, 1, name=f"uncounted_{index}")
            is_borrowed = index < self.borrowed_columns
            m.submodules[f"column_{index}"] = column = Column(
                lanes=self.lanes, step=self.step_layout, is_borrowed=is_borrowed, is_binary=self.is_binary
            )
            if self.is_binary:
                binary = spread(m, self.selected.xnor, self.lanes, cycles=SELECT_LATENCY, name=f"binary_{index}")
                m.d.comb += [column.binary.eq(Cat(binary)), column.uncounted.eq(uncounted)]
            if is_borrowed:
                self._lend(m, platform, index, column)
            m.d.comb += [column.step.eq(step), column.word.eq(word), column.weights.eq(self.weights[index])]
            products.append(column.products)
            if index == self.taps - 1:
                last_tap_step = step
            totals.append(column.total)

        if self.is_chained:
            fired, chain_totals = self._elaborate_chain(m, products, last_tap_step)
            self._elaborate_both_results(m, platform, column.fired, totals, fired, chain_totals)
        else:
            m.d.comb += self.result.valid.eq(column.fired)
            for lane, total in enumerate(totals):
                later = delay(m, total, self.columns - 1 - lane, name=f"total_{lane}")
                m.d.comb += self.result.lanes[lane].eq(later)
        return m

    def _without_words(self, m: Module, platform) -> tuple[data.View, Value]:
        """The step and its word as the columns see them: no words while the array is idle, nor of the delay lines."""
        idle = spread(m, ~self.selected.as_value().any(), self.lanes, cycles=SELECT_LATENCY, name="idle")
        step = Signal.like(self.step, name="own_step")
        m.d.comb += step.eq(self.step)
        if self.is_chained:
            m.d.comb += step.chain.eq(self.step.chain & ~idle[0])
        Assertions(m, platform).never(self.step.valid & Cat(idle).any(), "MAC array: a step while it is not selected")
        return step, self.word & ~Cat(mask.replicate(8) for mask in idle)

    def _lend(self, m: Module, platform, index: int, column: Column) -> None:
        """Let a column multiply what its borrower gives."""
        factors, products = (getattr(self.borrowed_multipliers, name)[index] for name in ("factors", "products"))
        m.d.comb += [
            column.borrowed_multipliers.factors[0].eq(factors),
            products.eq(column.borrowed_multipliers.products[0]),
        ]
        checks = Assertions(m, platform)
        if checks.wanted:
            # Until words that were on their way have passed.
            waited = Signal(range(SELECT_LATENCY + index + 2))
            with m.If(self.selected.as_value().any()):
                m.d.sync += waited.eq(0)
            with m.Elif(waited != SELECT_LATENCY + index + 1):
                m.d.sync += waited.eq(waited + 1)
            settled = waited == SELECT_LATENCY + index + 1
            checks.never(settled & column.word.any(), f"MAC array: words in column {index}, which is idle")
            meets = column.step.valid & factors.as_value().any()
            checks.never(meets, f"MAC array: factors in column {index}, which is not idle")

    def _elaborate_both_results(
        self, m: Module, platform, column_fired: Signal, totals: list, chain_fired: Signal, chain_totals: list
    ) -> None:
        """Choose between the totals of columns and those of lanes."""
        chain_later = delay(m, chain_fired, 1, name="chain_fired")
        m.d.comb += self.result.valid.eq(column_fired | chain_later)
        for lane, (result, chained) in enumerate(zip(self.result.lanes, chain_totals, strict=True)):
            waits = self.columns - 1 - lane
            if waits < 0:
                total = delay(m, chained, 1, name=f"total_{lane}")
            elif waits:
                # While totals wait for that of the last column, there is a register to choose in front of.
                total = delay(m, totals[lane], waits - 1, name=f"total_{lane}")
                total = delay(m, Mux(chain_fired, chained, total), 1, name=f"result_{lane}")
            else:
                total = Mux(chain_later, delay(m, chained, 1, name=f"total_{lane}"), totals[lane])
            m.d.comb += result.eq(total)
        Assertions(m, platform).never(column_fired & chain_later, "MAC array: results of both modes at once")

    def _elaborate_chain(self, m: Module, products: list, last_tap_step) -> tuple[Signal, list[Signal]]:
        """Add each lane's products up from column to column, and then over the steps of the window."""
        sums = list(products[0])
        for tap in range(1, self.taps):
            held = [delay(m, value, 1, name=f"chain_{tap}_{lane}") for lane, value in enumerate(sums)]
            sums = [value + product for value, product in zip(held, products[tap], strict=True)]
        step = delay(m, last_tap_step, MULTIPLIER_LATENCY + 1, name="chain_step")
        fired, totals = Signal(), []
        m.d.sync += fired.eq(step.valid & step.fire & step.chain)
        for lane, value in enumerate(sums):
            settled = delay(m, value, 1, name=f"chain_sum_{lane}")
            total = Signal(signed(ACCUMULATOR_BITS), name=f"chain_total_{lane}", reset_less=True)
            with m.If(step.valid):
                m.d.sync += total.eq(Mux(step.clear, 0, total) + settled)
            totals.append(total)
        return fired, totals
