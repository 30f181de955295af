# amaranth: UnusedElaboratable=no
"""Several cores through their pins: barriers order what one stores and another loads, and a fault of one stops all."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import pytest

from cocotb_tests.support.benches.responses import answer_reads
from cocotb_tests.support.buses.cluster_bench import (
    BASE,
    BLOCK,
    PAGE,
    STOPPED,
    ClusterBench,
    barrier,
    load,
    place,
    store,
)
from cocotb_tests.support.sweeps import sweep
from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.engines import MAC, MAXIMUM, EngineConfigs
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.bus.axi import Response
from lutterfly.hdl.top_axi import TopAxi

#: Cycles from the fault of one core to the interrupt, its report and the others' included.
BOUND = 200


def config_of(cores: int, shared_port: bool) -> Config:
    """As little as a core can be: what counts here is DMA."""
    tiny = PRESETS["tiny"]
    return dataclasses.replace(
        tiny,
        memory=dataclasses.replace(tiny.memory, feature_bytes=2048),
        engines=EngineConfigs.of(MAC, MAXIMUM),
        cluster=ClusterConfig(cores=cores, shared_port=shared_port),
    )


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize(
    ("cores", "shared_port"), sweep([(2, True), (2, False), (4, True), (4, False)], kept=[(2, True)])
)
def test_cores(simulate, cores: int, shared_port: bool) -> None:
    simulate(TopAxi(config_of(cores, shared_port)), env={"CORES": str(cores), "SHARED": str(int(shared_port))})


async def _bench(dut, **options) -> ClusterBench:
    bench = ClusterBench(dut, config_of(int(os.environ["CORES"]), os.environ["SHARED"] == "1"), **options)
    await bench.start()
    return bench


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4], seed=[0, 1])
async def what_one_stores_another_loads_behind_a_barrier(dut, p_stall: float, seed: int) -> None:
    bench = await _bench(dut, p_stall=p_stall, seed=seed)
    assert await bench.read("CORES") == len(bench.cores)
    for held_back in (None, *bench.cores):
        await bench.check_ring(held_back=held_back)
        if held_back is not None and not p_stall:
            waited = [await bench.read("BARRIER_STALLED", core) for core in bench.cores]
            # It is the last one, three times.
            assert min(waited) == waited[held_back]
            assert all(wait > waited[held_back] + 500 for core, wait in enumerate(waited) if core != held_back)
            assert await bench.read("DMA_DONE", held_back) == 2 + 3 * 7 + 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def latency_of_a_barrier(dut) -> None:
    """From the command of the last core at its unit to the completion of all."""
    bench = await _bench(dut)
    await bench.select(bench.ring(2, held_back=0))
    await bench.begin()
    await bench.ends()
    # The last core's is its seventh command, the others' their third.
    ends = {events["dma_done"][6 if core == 0 else 2] for core, events in enumerate(bench.trace)}
    assert ends == {bench.trace[0]["dma_begin"][6] + 4}
    counts = [(len(events["dma_begin"]), len(events["dma_done"])) for events in bench.trace]
    assert counts == [(9, 9)] + [(5, 5)] * (len(bench.cores) - 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def groups_do_not_wait_for_others(dut) -> None:
    """Pairs meet, then others, while one of the first pair is late."""
    bench = await _bench(dut, p_stall=0.2)
    if len(bench.cores) < 4:
        return
    late = [load(place(0, 0), 1024)] * 10
    programs = [
        [*late, barrier(0, 1), barrier(0)],
        [barrier(0, 1), barrier(1, 2)],
        [store(place(2, 1)), barrier(2, 3), barrier(1, 2), barrier(2, 3)],
        [barrier(2, 3), load(place(2, 1)), store(place(3, 1)), barrier(2, 3)],
    ]
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    assert await bench.status() == registers.STATUS_DONE
    assert bench.block(3, 1) == bench.block(2, 1)
    ends = [events["dma_done"] for events in bench.trace]
    assert ends[2][1] == ends[3][0] < ends[0][9] < ends[0][10] == ends[1][0] < ends[1][1] == ends[2][2]
    assert ends[2][3] == ends[3][3]


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(missing=[0, 1])
async def a_soft_reset_while_cores_wait(dut, missing: int) -> None:
    bench = await _bench(dut)
    programs = bench.ring(4)
    programs[missing] = [load(place(missing, 0), 1024, BLOCK)] * 50
    for wait in (0, 1, 7, 50):
        await bench.select(programs)
        await bench.begin()
        while not await bench.read("BARRIER_STALLED", 1 - missing):
            pass
        await bench.cycles(wait)
        assert await bench.status() == registers.STATUS_BUSY
        await bench.reset()
        assert await bench.status() == 0
        assert await bench.errors() == [(ErrorCode.NONE, Unit.NONE, 0, 0)] * len(bench.cores)
        assert not bench.interrupts
    await bench.check_ring()


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4])
async def a_soft_reset_at_any_time(dut, p_stall: float) -> None:
    """With bursts of all cores on their way; what they have begun to write is brought to an end."""
    bench = await _bench(dut, p_stall=p_stall, seed=3)
    await bench.check_ring()
    length = await bench.read("CYCLES")
    for _ in range(8):
        await bench.select(bench.ring(4))
        await bench.begin()
        await bench.cycles(int(bench.rng.integers(length)))
        await bench.reset()
        assert await bench.status() == 0
        assert await bench.read("ERROR_CORE") == 0
        if bench.rng.random() < 0.3:
            await bench.check_ring()
    await bench.check_ring()


async def _stopped(bench: ClusterBench, core: int, error: tuple, *, others: tuple = STOPPED) -> None:
    """The error of one core has ended the run; nothing but a soft reset helps, and then all is well."""
    assert await bench.status() == registers.STATUS_ERROR
    assert await bench.read("ERROR_CORE") == core
    assert await bench.errors() == [error if number == core else others for number in bench.cores]
    await bench.begin()
    await bench.cycles(50)
    assert await bench.status() == registers.STATUS_ERROR
    await bench.reset()
    assert await bench.status() == 0
    await bench.check_ring()


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(core=[0, 1], when=["early", "late"])
async def a_bus_error_of_one_stops_all(dut, core: int, when: str) -> None:
    """Whether the others wait at a barrier or are done."""
    bench = await _bench(dut)
    at, broken = BASE + place(core, 8) & ~0xFFF, True
    for ram in bench.rams:
        answer_reads(
            ram, lambda address: Response.SLVERR if broken and address & ~0xFFF == at + PAGE * 8 else Response.OKAY
        )
    bad = load(place(core, 0) + PAGE * 8)
    programs = bench.ring(3)
    if when == "early":
        index = 2
        programs[core].insert(index, bad)
    else:
        programs[core] += [load(place(core, 0), 1024)] * 10 + [bad]
        index = len(programs[core]) - 1
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    broken = False
    await _stopped(bench, core, (ErrorCode.AXI_SLAVE, Unit.LOAD, index, place(core, 0) + PAGE * 8))


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(ends_first=[True, False])
async def a_barrier_that_one_program_lacks(dut, ends_first: bool) -> None:
    bench = await _bench(dut)
    lacking = bench.cores[-1]
    delay = [load(place(0, 0), 1024)] * 10
    programs = [[*(delay if ends_first else []), barrier(*bench.cores)] for _ in bench.cores]
    programs[lacking] = [] if ends_first else delay
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    errors, first = await bench.errors(), await bench.read("ERROR_CORE")
    assert errors[first] == (ErrorCode.BARRIER, Unit.BARRIER, len(programs[0]) - 1, 0)
    assert errors[lacking] == STOPPED
    # Others that are here by then are told the same.
    assert set(errors) == {errors[first], STOPPED}
    last = max(cycle for events in bench.trace for cycles in events.values() for cycle in cycles)
    assert bench.interrupts[0] - last < BOUND
    await bench.reset()
    await bench.check_ring()


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(group=[[], [0], [0, 7]])
async def groups_that_cannot_be(dut, group: list[int]) -> None:
    bench = await _bench(dut)
    programs = [[barrier(*bench.cores)] for _ in bench.cores]
    programs[1] = [load(place(1, 0)), barrier(*group)]
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    await _stopped(bench, 1, (ErrorCode.ILLEGAL_FIELD, Unit.BARRIER, 1, 0))


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def a_core_that_waits_for_tokens_is_the_one_that_is_named(dut) -> None:
    """Nobody gives them; the others wait at a barrier, longer than it does."""
    bench = await _bench(dut)
    programs = bench.ring(2)
    programs[1] = [*[load(place(1, 0), 1024)] * 6, barrier(*bench.cores, wait=1)]
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    await _stopped(bench, 1, (ErrorCode.WATCHDOG, Unit.DMA_QUEUE, 6, 0))


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(before=[0, 3])
async def a_core_whose_memory_does_not_answer(dut, before: int) -> None:
    """With a port of its own; the others wait for it at a barrier."""
    bench = await _bench(dut)
    if len(bench.rams) == 1:
        return
    programs = bench.ring(2)
    programs[1] = [*[load(place(1, 0), 1024)] * 4, *bench.ring(2)[1]]
    await bench.select(programs)
    await bench.begin()
    while len(bench.trace[1]["dma_done"]) < before or not bench.trace[1]["dma_begin"]:
        await bench.cycles(1)
    bench.stall(bench.rams[1], 1.0)
    await bench.ends()
    bench.stall(bench.rams[1], 0.0)
    errors = await bench.errors()
    code, unit, index, _ = errors[1]
    assert (code, unit) == (ErrorCode.WATCHDOG, Unit.LOAD)
    assert index >= before
    await _stopped(bench, 1, errors[1])


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def cores_that_wait_for_each_other_are_an_error(dut) -> None:
    """Each at a barrier of another group: nothing moves anywhere."""
    bench = await _bench(dut)
    if len(bench.cores) < 4:
        return
    programs = [[barrier(0, 1)], [barrier(0, 1, 2)], [barrier(1, 2)], [load(place(3, 0), 1024)] * 20]
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    assert (await bench.errors())[await bench.read("ERROR_CORE")][:3] == (ErrorCode.WATCHDOG, Unit.BARRIER, 0)
    await bench.reset()
    await bench.check_ring()
