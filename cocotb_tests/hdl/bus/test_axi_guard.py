# amaranth: UnusedElaboratable=no
"""AxiGuard alone: what crosses it, and what a soft reset leaves."""

from __future__ import annotations

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

from cocotb_tests.support.benches.axi import AxiMonitor
from cocotb_tests.support.benches.streams import send
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.bus.axi import read_beat_layout, request_layout, write_beat_layout
from lutterfly.hdl.bus.axi_guard import TAG_LOAD, TAG_PROGRAM, AxiGuard

# A bench around AxiGuard: what its masters send, and a slave that answers when it is told to.

CONFIG = PRESETS["tiny"]
DATA_BYTES = CONFIG.axi.data_bytes
BASE = 0xF00D_0000
STROBES = (1 << DATA_BYTES) - 1
EPOCHS = 8


class GuardBench:
    """The guard with a slave that answers when it is told to.

    Attributes
    ----------
    received : dict of str to list
        What came back to "load", "program" (data words) and "store" (responses).
    writes : list of tuple
        Taken write beats as (data, strobe, last).
    accept : dict of str to float
        How often the slave takes what is offered on "ar", "aw" and "w".
    epoch : int
    """

    def __init__(self, dut, seed: int = 0):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.received: dict[str, list[int]] = {"load": [], "program": [], "store": []}
        self.writes: list[tuple[int, int, int]] = []
        self.epoch = 0
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
        beats = [{"data": word, "strobe": STROBES} for word in words]
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

    async def reset(self) -> None:
        """A soft reset, which lasts four cycles whatever the slave does."""
        self.dut.soft_reset.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.soft_reset.value = 0
        for _ in range(4):
            assert await self.is_resetting()
        assert not await self.is_resetting()
        self.epoch = (self.epoch + 1) % EPOCHS

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def is_resetting(self) -> bool:
        await ReadOnly()
        resetting = self.dut.resetting.value == 1
        await RisingEdge(self.dut.clk)
        return resetting


