# amaranth: UnusedElaboratable=no
"""Results: every group with accumulators, parameters and place, in the order and at the addresses of golden.windows."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from clocking import cycle, start
from random_commands import random_scenario

from lutterfly.golden import isa, windows
from lutterfly.golden.config import PRESETS
from lutterfly.golden.isa import ErrorCode, Unit
from lutterfly.golden.timing import BACKLOG_LIMIT, RESULT_WINDOWS
from lutterfly.hdl.compute.results import RESULTS_LATENCY, Place, Results, settings_layout
from lutterfly.hdl.parts.isa import ErrorReport, command_shape
from streams import send, unpack

SHAPE = command_shape(isa.COMPUTE)
SETTINGS = ("zero_point", "low", "high", "table_enable", "table")


@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_results(simulate, preset: str) -> None:
    simulate(Results(PRESETS[preset]), env={"PRESET": preset})


class Bench:
    """Feeds windows as fast as the issue stage would, and keeps the groups that come out."""

    def __init__(self, dut):
        self.dut = dut
        self.config = PRESETS[os.environ["PRESET"]]
        self.lanes, self.width = self.config.array.lanes, self.config.array.requant_lanes
        self.rng = np.random.default_rng(8)
        self.groups: list[tuple] = []
        self.errors: list[dict[str, int]] = []
        self.backlog = 0

    async def start(self) -> None:
        await start(self.dut, {"context__valid": 0, "result": 0, "halt": 0, "parameter_write__en": 0})
        words = self.config.parameter_words * self.width
        self.parameters = self.rng.integers(0, 2**64, words, dtype=np.uint64)
        for address in range(80 * self.width):
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
        place, settings, accumulators, parameters, error = await cycle(
            self.dut, inputs, "place", "settings", "accumulators", "parameters", "error"
        )
        # As the gate counts: what comes in cannot be worked off in the same cycle.
        self.backlog = max(self.backlog - 1, 0) + work
        place = unpack(place, Place)
        if place["valid"]:
            values = np.frombuffer(accumulators.to_bytes(4 * self.width, "little"), np.int32)
            words = np.frombuffer(parameters.to_bytes(8 * self.width, "little"), np.uint64)
            self.groups.append((place, unpack(settings, settings_layout(self.config)), list(values), list(words)))
        if error & 1:
            self.errors.append(unpack(error, ErrorReport))

    async def feed(self, command: dict[str, int], results: np.ndarray) -> None:
        """The results of all windows of a command, int32[windows, lanes]."""
        tiles = windows.lane_counts(command)
        shape = [command[name] for name in ("outer", "middle", "inner")]
        for number, result in enumerate(results):
            while self.backlog > BACKLOG_LIMIT or self.rng.random() < 0.2:
                await self.step({"result": 0})
            tile = np.unravel_index(number, shape)[windows.tile_axis(command)]
            work = -(-int(tiles[tile]) // self.width)
            await self.step({"result": int.from_bytes(result.tobytes(), "little") << 1 | 1}, work)
        self.dut.result.value = 0

    def expected(self, number: int, command: dict[str, int], results: np.ndarray) -> list[tuple]:
        columns = self.config.array.columns
        destinations, tiles = windows.loop_addresses(command, "destination"), windows.lane_counts(command)
        per_tile = -(-command["lanes"] // self.width)
        groups = []
        for window, position in enumerate(np.ndindex(*destinations.shape)):
            tile = position[windows.tile_axis(command)]
            count = int(tiles[tile])
            for group, lane in enumerate(range(0, count, self.width)):
                piece = lane // columns * columns
                is_last = lane + self.width >= count
                word = command["parameter"] + (0 if command["parameter_shared"] else tile * per_tile + group)
                place = {
                    "valid": 1,
                    "write": int(is_last or (lane + self.width) % columns == 0),
                    "is_direct": 0,
                    "finish": int(is_last and window == destinations.size - 1),
                    "slot": lane % columns // self.width,
                    "address": int(destinations[position]) + piece,
                    "count": min(columns, count - piece),
                    "index": number,
                }
                settings = {name: command[name] for name in SETTINGS}
                settings["fields"] = {"add_table": command["add_table"]}
                settings["is_add"] = int(command["engine"] == isa.Engine.ADD)
                groups.append(
                    (
                        place,
                        settings,
                        list(results[window, lane : lane + self.width]),
                        list(self.parameters[word * self.width :][: self.width]),
                    )
                )
        return groups


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.9])
async def every_group(dut, p_stall: float) -> None:
    bench = Bench(dut)
    commands = random_scenario(bench.config, bench.rng, 30).commands
    await bench.start()
    contexts = [{"index": number, **command} for number, command in enumerate(commands)]
    cocotb.start_soon(send(dut.clk, dut, "context", contexts, np.random.default_rng(9), p_stall, shape=SHAPE))
    expected = []
    for number, command in enumerate(commands):
        count = command["outer"] * command["middle"] * command["inner"]
        results = bench.rng.integers(-(2**31), 2**31, (count, bench.lanes), dtype=np.int32)
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
async def latency_and_range(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    command = dict.fromkeys((field.name for field in isa.COMPUTE.fields[4:]), 0)
    command |= {
        "after": 0,
        "outer": 1,
        "middle": 1,
        "inner": 1,
        "lanes": 1,
        "last_lanes": 1,
        "parameter": bench.config.parameter_words,
    }
    cocotb.start_soon(send(dut.clk, dut, "context", [{"index": 7, **command}], bench.rng, 0.0, shape=SHAPE))
    for _ in range(14):
        await bench.step({"result": 0})
    await bench.step({"result": 1})
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
async def a_result_that_finds_no_place_is_an_error(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    # Without a command nothing is served.
    for _ in range(RESULT_WINDOWS):
        await bench.step({"result": 1})
    for _ in range(4):
        await bench.step({"result": 0})
    assert not bench.errors
    await bench.step({"result": 1})
    for _ in range(4):
        await bench.step({"result": 0})
    assert [(error["code"], error["unit"]) for error in bench.errors] == [(ErrorCode.OVERFLOW, Unit.WRITE_BACK)]
