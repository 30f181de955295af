"""Windows and their steps: classes of borders, words that connections use, and nothing beyond."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.networks.blocks import convolve, networks, pool, restore, state
from cocotb_tests.support.networks.generated import FORMS, TINY, Generated, Maker
from cocotb_tests.support.oracles.exactness import PATIENT, assert_exact, assert_right, kept, needs_reference
from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.graphs import GraphMaker, random_window
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, encode, plan_graph
from lutterfly.host.compiler.lower.windows import Run, Stream, border_classes, cover, plan_runs
from lutterfly.host.graph import Graph, Window
from lutterfly.host.session.verify import verify

SAME = Window((3, 3), pads=(1, 1, 1, 1))


@st.composite
def forks(draw) -> Generated:
    """A max pooling and a convolution of one tensor, each with a border of its own geometry."""
    made = Maker(
        np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.sampled_from(FORMS)), draw(st.booleans()), TINY
    )
    made.start((1, draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 9))))
    if draw(st.booleans()):
        convolve(draw, made, largest=1)
    trunk = state(made)
    pool(draw, made, keep_size=False)
    pooled = made.tensor
    restore(made, trunk)
    convolve(draw, made)
    return Generated(made.serialise([pooled, made.tensor]), "fork", made.input_shape, made.dtype)


def bordered_window(rng: np.random.Generator, shape: tuple[int, int, int]) -> Window:
    """A window with a border as wide as itself, and wider, so that some windows lie in the border only."""
    while True:
        kernel, dilation = (tuple(int(n) for n in rng.integers(low, high, 2)) for low, high in ((2, 6), (1, 3)))
        window = Window(
            kernel,
            tuple(int(n) for n in rng.integers(1, 4, 2)),
            dilation,
            tuple(int(n) for n in rng.integers(0, kernel[0] + 2, 4)),
        )
        if min(window.output_size(*shape[:2])) > 0:
            return window


def fork(seed: int, sides: tuple[int, int] = (1, 9), channels: tuple[int, ...] = (1, 3, 5, 17)) -> Graph:
    """The same as a graph, with borders that ONNX Runtime does not take."""
    rng = np.random.default_rng(seed)
    shape = (*(int(side) for side in rng.integers(*sides, 2)), int(rng.choice(channels)))
    maker = GraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    trunk = "x" if rng.integers(2) else maker.convolution("x", int(rng.choice(channels)), Window((1, 1)))
    pooled = maker.max_pool(trunk, bordered_window(rng, shape), table=bool(rng.integers(2)))
    return maker.finish(pooled, maker.convolution(trunk, 4, random_window(rng, shape)))


@pytest.mark.parametrize("seed", range(60))
def test_classes_are_windows_with_the_same_elements_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = size = tuple(int(side) for side in rng.integers(1, 9, 2))
    window = bordered_window(rng, (*size, 1))
    rows, columns = (range(int(rng.integers(count)), count) for count in window.output_size(*size))
    (sy, sx), (dy, dx), (top, left, _, _) = window.stride, window.dilation, window.pads
    seen = []
    for part in border_classes(window, size, rows, columns):
        seen += itertools.product(part.rows, part.columns)
        for y, x in itertools.product(part.rows, part.columns):
            inside = {
                (i, j)
                for i, j in np.ndindex(*window.kernel)
                if 0 <= y * sy - top + i * dy < height and 0 <= x * sx - left + j * dx < width
            }
            assert inside == set(itertools.product(part.kernel_rows, part.kernel_columns))
            assert part.is_empty == (not inside)
    assert sorted(seen) == list(itertools.product(rows, columns))


@pytest.mark.parametrize(
    ("window", "count"),
    [
        (SAME, 9),
        (Window((3, 3)), 1),
        (Window((5, 5), pads=(2, 2, 2, 2)), 25),
        (Window((5, 5), (2, 2), pads=(2,) * 4), 9),
        (Window((2, 2), (2, 2), pads=(0, 0, 1, 1)), 1),
        (Window((3, 3), (2, 2), pads=(1, 1, 1, 1)), 4),
    ],
)
def test_there_is_a_class_for_each_corner_and_edge(window: Window, count: int) -> None:
    assert len(border_classes(window, (8, 8), *map(range, window.output_size(8, 8)))) == count


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 400), marks=pytest.mark.regress)], ids=str)
def test_both_borders_are_exact(preset: str, seeds: range) -> None:
    config, empty = PRESETS[preset], 0
    for seed in seeds:
        graph = fork(seed)
        program = compile_graph(graph, config)
        for order in ORDERS:
            assert differing_bytes(graph, program, config, order=order, seed=seed) == 0
        pooling = graph.layers[-2]
        shapes = graph.tensors[pooling.input].shape[:2], graph.tensors[pooling.output].shape[:2]
        empty += any(part.is_empty for part in border_classes(pooling.window, shapes[0], *map(range, shapes[1])))
    assert empty


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.regress)], ids=str)
def test_both_borders_are_exact_in_parts(seeds: range) -> None:
    """The tensor of both is read back, and where windows lie in the border only nothing is."""
    memory, cut = dataclasses.replace(PRESETS["tiny"].memory, feature_bytes=512), 0
    config = dataclasses.replace(PRESETS["tiny"], memory=memory)
    for seed in seeds:
        graph = fork(seed, (8, 14), (1, 3, 4))
        plan = plan_graph(graph, config)
        cut += len(graph.layers) - 2 in plan.cuts
        for order in ORDERS:
            assert differing_bytes(graph, encode(plan), config, order=order, seed=seed) == 0
    assert cut > len(seeds) // 3


def test_max_pooling_needs_no_border() -> None:
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 6, Window((1, 1)), zero_point=3)
    plan = plan_graph(maker.finish(maker.max_pool(trunk, SAME)), PRESETS["tiny"])
    assert plan.storages[trunk].size_bytes == 8 * 8 * 6
    assert plan.operations[-1].fold.endswith(", 9 border classes")
    assert plan.predictions[-1].array_cycles < 9 * 8 * 8 * 6 / 4


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@given(model=forks(), order=st.sampled_from(ORDERS))
@settings(PATIENT, max_examples=40, derandomize=True)
def test_the_bytes_are_onnx_runtimes(preset: str, model: Generated, order: str) -> None:
    config = PRESETS[preset]
    with kept(model, f"fork_{preset}"):
        graph = assert_exact(model.model, model.feeds(0))
        assert differing_bytes(graph, compile_graph(graph, config), config, order=order) == 0


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@given(model=forks() | networks(kinds=["pool beside", "residual"], most=2))
@settings(PATIENT, max_examples=8, derandomize=True)
def test_bytes_and_cycles_on_the_core(preset: str, model: Generated) -> None:
    with kept(model, f"fork_on_the_core_{preset}"):
        assert_right(verify(model.model, PRESETS[preset], samples=1))


# Connections: every byte that a tile uses is in one of its words, and commands are merged where that is cheaper.

#: Cycles of a command beside its steps.
COMMAND = 20


def cost_of(windows: int):
    return lambda tiles, steps: tiles * windows * steps + COMMAND


def total(runs: list[Run], windows: int) -> int:
    return sum(cost_of(windows)(len(run.tiles), len(run.starts)) for run in runs)


@st.composite
def layers(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[int], int, int]:
    """Offsets, what is used of them, origins of the tiles, lanes, windows."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    elements, tiles = draw(st.integers(1, 60)), draw(st.integers(1, 20))
    offsets = rng.choice(2 * elements, elements, replace=False)
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 0.9, 1.0]))
    patterns = rng.random((draw(st.integers(1, 4)), elements)) < density
    used = patterns[rng.integers(len(patterns), size=tiles)]
    pitch = draw(st.sampled_from([0, 4, 7]))
    origins = [tile // draw(st.integers(1, 2)) * pitch for tile in range(tiles)]
    return offsets, used, sorted(origins), draw(st.sampled_from([2, 4, 16])), draw(st.sampled_from([1, 5, 64]))


@pytest.mark.regress
@settings(max_examples=300)
@given(layers())
def test_every_used_byte_is_read_once_by_its_tile(layer) -> None:
    offsets, used, origins, lanes, windows = layer
    runs = plan_runs(offsets, used, origins, lanes=lanes, cost=cost_of(windows))
    assert [tile for run in runs for tile in run.tiles] == list(range(len(used)))
    for run in runs:
        assert run.pitch >= 0
        assert run.starts[0] == 0
        for tile in run.tiles:
            words = run.from_tile(tile) + run.starts
            wanted = offsets[used[tile]] + origins[tile]
            hits = ((wanted[:, None] >= words) & (wanted[:, None] < words + lanes)).sum(axis=1)
            assert (hits == 1).all()


@pytest.mark.regress
@settings(max_examples=300)
@given(layers())
def test_no_simple_choice_of_commands_is_cheaper(layer) -> None:
    offsets, used, origins, lanes, windows = layer
    runs = plan_runs(offsets, used, origins, lanes=lanes, cost=cost_of(windows))
    used[~used.any(axis=1), 0] = True
    steps = [max(len(cover(offsets[row], lanes)), 1) for row in used]
    # One command for all is left alone where it is that near to what its tiles need.
    least = 1.02 * (sum(windows * count for count in steps) + COMMAND)
    assert total(runs, windows) <= max(sum(windows * count + COMMAND for count in steps) + COMMAND, least)
    if len({after - before for before, after in itertools.pairwise(origins)}) <= 1:
        whole = max(len(cover(offsets[used.any(axis=0)], lanes)), 1)
        assert total(runs, windows) <= len(used) * windows * whole + COMMAND


def test_groups_are_one_command_and_one_list() -> None:
    used = np.zeros((4, 64), bool)
    for tile in range(4):
        used[tile, 16 * tile : 16 * tile + 16] = True
    (run,) = plan_runs(np.arange(64), used, [0] * 4, lanes=16, cost=cost_of(1))
    assert (run.tiles, run.source, run.pitch, run.starts.tolist()) == (range(4), 0, 16, [0])


@pytest.mark.parametrize(("windows", "commands"), [(1, 1), (64, 3)])
def test_commands_are_merged_where_they_cost_more_than_the_words(windows: int, commands: int) -> None:
    used = np.ones((3, 64), bool)
    used[1, 16:] = False
    assert len(plan_runs(np.arange(64), used, [0] * 3, lanes=16, cost=cost_of(windows))) == commands


def test_a_tile_without_connections_takes_one_word() -> None:
    used = np.ones((2, 64), bool)
    used[1] = False
    runs = plan_runs(np.arange(64), used, [0, 0], lanes=16, cost=cost_of(64))
    assert [len(run.starts) for run in runs] == [4, 1]


def test_neighbours_share_a_command_where_that_is_cheaper_than_their_own() -> None:
    used = np.zeros((4, 64), bool)
    for tile, count in enumerate((64, 48, 16, 16)):
        used[tile, :count] = True
    runs = plan_runs(np.arange(64), used, [0] * 4, lanes=16, cost=cost_of(10))
    assert [(run.tiles, len(run.starts)) for run in runs] == [(range(2), 4), (range(2, 4), 1)]


# Streams: a window that has fewer results reads what these need, and nothing beyond.

SIZES = st.tuples(st.integers(1, 5), st.integers(1, 5))
STEPS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(SIZES, STEPS, STEPS, st.integers(0, 1), st.integers(1, 5), st.data())
def test_what_is_left_reads_no_row_after_its_last(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    along: int,
    results: int,
    data: st.DataObject,
) -> None:
    """And each row that it needs stands where the whole window has it, with the same weights."""
    window = Window(kernel=kernel, stride=stride, dilation=dilation)
    stream = Stream(window, taps=3, along=along, results=results)
    left = data.draw(st.integers(1, results))
    rows = stream.nearest(left)
    needed = dataclasses.replace(stream, results=left).across
    assert len(rows) == len(stream.across)
    assert {row for row, whole in zip(rows, stream.across, strict=True) if row == whole} >= set(needed)
    assert max(rows) == max(needed)
