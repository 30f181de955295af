"""Latencies that the prediction uses are those of the hardware, and its formulas those of its counters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from amaranth.sim import Simulator, SimulatorContext

from cocotb_tests.support.networks.mixed.configurations import CONFIGS as MIXED
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.engines import SPECIFICATIONS, mac
from lutterfly.golden.engines.add import SUM
from lutterfly.golden.engines.specification import EngineSpecification
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.issue import issue_windows
from lutterfly.golden.timing.latencies import (
    FETCH_LATENCY,
    ISSUE_LATENCY,
    REQUANTISE_LATENCY,
    RESULT_WINDOWS,
    RESULTS_LATENCY,
    TABLE_LATENCY,
    WORDS_AHEAD,
    WRITE_BACK_LATENCY,
    WRITE_LATENCY,
    backlog_limit,
    burst_beats,
    reset_cycles,
    result_windows,
    window_results,
)
from lutterfly.golden.timing.overheads import OVERHEADS
from lutterfly.hdl.compute import windows
from lutterfly.hdl.dma.store import DmaStore
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.memories import feature_memory
from lutterfly.hdl.parts import device
from lutterfly.hdl.results import requant, results, write_back
from lutterfly.host.compiler import compile_graph
from lutterfly.host.graph import Window
from lutterfly.host.simulation.simulator import MemorySettings

CONFIG = PRESETS["ecp5-85k"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))


def test_the_ideal_bus_is_what_the_simulator_has_by_default() -> None:
    settings, assumed = MemorySettings(), OVERHEADS
    assert (settings.read_latency, settings.write_latency) == (assumed.read_latency, assumed.write_latency)
    assert (settings.outstanding, settings.beat_interval, settings.stall_probability) == (assumed.bursts, 1, 0)


def test_latencies_are_those_of_the_components() -> None:
    assert windows.ISSUE_LATENCY == ISSUE_LATENCY
    assert feature_memory.FETCH_LATENCY == FETCH_LATENCY
    assert feature_memory.WRITE_LATENCY == WRITE_LATENCY
    assert device.RAM_LATENCY + 2 == WORDS_AHEAD
    assert device.MULTIPLIER_LATENCY == mac.MULTIPLIER_LATENCY
    assert results.RESULTS_LATENCY == RESULTS_LATENCY
    assert SUM.addends_latency == device.RAM_LATENCY
    assert requant.LATENCY == REQUANTISE_LATENCY
    assert device.RAM_LATENCY == TABLE_LATENCY
    assert write_back.WRITE_BACK_LATENCY == WRITE_BACK_LATENCY


@pytest.mark.sampled(6)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_store_begins_to_read_as_predicted(preset: str) -> None:
    unit, reads = DmaStore(PRESETS[preset]), []

    async def give_command(ctx: SimulatorContext) -> None:
        ctx.set(unit.command.payload.rows, 2)
        ctx.set(unit.command.payload.row_bytes, 1)
        for port in (unit.command.valid, unit.read.ready, unit.bus.aw.ready):
            ctx.set(port, 1)
        for _ in range(2 * OVERHEADS.store):
            reads.append(ctx.get(unit.read.valid))
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(give_command)
    simulator.run()
    assert reads.index(1) == OVERHEADS.store


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("engine", SPECIFICATIONS.values(), ids=lambda engine: engine.name)
def test_engine_latencies_are_those_of_the_components(preset: str, engine: EngineSpecification) -> None:
    config, rng = PRESETS[preset], np.random.default_rng(0)
    config = dataclasses.replace(
        config,
        engines=config.engines.having(engine.engine, config.engines.get(engine.engine, engine.engine.configuration())),
    )
    component = COMPONENTS[engine.engine](config)
    for _ in range(5):
        window = engine.random_window(config, rng, 8)
        assert component.latencies[engine.engine] == engine.latency(config, window.fields)


@pytest.mark.parametrize("seed", range(50))
def test_issue_follows_the_backlog_cycle_by_cycle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rounds = int(rng.integers(1, 60))
    windows = [(int(n), int(rng.integers(1, 5))) for n in rng.integers(1, 6, rng.integers(1, 5))]
    start, begins, limit = int(rng.integers(0, 12)), bool(rng.integers(2)), int(rng.integers(4, RESULT_WINDOWS))
    cycle, backlog = 0, start
    for number, (steps, groups) in enumerate(windows * rounds):
        size = groups + (begins and number == 0)
        step = 0
        while step < steps:
            held = step == steps - 1 and backlog > limit
            backlog = max(backlog - 1, 0) + (size if step == steps - 1 and not held else 0)
            step += not held
            cycle += 1
    assert issue_windows(start, windows, rounds, limit=limit, begins=begins) == (cycle, backlog)


def test_bursts_end_at_multiples_of_sixteen_beats() -> None:
    assert burst_beats(CONFIG, 0, 256) == [16, 16]
    assert burst_beats(CONFIG, 100, 100) == [4, 9]
    assert burst_beats(CONFIG, 7, 2) == [2]


def test_dependent_layers_turn_around_within_fifty_cycles() -> None:
    maker = GraphMaker((1, 1, 16))
    name = "x"
    for _ in range(4):
        name = maker.fully_connected(name, 8)
    for layer in compile_graph(maker.finish(name), CONFIG).layers[1:]:
        assert layer.array_cycles == 1
        assert layer.cycles <= 50


def test_a_large_layer_keeps_the_multipliers_busy() -> None:
    maker = GraphMaker((16, 16, 32))
    program = compile_graph(maker.finish(maker.convolution(maker.convolution("x", 32, SAME), 32, SAME)), CONFIG)
    layer = program.layers[1]
    assert layer.macs / CONFIG.multipliers == layer.array_cycles == 18432
    assert layer.macs / CONFIG.multipliers / layer.cycles > 0.99


@pytest.mark.parametrize(("requant_lanes", "groups"), [(2, 4), (4, 2), (8, 1)])
def test_the_requantiser_limits_short_windows(requant_lanes: int, groups: int) -> None:
    config = dataclasses.replace(CONFIG, array=dataclasses.replace(CONFIG.array, requant_lanes=requant_lanes))
    maker = GraphMaker((16, 16, 8))
    program = compile_graph(maker.finish(maker.convolution(maker.convolution("x", 8, SAME), 8, Window((1, 1)))), config)
    assert program.layers[1].array_cycles == 256
    assert 250 * groups < program.layers[1].cycles < 256 * groups + 50


def test_a_streamed_input_hides_behind_the_first_layer() -> None:
    maker = GraphMaker((32, 32, 3))
    layer = compile_graph(maker.finish(maker.convolution("x", 32, SAME)), CONFIG).layers[0]
    assert layer.cycles < 1.08 * layer.array_cycles


def test_pipelines_run_out_during_a_reset() -> None:
    """From issue to landing, a full result FIFO of the widest windows included."""
    assert {name: reset_cycles(config) for name, config in PRESETS.items()} == {
        "tiny": 128,
        # Bursts of 16 results of 4 groups, two of them, after 100 cycles.
        "ecp5-85k": 256,
        "gw5a-138": 128,
        "large": 128,
        "ecp5-85k-on-chip": 128,
        "ecp5-85k-sdram": 128,
        "ecp5-45k-on-chip": 128,
        "ecp5-25k-on-chip": 128,
        "ecp5-45k-sdram": 128,
        "ecp5-25k-sdram": 128,
        "gw5a-138-on-chip": 128,
    }


# Depths: how much a window may find in front of it.

CONFIGS = {**PRESETS, **MIXED}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_window_that_passes_has_room_for_all_its_results(config: Config) -> None:
    """Those before it take a cycle each at least: so many of them may wait at most."""
    for code in config.engines:
        assert 0 < backlog_limit(config, code) <= result_windows(config) - window_results(config, code)