def test_guard(simulate) -> None:
    simulate(AxiGuard(CONFIG, reset_cycles=4))


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(seed=[0, 1])
async def readers_get_their_own_answers_in_any_order_between_them(dut, seed: int) -> None:
    bench = GuardBench(dut, seed)
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
    bench = GuardBench(dut)
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
    bench = GuardBench(dut, seed)
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
    bench = GuardBench(dut)
    await bench.start()
    await bench.request("store__aw", [0, 64], 5)
    if sent:
        await bench.write(list(range(100, 100 + sent)))
    bench.accept["w"] = 0.3
    await bench.reset()
    await bench.cycles(100)
    bench.monitor.check_ended()
    assert [strobe for _, strobe, _ in bench.writes] == [STROBES] * sent + [0] * (10 - sent)
    assert [word for word, _, _ in bench.writes[:sent]] == list(range(100, 100 + sent))
    # Their answers belong to an earlier epoch.
    for _, _, identifier in bench.monitor.requests["aw"]:
        await bench.answer_write(identifier, 0)
    await bench.cycles(3)
    assert not bench.received["store"]


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(beats=[1, 5], delay=range(7), taken=["at once", "later"])
async def a_reset_around_the_cycle_in_which_a_burst_begins(dut, beats: int, delay: int, taken: str) -> None:
    """Whether or not the burst has begun then, its beats come, and the next one passes."""
    bench = GuardBench(dut)
    bench.accept["aw"] = float(taken == "at once")
    await bench.start()
    task = bench.request("store__aw", [64], beats)
    await bench.cycles(delay)
    dut.soft_reset.value = 1
    await RisingEdge(dut.clk)
    dut.soft_reset.value = 0
    await RisingEdge(dut.clk)
    task.cancel()
    dut.store__aw__valid.value = 0
    await bench.cycles(5)
    bench.accept["aw"] = 1.0
    await bench.cycles(30)
    begun = len(bench.monitor.requests["aw"])
    assert begun == (delay > 0)
    bench.monitor.check_ended()
    assert [strobe for _, strobe, _ in bench.writes] == [0] * beats * begun
    await bench.request("store__aw", [512], beats)
    await bench.write(list(range(beats)))
    await bench.cycles(5)
    bench.monitor.check_ended()
    assert bench.monitor.requests["aw"][begun:] == [(BASE + 512, beats, 1 << 1)]
    assert [(word, strobe) for word, strobe, _ in bench.writes[beats * begun :]] == [
        (word, STROBES) for word in range(beats)
    ]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def an_offered_read_outlives_resets_and_its_answer_is_discarded(dut) -> None:
    """The monitor fails if the request is withdrawn or changed; the next one waits after it."""
    bench = GuardBench(dut)
    bench.accept["ar"] = 0.0
    await bench.start()
    await bench.request("load__ar", [128], 1)
    for _ in range(3):
        await bench.reset()
    late = bench.request("load__ar", [256], 1)
    await bench.cycles(30)
    assert not late.done()
    bench.accept["ar"] = 1.0
    await late
    await bench.cycles(3)
    stale, new = bench.monitor.requests["ar"]
    assert (stale[0], new[0]) == (BASE + 128, BASE + 256)
    for _, _, identifier in (stale, new):
        await bench.answer_read(identifier, [identifier])
    await bench.cycles(3)
    assert bench.received["load"] == [new[2]]


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(refused=[("aw",), ("w",), ("aw", "w")], sent=[0, 1, 3])
async def a_new_write_waits_after_those_that_a_reset_left(dut, refused: tuple[str, ...], sent: int) -> None:
    """Readers do not wait; a beat that is at the pins keeps its strobes."""
    bench = GuardBench(dut)
    await bench.start()
    bench.accept |= dict.fromkeys(refused, 0.0)
    old = bench.request("store__aw", [0, 64], 4)
    writer = bench.write(list(range(100, 100 + sent)))
    await bench.cycles(10)
    for task in (old, writer):
        task.cancel()
    dut.store__aw__valid.value = dut.store__w__valid.value = 0
    await RisingEdge(dut.clk)
    for _ in range(2):
        await bench.reset()
    late = bench.request("store__aw", [512], 3), bench.write([7, 8, 9])
    await bench.request("load__ar", [0], 1)
    await bench.answer_read(bench.epoch << 1 | TAG_LOAD, [5])
    await bench.cycles(50)
    assert bench.received["load"] == [5]
    assert not late[1].done()
    bench.accept = dict.fromkeys(bench.accept, 0.5)
    for task in late:
        await task
    await bench.cycles(20)
    bench.monitor.check_ended()
    *stale, new = bench.monitor.requests["aw"]
    assert new == (BASE + 512, 3, bench.epoch << 1)
    assert all(identifier == 0 for _, _, identifier in stale)
    padded = bench.writes[:-3]
    assert len(padded) == sum(beats for _, beats, _ in stale)
    kept = [word for word, strobe, _ in padded if strobe]
    assert kept == list(range(100, 100 + len(kept)))
    assert len(kept) <= sent
    assert [(word, strobe) for word, strobe, _ in bench.writes[-3:]] == [(word, STROBES) for word in (7, 8, 9)]
    for _, _, identifier in [*stale, new]:
        await bench.answer_write(identifier, int(identifier != 0))
    await bench.cycles(3)
    assert bench.received["store"] == [1]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def nothing_is_taken_from_a_master_during_a_reset(dut) -> None:
    bench = GuardBench(dut)
    await bench.start()
    dut.soft_reset.value = 1
    await RisingEdge(dut.clk)
    late = [bench.request(name, [64], 1) for name in ("load__ar", "program__ar", "store__aw")]
    await bench.cycles(30)
    assert await bench.is_resetting()
    assert not any(task.done() for task in late)
    for task in late:
        task.cancel()
    dut.load__ar__valid.value = dut.program__ar__valid.value = dut.store__aw__valid.value = 0
    dut.soft_reset.value = 0
    await bench.cycles(10)
    assert not bench.monitor.requests["ar"]
    assert not bench.monitor.requests["aw"]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def late_answers_of_earlier_epochs_are_discarded(dut) -> None:
    bench = GuardBench(dut)
    await bench.start()
    for epoch in range(4):
        await bench.request("load__ar", [0], 4)
        await bench.request("store__aw", [0], 1)
        await bench.write([epoch])
        await bench.cycles(4)
        assert {identifier for _, _, identifier in bench.monitor.requests["ar"][epoch:]} == {epoch << 1 | TAG_LOAD}
        if epoch < 3:
            await bench.reset()
    # The newest first, then all others: only the newest counts.
    for epoch in (3, 0, 2, 1):
        await bench.answer_read(epoch << 1 | TAG_LOAD, [10 * epoch + n for n in range(4)])
        await bench.answer_write(epoch << 1, epoch)
    await bench.cycles(3)
    assert bench.received["load"] == [30, 31, 32, 33]
    assert bench.received["store"] == [3]


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(resets=[EPOCHS, 2 * EPOCHS])
async def an_epoch_is_not_used_again_while_it_may_be_answered(dut, resets: int) -> None:
    bench = GuardBench(dut)
    await bench.start()
    await bench.request("load__ar", [0], 2)
    for _ in range(EPOCHS - 1):
        await bench.cycles(4)
        await bench.reset()
    await bench.request("program__ar", [0], 1)
    await bench.answer_read(bench.epoch << 1 | TAG_PROGRAM, [6])
    for _ in range(resets - EPOCHS + 1):
        await bench.reset()
    late = bench.request("load__ar", [64], 2)
    await bench.cycles(50)
    assert not late.done()
    await bench.answer_read(TAG_LOAD, [1, 2])
    await late
    await bench.answer_read(bench.epoch << 1 | TAG_LOAD, [3, 4])
    await bench.cycles(3)
    assert bench.received == {"load": [3, 4], "program": [6], "store": []}


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_request_that_is_taken_with_a_reset_holds_its_epoch(dut) -> None:
    bench = GuardBench(dut)
    await bench.start()
    await bench.cycles(4)
    dut.load__ar__valid.value = dut.soft_reset.value = 1
    await ReadOnly()
    assert dut.load__ar__ready.value == 1
    await RisingEdge(dut.clk)
    dut.load__ar__valid.value = dut.soft_reset.value = 0
    await bench.cycles(8)
    for _ in range(EPOCHS - 1):
        await bench.reset()
    await bench.answer_read(TAG_LOAD, [1])
    await bench.cycles(3)
    assert bench.received["load"] == []


