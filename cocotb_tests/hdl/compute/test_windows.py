# amaranth: UnusedElaboratable=no
"""Issue: addresses against golden.numerics.windows, windows held back for the FIFO, turnaround to the cycle, errors."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.compute_bench import Scenario, payload, random_scenario
from cocotb_tests.support.benches.streams import pack, send, unpack
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, BINARY_MAXIMUM, DEPTHWISE, FPC, MAC, MAXIMUM, MULTIPLY, SPECIFICATIONS, XNOR
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.numerics import windows
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import result_windows
from lutterfly.golden.timing.overheads import OVERHEADS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.compute.windows import ISSUE_LATENCY, Windows
from lutterfly.hdl.engines.engine import step_layout
from lutterfly.hdl.parts.isa import ErrorReport, command_shape

LANDING = {
    MAC: 21,
    MAXIMUM: 9,
    DEPTHWISE: 14,
    XNOR: 21,
    FPC: 70,
    ADD: 9,
    BINARY_MAXIMUM: 9,
    MULTIPLY: 13,
}
SHAPE = command_shape(isa.COMPUTE)


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_windows(simulate, preset: str) -> None:
    simulate(Windows(PRESETS[preset], landing_latency=LANDING), env={"PRESET": preset})


class Bench:
    """Feeds commands, and keeps the cycle and content of every step."""

    def __init__(self, dut):
        self.dut = dut
        self.config: Config = PRESETS[os.environ["PRESET"]]
        self.step_layout = step_layout(self.config, self.config.engines)
        self.steps: list[tuple[int, int, dict[str, int], int]] = []
        self.reads: list[bool] = []
        self.first: list[int] = []
        self.last: list[int] = []
        self.errors: list[dict[str, int]] = []
        self.flags: list[tuple[int, int]] = []
        self.now = 0

    async def start(self, entries: np.ndarray) -> None:
        await start(self.dut, {"command__valid": 0, "context__ready": 1, "halt": 0, "list_write__en": 0})
        for address, entry in enumerate(entries):
            await cycle(self.dut, {"list_write__en": 1, "list_write__addr": address, "list_write__data": int(entry)})
        self.dut.list_write__en.value = 0
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        names = ("step", "address", "reads", "weight", "first", "last", "error", "issued", "stalled")
        while True:
            step, address, reads, weight, first, last, error, *flags = await cycle(self.dut, {}, *names)
            self.flags.append(tuple(flags))
            fields = unpack(step, self.step_layout)
            if fields["valid"]:
                self.steps.append((self.now, address, fields, weight))
                self.reads.append(bool(reads))
            if first:
                self.first.append(self.now)
            if last:
                self.last.append(self.now)
            if error & 1:
                self.errors.append(unpack(error, ErrorReport))
            self.now += 1

    async def run(self, commands: list[dict[str, int]], p_stall: float = 0.0) -> None:
        words = [{"index": number, **command} for number, command in enumerate(commands)]
        await send(
            self.dut.clk,
            self.dut,
            "command",
            [payload(word) for word in words],
            np.random.default_rng(0),
            p_stall,
            shape=SHAPE,
        )
        while len(self.last) < len(commands) and not self.errors:
            await cycle(self.dut, {})
        for _ in range(ISSUE_LATENCY + 1):
            await cycle(self.dut, {})


def entries_of(scenario: Scenario) -> np.ndarray:
    return scenario.memories[LocalMemory.LIST][: scenario.filled[LocalMemory.LIST]].view(np.uint32)


def results_of(command: dict[str, int], config: Config) -> list[list[int]]:
    """Of every window in order, the groups of each of its results."""
    tiles, lanes = windows.lane_counts(command), config.array.lanes
    width = SPECIFICATIONS[command["engine"]].epilogue_of(command).at_once(config)
    shape = [1, 1, 1]
    shape[windows.tile_axis(command)] = -1
    counts = np.broadcast_to(tiles.reshape(shape), [command[name] for name in ("outer", "middle", "inner")])
    several = len(SPECIFICATIONS[command["engine"]].issue.result_offsets(command))
    return [
        [-(-min(lanes, count - first) // width) for first in range(0, count, lanes)] * several
        for count in counts.reshape(-1).tolist()
    ]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.9])
async def every_step(dut, p_stall: float) -> None:
    bench, rng = Bench(dut), np.random.default_rng(6)
    scenario = random_scenario(bench.config, rng, 30)
    entries = entries_of(scenario)
    await bench.start(entries)
    await bench.run(scenario.commands, p_stall)
    assert not bench.errors

    addresses, flags, weights, reads = [], [], [], []
    for command in scenario.commands:
        bases = windows.loop_addresses(command, "source")
        offsets = windows.step_offsets(command, entries, feature_bytes=bench.config.memory.feature_bytes)
        starts = windows.in_issue_order(command, bases[..., None] + offsets, axis=2)
        addresses += list(starts.reshape(-1))
        steps, start = command["steps"], windows.sum_start(command, entries)
        engine = SPECIFICATIONS[command["engine"]]
        tile_words, read_steps = (
            engine.issue.tile_weight_words(command) or steps,
            engine.issue.steps_read(command, bench.config),
        )
        for *outside, inner in np.ndindex(*bases.shape):
            tile = (*outside, inner)[windows.tile_axis(command)]
            for step in range(command["skip"] if inner else 0, steps):
                word = max(step - (steps - tile_words), 0)
                weight = (command["weight"] + tile * tile_words + word) % bench.config.weight_words
                # What takes none may be given any.
                weights.append(weight if engine.issue.weight_words else None)
                flags.append((int(step == start), int(step == steps - 1)))
                reads.append(step < read_steps)
    assert [address for _, address, _, _ in bench.steps] == addresses
    assert [(step["clear"], step["fire"]) for _, _, step, _ in bench.steps] == flags
    given = [weight for _, _, _, weight in bench.steps]
    assert [found for found, wanted in zip(given, weights, strict=True) if wanted is not None] == [
        wanted for wanted in weights if wanted is not None
    ]
    assert bench.reads == reads

    # What stands after the issue, in its own words: a FIFO of results, and a requantiser that takes a group each
    # cycle. The results of a burst come from its first step on, those of another window from its last step on.
    begun = [now for now, _, step, _ in bench.steps if step["clear"]]
    fired = [now for now, _, step, _ in bench.steps if step["fire"]]
    bursts = [
        SPECIFICATIONS[command["engine"]].issue.is_burst
        for command in scenario.commands
        for _ in results_of(command, bench.config)
    ]
    results = [result for command in scenario.commands for result in results_of(command, bench.config)]
    free, leaves, depth = 0, list[int](), result_windows(bench.config)
    for first, last, is_burst, groups in zip(begun, fired, bursts, results, strict=True):
        for number, count in enumerate(groups):
            landed = (first if is_burst else last) + number
            free = max(free, landed) + count
            leaves.append(free)
            assert sum(left > landed for left in leaves) <= depth, "the result FIFO overflows"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_command_alone_stalls_until_its_first_step(dut) -> None:
    bench = Bench(dut)
    # More steps than lie between the walk and the issue.
    steps, walked = 2 * OVERHEADS.issue, OVERHEADS.issue - 1
    await bench.start(np.array([isa.LIST_CLEAR, *[0] * (steps - 2), isa.LIST_FIRE], np.uint32))
    command = dict.fromkeys((field.name for field in MAC.format.fields[4:]), 0)
    command |= dict.fromkeys(("outer", "middle", "inner", "lanes", "last_lanes"), 1) | {"steps": steps}
    await bench.run([command])
    (first,) = bench.first
    assert bench.flags[first - walked : first] == [(0, 1)] * walked
    assert bench.flags[first : first + steps] == [(1, 0)] * steps
    assert not any(stalled for _, stalled in bench.flags[first + steps :])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def no_gap_and_exact_turnaround(dut) -> None:
    bench = Bench(dut)
    limit = bench.config.array.columns
    entry = isa.LIST_CLEAR | isa.LIST_FIRE
    await bench.start(np.array([entry, isa.LIST_CLEAR, 0, 0, 0, 0, 0, isa.LIST_FIRE], np.uint32))
    steps = 7
    groups = -(-limit // bench.config.array.requant_lanes)
    base = dict.fromkeys((field.name for field in MAC.format.fields[4:]), 0)
    base |= {
        "after": 0,
        "outer": 1,
        "middle": 2,
        "inner": 3,
        "steps": steps,
        "list": 1,
        "lanes": limit,
        "last_lanes": limit,
    }
    # The third is dependent, the fourth changes the engine.
    commands = [
        base,
        base,
        base | {"after": 1},
        base | {"engine": int(MAXIMUM)},
        base | {"engine": int(MAXIMUM), "after": 1},
    ]
    await bench.run(commands)
    gaps = [first - last for first, last in zip(bench.first[1:], bench.last[:-1], strict=True)]
    # With at least as many steps as groups nothing waits for the requantiser.
    assert steps >= groups
    turnaround = {engine: latency + groups + 2 for engine, latency in LANDING.items()}
    assert gaps == [2, turnaround[MAC], turnaround[MAC], turnaround[MAXIMUM]]
    assert all(last - first == 2 * 3 * steps - 1 for first, last in zip(bench.first, bench.last, strict=True))
    # In every cycle of the turnarounds a command is here.
    assert all(issued != stalled for issued, stalled in bench.flags[bench.first[0] : bench.last[-1] + 1])
    assert sum(issued for issued, _ in bench.flags) == len(commands) * 2 * 3 * steps


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(
    (
        ("change", "code", "address"),
        [
            ({"outer": 0}, ErrorCode.ILLEGAL_FIELD, 0),
            ({"steps": 0}, ErrorCode.ILLEGAL_FIELD, 0),
            ({"last_lanes": 0}, ErrorCode.ILLEGAL_FIELD, 0),
            ({"lanes": 100, "last_lanes": 100}, ErrorCode.ILLEGAL_FIELD, 0),
            ({"last_lanes": 2, "lanes": 1}, ErrorCode.ILLEGAL_FIELD, 0),
            ({"list": 1020, "steps": 5}, ErrorCode.ILLEGAL_FIELD, 0),
            ({"table": 200}, ErrorCode.ILLEGAL_FIELD, 0),
            ({"source": 1 << 20}, ErrorCode.ADDRESS_RANGE, 1 << 20),
            ({"source": 5, "source_inner": -6}, ErrorCode.ADDRESS_RANGE, (1 << 24) - 1),
            ({"weight": 5000}, ErrorCode.ADDRESS_RANGE, 5000),
        ],
    )
)
async def refuses(dut, change: dict[str, int], code: ErrorCode, address: int) -> None:
    bench = Bench(dut)
    await bench.start(np.array([isa.LIST_CLEAR | isa.LIST_FIRE], np.uint32))
    good = dict.fromkeys((field.name for field in MAC.format.fields[4:]), 0)
    good |= {"after": 0, "outer": 1, "middle": 1, "inner": 2, "steps": 1, "lanes": 1, "last_lanes": 1}
    await bench.run([good, good | change])
    assert bench.errors[0] == {"valid": 1, "code": int(code), "unit": int(Unit.FETCH), "index": 1, "address": address}
    assert all(at < bench.config.memory.feature_bytes for _, at, _, _ in bench.steps)


#: The last legal and the first illegal value of a limit, in terms of the configuration, and the error of the latter.
EDGES = {
    "end of the list memory": lambda config: (
        {"list": config.memory.list_entries - 5, "steps": 5},
        {"list": config.memory.list_entries - 4, "steps": 5},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "weight words": lambda config: (
        {"weight": config.weight_words - 1},
        {"weight": config.weight_words},
        (ErrorCode.ADDRESS_RANGE, config.weight_words),
    ),
    "weight words of an engine without weights": lambda config: (
        {"engine": MAXIMUM, "weight": config.weight_words},
        {"weight": config.weight_words},
        (ErrorCode.ADDRESS_RANGE, config.weight_words),
    ),
    "feature bytes": lambda config: (
        {"source": config.memory.feature_bytes - 1},
        {"source": config.memory.feature_bytes},
        (ErrorCode.ADDRESS_RANGE, config.memory.feature_bytes),
    ),
    "rows that are left out and walked": lambda config: (
        {"engine": DEPTHWISE, "steps": 5, "rows": 2, "skip": 3},
        {"engine": DEPTHWISE, "steps": 5, "rows": 2, "skip": 4},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "lanes of the array": lambda config: (
        {"lanes": config.array.columns},
        {"lanes": config.array.columns + 1},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "lanes of the others": lambda config: (
        {"engine": MAXIMUM, "lanes": config.array.lanes},
        {"engine": MAXIMUM, "lanes": config.array.lanes + 1},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "lanes of the last tile": lambda config: (
        {"lanes": 2, "last_lanes": 2},
        {"lanes": 2, "last_lanes": 3},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "tables": lambda config: (
        {"table": config.memory.tables - 1},
        {"table": config.memory.tables},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "tables of an Add": lambda config: (
        {"engine": ADD, "steps": 2, "add_table": config.engines[ADD].tables - 1},
        {"engine": ADD, "steps": 2, "add_table": config.engines[ADD].tables},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "steps of an Add": lambda config: (
        {"engine": ADD, "steps": 2},
        {"engine": ADD, "steps": 3},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "rows of a depthwise window": lambda config: (
        {"engine": DEPTHWISE, "steps": 1, "rows": 1},
        {"engine": DEPTHWISE, "steps": 1, "rows": 0},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "loops of a depthwise tile": lambda config: (
        {"engine": DEPTHWISE, "steps": 1, "rows": 1},
        {"engine": DEPTHWISE, "steps": 1, "rows": 1, "tile_inner": 1},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
    "skip of the others": lambda config: ({}, {"skip": 1, "steps": 2}, (ErrorCode.ILLEGAL_FIELD, 0)),
    "skip of an Add": lambda config: (
        {"engine": ADD, "steps": 2},
        {"engine": ADD, "steps": 2, "skip": 1},
        (ErrorCode.ILLEGAL_FIELD, 0),
    ),
}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(edge=list(EDGES))
async def last_legal_and_first_illegal_value(dut, edge: str) -> None:
    bench = Bench(dut)
    await bench.start(np.array([isa.LIST_CLEAR | isa.LIST_FIRE], np.uint32))
    good = dict.fromkeys((field.name for field in MAC.format.fields[4:]), 0)
    good |= {"after": 0, "outer": 1, "middle": 1, "inner": 1, "steps": 1, "lanes": 1, "last_lanes": 1}
    legal, illegal, (code, address) = EDGES[edge](bench.config)
    await bench.run([good | legal])
    assert not bench.errors
    assert len(bench.steps) == legal.get("steps", 1)
    assert bench.steps[0][1] == legal.get("source", 0)
    if "weight" in legal:
        assert bench.steps[0][3] == legal["weight"] % bench.config.weight_words
    bench.last.clear()
    await bench.run([good | illegal])
    assert bench.errors[0] == {"valid": 1, "code": int(code), "unit": int(Unit.FETCH), "index": 0, "address": address}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def halts(dut) -> None:
    bench = Bench(dut)
    await bench.start(np.array([isa.LIST_CLEAR | isa.LIST_FIRE], np.uint32))
    long = dict.fromkeys((field.name for field in MAC.format.fields[4:]), 0)
    long |= {"after": 0, "outer": 500, "middle": 1, "inner": 1, "steps": 1, "lanes": 1, "last_lanes": 1}
    dut.command__payload.value = pack({"index": 0, **payload(long)}, SHAPE)
    for _ in range(30):
        await cycle(dut, {"command__valid": 1})
    # The step whose address is already out is the last.
    for _ in range(2):
        await cycle(dut, {"halt": 1})
    issued = len(bench.steps)
    assert issued
    for _ in range(30):
        await cycle(dut, {})
    assert len(bench.steps) == issued
