# amaranth: UnusedElaboratable=no
"""AxiArbiter alone: every burst arrives once and in its turn, answers find their core, and nobody waits for long."""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from dataclasses import dataclass, field

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge, gather

from cocotb_tests.support.benches.axi import AxiMonitor
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import AxiConfig, ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.bus.axi_arbiter import AxiArbiter

# A bench around AxiArbiter: masters that send what they are told, and a slave that answers in any order.


@dataclass
class Burst:
    """What one master asks for.

    ``asked``, ``whole`` and ``answered``: the cycles in which its request and its last beat were first at the master,
    and in which the last of its answer was.
    """

    address: int
    beats: int
    identifier: int
    words: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    asked: int = -1
    whole: int = -1
    answered: int = -1


def word_at(address: int, beat: int) -> int:
    """What the slave holds."""
    return (address * 2654435761 + beat * 40503) & 0xFFFF_FFFF


class ArbiterBench:
    """The arbiter between masters and a slave.

    Attributes
    ----------
    reads, writes : list of list of Burst
        For each master, in the order in which it asked.
    offered : dict of str to list of tuple
        Requests at the port as they were taken, on "ar" and "aw": (core, address, cycle).
    beats : list of tuple
        Write beats at the port as they were taken: (data, last, cycle).
    arrived : list of int
        The cycles in which masters got read beats.
    cycle : int
    accept : dict of str to float
        How often the slave takes what is offered on "ar", "aw" and "w".
    p_answer : float
        How often it answers.
    """

    def __init__(self, dut, config: Config, seed: int = 0):
        self.dut, self.config = dut, config
        self.rng = np.random.default_rng(seed)
        self.cores = range(config.cores)
        self.reads: list[list[Burst]] = [[] for _ in self.cores]
        self.writes: list[list[Burst]] = [[] for _ in self.cores]
        self.offered: dict[str, list[tuple[int, int, int]]] = {"ar": [], "aw": []}
        self.beats: list[tuple[int, int, int]] = []
        self.arrived: list[int] = []
        self.accept = {"ar": 1.0, "aw": 1.0, "w": 1.0}
        self.p_answer = 1.0
        self.cycle = 0
        #: Bursts that the slave has taken and not answered, by identifier.
        self._to_read: dict[int, deque[tuple[int, int]]] = {}
        self._to_confirm: dict[int, deque[int]] = {}

    def port(self, core: int, name: str):
        """A wire of a master."""
        return getattr(self.dut, f"master_{core}__{name}")

    async def start(self) -> None:
        """Reset, and start the clock and the slave."""
        dut = self.dut
        for core in self.cores:
            for name in ("arvalid", "awvalid", "wvalid"):
                self.port(core, name).value = 0
            for channel in ("ar", "aw"):
                self.port(core, f"{channel}size").value = self.config.axi.data_bytes.bit_length() - 1
                self.port(core, f"{channel}burst").value = 1
            self.port(core, "rready").value = self.port(core, "bready").value = 1
        for name in ("arready", "awready", "wready", "rvalid", "bvalid"):
            getattr(dut, f"memory__{name}").value = 0
        dut.rst.value = 1
        Clock(dut.clk, 10, unit="ns").start()
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.monitor = AxiMonitor(dut, "memory__", data_bytes=self.config.axi.data_bytes)
        cocotb.start_soon(self._watch())
        for task in (self._accept(), self._answer_reads(), self._answer_writes()):
            cocotb.start_soon(task)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def _accept(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            for channel, probability in self.accept.items():
                getattr(self.dut, f"memory__{channel}ready").value = int(self.rng.random() < probability)

    async def _answer_reads(self) -> None:
        """Beats of bursts with different identifiers in any order, those of one in theirs."""
        dut, begun = self.dut, {}
        while True:
            await RisingEdge(dut.clk)
            dut.memory__rvalid.value = 0
            waiting = [identifier for identifier, bursts in self._to_read.items() if bursts]
            if not waiting or self.rng.random() >= self.p_answer:
                continue
            identifier = waiting[self.rng.integers(len(waiting))]
            (address, beats), beat = self._to_read[identifier][0], begun.get(identifier, 0)
            dut.memory__rvalid.value, dut.memory__rid.value = 1, identifier
            dut.memory__rdata.value, dut.memory__rresp.value = word_at(address, beat), address >> 4 & 3
            dut.memory__rlast.value = int(beat == beats - 1)
            begun[identifier] = (beat + 1) % beats
            if not begun[identifier]:
                self._to_read[identifier].popleft()

    async def _answer_writes(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            dut.memory__bvalid.value = 0
            waiting = [identifier for identifier, bursts in self._to_confirm.items() if bursts]
            if not waiting or self.rng.random() >= self.p_answer:
                continue
            identifier = waiting[self.rng.integers(len(waiting))]
            dut.memory__bvalid.value, dut.memory__bid.value = 1, identifier
            dut.memory__bresp.value = self._to_confirm[identifier].popleft() >> 4 & 3

    async def _watch(self) -> None:
        # A slave may take the beats of a burst before its request.
        dut, requests, finished = self.dut, deque(), 0
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            self.cycle += 1
            for channel in ("ar", "aw"):
                bus = {name: int(getattr(dut, f"memory__{channel}{name}").value) for name in ("id", "addr", "len")}
                if getattr(dut, f"memory__{channel}valid").value == getattr(dut, f"memory__{channel}ready").value == 1:
                    self.offered[channel].append((bus["id"] >> AxiConfig.ID_BITS, bus["addr"], self.cycle))
                    if channel == "ar":
                        self._to_read.setdefault(bus["id"], deque()).append((bus["addr"], bus["len"] + 1))
                    else:
                        requests.append((bus["id"], bus["addr"]))
            if dut.memory__wvalid.value == dut.memory__wready.value == 1:
                last = int(dut.memory__wlast.value)
                self.beats.append((int(dut.memory__wdata.value), last, self.cycle))
                finished += last
            if finished and requests:
                identifier, address = requests.popleft()
                self._to_confirm.setdefault(identifier, deque()).append(address)
                finished -= 1
            for core in self.cores:
                if self.port(core, "rvalid").value == 1:
                    burst = self._open(self.reads[core], int(self.port(core, "rid").value))
                    self.arrived.append(self.cycle)
                    burst.received.append(int(self.port(core, "rdata").value))
                    assert int(self.port(core, "rresp").value) == burst.address >> 4 & 3
                    last = len(burst.received) == burst.beats
                    assert self.port(core, "rlast").value == last
                    burst.answered = self.cycle if last else -1
                if self.port(core, "bvalid").value == 1:
                    burst = self._open(self.writes[core], int(self.port(core, "bid").value))
                    assert int(self.port(core, "bresp").value) == burst.address >> 4 & 3
                    burst.answered = self.cycle

    @staticmethod
    def _open(bursts: list[Burst], identifier: int) -> Burst:
        """The oldest burst of this identifier that is not answered."""
        return next(burst for burst in bursts if burst.identifier == identifier and burst.answered < 0)

    async def send(self, core: int, channel: str, fields: dict[str, int], p_stall: float) -> int:
        """Hold one word at a master's channel until it is taken; the cycle in which it was first offered."""
        while p_stall and self.rng.random() < p_stall:
            await RisingEdge(self.dut.clk)
        for name, value in fields.items():
            self.port(core, channel + name).value = value
        self.port(core, f"{channel}valid").value = 1
        first = self.cycle + 1
        while True:
            await ReadOnly()
            taken = self.port(core, f"{channel}ready").value == 1
            await RisingEdge(self.dut.clk)
            if taken:
                self.port(core, f"{channel}valid").value = 0
                return first

    def burst(self, core: int, beats: int) -> Burst:
        """A random one, whose address says whose it is."""
        number = len(self.reads[core]) + len(self.writes[core])
        # Whole pages: no burst crosses one.
        address = (core << 28) | (number << 12) | int(self.rng.integers(16)) << 4
        return Burst(address, beats, int(self.rng.integers(1 << AxiConfig.ID_BITS)))

    async def read(self, core: int, lengths: list[int], p_stall: float = 0.0) -> None:
        """Ask for bursts of so many beats."""
        for beats in lengths:
            burst = self.burst(core, beats)
            self.reads[core].append(burst)
            fields = {"addr": burst.address, "len": beats - 1, "id": burst.identifier}
            burst.asked = await self.send(core, "ar", fields, p_stall)

    async def write(self, core: int, lengths: list[int], p_stall: float = 0.0, p_stall_beats: float = 0.0) -> None:
        """Ask for bursts; their beats may be early or late."""
        bursts = []
        for beats in lengths:
            bursts.append(burst := self.burst(core, beats))
            burst.words = [word_at(burst.address, beat) for beat in range(beats)]
            self.writes[core].append(burst)

        async def send_beats() -> None:
            for burst in bursts:
                for beat, word in enumerate(burst.words):
                    fields = {"data": word, "strb": word & 15, "last": int(beat == burst.beats - 1)}
                    burst.whole = await self.send(core, "w", fields, p_stall_beats)

        beats_task = cocotb.start_soon(send_beats())
        for burst in bursts:
            fields = {"addr": burst.address, "len": burst.beats - 1, "id": burst.identifier}
            burst.asked = await self.send(core, "aw", fields, p_stall)
        await beats_task

    async def all_answered(self, limit: int = 4000) -> None:
        """Wait until everything is."""
        bursts = [burst for side in (self.reads, self.writes) for of_core in side for burst in of_core]
        for _ in range(limit):
            if all(burst.answered >= 0 for burst in bursts):
                return
            await RisingEdge(self.dut.clk)
        raise AssertionError("a burst is not answered")

    def check(self) -> None:
        """Every burst came to the port once, as it was and in its core's order; beats follow in the order of bursts."""
        self.monitor.check_ended()
        widened = AxiConfig.ID_BITS
        for channel, side in (("ar", self.reads), ("aw", self.writes)):
            requests = self.monitor.requests[channel]
            for core in self.cores:
                mine = [request for request in requests if request[2] >> widened == core]
                assert mine == [(b.address, b.beats, core << widened | b.identifier) for b in side[core]]
        for of_core in self.reads:
            for burst in of_core:
                assert burst.received == [word_at(burst.address, beat) for beat in range(burst.beats)]
        by_address = {burst.address: burst for of_core in self.writes for burst in of_core}
        expected = [word for _, address, _ in self.offered["aw"] for word in by_address[address].words]
        assert [word for word, _, _ in self.beats] == expected
        assert self.monitor.strobes == [word & 15 for word in expected]


#: From a request at a master to the port, from an answer at the port to the master, and from a burst's last beat at a
#: master to its request, and from there to its first beat.
READ_REQUEST, ANSWER, WRITE_REQUEST, WRITE_BEAT = 2, 1, 2, 1


def config_of(cores: int) -> Config:
    return dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=cores))


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize("cores", sweep([2, 4], kept=[4]))
def test_arbiter(simulate, cores: int) -> None:
    simulate(AxiArbiter(config_of(cores)), env={"CORES": str(cores)})


