# amaranth: UnusedElaboratable=no
"""The arena on the chip, with a master that nobody here wrote, and a host beside it."""

from __future__ import annotations

import itertools

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge, RisingEdge
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiBus, AxiMaster, AxiResp

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.timing.overheads import OVERHEADS
from lutterfly.hdl.memories.arena import READ_LATENCY, Arena

SIZE = 8192
PERIOD_NS = 10


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize(("data_bits", "id_bits"), sweep([(32, 4), (64, 4), (128, 7)], kept=[(32, 4), (128, 7)]))
def test_arena(simulate, data_bits: int, id_bits: int) -> None:
    simulate(Arena(size_bytes=SIZE, data_bits=data_bits, id_bits=id_bits))


class Bench:
    """The arena with a master, and a host that asks for a byte at a time."""

    def __init__(self, dut, seed: int):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.answers: list[int] = []
        self.bytes = len(dut.bus__wdata) // 8

    async def begin(self, p_stall: float = 0.0, *, has_master: bool = True) -> None:
        await start(self.dut, {"host__request__valid": 0, "host__request__payload": 0})
        cocotb.start_soon(self._take_answers())
        if not has_master:
            return
        self.master = AxiMaster(AxiBus.from_prefix(self.dut, "bus_"), self.dut.clk, self.dut.rst, max_burst_len=16)
        if p_stall:
            port = self.master
            for channel in (
                port.write_if.aw_channel,
                port.write_if.w_channel,
                port.write_if.b_channel,
                port.read_if.ar_channel,
                port.read_if.r_channel,
            ):
                channel.set_pause_generator(bool(self.rng.random() < p_stall) for _ in itertools.count())

    async def _take_answers(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            if self.dut.host__answer__valid.value == 1:
                self.answers.append(int(self.dut.host__answer__payload.value))

    async def ask(self, address: int, data: int | None = None) -> int:
        """The host's request of a byte; returns the cycles until it was taken."""
        bits = len(self.dut.host__request__payload) - 9
        value = address | (data is not None) << bits | (data or 0) << bits + 1
        self.dut.host__request__payload.value = value
        self.dut.host__request__valid.value = 1
        for waited in itertools.count():
            await FallingEdge(self.dut.clk)
            taken = self.dut.host__request__ready.value == 1
            await RisingEdge(self.dut.clk)
            if taken:
                self.dut.host__request__valid.value = 0
                return waited
        raise AssertionError

    async def host_reads(self, address: int, length: int) -> bytes:
        self.answers.clear()
        for at in range(address, address + length):
            await self.ask(at)
        for _ in range(10):
            await RisingEdge(self.dut.clk)
        return bytes(self.answers)


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4], seed=[0, 1])
async def master_and_host_read_what_either_has_written(dut, p_stall: float, seed: int) -> None:
    bench = Bench(dut, seed)
    await bench.begin(p_stall)
    # The master has the even pages of 256 bytes, the host the odd ones, both all the time.
    expected = bytearray(bench.rng.bytes(SIZE))
    filled = await bench.master.write(0, bytes(expected))
    assert filled.resp == AxiResp.OKAY

    async def as_master() -> None:
        for _ in range(60):
            page, begin = 512 * int(bench.rng.integers(SIZE // 512)), int(bench.rng.integers(256))
            length = int(bench.rng.integers(1, 257 - begin))
            if bench.rng.random() < 0.5:
                data = bench.rng.bytes(length)
                written = await bench.master.write(page + begin, data)
                assert written.resp == AxiResp.OKAY
                expected[page + begin : page + begin + length] = data
            else:
                read = await bench.master.read(page + begin, length)
                assert read.resp == AxiResp.OKAY
                assert bytes(read.data) == expected[page + begin : page + begin + length]

    task = cocotb.start_soon(as_master())
    longest = 0
    for _ in range(300):
        at = 512 * int(bench.rng.integers(SIZE // 512)) + 256 + int(bench.rng.integers(250))
        if bench.rng.random() < 0.5:
            byte = int(bench.rng.integers(256))
            longest = max(longest, await bench.ask(at, byte))
            expected[at] = byte
        else:
            assert await bench.host_reads(at, 5) == expected[at : at + 5]
    assert longest <= 1
    await task
    whole = await bench.master.read(0, SIZE)
    assert bytes(whole.data) == bytes(expected)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_end_is_the_end(dut) -> None:
    bench = Bench(dut, 0)
    await bench.begin()
    before = bench.rng.bytes(SIZE)
    await bench.master.write(0, before)
    for address, response in ((SIZE - 64, AxiResp.OKAY), (SIZE, AxiResp.DECERR), (1 << 31, AxiResp.DECERR)):
        data = bench.rng.bytes(64)
        assert (await bench.master.read(address, 64)).resp == response
        assert (await bench.master.write(address, data)).resp == response
        if response == AxiResp.OKAY:
            before = before[:-64] + data
    assert bytes((await bench.master.read(0, SIZE)).data) == before


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def answers_are_those_of_their_requests_by_identifier(dut) -> None:
    bench = Bench(dut, 3)
    await bench.begin(0.3)
    data = bench.rng.bytes(SIZE)
    await bench.master.write(0, data)
    identifiers = 1 << len(dut.bus__arid)
    places = [(int(bench.rng.integers(SIZE - 300)), int(bench.rng.integers(1, 300))) for _ in range(30)]
    reads = [
        bench.master.init_read(address, length, arid=number % identifiers)
        for number, (address, length) in enumerate(places)
    ]
    for (address, length), read in zip(places, reads, strict=True):
        await read.wait()
        assert bytes(read.data.data) == data[address : address + length]


async def cycles_of(task) -> tuple[int, object]:
    begin = get_sim_time("ns")
    answer = await task
    return round((get_sim_time("ns") - begin) / PERIOD_NS), answer


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(bursts=[1, 8])
async def a_beat_passes_each_cycle_one_burst_behind_the_other(dut, bursts: int) -> None:
    """So that no run takes longer than on the ideal bus for which cycles are predicted."""
    bench = Bench(dut, 0)
    await bench.begin()
    beats = 16 * bursts
    data = bench.rng.bytes(beats * bench.bytes)
    # The master itself takes a cycle or two more from its call to the pins, and back.
    written, _ = await cycles_of(bench.master.write(0, data))
    assert written <= beats + 10
    read, answer = await cycles_of(bench.master.read(0, len(data)))
    assert bytes(answer.data) == data
    assert read <= beats + READ_LATENCY + 5 < beats + OVERHEADS.read_latency


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_burst_of_one_beat_passes_each_cycle_both_ways(dut) -> None:
    bench = Bench(dut, 0)
    await bench.begin(has_master=False)
    names = {"arvalid": 1, "arlen": 0, "araddr": 64, "arid": 1, "rready": 1, "bready": 1}
    names |= {"awvalid": 1, "awlen": 0, "awaddr": 128, "awid": 2, "wvalid": 1, "wlast": 1, "wstrb": 1, "wdata": 7}
    for name, value in names.items():
        getattr(dut, f"bus__{name}").value = value
    passed = dict.fromkeys(("rvalid", "bvalid", "arready", "awready", "wready"), 0)
    for cycle in range(120):
        await FallingEdge(dut.clk)
        for name in passed:
            passed[name] += cycle >= 20 and getattr(dut, f"bus__{name}").value == 1
        await RisingEdge(dut.clk)
    assert passed == dict.fromkeys(passed, 100)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_first_beat_comes_when_it_is_said(dut) -> None:
    # The test before leaves them high.
    dut.bus__arvalid.value = dut.bus__awvalid.value = dut.bus__wvalid.value = 0
    bench = Bench(dut, 0)
    await bench.begin(has_master=False)
    dut.bus__rready.value = 1
    dut.bus__arlen.value = 1
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.bus__arvalid.value = 1
    came = []
    for cycle in range(12):
        await FallingEdge(dut.clk)
        if dut.bus__rvalid.value == 1:
            came.append(cycle)
        await RisingEdge(dut.clk)
        dut.bus__arvalid.value = 0
    assert came == [READ_LATENCY, READ_LATENCY + 1], came


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_host_that_asks_all_the_time_leaves_every_other_cycle(dut) -> None:
    bench = Bench(dut, 0)
    await bench.begin()
    data = bench.rng.bytes(4096)
    await bench.master.write(0, data)
    ends = False

    async def ask() -> None:
        address = 0
        while not ends:
            assert await bench.ask(address % 4096, None if address % 8 < 4 else data[address % 4096]) <= 1
            address += 1

    asking = cocotb.start_soon(ask())
    beats = 256
    size = beats * bench.bytes
    read, answer = await cycles_of(bench.master.read(0, size))
    assert bytes(answer.data) == data[:size]
    written, _ = await cycles_of(bench.master.write(0, data[:size]))
    ends = True
    await asking
    assert max(read, written) <= 2 * beats + 20, (read, written)
    for _ in range(10):
        await RisingEdge(dut.clk)
    assert await bench.host_reads(0, 300) == data[:300]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_reset_leaves_nothing_under_way(dut) -> None:
    bench = Bench(dut, 0)
    await bench.begin(has_master=False)
    dut.bus__rready.value = 1
    for delay in range(8):
        dut.bus__arvalid.value, dut.bus__araddr.value, dut.bus__arlen.value = 1, 64, 3
        await RisingEdge(dut.clk)
        dut.bus__arvalid.value = 0
        await bench.ask(3)
        for _ in range(delay):
            await RisingEdge(dut.clk)
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        await FallingEdge(dut.clk)
        bench.answers.clear()
        for _ in range(20):
            assert dut.bus__rvalid.value == 0
            await RisingEdge(dut.clk)
            await FallingEdge(dut.clk)
        assert bench.answers == []
        await RisingEdge(dut.clk)
