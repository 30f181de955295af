# amaranth: UnusedElaboratable=no
"""AxiArbiter alone: every burst arrives once and in its turn, answers find their core, and nobody waits for long."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import pytest
from cocotb.triggers import gather

from cocotb_tests.support.buses.arbiter_bench import ArbiterBench, word_at
from cocotb_tests.support.sweeps import sweep
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.bus.axi_arbiter import AxiArbiter

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
