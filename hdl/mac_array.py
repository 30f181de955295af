"""The multiply-accumulate array: ``lanes`` x ``columns`` multipliers, output-stationary."""
from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..golden.config import Config
from .device import MULTIPLIER_LATENCY, Multiplier
from .engine import ACCUMULATOR_BITS, Step, engine_members

__all__ = ["Column", "MacArray"]

PRODUCT_BITS = 16


def column_latency(lanes: int) -> int:
    """Cycles from a word to the total that it completes: multiply, one for each level of the adder tree, accumulate."""
    return MULTIPLIER_LATENCY + ceil_log2(lanes) + 1


class Column(wiring.Component):
    """Add up the products of each word with its weights, one word per cycle, into one accumulator.

    A result comes ``latency`` cycles (:func:`column_latency`) after the word that fires it. Bit-exact with :func:`lutterfly.golden.engines.accumulate`.

    Parameters
    ----------
    lanes : int
        Products per word, a power of two.

    Members
    -------
    step : In(Step)
    word : In(lanes x signed(8))
    weights : In(lanes x signed(8))
        In the cycle of ``word``.
    fired : Out(1)
        ``total`` is a result.
    total : Out(signed(32))
        The accumulator, modulo 2**32.
    """

    def __init__(self, *, lanes: int):
        self.lanes = lanes
        self.latency = column_latency(lanes)
        super().__init__({
            "step": In(Step),
            "word": In(data.ArrayLayout(signed(8), lanes)),
            "weights": In(data.ArrayLayout(signed(8), lanes)),
            "fired": Out(1),
            "total": Out(signed(ACCUMULATOR_BITS)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()

        terms = []
        for lane in range(self.lanes):
            m.submodules[f"multiplier_{lane}"] = multiplier = Multiplier(a_width=8, b_width=8)
            m.d.comb += [multiplier.a.eq(self.word[lane]), multiplier.b.eq(self.weights[lane])]
            terms.append(multiplier.product)
        level = 0
        while len(terms) > 1:
            sums = [Signal(signed(PRODUCT_BITS + level + 1), name=f"sum_{level}_{i}", reset_less=True)
                    for i in range(len(terms) // 2)]
            m.d.sync += [total.eq(terms[2 * i] + terms[2 * i + 1]) for i, total in enumerate(sums)]
            terms, level = sums, level + 1

        # Only `valid` needs a reset: the flags and the data behind it are never looked at without it.
        step = self.step
        for stage in range(self.latency - 1):
            delayed = Signal(Step, name=f"step_{stage}", init={"valid": 0})
            m.d.sync += delayed.eq(step)
            step = delayed
        m.d.sync += self.fired.eq(step.valid & step.fire)
        with m.If(step.valid):
            m.d.sync += self.total.eq(Mux(step.clear, 0, self.total) + terms[0])

        return m


class MacArray(wiring.Component):
    """Multiply each activation word with one word of weights for each column, one word per cycle.

    Words travel from column to column, one column per cycle, so that a word is driven to one column's multipliers only and wires stay
    short; results wait for the last column. Bit-exact with :func:`lutterfly.golden.engines.mac`.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, result
        See :func:`~lutterfly.hdl.engine.engine_members`. The first ``columns`` lanes of the result are accumulators.
    weights : In(columns x lanes x signed(8))
        Column j's come j cycles after their activation word.
    """

    def __init__(self, config: Config):
        self.config = config
        lanes, self.columns = config.array.lanes, config.array.columns
        self.latency = column_latency(lanes) + self.columns - 1
        super().__init__({
            **engine_members(config),
            "weights": In(data.ArrayLayout(data.ArrayLayout(signed(8), lanes), self.columns)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        step, word = self.step, self.word
        for index in range(self.columns):
            if index:
                hop_step = Signal(Step, name=f"step_{index}")
                hop_word = Signal(self.word.shape(), name=f"word_{index}", reset_less=True)
                m.d.sync += [hop_step.eq(step), hop_word.eq(word)]
                step, word = hop_step, hop_word
            m.submodules[f"column_{index}"] = column = Column(lanes=self.config.array.lanes)
            m.d.comb += [column.step.eq(step), column.word.eq(word), column.weights.eq(self.weights[index])]

            total = column.total
            for stage in range(self.columns - 1 - index):
                waiting = Signal(signed(ACCUMULATOR_BITS), name=f"total_{index}_{stage}", reset_less=True)
                m.d.sync += waiting.eq(total)
                total = waiting
            m.d.comb += self.result.lanes[index].eq(total)
        m.d.comb += self.result.valid.eq(column.fired)
        return m
