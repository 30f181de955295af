"""Products of two operands, on the multipliers of the array's first column."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data

from ...golden.config import Config
from ...golden.elements import DIFFERENCE_BITS
from ...golden.engines import MULTIPLY, specification_of
from ...golden.engines.multiply import SPREAD_LATENCY
from ...golden.numerics.multiplication import PRODUCT_FRACTION_BITS
from ..parts.pipeline import delay, spread
from .engine import SELECT_LATENCY, EngineComponent, engine_members
from .multipliers import borrower_members

__all__ = ["Multiply"]

#: Bits of a product of two differences of codes.
_PRODUCT_BITS = 2 * DIFFERENCE_BITS
#: Control signals of a step in each lane.
_Told = data.StructLayout({"begins": 1, "ends": 1, "zero_point": signed(8)})


class Multiply(EngineComponent):
    """Multiply the word that ends a window by the last one that did not, one word per cycle.

    So the first operand may be read in each window, or once for many windows. The zero points of both are subtracted on
    the way to the array, where the first operand takes the place of weights. Bit-exact with
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
        self.latencies = {MULTIPLY: specification_of(MULTIPLY).latency(config, {})}
        multipliers = borrower_members(specification_of(MULTIPLY).borrowed_columns(config), self.lanes, is_weighed=True)
        super().__init__({**engine_members(config, self.latencies), **multipliers})

    def elaborate(self, platform) -> Module:
        m = Module()
        fields = self.step.fields.multiply
        told = Signal(_Told, reset_less=True)
        m.d.sync += [
            told.begins.eq(self.step.valid & ~self.step.fire),
            told.ends.eq(self.step.valid & self.step.fire),
            told.zero_point.eq(Mux(self.step.fire, fields.second_zero_point, fields.first_zero_point)),
        ]
        word = delay(m, self.word, 1 + SPREAD_LATENCY, name="word")
        told_lanes = spread(m, told.as_value(), self.lanes, cycles=SPREAD_LATENCY, name="told")
        array = self.borrowed_multipliers
        for lane, value in enumerate(told_lanes):
            first, second = (
                Signal(signed(DIFFERENCE_BITS), name=f"{name}_{lane}", reset_less=True) for name in ("first", "second")
            )
            here, difference = data.View(_Told, value), Signal(signed(DIFFERENCE_BITS), name=f"difference_{lane}")
            m.d.comb += difference.eq(word.word_select(lane, 8).as_signed() - here.zero_point)
            with m.If(here.begins):
                m.d.sync += first.eq(difference)
            m.d.sync += second.eq(difference)
            # Other engines may use the multipliers until a window ends.
            with m.If(~here.ends):
                m.d.sync += second.eq(0)
            product = delay(m, array.products[0][lane][:_PRODUCT_BITS], 1, name=f"product_{lane}")
            m.d.comb += [
                array.factors[0][lane].eq(second),
                array.weights[0][lane].eq(first),
                self.result.lanes[lane].eq(Cat(Const(0, PRODUCT_FRACTION_BITS), product).as_signed()),
            ]
        fired = delay(m, told.ends, self.latencies[MULTIPLY] - 1, name="fired")
        m.d.comb += [
            array.weighs.eq(Cat(spread(m, self.selected.multiply, self.lanes, cycles=SELECT_LATENCY, name="weighs"))),
            self.result.valid.eq(fired),
        ]
        return m