@cocotb.test(timeout_time=100, timeout_unit="us")
async def epochs_without_open_bursts_are_free_again(dut) -> None:
    bench = GuardBench(dut)
    await bench.start()
    for number in range(3 * EPOCHS):
        await bench.reset()
        await bench.request("load__ar", [0], 1)
        await bench.answer_read(bench.epoch << 1 | TAG_LOAD, [number])
    await bench.cycles(3)
    assert bench.received["load"] == list(range(3 * EPOCHS))


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(side=["load", "store"])
async def no_more_bursts_than_are_counted(dut, side: str) -> None:
    """A slave that takes everything and never answers, through resets: the count of what it owes must not wrap."""
    bench = GuardBench(dut)
    await bench.start()
    channel, name = ("ar", "load__ar") if side == "load" else ("aw", "store__aw")
    requests = bench.monitor.requests[channel]
    for _ in range(5):
        tasks = [bench.request(name, [64 * n for n in range(60)], 1)]
        if side == "store":
            tasks.append(bench.write(list(range(60))))
        await bench.cycles(90)
        for task in tasks:
            task.cancel()
        dut.load__ar__valid.value = dut.store__aw__valid.value = dut.store__w__valid.value = 0
        await RisingEdge(dut.clk)
        await bench.reset()
        await bench.cycles(10)
    assert 128 <= len(requests) <= 128 + 3
    late = [bench.request(name, [4096], 1), *([bench.write([77])] if side == "store" else [])]
    await bench.cycles(20)
    assert not late[0].done()
    answered = list(requests)
    for number, (_, _, identifier) in enumerate(answered):
        # Some room is enough.
        assert late[0].done() == (len(requests) > len(answered))
        await (bench.answer_read(identifier, [number]) if side == "load" else bench.answer_write(identifier, 2))
    for task in late:
        await task
    await bench.cycles(5)
    assert not bench.received[side]
    identifier = requests[-1][2]
    assert identifier == bench.epoch << 1 | (TAG_LOAD if side == "load" else 0)
    await (bench.answer_read(identifier, [5]) if side == "load" else bench.answer_write(identifier, 1))
    await bench.cycles(3)
    assert bench.received[side] == [5 if side == "load" else 1]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_request_and_a_write_beat_pass_each_cycle(dut) -> None:
    bench = GuardBench(dut)
    await bench.start()
    await bench.request("store__aw", [0] * 4, 16)
    start = cocotb.utils.get_sim_time("ns")
    reader = bench.request("load__ar", [0] * 60, 1)
    await bench.write(list(range(64)))
    await reader
    assert cocotb.utils.get_sim_time("ns") - start <= 10 * 67
