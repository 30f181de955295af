"""The lane-wise maximum over the steps of a window: max pooling, and with one step a plain copy."""

from __future__ import annotations

from typing import ClassVar

from amaranth.hdl import Module, Signal, signed

from ...golden.config import Config
from ...golden.isa import Engine
from ..parts.pipeline import copy_of, delay
from .engine import EngineComponent, engine_members

__all__ = ["Maximum"]


class Maximum(EngineComponent):
    """Keep the greatest byte of each lane, one word per cycle, with a latency of two cycles: take the word, compare.

    Bit-exact with :func:`lutterfly.golden.engines.maximum.maximum`.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, result
        See :class:`.engine.EngineComponent`. Every lane of the result is a maximum.
    """

    latencies: ClassVar = {Engine.MAXIMUM: 2}

    def __init__(self, config: Config):
        self.config = config
        super().__init__(engine_members(config))

    def elaborate(self, platform) -> Module:
        m = Module()
        # A register of its own, not one with other engines: the word comes from the far side of the feature memory.
        step, word = delay(m, self.step, 1, name="step"), copy_of(self.word, 1, name="word", reset_less=True)
        m.d.sync += word.eq(self.word)
        fired = Signal(reset_less=True)
        m.d.sync += fired.eq(step.valid & step.fire)
        m.d.comb += self.result.valid.eq(fired)
        for lane in range(self.config.array.lanes):
            greatest = Signal(signed(8), name=f"greatest_{lane}", reset_less=True)
            byte = word.word_select(lane, 8).as_signed()
            with m.If(step.valid & (step.clear | (byte > greatest))):
                m.d.sync += greatest.eq(byte)
            m.d.comb += self.result.lanes[lane].eq(greatest)
        return m