def test_one_core_needs_none() -> None:
    with pytest.raises(ValueError, match=r"^cores must be at least 2, not 1$"):
        AxiArbiter(PRESETS["tiny"])


async def _bench(dut, seed: int = 0, accept: float = 1.0, p_answer: float = 1.0) -> ArbiterBench:
    bench = ArbiterBench(dut, config_of(int(os.environ["CORES"])), seed)
    bench.accept = dict.fromkeys(bench.accept, accept)
    bench.p_answer = p_answer
    await bench.start()
    await bench.cycles(2)
    return bench


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.3, 0.9], slow_slave=[False, True], seed=[0, 1])
async def every_burst_arrives_once(dut, p_stall: float, slow_slave: bool, seed: int) -> None:
    bench = await _bench(dut, seed, *((0.4, 0.6) if slow_slave else ()))
    lengths = [[int(n) for n in bench.rng.choice([1, 2, 3, 15, 16], 15)] for _ in (*bench.cores, *bench.cores)]
    await gather(
        *(bench.read(core, lengths[core], p_stall) for core in bench.cores),
        *(bench.write(core, lengths[-1 - core], p_stall, p_stall / 2) for core in bench.cores),
    )
    await bench.all_answered()
    await bench.cycles(5)
    bench.check()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def latencies(dut) -> None:
    bench = await _bench(dut)
    for beats in (1, 5, 16):
        for core in bench.cores:
            await bench.read(core, [beats])
            await bench.write(core, [beats])
            await bench.all_answered()
            (read, write), place = (side[core][-1] for side in (bench.reads, bench.writes)), len(bench.beats) - beats
            at_port = {channel: bench.offered[channel][-1][2] for channel in ("ar", "aw")}
            assert at_port["ar"] - read.asked == READ_REQUEST
            assert at_port["aw"] - write.whole == WRITE_REQUEST
            first, last = bench.beats[place][2], bench.beats[-1][2]
            assert first - at_port["aw"] == WRITE_BEAT
            assert last - first == beats - 1
            # The slave answers in the cycle after, each beat of a burst in its own.
            assert read.answered - at_port["ar"] == beats + ANSWER
            assert write.answered - last == 1 + ANSWER


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(beats=[1, 16], alone=[True, False])
async def the_whole_bandwidth(dut, beats: int, alone: bool) -> None:
    """Of both directions at a time, for one master and for all together."""
    bench = await _bench(dut)
    cores = [bench.cores[-1]] if alone else bench.cores
    count = (256 if alone else 128) // beats
    await gather(
        *(bench.read(core, [beats] * count) for core in cores),
        *(bench.write(core, [beats] * count) for core in cores),
    )
    await bench.all_answered()
    total = count * beats * len(cores)
    written = [cycle for _, _, cycle in bench.beats]
    assert written[-1] - written[0] == total - 1
    asked = [cycle for _, _, cycle in bench.offered["ar"]]
    assert asked[-1] - asked[0] == count * len(cores) - 1
    assert bench.arrived[-1] - bench.arrived[0] == total - 1
    bench.check()


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(side=["read", "write"], accept=[1.0, 0.3], seed=[0, 1, 2])
async def a_master_waits_for_one_burst_of_each_other_at_most(dut, side: str, accept: float, seed: int) -> None:
    """All but one ask without a pause; that one now and then."""
    bench = await _bench(dut, seed, accept)
    patient = int(bench.rng.integers(len(bench.cores)))
    others = [core for core in bench.cores if core != patient]
    send = getattr(bench, side)
    many = cocotb.start_soon(gather(*(send(core, [2] * 60) for core in others)))
    channel = "ar" if side == "read" else "aw"
    for _ in range(10):
        await bench.cycles(int(bench.rng.integers(3, 25)))
        before = len(bench.offered[channel])
        await send(patient, [2])
        burst = (bench.reads if side == "read" else bench.writes)[patient][-1]
        while not (mine := [c for c, address, _ in bench.offered[channel] if address == burst.address]):
            await bench.cycles(1)
        assert mine == [patient]
        ready = max(burst.asked, burst.whole)
        served = [cycle for core, _, cycle in bench.offered[channel][before:] if cycle > ready]
        place = next(
            number for number, cycle in enumerate(served) if (patient, burst.address, cycle) in bench.offered[channel]
        )
        # One more is at the port, taken before this one came to the turns.
        assert place <= len(others) + 2
    await many
    await bench.all_answered()
    bench.check()


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(sent=[0, 1, 15])
async def a_master_that_keeps_its_beats_back_holds_up_nobody(dut, sent: int) -> None:
    bench = await _bench(dut)
    slow, *others = bench.cores
    for number in range(4):
        await bench.send(slow, "aw", {"addr": number << 12, "len": 15, "id": 1}, 0)
    for beat in range(sent):
        await bench.send(slow, "w", {"data": word_at(0, beat), "strb": 15, "last": 0}, 0)
    await gather(*(bench.write(core, [16] * 4) for core in others), bench.read(slow, [16] * 4))
    await bench.all_answered(500)
    written = [cycle for _, _, cycle in bench.beats]
    assert written[-1] - written[0] == 64 * len(others) - 1
    assert {core for core, _, _ in bench.offered["aw"]} == set(others)
    assert not bench.dut.memory__awvalid.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def beats_may_come_before_their_burst(dut) -> None:
    bench = await _bench(dut)
    burst = bench.burst(1, 3)
    burst.words = [word_at(burst.address, beat) for beat in range(3)]
    bench.writes[1].append(burst)
    for beat, word in enumerate(burst.words):
        await bench.send(1, "w", {"data": word, "strb": word & 15, "last": int(beat == 2)}, 0)
    await bench.cycles(20)
    assert not bench.beats
    assert not bench.dut.memory__awvalid.value
    await bench.send(1, "aw", {"addr": burst.address, "len": 2, "id": burst.identifier}, 0)
    await bench.all_answered(50)
    bench.check()
