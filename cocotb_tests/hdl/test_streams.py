# amaranth: UnusedElaboratable=no
"""The stream drivers and the monitor: they pass a good component and catch one broken rule each."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from cocotb_tests.support.benches.streams import StreamMonitor, pack, receive, send, unpack

LAYOUT = data.StructLayout({"first": signed(5), "second": 7})
BREACHES = {
    "none": None,
    "valid falls": "target.valid fell before the word was taken",
    "payload changes": "target.payload changed from .* before it was taken",
    "valid needs ready": "target.valid depends combinationally on target.ready",
}


class Buffer(wiring.Component):
    """Pass words with a latency of one cycle, breaking the rule that ``breach`` names."""

    def __init__(self, *, breach: str):
        self.breach = breach
        super().__init__({"source": In(stream.Signature(LAYOUT)), "target": Out(stream.Signature(LAYOUT))})

    def elaborate(self, platform) -> Module:
        m = Module()
        full, cycle = Signal(), Signal(3)
        word = Signal(LAYOUT)
        taken = self.target.valid & self.target.ready
        m.d.sync += cycle.eq(cycle + 1)
        m.d.comb += [self.target.valid.eq(full), self.target.payload.eq(word), self.source.ready.eq(~full | taken)]
        if self.breach == "valid falls":
            m.d.comb += self.target.valid.eq(full & (cycle != 0))
        if self.breach == "payload changes":
            m.d.comb += self.target.payload.second.eq(word.second + (cycle == 0))
        if self.breach == "valid needs ready":
            m.d.comb += self.target.valid.eq(full & self.target.ready)
        with m.If(self.source.ready):
            m.d.sync += [full.eq(self.source.valid), word.eq(self.source.payload)]
        return m


@pytest.mark.parametrize("breach", BREACHES)
def test_every_rule_is_checked(simulate, breach: str) -> None:
    if BREACHES[breach] is None:
        simulate(Buffer(breach=breach))
    else:
        with pytest.raises(pytest.fail.Exception, match=BREACHES[breach]):
            simulate(Buffer(breach=breach))


def test_words_survive_packing() -> None:
    for word, shape in [({"first": -16, "second": 127}, LAYOUT), (-3, signed(4)), (9, None), (9, 4)]:
        assert unpack(pack(word, shape), shape) == word


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(p_stall=[0.0, 0.5], seed=[0, 1])
async def words_pass(dut, p_stall: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sent = [{"first": int(rng.integers(-16, 16)), "second": int(rng.integers(128))} for _ in range(100)]
    dut.source__valid.value = dut.target__ready.value = 0
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0

    watch = StreamMonitor(dut.clk, dut, "target", shape=LAYOUT)
    cocotb.start_soon(send(dut.clk, dut, "source", sent, rng, p_stall, shape=LAYOUT))
    received = await receive(dut.clk, dut, "target", len(sent), rng, p_stall, shape=LAYOUT)
    watch.stop()
    assert received == sent
    assert watch.words == sent
