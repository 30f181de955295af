# amaranth: UnusedElaboratable=no
"""Barrier alone: random groups that meet again and again, in hardware of two, four and eight cores."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.tiers import sweep
from lutterfly.hdl.control.barrier import CoreBarrier

#: From the last arrival to the release.
LATENCY = 2


@pytest.mark.parametrize("cores", sweep([2, 4, 8], kept=[4]))
def test_barrier(simulate, cores: int) -> None:
    simulate(CoreBarrier(cores), env={"CORES": str(cores)})


def test_one_core_needs_none() -> None:
    with pytest.raises(ValueError, match=r"^cores must be at least 2, not 1$"):
        CoreBarrier(1)


class Bench:
    """The barrier, and what happened: releases and losses as (cores, cycle)."""

    def __init__(self, dut):
        self.dut = dut
        self.cores = range(int(os.environ["CORES"]))
        self.cycle = 0
        self.released: list[tuple[set[int], int]] = []
        self.lost: list[tuple[set[int], int]] = []

    async def start(self) -> None:
        inputs = {f"ended_{core}": 0 for core in self.cores}
        inputs |= {f"arrive_{core}__{name}": 0 for core in self.cores for name in ("valid", "payload")}
        await start(self.dut, inputs)

    async def step(self, **arrivals: int) -> None:
        """One cycle, in which these cores arrive with these groups."""
        for name, group in arrivals.items():
            core = int(name.removeprefix("core_"))
            getattr(self.dut, f"arrive_{core}__valid").value = 1
            getattr(self.dut, f"arrive_{core}__payload").value = group
        await FallingEdge(self.dut.clk)
        for name, events in (("release", self.released), ("lost", self.lost)):
            cores = {core for core in self.cores if getattr(self.dut, f"{name}_{core}").value == 1}
            if cores:
                events.append((cores, self.cycle))
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        for name in arrivals:
            getattr(self.dut, f"arrive_{name.removeprefix('core_')}__valid").value = 0


def _members(group: int) -> set[int]:
    return {core for core in range(8) if group >> core & 1}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pause=[0, 1, 10], seed=[0, 1])
async def groups_meet_in_any_order(dut, pause: int, seed: int) -> None:
    """Every core has the same list of meetings, of which it attends its own, at its own pace."""
    rng, bench = np.random.default_rng(seed), Bench(dut)
    await bench.start()
    groups = [int(rng.integers(1, 1 << len(bench.cores))) for _ in range(60)]
    agenda = {core: [group for group in groups if group >> core & 1] for core in bench.cores}
    waits: dict[int, int] = {}
    not_before = dict.fromkeys(bench.cores, 0)
    last_arrivals: list[tuple[set[int], int]] = []
    while any(agenda.values()) or waits:
        arrivals = {}
        for core in bench.cores:
            if core not in waits and agenda[core] and bench.cycle >= not_before[core]:
                arrivals[f"core_{core}"] = waits[core] = agenda[core].pop(0)
        complete = [group for group in set(arrivals.values()) if all(waits.get(c) == group for c in _members(group))]
        last_arrivals += [(_members(group), bench.cycle) for group in complete]
        await bench.step(**arrivals)
        for cores, cycle in bench.released:
            if cycle == bench.cycle - 1:
                for core in cores:
                    # In the cycle after its release it may be at the next one.
                    del waits[core]
                    not_before[core] = bench.cycle + int(rng.integers(pause + 1))
        assert bench.cycle < 3000
    # Of several groups that meet in a cycle the releases are in one.
    expected: dict[int, set[int]] = {}
    for cores, cycle in last_arrivals:
        expected[cycle + LATENCY] = expected.get(cycle + LATENCY, set()) | cores
    assert bench.released == [(expected[cycle], cycle) for cycle in sorted(expected)]
    assert len(last_arrivals) == len(groups)
    assert not bench.lost


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(end_first=[-3, -1, 0, 1, 3])
async def who_waits_for_one_that_has_ended_is_told(dut, end_first: int) -> None:
    """Of an end before, in the cycle of, and after the arrival."""
    bench = Bench(dut)
    await bench.start()
    both, begin = 0b11, 10
    while bench.cycle < begin + 20:
        dut.ended_1.value = int(bench.cycle >= begin - end_first)
        await bench.step(**({"core_0": both} if bench.cycle == begin else {}))
    assert bench.lost == [({0}, begin + LATENCY + max(0, -end_first))]
    # It waits no more, and its next meeting is a new one.
    dut.ended_1.value = 0
    await bench.step()
    await bench.step(core_1=both)
    for _ in range(5):
        await bench.step()
    assert not bench.released
    await bench.step(core_0=both)
    for _ in range(5):
        await bench.step()
    assert [cores for cores, _ in bench.released] == [{0, 1}]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def an_end_concerns_its_groups_alone(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    if len(bench.cores) < 4:
        return
    dut.ended_3.value = 1
    await bench.step(core_0=0b0111, core_1=0b0111)
    for _ in range(10):
        await bench.step()
    await bench.step(core_2=0b0111)
    for _ in range(5):
        await bench.step()
    assert [cores for cores, _ in bench.released] == [{0, 1, 2}]
    assert not bench.lost
