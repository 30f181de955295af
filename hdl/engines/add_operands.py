"""The operands of an Add: the codes of both, side by side, for the Add tables."""

from __future__ import annotations

from typing import ClassVar

from amaranth.hdl import Cat, Module, Signal

from ...golden.config import Config
from ...golden.engines import ADD
from ..parts.pipeline import delay
from .add_tables import AddTables
from .engine import EngineComponent, engine_members

__all__ = ["AddOperands"]


class AddOperands(EngineComponent):
    """Give the words of the last two steps of a window, one word per cycle, with a latency of two cycles.

    What becomes of them is the task of :class:`~lutterfly.hdl.engines.add_tables.AddTables`.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, result
        See :class:`.engine.EngineComponent`. Of each lane bits 7:0 are the byte of the step before the last
        and bits 15:8 that of the last.
    """

    latencies: ClassVar = {ADD: 2}
    finishes: ClassVar = (AddTables,)
    is_narrow: ClassVar = True

    def __init__(self, config: Config):
        self.config = config
        super().__init__(engine_members(config, self.latencies))

    def elaborate(self, platform) -> Module:
        m = Module()
        step = delay(m, self.step, 1, name="step")
        word = delay(m, self.word, 1, name="word")
        latest, earlier = Signal.like(word, reset_less=True), Signal.like(word, reset_less=True)
        fired = Signal(reset_less=True)
        m.d.sync += fired.eq(step.valid & step.fire)
        with m.If(step.valid):
            m.d.sync += [latest.eq(word), earlier.eq(latest)]
        m.d.comb += self.result.valid.eq(fired)
        for lane in range(self.config.array.lanes):
            codes = Cat(earlier.word_select(lane, 8), latest.word_select(lane, 8))
            m.d.comb += self.result.lanes[lane].eq(codes.as_signed())
        return m
