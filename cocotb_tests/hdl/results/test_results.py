# amaranth: UnusedElaboratable=no
"""Results: every group with accumulators, parameters and place, in the order and where the windows have it."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.compute_bench import payload, random_scenario
from cocotb_tests.support.benches.groups import group_lanes, groups_of, has_wide_results
from cocotb_tests.support.benches.streams import send, unpack
from cocotb_tests.support.networks.butterflies import CHAIN_CONFIGS
from cocotb_tests.support.tiers import sweep
from lutterfly.golden import isa
from lutterfly.golden.config_parts import ArrayConfig
from lutterfly.golden.engines import FPC, MAC, SPECIFICATIONS, XNOR
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.numerics import windows
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import RESULT_WINDOWS, backlog_limit, result_windows, window_results
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.engines.engine import has_whole_epilogue
from lutterfly.hdl.parts.isa import ErrorReport, command_shape
from lutterfly.hdl.results.group_walk import GroupTarget, settings_layout
from lutterfly.hdl.results.results import RESULTS_LATENCY, Results

SHAPE = command_shape(isa.COMPUTE)


CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "ecp5-85k")},
    "tiny, packing": dataclasses.replace(PRESETS["tiny"], engines=PRESETS["tiny"].engines.having(FPC, FpcConfig(2))),
    "four groups a piece": dataclasses.replace(PRESETS["tiny"], array=ArrayConfig(4, 4, 1)),
    "chains, packing": dataclasses.replace(
        CHAIN_CONFIGS["chains"], engines=CHAIN_CONFIGS["chains"].engines.having(XNOR, XNOR.configuration())
    ),
}


@pytest.mark.parametrize("name", sweep(CONFIGS, kept=("chains, packing",)))
def test_results(simulate, name: str) -> None:
    simulate(Results(CONFIGS[name]), env={"CONFIG": name})


def test_bursts_must_be_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    Results(PRESETS["ecp5-85k"])
    monkeypatch.setattr(COMPONENTS[FPC], "is_narrow", False)
    with pytest.raises(ValueError, match="FPC must have narrow results: it has bursts, or a whole epilogue"):
        Results(PRESETS["ecp5-85k"])


class Bench:
    """Feeds windows as fast as the issue stage would, and keeps the groups that come out."""

    def __init__(self, dut):
        self.dut = dut
        self.config = CONFIGS[os.environ["CONFIG"]]
        self.lanes, self.width = self.config.array.lanes, self.config.array.requant_lanes
        self.has_whole = has_whole_epilogue(self.config)
        self.rng = np.random.default_rng(8)
        self.groups: list[tuple] = []
        self.errors: list[dict[str, int]] = []
        self.backlog = 0

    async def start(self) -> None:
        await start(self.dut, {"context__valid": 0, "result": 0, "halt": 0, "parameter_write__en": 0})
        words = self.config.parameter_words * self.width
        self.parameters = self.rng.integers(0, 2**64, words, dtype=np.uint64)
        for address in range(90 * self.width):
            await cycle(
                self.dut,
                {
                    "parameter_write__en": 1,
                    "parameter_write__addr": address,
                    "parameter_write__data": int(self.parameters[address]),
                },
            )
        self.dut.parameter_write__en.value = 0

    async def step(self, inputs: dict[str, int], work: int = 0) -> None:
        """One cycle; ``work``: groups of the result that comes in."""
        names = ("place", "settings", "accumulators", "parameters", "error", *(["values"] * self.has_whole))
        place, settings, accumulators, parameters, error, *whole = await cycle(self.dut, inputs, *names)
        # As the gate counts: what comes in cannot be worked off in the same cycle.
        self.backlog = max(self.backlog - 1, 0) + work
        place = unpack(place, GroupTarget)
        if place["valid"]:
            if place["is_whole"]:
                values = np.frombuffer(whole[0].to_bytes(2 * self.lanes, "little"), np.int16)
            else:
                values = np.frombuffer(accumulators.to_bytes(4 * self.width, "little"), np.int32)
            words = np.frombuffer(parameters.to_bytes(8 * self.width, "little"), np.uint64)
            place["bit"] *= place["packed"]
            self.groups.append((place, unpack(settings, settings_layout(self.config)), list(values), list(words)))
        if error & 1:
            self.errors.append(unpack(error, ErrorReport))

    async def feed(self, command: dict[str, int], results: np.ndarray) -> None:
        """The results of all windows of a command, int32[windows, results, lanes]: those of a window in a row."""
        tiles = windows.lane_counts(command)
        shape = [command[name] for name in ("outer", "middle", "inner")]
        limit = backlog_limit(self.config, command["engine"])
        several = len(SPECIFICATIONS[command["engine"]].issue.result_offsets(command))
        for number, window in enumerate(results):
            while self.backlog > limit or self.rng.random() < 0.2:
                await self.step({"result": 0})
            count = int(tiles[np.unravel_index(number, shape)[windows.tile_axis(command)]])
            work = several * -(-count // group_lanes(command, self.config))
            for result in window[: max(-(-count // self.lanes), several)]:
                await self.step({"result": self.pack(result, is_wide=has_wide_results(command))}, work)
                work = 0
        self.dut.result.value = 0

    def pack(self, lanes: np.ndarray, *, is_wide: bool) -> int:
        """A result, with whatever there is in the high bits of a narrow one."""
        low = int.from_bytes(lanes.astype(np.int16).tobytes(), "little")
        high = int.from_bytes((lanes >> 16).astype(np.int16).tobytes(), "little")
        return (high << 16 * self.lanes | low) << 2 | is_wide << 1 | 1

    def expected(self, number: int, command: dict[str, int], results: np.ndarray) -> list[tuple]:
        groups = []
        for group in groups_of(number, command, self.config):
            first = group.result * self.lanes + group.lane
            values = results[group.window].reshape(-1)[first : first + group.lanes]
            if not has_wide_results(command):
                values = values.astype(np.int16).astype(np.int32)
            words = self.parameters[group.word * self.width :][: self.width]
            groups.append((group.place, group.settings, list(values), list(words)))
        return groups


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.9])
async def every_group(dut, p_stall: float) -> None:
    bench = Bench(dut)
    commands = random_scenario(bench.config, bench.rng, 30).commands
    await bench.start()
    contexts = [{"index": number, **command} for number, command in enumerate(commands)]
    cocotb.start_soon(
        send(
            dut.clk,
            dut,
            "context",
            [payload(context) for context in contexts],
            np.random.default_rng(9),
            p_stall,
            shape=SHAPE,
        )
    )
    expected = []
    for number, command in enumerate(commands):
        count = command["outer"] * command["middle"] * command["inner"]
        most = window_results(bench.config, command["engine"])
        results = bench.rng.integers(-(2**31), 2**31, (count, most, bench.lanes), dtype=np.int32)
        expected += bench.expected(number, command, results)
        # The issue stage sends the context before the command's first step: no result comes without its context.
        for _ in range(20):
            await bench.step({"result": 0})
        await bench.feed(command, results)
    for _ in range(30):
        await bench.step({"result": 0})
    assert len(bench.groups) == len(expected)
    for got, wanted in zip(bench.groups, expected, strict=True):
        assert got == wanted
    assert not bench.errors


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_reset_within_packed_results_leaves_nothing_of_them(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    command = dict.fromkeys((field.name for field in MAC.format.fields[4:]), 0)
    # More windows than groups are counted ahead of their results.
    command |= {"after": 0, "outer": 1, "middle": 1, "inner": 40, "lanes": 2, "last_lanes": 2, "packed": 1}
    results = np.zeros((40, 1, bench.lanes), np.int32)
    wanted = bench.expected(0, command, results)
    for count in range(1, 9):
        cocotb.start_soon(
            send(dut.clk, dut, "context", [{"index": 0, **payload(command)}], bench.rng, 0.0, shape=SHAPE)
        )
        for _ in range(30):
            await bench.step({"result": 0})
        await bench.feed(command, results[:count])
        for _ in range(30):
            await bench.step({"result": 0})
        assert bench.groups == wanted[: count * len(wanted) // 40]
        await bench.step({"rst": 1, "result": 0})
        await bench.step({"rst": 0, "result": 0})
        bench.groups.clear()
        bench.backlog = 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def latency_and_range(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    command = dict.fromkeys((field.name for field in MAC.format.fields[4:]), 0)
    command |= {
        "after": 0,
        "outer": 1,
        "middle": 1,
        "inner": 1,
        "lanes": 1,
        "last_lanes": 1,
        "parameter": bench.config.parameter_words,
    }
    cocotb.start_soon(send(dut.clk, dut, "context", [{"index": 7, **payload(command)}], bench.rng, 0.0, shape=SHAPE))
    for _ in range(14):
        await bench.step({"result": 0})
    await bench.step({"result": bench.pack(np.zeros(bench.lanes, np.int32), is_wide=True)})
    for _ in range(RESULTS_LATENCY - 1):
        await bench.step({"result": 0})
    assert not bench.groups
    await bench.step({"result": 0})
    assert len(bench.groups) == 1
    assert bench.errors[0] == {
        "valid": 1,
        "code": int(ErrorCode.ADDRESS_RANGE),
        "unit": int(Unit.WRITE_BACK),
        "index": 7,
        "address": bench.config.parameter_words,
    }


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(is_wide=[False, True])
async def a_result_that_finds_no_place_is_an_error(dut, is_wide: bool) -> None:
    bench = Bench(dut)
    await bench.start()
    result = bench.pack(np.zeros(bench.lanes, np.int32), is_wide=is_wide)
    # Without a command nothing is served.
    for _ in range(RESULT_WINDOWS if is_wide else result_windows(bench.config)):
        await bench.step({"result": result})
    for _ in range(4):
        await bench.step({"result": 0})
    assert not bench.errors
    await bench.step({"result": result})
    for _ in range(4):
        await bench.step({"result": 0})
    assert [(error["code"], error["unit"]) for error in bench.errors] == [(ErrorCode.OVERFLOW, Unit.WRITE_BACK)]
