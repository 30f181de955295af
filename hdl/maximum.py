"""The lane-wise maximum over the steps of a window: max pooling, and with one step a plain copy."""
from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring

from ..golden.config import Config
from .engine import engine_members

__all__ = ["Maximum"]


class Maximum(wiring.Component):
    """Keep the greatest byte of each lane, one word per cycle, with a latency of one cycle.

    Bit-exact with :func:`lutterfly.golden.engines.maximum`.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, result
        See :func:`~lutterfly.hdl.engine.engine_members`. Every lane of the result is a maximum.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        super().__init__(engine_members(config))

    def elaborate(self, platform) -> Module:
        m = Module()
        fired = Signal()
        m.d.sync += fired.eq(self.step.valid & self.step.fire)
        m.d.comb += self.result.valid.eq(fired)
        for lane in range(self.config.array.lanes):
            greatest = Signal(signed(8), name=f"greatest_{lane}", reset_less=True)
            byte = self.word.word_select(lane, 8).as_signed()
            with m.If(self.step.valid & (self.step.clear | (byte > greatest))):
                m.d.sync += greatest.eq(byte)
            m.d.comb += self.result.lanes[lane].eq(greatest)
        return m
