"""Products of two operands, on the multipliers of the array's first column."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data

from ...golden.config import Config
from ...golden.elements import DIFFERENCE_BITS
from ...golden.engines import MULTIPLY
from ...golden.engines.specifications import specification
from ...golden.numerics.multiplication import PRODUCT_FRACTION_BITS
from ..parts.device import MULTIPLIER_LATENCY
from ..parts.pipeline import delay, spread
from .engine import SELECT_LATENCY, EngineComponent, engine_members
from .multipliers import borrower_members

__all__ = ["Multiply"]

#: Of a product of two differences of codes.
_PRODUCT_BITS = 2 * DIFFERENCE_BITS


class Multiply(EngineComponent):
    """Multiply the word that ends a window by the last one that did not, one word per cycle.

    So the first operand may be read in each window, or once for many windows. Both lose their zero points on the way to
    the array, where the first one stands in the place of weights. Bit-exact with
    :func:`lutterfly.golden.numerics.multiplication.products`.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, selected, result, borrowed_multipliers
        See :class:`.engine.EngineComponent`. Every lane of the result is a product.
    """

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.lanes
        self.latencies = {MULTIPLY: 2 + MULTIPLIER_LATENCY}
        multipliers = borrower_members(specification(MULTIPLY).borrowed_columns(config), self.lanes, is_weighed=True)
        super().__init__({**engine_members(config, self.latencies), **multipliers})

    def elaborate(self, platform) -> Module:
        m = Module()
        ends, begins, fired = Signal(), Signal(), Signal()
        fields, word = self.step.fields.multiply, delay(m, self.word, 1, name="word")
        zero_point = Signal(fields.second_zero_point.shape(), reset_less=True)
        m.d.sync += [
            begins.eq(self.step.valid & ~self.step.fire),
            ends.eq(self.step.valid & self.step.fire),
            zero_point.eq(Mux(self.step.fire, fields.second_zero_point, fields.first_zero_point)),
            fired.eq(ends),
        ]
        operands = data.ArrayLayout(signed(DIFFERENCE_BITS), self.lanes)
        first, second = Signal(operands, reset_less=True), Signal(operands, reset_less=True)
        for lane in range(self.lanes):
            difference = Signal(signed(DIFFERENCE_BITS), name=f"difference_{lane}")
            m.d.comb += difference.eq(word.word_select(lane, 8).as_signed() - zero_point)
            with m.If(begins):
                m.d.sync += first[lane].eq(difference)
            # Others may have the multipliers as long as nothing ends.
            m.d.sync += second[lane].eq(difference)
            with m.If(~ends):
                m.d.sync += second[lane].eq(0)
        array = self.borrowed_multipliers
        m.d.comb += [
            array.weighs.eq(Cat(spread(m, self.selected.multiply, self.lanes, cycles=SELECT_LATENCY, name="weighs"))),
            self.result.valid.eq(delay(m, fired, MULTIPLIER_LATENCY, name="fired")),
        ]
        for lane in range(self.lanes):
            product = array.products[0][lane][:_PRODUCT_BITS]
            m.d.comb += [
                array.factors[0][lane].eq(second[lane]),
                array.weights[0][lane].eq(first[lane]),
                self.result.lanes[lane].eq(Cat(Const(0, PRODUCT_FRACTION_BITS), product).as_signed()),
            ]
        return m
