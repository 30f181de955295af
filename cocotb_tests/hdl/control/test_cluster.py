# amaranth: UnusedElaboratable=no
"""Cluster alone: one start and one interrupt for all cores, and whose error counts."""

from __future__ import annotations

import os

import cocotb
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.tiers import sweep
from lutterfly.golden import registers
from lutterfly.hdl.control.barrier import Cluster

BUSY, DONE, ERROR = registers.STATUS_BUSY, registers.STATUS_DONE, registers.STATUS_ERROR
OUTPUTS = ("begin", "stop", "error_core", "status", "pending")


@pytest.mark.parametrize("cores", sweep([2, 4], kept=[4]))
def test_cluster(simulate, cores: int) -> None:
    simulate(Cluster(cores), env={"CORES": str(cores)})


def test_one_core_needs_none() -> None:
    with pytest.raises(ValueError, match=r"^cores must be at least 2, not 1$"):
        Cluster(1)


class Bench:
    """The cluster, with the status of each core."""

    def __init__(self, dut):
        self.dut = dut
        self.cores = range(int(os.environ["CORES"]))

    async def start(self) -> None:
        await start(self.dut, {"start": 0, "clear_interrupt": 0} | {f"status_{core}": 0 for core in self.cores})

    async def step(self, *statuses: int, **inputs: int) -> dict[str, int]:
        """One cycle; without statuses all cores keep theirs, and the last one given is that of the others too."""
        for core in self.cores if statuses else ():
            inputs[f"status_{core}"] = statuses[min(core, len(statuses) - 1)]
        values = await cycle(self.dut, inputs, *OUTPUTS)
        for name in ("start", "clear_interrupt"):
            getattr(self.dut, name).value = 0
        return dict(zip(OUTPUTS, values, strict=True))


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_start_is_for_all_or_for_none(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    last = bench.cores[-1]
    for statuses, begins in (
        ([0] * len(bench.cores), 1),
        ([DONE] * len(bench.cores), 1),
        *(([DONE] * last + [status], 0) for status in (BUSY, ERROR)),
        *(([status] + [DONE] * last, 0) for status in (BUSY, ERROR)),
    ):
        await bench.step(*statuses)
        assert (await bench.step(*statuses, start=1))["begin"] == 0
        assert (await bench.step())["begin"] == begins
        assert (await bench.step())["begin"] == 0


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_run_ends_with_its_last_core(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    for _ in range(2):
        found = await bench.step(BUSY)
        assert (found["status"], found["pending"]) == (BUSY, 0)
        found = await bench.step(DONE, BUSY)
        assert (found["status"], found["pending"]) == (BUSY, 0)
        # While one is busy, what software clears is not this run's.
        await bench.step(clear_interrupt=1)
        assert (await bench.step())["pending"] == 0
        assert (await bench.step(DONE))["status"] == DONE
        assert (await bench.step())["pending"] == 1
        await bench.step(clear_interrupt=1)
        for _ in range(5):
            found = await bench.step()
            assert (found["pending"], found["status"], found["stop"]) == (0, DONE, 0)


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(others=[BUSY, DONE])
async def an_error_of_one_stops_all(dut, others: int) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.step(BUSY)
    found = await bench.step(others, ERROR, others)
    assert found["status"] == ERROR | (others & BUSY)
    found = await bench.step()
    assert (found["stop"], found["error_core"], found["pending"]) == (1, 1, 0)
    # The others report that they are stopped.
    await bench.step(ERROR)
    found = await bench.step()
    assert found == {"begin": 0, "stop": 1, "error_core": 1, "status": ERROR, "pending": 1}
    await bench.step(clear_interrupt=1)
    for _ in range(5):
        assert (await bench.step(start=1))["pending"] == 0
    assert (await bench.step())["begin"] == 0


@cocotb.test(timeout_time=100, timeout_unit="us")
async def of_several_errors_in_a_cycle_the_lowest_core_counts(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.step(BUSY)
    await bench.step(BUSY, ERROR)
    await bench.step(ERROR)
    assert (await bench.step())["error_core"] == 1


@cocotb.test(timeout_time=100, timeout_unit="us")
async def an_error_after_the_end_is_an_end_of_its_own(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.step(BUSY)
    await bench.step(DONE)
    await bench.step(clear_interrupt=1)
    await bench.step(DONE, ERROR, DONE)
    assert (await bench.step())["pending"] == 0
    await bench.step(ERROR)
    assert (await bench.step())["pending"] == 1
