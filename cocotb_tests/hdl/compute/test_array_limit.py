"""What the array reaches on the simulated core: folds, utilisation, turnaround, and cycles as predicted."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from cocotb_tests.support.oracles.execution import Measured, measure
from cocotb_tests.support.quantised.graphs import GraphMaker, random_graph
from lutterfly.golden.engines import ADD, decode
from lutterfly.golden.isa import COMMAND_BYTES, Compute
from lutterfly.golden.presets import PRESETS
from lutterfly.host.graph import Window
from lutterfly.host.session.compare import TOLERANCE, TOLERANCE_CYCLES

CONFIG = PRESETS["ecp5-85k"]
TURNAROUND = 50
SAME = Window((3, 3), pads=(1, 1, 1, 1))


def commands_of(measured: Measured) -> list[Compute]:
    queue = measured.program.cores[0].body.compute.commands
    commands = [queue[start : start + COMMAND_BYTES] for start in range(0, len(queue), COMMAND_BYTES)]
    return [fields for fields in map(decode, commands) if isinstance(fields, Compute)]


@pytest.mark.regress
def test_three_channels_take_two_words_a_window() -> None:
    maker = GraphMaker((16, 16, 3))
    measured = measure(maker.finish(maker.convolution("x", 16, SAME)), CONFIG)
    windows = 16 * 16 * 16 // CONFIG.array.columns
    assert measured.counters["compute_busy"] == 2 * windows


@pytest.mark.regress
def test_the_array_is_busy_from_first_to_last_cycle() -> None:
    maker = GraphMaker((16, 16, 32))
    measured = measure(maker.finish(maker.convolution("x", 32, SAME)), CONFIG)
    cycles = measured.last[-1] - measured.first[0] + 1
    macs = 16 * 16 * 32 * 32 * 9
    assert measured.program.layers[0].macs == macs
    assert macs / (cycles * CONFIG.multipliers) >= 0.95


@pytest.mark.regress
def test_dependent_commands_follow_within_50_cycles() -> None:
    maker = GraphMaker((8, 8, 16))
    name = "x"
    for channels in (16, 24, 8):
        name = maker.max_pool(maker.convolution(name, channels, SAME), Window((2, 2), pads=(0, 0, 1, 1)))
    measured = measure(maker.finish(maker.fully_connected(name, 10)), CONFIG)
    gaps = [first - last for first, last in zip(measured.first[1:], measured.last[:-1], strict=True)]
    commands = commands_of(measured)
    # One of the same engine may begin before all has landed.
    dependent = [own["after"] or own["engine"] != before["engine"] for before, own in itertools.pairwise(commands)]
    assert sum(dependent) >= 6
    assert all(gap <= TURNAROUND for gap, after in zip(gaps, dependent, strict=True) if after)


@pytest.mark.parametrize("preset", ["tiny", pytest.param("ecp5-85k", marks=pytest.mark.demo_core)])
@pytest.mark.parametrize("seed", range(12))
def test_cycles_are_as_predicted(preset: str, seed: int) -> None:
    measured = measure(random_graph(seed), PRESETS[preset], seed=seed)
    for layer, cycles in zip(measured.program.layers, measured.layer_cycles, strict=True):
        assert abs(layer.cycles - cycles) <= max(TOLERANCE_CYCLES, TOLERANCE * cycles), layer.name
    total = measured.counters["cycles"]
    assert abs(measured.program.predicted_cycles - total) <= max(TOLERANCE_CYCLES, TOLERANCE * total)


@pytest.mark.regress
def test_large_runs_a_layer() -> None:
    maker = GraphMaker((6, 6, 40))
    measured = measure(maker.finish(maker.convolution("x", 70, SAME, table=True)), PRESETS["large"])
    assert measured.counters["compute_busy"] == measured.program.layers[0].array_cycles


@pytest.mark.regress
def test_without_tables_of_an_add_results_land_three_cycles_earlier() -> None:
    tiny = PRESETS["tiny"]
    layers = {}
    for engines in (tiny.engines, tiny.engines.without(ADD)):
        maker = GraphMaker((8, 8, 8))
        name = maker.convolution(maker.convolution("x", 8, SAME), 8, Window((1, 1)))
        graph = maker.finish(maker.convolution(maker.max_pool(name, Window((2, 2), (2, 2))), 8, SAME))
        measured = measure(graph, dataclasses.replace(tiny, engines=engines))
        layers[engines] = measured.layer_cycles[1:]
        assert layers[engines] == [layer.cycles for layer in measured.program.layers[1:]]
    with_tables, without_tables = layers.values()
    # The second convolution reads what the first has written long before, and waits for nothing.
    assert [late - early for late, early in zip(with_tables, without_tables, strict=True)] == [0, 3, 3]
