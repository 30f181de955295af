# amaranth: UnusedElaboratable=no
"""Supervisor: how a run ends, which error counts, whom the watchdog names, and the counters."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.control.registers import core_read_layout
from lutterfly.hdl.control.supervisor import QueueStatus, Supervisor, error_sources, events_layout


def config_of(cores: int) -> Config:
    return dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=cores))


CONFIG = config_of(int(os.environ.get("CORES", "1")))
SOURCES = error_sources(CONFIG)
QUIET = dict.fromkeys(
    (
        *("start", "clear_interrupt", "dma_done", "compute_done", "fetching", "dma_tokens_left", "compute_tokens_left"),
        *("dma_standing", "compute_standing", "events", "errors"),
    ),
    0,
) | {"watchdog": 0, "progress": 1}
ERRORS = Supervisor(CONFIG).errors.shape()


@pytest.mark.parametrize("cores", [1, 2])
def test_supervisor(simulate, cores: int) -> None:
    simulate(Supervisor(config_of(cores)), env={"CORES": str(cores)})


def test_to_be_stopped_says_least() -> None:
    """An error of a core's own in the same cycle counts instead."""
    assert error_sources(config_of(2))[-1] == "cluster"
    assert "cluster" not in error_sources(config_of(1))


def _read(dut, name: str) -> int:
    return int(core_read_layout(CONFIG).from_bits(int(dut.read.value))[name])


def _error(dut) -> tuple[ErrorCode, Unit, int, int]:
    word = _read(dut, "ERROR")
    return ErrorCode(word & 0xFF), Unit(word >> 8 & 0xFF), word >> 16, _read(dut, "ERROR_ADDRESS")


async def _pulse(dut, name: str, value: int = 1) -> None:
    signal = getattr(dut, name)
    signal.value = value
    await RisingEdge(dut.clk)
    signal.value = 0


async def _cycles(dut, count: int) -> None:
    for _ in range(count):
        await RisingEdge(dut.clk)


async def _running(dut, **inputs: int) -> None:
    """A run has just begun."""
    await start(dut, QUIET | inputs)
    await _pulse(dut, "start")
    await FallingEdge(dut.clk)
    assert dut.begin.value == 1
    assert _read(dut, "STATUS") == registers.STATUS_BUSY
    await RisingEdge(dut.clk)


def _report(**fields: int) -> dict[str, int]:
    return {"valid": 1, "code": ErrorCode.AXI_SLAVE, "unit": Unit.LOAD, "index": 0, "address": 0} | fields


@cocotb.test(timeout_time=100, timeout_unit="us")
async def ends_when_all_is_done(dut) -> None:
    await _running(dut)
    for name, value in (("dma_done", 1), ("fetching", 1), ("compute_done", 1)):
        getattr(dut, name).value = value
        await _cycles(dut, 5)
        assert _read(dut, "STATUS") == registers.STATUS_BUSY
    dut.fetching.value = 0
    await _cycles(dut, 4)
    assert _read(dut, "STATUS") == registers.STATUS_DONE
    assert _read(dut, "INTERRUPT") == 1
    # The queues look done until the run has begun.
    await _pulse(dut, "start")
    await _cycles(dut, 1)
    dut.dma_done.value = 0
    await _pulse(dut, "clear_interrupt")
    await _cycles(dut, 5)
    assert _read(dut, "STATUS") == registers.STATUS_BUSY
    assert _read(dut, "INTERRUPT") == 0


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(source=SOURCES)
async def first_error_counts(dut, source: str) -> None:
    """Of several at once the first of the sources; later ones change nothing."""
    await _running(dut)
    position = SOURCES.index(source)
    first = {name: _report(index=100 + at, address=at) for at, name in enumerate(SOURCES) if at >= position}
    await _pulse(dut, "errors", ERRORS.const(first).as_bits())
    await _pulse(dut, "errors", ERRORS.const({SOURCES[0]: _report(index=7)}).as_bits())
    await _cycles(dut, 2)
    assert _error(dut) == (ErrorCode.AXI_SLAVE, Unit.LOAD, 100 + position, position)
    assert _read(dut, "STATUS") == registers.STATUS_ERROR
    assert _read(dut, "INTERRUPT") == 1
    assert dut.halt.value == 1
    dut.dma_done.value = dut.compute_done.value = 1
    await _pulse(dut, "start")
    await _cycles(dut, 5)
    assert _read(dut, "STATUS") == registers.STATUS_ERROR


