"""A column of the multiply-accumulate array: a multiplier for each lane, an adder tree and an accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..parts.device import Multiplier
from ..parts.pipeline import delay
from .engine import ACCUMULATOR_BITS
from .stage import PRODUCT_BITS, ArrayStage, Total, column_latency

__all__ = ["MacColumn"]


class MacColumn(wiring.Component):
    """Add up the products of each word with its weights, one word per cycle, into one accumulator. Stages may change
    words, factors, sums and totals.

    A result comes ``latency`` cycles (:func:`.stage.column_latency`), plus those that its stages take for totals, after
    the word that fires it. Bit-exact with :func:`lutterfly.golden.engines.mac.accumulate`.

    Parameters
    ----------
    lanes : int
        Products per word, a power of two.
    index : int
        Index of the column in the array.
    step : StructLayout
        Layout of the array's steps, behind the stages' words.
    stages : sequence of ArrayStage
        Stages of the array, in order.

    Members
    -------
    step : In(step)
    word : In(lanes x word_bits)
    weights : In(lanes x signed(8))
        They come before ``word`` by as many cycles as the stages take for weights.
    products : Out(lanes x signed(16))
        ``MULTIPLIER_LATENCY`` cycles after ``word``.
    fired : Out(1)
        ``total`` is a result.
    total : Out(signed(32))
        The accumulator, modulo 2**32.

    The members of the stages (:meth:`.stage.ArrayStage.column_members`) come in addition.
    """

    def __init__(self, *, lanes: int, step: data.StructLayout, index: int = 0, stages: Sequence[ArrayStage] = ()):
        self.lanes, self.index, self.stages = lanes, index, stages
        self.latency = column_latency(lanes)
        # A plain stage stands for the widths that every column has.
        kinds = (*stages, ArrayStage)
        self.word_bits = max(stage.word_bits for stage in kinds)
        self.product_bits = max(stage.product_bits for stage in kinds)
        super().__init__(
            {
                "step": In(step),
                "word": In(self.word_bits * lanes),
                "weights": In(data.ArrayLayout(signed(8), lanes)),
                "products": Out(data.ArrayLayout(signed(PRODUCT_BITS), lanes)),
                "fired": Out(1),
                "total": Out(signed(ACCUMULATOR_BITS)),
                **{name: member for stage in stages for name, member in stage.column_members(index).items()},
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        weights = self.weights
        for stage in self.stages:
            weights = stage.weights(m, self, weights)
        products = [self._product(m, lane, weights[lane]) for lane in range(self.lanes)]
        terms = list(self.products)
        if self.product_bits > PRODUCT_BITS:
            terms = [product[: self.product_bits].as_signed() for product in products]
        for stage in self.stages:
            terms = stage.sums(m, platform, self, weights, terms)
        value = self._add_up(m, terms)

        step = delay(m, self.step, self.latency - 1, name="step")
        give = partial(self._accumulate, m, step, value)
        for stage in self.stages:
            give = partial(stage.totals, m, self, step, value, give)
        fired, total = give()
        m.d.comb += [self.fired.eq(fired), self.total.eq(total)]
        return m

    def fires(self, step: data.View) -> Value:
        """Return whether the column's total is a result after a step."""
        fires = step.valid & step.fire
        for stage in self.stages:
            if stage.gives_lanes:
                fires &= ~step[stage.flag]
        return fires

    def _product(self, m: Module, lane: int, b: Value) -> Value:
        """Return a lane's product with all its bits."""
        a = self.word.word_select(lane, self.word_bits).as_signed()
        for stage in self.stages:
            a, b = stage.factors(m, self, lane, a, b)
        m.submodules[f"multiplier_{lane}"] = multiplier = Multiplier(a_width=len(a), b_width=len(b))
        m.d.comb += [multiplier.a.eq(a), multiplier.b.eq(b)]
        product = multiplier.product
        m.d.comb += self.products[lane].eq(product)
        for stage in self.stages:
            stage.product(m, self, lane, product)
        return product

    def _add_up(self, m: Module, terms: list[Value]) -> Value:
        """Return the sum of a step, from an adder tree with a register at each level."""
        level = 0
        while len(terms) > 1:
            sums = [
                Signal(signed(self.product_bits + level + 1), name=f"sum_{level}_{pair}", reset_less=True)
                for pair in range(len(terms) // 2)
            ]
            m.d.sync += [total.eq(terms[2 * pair] + terms[2 * pair + 1]) for pair, total in enumerate(sums)]
            terms, level = sums, level + 1
        return terms[0]

    def _accumulate(self, m: Module, step: data.View, value: Value) -> Total:
        """Return the total of a window's steps."""
        fired = delay(m, self.fires(step), 1, name="fired")
        total = Signal.like(self.total, reset_less=True)
        with m.If(step.valid):
            m.d.sync += total.eq(Mux(step.clear, 0, total) + value)
        return Total(fired, total)
