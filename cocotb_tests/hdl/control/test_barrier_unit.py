# amaranth: UnusedElaboratable=no
"""BARRIER's unit: arrival, completion, refusals, and whose progress counts while it waits."""

from __future__ import annotations

import dataclasses

import cocotb
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.golden import isa
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.control.barrier import BarrierUnit
from lutterfly.hdl.parts.isa import ErrorReport, command_shape

CONFIG = dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=4))
CORE = 2
INPUTS = dict.fromkeys(
    ("command__valid", "command__payload", "release", "lost", "peers_progress", "halt"),
    0,
)


def test_unit(simulate) -> None:
    simulate(BarrierUnit(CONFIG, CORE))


@pytest.mark.parametrize(
    ("config", "core", "message"),
    [
        (CONFIG, 4, "core must be between 0 and 3, not 4"),
        (CONFIG, -1, "core must be between 0 and 3, not -1"),
        (PRESETS["tiny"], 0, "cores must be at least 2, not 1"),
    ],
)
def test_parameters(config, core: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        BarrierUnit(config, core)


def _command(group: int, index: int) -> int:
    return command_shape(isa.BARRIER).const({"group": group, "index": index}).as_bits()


async def _offer(dut, group: int, index: int = 7) -> None:
    """Hand over a command, which is taken at once."""
    dut.command__payload.value = _command(group, index)
    ((ready,)) = await cycle(dut, {"command__valid": 1}, "command__ready")
    assert ready == 1
    dut.command__valid.value = 0


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(group=[0b0100, 0b1100, 0b1111, 0b0101])
async def arrives_once_and_completes_with_its_release(dut, group: int) -> None:
    await start(dut, INPUTS)
    for _ in range(3):
        await _offer(dut, group)
        assert await cycle(dut, {}, "arrive__valid", "arrive__payload", "waiting", "done") == [1, group, 1, 0]
        for _ in range(20):
            # It takes no other command meanwhile.
            values = await cycle(
                dut, {"command__valid": 1}, "arrive__valid", "waiting", "done", "command__ready", "progress"
            )
            assert values[:4] == [0, 1, 0, 0]
        assert values[4] == 0
        assert await cycle(dut, {"command__valid": 0, "release": 1}, "waiting", "done") == [1, 0]
        assert await cycle(dut, {"release": 0}, "waiting", "done", "progress") == [0, 1, 1]
        assert await cycle(dut, {}, "waiting", "done", "arrive__valid") == [0, 0, 0]
    assert ErrorReport.from_bits(int(dut.error.value)).valid == 0


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(group=[0, 0b1011, 0b10100, 0b10000000, 0b11111111])
async def groups_without_the_core_or_with_none_are_refused(dut, group: int) -> None:
    await start(dut, INPUTS)
    await _offer(dut, group, index=300)
    reports = []
    for _ in range(10):
        error, arrives, waiting, done = await cycle(dut, {}, "error", "arrive__valid", "waiting", "done")
        assert [arrives, waiting, done] == [0, 0, 0]
        report = ErrorReport.from_bits(error)
        if report.valid:
            reports.append((ErrorCode(report.code), Unit(report.unit), report.index, report.address))
    assert reports == [(ErrorCode.ILLEGAL_FIELD, Unit.BARRIER, 300, 0)]
    # Until the reset it does nothing more.
    assert await cycle(dut, {"command__valid": 1}, "command__ready") == [0]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def one_that_never_comes_is_an_error(dut) -> None:
    await start(dut, INPUTS)
    await _offer(dut, 0b0110, index=9)
    await cycle(dut, {})
    await cycle(dut, {"lost": 1})
    error, waiting, done = await cycle(dut, {"lost": 0}, "error", "waiting", "done")
    report = ErrorReport.from_bits(error)
    assert (report.valid, report.code, report.unit, report.index) == (1, ErrorCode.BARRIER, Unit.BARRIER, 9)
    assert [waiting, done] == [0, 0]
    assert ErrorReport.from_bits((await cycle(dut, {}, "error"))[0]).valid == 0


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_halt_lets_nothing_begin(dut) -> None:
    await start(dut, INPUTS | {"halt": 1})
    dut.command__payload.value = _command(0b1100, 0)
    for _ in range(5):
        assert await cycle(dut, {"command__valid": 1}, "command__ready", "arrive__valid") == [0, 0]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def progress_of_others_is_its_own_while_it_waits(dut) -> None:
    await start(dut, INPUTS)
    await cycle(dut, {"peers_progress": 1})
    for _ in range(3):
        assert await cycle(dut, {"peers_progress": 0}, "progress") == [0]
    await cycle(dut, {}, "progress")
    await _offer(dut, 0b1100)
    # Its own command, and what it has seen of the others.
    moves = [(await cycle(dut, {"peers_progress": 0}, "progress"))[0] for _ in range(20)]
    assert moves[0] == 1
    assert not any(moves[10:])
    for peers in (1, 5):
        for _ in range(peers):
            await cycle(dut, {"peers_progress": 1})
        moves = [(await cycle(dut, {"peers_progress": 0}, "progress"))[0] for _ in range(20)]
        # Eight cycles longer than theirs.
        assert moves == [int(peers > 1), *[1] * 8, *[0] * 11]
