# amaranth: UnusedElaboratable=no
"""AxiGuard alone: what crosses it, and what a soft reset leaves behind."""

from __future__ import annotations

import cocotb
import numpy as np
from axi_monitor import AxiMonitor
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

from lutterfly.golden.config import PRESETS
from lutterfly.hdl.axi import read_beat_layout, request_layout, write_beat_layout
from lutterfly.hdl.axi_guard import TAG_LOAD, TAG_PROGRAM, AxiGuard
from streams import send

CONFIG = PRESETS["tiny"]
DATA_BYTES = CONFIG.axi.data_bytes
BASE = 0xF00D_0000
EPOCHS = 8


def test_guard(simulate) -> None:
    simulate(AxiGuard(CONFIG))


class Bench:
    """The guard with a slave that answers when it is told to.

    Attributes
    ----------
    received : dict of str to list
        What came back to "load", "program" (data words) and "store" (responses).
    writes : list of tuple
        Taken write beats as (data, strobe, last).
    """

    def __init__(self, dut, seed: int = 0):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.received: dict[str, list[int]] = {"load": [], "program": [], "store": []}
        self.writes: list[tuple[int, int, int]] = []
        self.accept = {"ar": 1.0, "aw": 1.0, "w": 1.0}

    async def start(self) -> None:
        dut = self.dut
        for name in (
            "load__ar__valid",
            "program__ar__valid",
            "store__aw__valid",
            "store__w__valid",
            "soft_reset",
            "memory__arready",
            "memory__awready",
            "memory__wready",
            "memory__rvalid",
            "memory__bvalid",
        ):
            getattr(dut, name).value = 0
        dut.base.value = BASE
        dut.rst.value = 1
        Clock(dut.clk, 10, unit="ns").start()
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.monitor = AxiMonitor(dut, "memory__", data_bytes=DATA_BYTES)
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._accept())

    async def _accept(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            for channel, probability in self.accept.items():
                getattr(self.dut, f"memory__{channel}ready").value = int(self.rng.random() < probability)

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            for name in ("load", "program"):
                if getattr(dut, f"{name}__r__valid").value == 1:
                    payload = getattr(dut, f"{name}__r__payload").value.to_unsigned()
                    self.received[name].append(read_beat_layout(CONFIG.axi.data_bits).from_bits(payload).data)
            if dut.store__b__valid.value == 1:
                self.received["store"].append(int(dut.store__b__payload.value))
            if dut.memory__wvalid.value == 1 and dut.memory__wready.value == 1:
                self.writes.append(
                    tuple(int(getattr(dut, f"memory__{name}").value) for name in ("wdata", "wstrb", "wlast"))
                )

    def request(self, name: str, addresses: list[int], beats: int, p_stall: float = 0.0):
        """Send bursts on "load__ar", "program__ar" or "store__aw"."""
        words = [{"address": address, "beats_minus_one": beats - 1} for address in addresses]
        return cocotb.start_soon(send(self.dut.clk, self.dut, name, words, self.rng, p_stall, shape=request_layout()))

    def write(self, words: list[int], p_stall: float = 0.0):
        beats = [{"data": word, "strobe": (1 << DATA_BYTES) - 1} for word in words]
        return cocotb.start_soon(
            send(
                self.dut.clk,
                self.dut,
                "store__w",
                beats,
                self.rng,
                p_stall,
                shape=write_beat_layout(CONFIG.axi.data_bits),
            )
        )

    async def answer_read(self, identifier: int, words: list[int]) -> None:
        """Return one read burst."""
        dut = self.dut
        for position, word in enumerate(words):
            dut.memory__rvalid.value, dut.memory__rid.value, dut.memory__rresp.value = 1, identifier, 0
            dut.memory__rdata.value, dut.memory__rlast.value = word, int(position == len(words) - 1)
            await RisingEdge(dut.clk)
            assert dut.memory__rready.value == 1
        dut.memory__rvalid.value = 0

    async def answer_write(self, identifier: int, response: int) -> None:
        """Return one write response."""
        dut = self.dut
        dut.memory__bvalid.value, dut.memory__bid.value, dut.memory__bresp.value = 1, identifier, response
        await RisingEdge(dut.clk)
        assert dut.memory__bready.value == 1
        dut.memory__bvalid.value = 0

    async def begin_reset(self) -> None:
        self.dut.soft_reset.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.soft_reset.value = 0
        assert await self.is_resetting()

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def is_resetting(self) -> bool:
        await ReadOnly()
        resetting = self.dut.resetting.value == 1
        await RisingEdge(self.dut.clk)
        return resetting


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(seed=[0, 1])
async def readers_get_their_own_answers_in_any_order_between_them(dut, seed: int) -> None:
    bench = Bench(dut, seed)
    bench.accept = dict.fromkeys(bench.accept, 0.5)
    await bench.start()
    pages = {name: [start + 256 * n for n in range(20)] for name, start in (("load", 0), ("program", 8192))}
    senders = [bench.request(f"{name}__ar", addresses, 2, 0.3) for name, addresses in pages.items()]
    for sender in senders:
        await sender
    await bench.cycles(10)
    requests = bench.monitor.requests["ar"]
    by_tag = {tag: [request for request in requests if request[2] == tag] for tag in (TAG_LOAD, TAG_PROGRAM)}
    assert [address for address, _, _ in by_tag[TAG_LOAD]] == [BASE + address for address in pages["load"]]
    assert [address for address, _, _ in by_tag[TAG_PROGRAM]] == [BASE + address for address in pages["program"]]
    # In order of each, but mixed at random.
    while by_tag[TAG_LOAD] or by_tag[TAG_PROGRAM]:
        tag = int(bench.rng.integers(0, 2))
        if by_tag[tag]:
            address, beats, identifier = by_tag[tag].pop(0)
            await bench.answer_read(identifier, [address + beat & 0xFFFF for beat in range(beats)])
    await bench.cycles(3)
    for name, addresses in pages.items():
        assert bench.received[name] == [BASE + address + beat & 0xFFFF for address in addresses for beat in range(2)]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def neither_reader_waits_for_the_other_ones_answers(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.request("load__ar", [0] * 8, 16)
    await bench.request("program__ar", [64], 16)
    await bench.cycles(5)
    await bench.answer_read(TAG_PROGRAM, list(range(16)))
    await bench.cycles(3)
    assert bench.received["program"] == list(range(16))
    assert not bench.received["load"]


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(seed=[0, 1, 2])
async def write_bursts_are_whole_and_in_order(dut, seed: int) -> None:
    bench = Bench(dut, seed)
    bench.accept = dict.fromkeys(bench.accept, 0.5)
    await bench.start()
    bursts = [(64 * n, int(bench.rng.integers(1, 17))) for n in range(20)]
    data = [int(word) for word in bench.rng.integers(0, 1 << 32, sum(beats for _, beats in bursts))]
    writer = bench.write(data, 0.3)
    for address, beats in bursts:
        await bench.request("store__aw", [address], beats, 0.3)
    await writer
    await bench.cycles(20)
    bench.monitor.check_ended()
    assert [request[:2] for request in bench.monitor.requests["aw"]] == [
        (BASE + address, beats) for address, beats in bursts
    ]
    assert [word for word, _, _ in bench.writes] == data
    for _, _, identifier in bench.monitor.requests["aw"]:
        await bench.answer_write(identifier, 2)
    await bench.cycles(3)
    assert bench.received["store"] == [2] * 20


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(sent=[0, 2, 5, 7])
async def a_reset_delivers_the_owed_beats_without_strobes(dut, sent: int) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.request("store__aw", [0, 64], 5)
    if sent:
        await bench.write(list(range(100, 100 + sent)))
    bench.accept["w"] = 0.3
    await bench.begin_reset()
    while await bench.is_resetting():
        pass
    await bench.cycles(5)
    bench.monitor.check_ended()
    full = (1 << DATA_BYTES) - 1
    assert [strobe for _, strobe, _ in bench.writes] == [full] * sent + [0] * (10 - sent)
    assert [word for word, _, _ in bench.writes[:sent]] == list(range(100, 100 + sent))
    # Their answers belong to an earlier epoch.
    for _, _, identifier in bench.monitor.requests["aw"]:
        await bench.answer_write(identifier, 0)
    await bench.cycles(3)
    assert not bench.received["store"]


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(channel=["ar", "aw"])
async def an_offered_request_stays_through_a_reset(dut, channel: str) -> None:
    """The monitor fails if it is withdrawn or changed."""
    bench = Bench(dut)
    bench.accept[channel] = 0.0
    await bench.start()
    await bench.request("load__ar" if channel == "ar" else "store__aw", [128], 1)
    await bench.cycles(5)
    await bench.begin_reset()
    await bench.cycles(100)
    assert await bench.is_resetting()
    bench.accept[channel] = 1.0
    await bench.cycles(8)
    assert not await bench.is_resetting()
    assert len(bench.monitor.requests[channel]) == 1


@cocotb.test(timeout_time=100, timeout_unit="us")
async def nothing_is_taken_from_a_master_during_a_reset(dut) -> None:
    bench = Bench(dut)
    bench.accept["ar"] = 0.0
    await bench.start()
    await bench.request("load__ar", [0], 1)
    await bench.begin_reset()
    late = [bench.request("program__ar", [64], 1), bench.request("store__aw", [64], 1)]
    await bench.cycles(30)
    assert not any(task.done() for task in late)
    for task in late:
        task.cancel()
    dut.program__ar__valid.value = dut.store__aw__valid.value = 0
    bench.accept["ar"] = 1.0
    await bench.cycles(10)
    assert len(bench.monitor.requests["ar"]) == 1
    assert not bench.monitor.requests["aw"]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def late_answers_of_earlier_epochs_are_discarded(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    for epoch in range(4):
        await bench.request("load__ar", [0], 4)
        await bench.request("store__aw", [0], 1)
        await bench.write([epoch])
        await bench.cycles(4)
        assert {identifier for _, _, identifier in bench.monitor.requests["ar"][epoch:]} == {epoch << 1 | TAG_LOAD}
        if epoch < 3:
            await bench.begin_reset()
            while await bench.is_resetting():
                pass
    # The newest first, then all others: only the newest counts.
    for epoch in (3, 0, 2, 1):
        await bench.answer_read(epoch << 1 | TAG_LOAD, [10 * epoch + n for n in range(4)])
        await bench.answer_write(epoch << 1, epoch)
    await bench.cycles(3)
    assert bench.received["load"] == [30, 31, 32, 33]
    assert bench.received["store"] == [3]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def an_epoch_is_not_used_again_while_it_may_be_answered(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.request("load__ar", [0], 2)
    for _ in range(EPOCHS - 1):
        await bench.cycles(4)
        await bench.begin_reset()
        await bench.cycles(4)
        assert not await bench.is_resetting()
    await bench.begin_reset()
    await bench.cycles(50)
    assert await bench.is_resetting()
    await bench.answer_read(TAG_LOAD, [1, 2])
    await bench.cycles(6)
    assert not await bench.is_resetting()
    assert not bench.received["load"]
    await bench.request("load__ar", [0], 2)
    await bench.answer_read(TAG_LOAD, [3, 4])
    await bench.cycles(3)
    assert bench.received["load"] == [3, 4]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def resets_without_open_bursts_never_wait(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    for _ in range(3 * EPOCHS):
        await bench.begin_reset()
        for _ in range(3):
            assert await bench.is_resetting()
        assert not await bench.is_resetting()


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_request_and_a_write_beat_pass_each_cycle(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.request("store__aw", [0] * 4, 16)
    start = cocotb.utils.get_sim_time("ns")
    reader = bench.request("load__ar", [0] * 60, 1)
    await bench.write(list(range(64)))
    await reader
    assert cocotb.utils.get_sim_time("ns") - start <= 10 * 67
