"""The maximum over the steps of a window, for each lane or each bit: max pooling, or, with one step, a plain copy."""

from __future__ import annotations

from typing import ClassVar

from amaranth.hdl import Module, Signal, signed

from ...golden.config import Config
from ...golden.engines import BINARY_MAXIMUM, MAXIMUM
from ..parts.pipeline import copy_of, delay
from .engine import EngineComponent, engine_members

__all__ = ["Maximum"]


class Maximum(EngineComponent):
    """Keep the greatest byte of each lane, one word per cycle, with a latency of two cycles: take the word, compare.

    Bit-exact with ``golden/engines/maximum.py``; with BINARY_MAXIMUM it can keep the greatest of each bit, as
    ``golden/engines/binary_maximum.py`` does.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, result
        See :class:`.engine.EngineComponent`. Every lane of the result is a maximum.
    """

    is_narrow: ClassVar = True

    def __init__(self, config: Config):
        self.config = config
        codes = [code for code in (MAXIMUM, BINARY_MAXIMUM) if code in config.engines]
        self.latencies = dict.fromkeys(codes, 2)
        self.compares, self.joins = MAXIMUM in codes, BINARY_MAXIMUM in codes
        self.flags = {"by_bit": BINARY_MAXIMUM} if self.compares and self.joins else {}
        super().__init__(engine_members(config, codes, self.flags))

    def elaborate(self, platform) -> Module:
        m = Module()
        # The engine has a register of its own, shared with no other: the word comes from the far side of the feature
        # memory.
        step, word = delay(m, self.step, 1, name="step"), copy_of(self.word, 1, name="word", reset_less=True)
        # Whether a lane takes the word whatever the comparison says, which takes most of a cycle.
        takes, joins = Signal(), Signal(reset_less=True)
        by_bit = (self.step.by_bit if self.compares else 1) if self.joins else 0
        fired = Signal(reset_less=True)
        m.d.sync += [
            word.eq(self.word),
            takes.eq(self.step.valid & (self.step.clear | by_bit)),
            joins.eq(~self.step.clear & by_bit),
            fired.eq(step.valid & step.fire),
        ]
        m.d.comb += self.result.valid.eq(fired)
        for lane in range(self.config.array.lanes):
            greatest = Signal(signed(8), name=f"greatest_{lane}", reset_less=True)
            byte, takes_byte = word.word_select(lane, 8).as_signed(), takes
            if self.compares:
                # The sign of a difference: a single chain of carries, where a comparison of signed numbers became two.
                exceeds = Signal(name=f"exceeds_{lane}")
                m.d.comb += exceeds.eq((greatest - byte)[-1])
                takes_byte |= step.valid & exceeds
            with m.If(takes_byte):
                m.d.sync += greatest.eq(byte | (greatest & joins.replicate(8).as_signed()))
            m.d.comb += self.result.lanes[lane].eq(greatest)
        return m