@cocotb.test(timeout_time=100, timeout_unit="us")
async def error_in_the_last_cycle_counts(dut) -> None:
    await _running(dut)
    dut.dma_done.value = dut.compute_done.value = 1
    await _pulse(dut, "errors", ERRORS.const({"store": _report(unit=Unit.STORE)}).as_bits())
    await _cycles(dut, 3)
    assert _read(dut, "STATUS") == registers.STATUS_ERROR
    assert _error(dut)[:2] == (ErrorCode.AXI_SLAVE, Unit.STORE)


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(side=["dma", "compute"])
async def tokens_left(dut, side: str) -> None:
    await _running(dut)
    getattr(dut, f"{side}_tokens_left").value = 1
    getattr(dut, f"{side}_standing").value = QueueStatus.const({"index": 12}).as_bits()
    await _cycles(dut, 5)
    dut.dma_done.value = dut.compute_done.value = 1
    await _cycles(dut, 4)
    assert _error(dut) == (ErrorCode.TOKENS_LEFT, Unit[f"{side.upper()}_QUEUE"], 12, 0)
    assert _read(dut, "STATUS") == registers.STATUS_ERROR


WORKS = {"in_flight": 1, "unit": Unit.STORE, "oldest": 5, "index": 6}
COMPUTES = {"in_flight": 1, "unit": Unit.FETCH, "oldest": 15, "index": 16}
MISSES, WAITS = {"missing": 1, "index": 21}, {"waiting": 1, "index": 31}
STUCK = [
    (WORKS | MISSES, COMPUTES | WAITS, (Unit.STORE, 5)),
    (WAITS, COMPUTES, (Unit.FETCH, 15)),
    (MISSES, WAITS, (Unit.PREFETCH, 21)),
    (WAITS, MISSES | {"index": 22}, (Unit.PREFETCH, 22)),
    (WAITS, WAITS | {"index": 32}, (Unit.COMPUTE_QUEUE, 32)),
    (WAITS, {}, (Unit.DMA_QUEUE, 31)),
]


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(case=range(len(STUCK)))
async def watchdog_names_who_is_stuck(dut, case: int) -> None:
    dma, compute, expected = STUCK[case]
    await _running(dut, watchdog=50)
    dut.dma_standing.value = QueueStatus.const(dma).as_bits()
    dut.compute_standing.value = QueueStatus.const(compute).as_bits()
    # Any progress starts it again.
    for _ in range(4):
        dut.progress.value = 0
        await _cycles(dut, 45)
        await _pulse(dut, "progress")
        assert _read(dut, "STATUS") == registers.STATUS_BUSY
    await _cycles(dut, 45)
    assert _read(dut, "STATUS") == registers.STATUS_BUSY
    await _cycles(dut, 13)
    assert _error(dut) == (ErrorCode.WATCHDOG, *expected, 0)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def watchdog_of_zero_is_off(dut) -> None:
    await _running(dut, progress=0)
    await _cycles(dut, 2000)
    assert _read(dut, "STATUS") == registers.STATUS_BUSY


@cocotb.test(timeout_time=100, timeout_unit="us")
async def watchdog_sleeps_between_runs(dut) -> None:
    await start(dut, QUIET | {"watchdog": 20, "progress": 0})
    await _cycles(dut, 100)
    assert _read(dut, "STATUS") == 0
    await _pulse(dut, "start")
    await _cycles(dut, 15)
    assert _read(dut, "STATUS") == registers.STATUS_BUSY


@cocotb.test(timeout_time=100, timeout_unit="us")
async def counters(dut) -> None:
    rng = np.random.default_rng(1)
    await _running(dut)
    names = list(events_layout(CONFIG).members)
    expected = dict.fromkeys(names, 0)
    for _ in range(200):
        events = {name: int(rng.integers(2)) for name in names}
        expected = {name: expected[name] + events[name] for name in names}
        dut.events.value = events_layout(CONFIG).const(events).as_bits()
        await RisingEdge(dut.clk)
    dut.events.value = 0
    dut.dma_done.value = dut.compute_done.value = 1
    await _cycles(dut, 5)
    assert {name: _read(dut, name.upper()) for name in names} == expected
    # The events, a cycle before and three behind them.
    assert _read(dut, "CYCLES") == 200 + 4
    # The next run begins at zero; one of its cycles has passed when that shows.
    await _pulse(dut, "start")
    await _cycles(dut, 1)
    await FallingEdge(dut.clk)
    assert {name: _read(dut, name.upper()) for name in (*names, "CYCLES")} == dict.fromkeys(names, 0) | {"CYCLES": 1}
