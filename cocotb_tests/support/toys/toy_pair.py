"""Two columns of an array with little else: what synthesis with two clocks is tried with."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from lutterfly.hdl.engines.multipliers import connect_pumped
from lutterfly.hdl.parts.device import MultiplierBank


class Pair(wiring.Component):
    """Two products of factors that are registered outside, by one multiplier."""

    def __init__(self) -> None:
        bank = MultiplierBank(1, a_width=8, b_width=8)
        super().__init__({"bank_0": In(bank), "bank_1": In(bank)})

    def elaborate(self, platform) -> Module:
        m = Module()
        connect_pumped(m, [(wiring.flipped(self.bank_0), wiring.flipped(self.bank_1))])
        return m
