"""Element widths: all byte counts follow from the bits of an element, and transfers move exactly the tensor's bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker, plan_of
from lutterfly.golden.machine import dma
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import CompileError, plan_graph
from lutterfly.host.compiler.layout.borders import fold_storage, plan_borders, source_rows
from lutterfly.host.compiler.layout.placement import aligned, plan_arena
from lutterfly.host.compiler.lower import convolution, operations, wide_windows
from lutterfly.host.compiler.lower.windows import Run, cover, tap_offsets
from lutterfly.host.compiler.network import Network
from lutterfly.host.compiler.plan import Divided
from lutterfly.host.compiler.schedule.dma import fill_border, load, store
from lutterfly.host.compiler.storage import Storage
from lutterfly.host.graph import Convolution, Graph, Tensor, ViewPlace, Window

TINY = PRESETS["tiny"]
EXTERNAL, LOCAL = 64, 32
#: What is stored of a tensor of 7 rows of 6 pixels of 16 channels.
PARTS = {
    "whole": {},
    "whole with a border": {"top": 1, "left": 2, "bottom": 1, "right": 1, "gap": 2},
    "rows": {"row": 2, "height": 3},
    "columns": {"column": 1, "width": 4, "gap": 1, "left": 1},
    "rows and columns": {"row": 1, "height": 5, "column": 2, "width": 3},
}


def tensor_of(bits: int, shape: tuple[int, int, int] = (7, 6, 16)) -> Tensor:
    return Tensor("x", shape, 0.05, 0, (), bits)


def storage_of(tensor: Tensor, **part: int) -> Storage:
    height, width, channels = tensor.shape
    return Storage(**{"height": height, "width": width, "channels": channels} | part, address=LOCAL, bits=tensor.bits)


def widened(graph: Graph, bits: int) -> Graph:
    """The graph with elements of another width."""
    tensors = {name: dataclasses.replace(tensor, bits=bits) for name, tensor in graph.tensors.items()}
    return dataclasses.replace(graph, tensors=tensors)


def all_bytes(operation: convolution.ConvolutionOperation) -> list[Run]:
    return [Run(range(operation.tiles), 0, 0, cover(operation.offsets, operation.config.array.lanes))]


def take(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """Let all lowerings take elements of another width, and convolutions whatever they read."""
    dense = dataclasses.replace(wide_windows.LOWERING, takes=lambda _, layer: isinstance(layer, Convolution))
    others = tuple(
        dataclasses.replace(dense if lowering is wide_windows.LOWERING else lowering, bits=(bits,))
        for lowering in operations.LOWERINGS
    )
    monkeypatch.setattr(operations, "LOWERINGS", others)
    # Weights stay as they are: which bytes they use cannot be said.
    monkeypatch.setattr(convolution.ConvolutionOperation, "_plan_runs", all_bytes)


@pytest.mark.parametrize(
    ("bits", "channels", "pixel"), [(8, 5, 5), (16, 5, 10), (1, 1, 1), (1, 8, 1), (1, 9, 2), (1, 16, 2), (4, 3, 2)]
)
def test_a_tensor_says_its_bytes(bits: int, channels: int, pixel: int) -> None:
    tensor = tensor_of(bits, (7, 6, channels))
    assert (tensor.pixel_bytes, tensor.row_bytes, tensor.size_bytes) == (pixel, 6 * pixel, 42 * pixel)
    storage = storage_of(tensor, top=1, left=1, gap=1)
    assert (storage.pixel_pitch, storage.row_pitch, storage.size_bytes) == (pixel, 7 * pixel, (7 * 7 + 7) * pixel)


def test_codes_have_eight_bits() -> None:
    maker = GraphMaker((6, 6, 4))
    plan = plan_graph(maker.finish(maker.convolution("x", 4, Window((3, 3)))), TINY)
    assert {tensor.bits for tensor in plan.graph.tensors.values()} == {8}
    assert plan.graph.tensors["x"].size_bytes == 6 * 6 * 4


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("bits", [1, 8, 16])
def test_loads_and_stores_move_exactly_the_bytes(bits: int, part: dict[str, int]) -> None:
    tensor, rng = tensor_of(bits), np.random.default_rng(bits)
    storage = storage_of(tensor, **part)
    arena = rng.integers(0, 256, EXTERNAL + tensor.size_bytes + 50, dtype=np.uint8)
    dense = arena[EXTERNAL:][: tensor.size_bytes].reshape(7, 6, tensor.pixel_bytes)
    feature = rng.integers(0, 256, TINY.memory.feature_bytes, dtype=np.uint8)
    expected = feature.copy()
    for row in storage.rows:
        for column in storage.columns:
            at = storage.first + (row - storage.row) * storage.row_pitch
            at += (column - storage.column) * storage.pixel_pitch
            expected[at : at + tensor.pixel_bytes] = dense[row, column]
    commands = load(storage, tensor, EXTERNAL, storage.rows)
    for command in commands:
        dma.load(command.fields, arena, {LocalMemory.FEATURE: feature}, lanes=TINY.array.lanes)
    np.testing.assert_array_equal(feature, expected)
    written = np.concatenate([command.writes for command in commands])
    np.testing.assert_array_equal(np.sort(written), np.sort(storage.addresses()))

    back = rng.integers(0, 256, len(arena), dtype=np.uint8)
    stored = back.copy()
    cube = stored[EXTERNAL:][: tensor.size_bytes].reshape(dense.shape)
    place = np.s_[storage.row : storage.row + storage.height, storage.column : storage.column + storage.width]
    cube[place] = dense[place]
    for command in store(storage, tensor, EXTERNAL):
        dma.store(command.fields, back, feature)
    np.testing.assert_array_equal(back, stored)


@pytest.mark.parametrize(("height", "width", "most"), [(7, 6, 1), (7, 4, 4), (3, 4, 3), (7, 1, 1)])
@pytest.mark.parametrize("bits", [1, 8, 16])
def test_channels_are_stored_at_their_bytes(bits: int, height: int, width: int, most: int) -> None:
    tensor, rng = tensor_of(bits), np.random.default_rng(bits)
    storage = storage_of(tensor, channel=8, channels=8, height=height, width=width)
    feature = rng.integers(0, 256, TINY.memory.feature_bytes, dtype=np.uint8)
    arena = rng.integers(0, 256, EXTERNAL + tensor.size_bytes + 50, dtype=np.uint8)
    expected = arena.copy()
    cube = expected[EXTERNAL:][: tensor.size_bytes].reshape(7, 6, tensor.pixel_bytes)
    cube[:height, :width, bits:] = feature[LOCAL:][: height * width * bits].reshape(height, width, bits)
    commands = store(storage, tensor, EXTERNAL)
    assert len(commands) == most
    for command in commands:
        dma.store(command.fields, arena, feature)
    np.testing.assert_array_equal(arena, expected)
    reads = np.concatenate([command.reads for command in commands])
    np.testing.assert_array_equal(np.sort(reads), np.sort(storage.addresses()))


def test_more_pixels_than_a_store_has_runs() -> None:
    tensor = tensor_of(1, (260, 300, 16))
    storage = storage_of(tensor, channel=8, channels=8)
    commands = store(storage, tensor, EXTERNAL)
    assert [command.fields.rows for command in commands] == [300] * 260
    np.testing.assert_array_equal(np.concatenate([command.reads for command in commands]), storage.addresses())


@pytest.mark.parametrize("bits", [1, 8, 16])
def test_folded_rows_are_loaded_pixel_by_pixel(bits: int) -> None:
    maker = GraphMaker((7, 6, 3))
    maker.convolution("x", 4, Window((3, 3), pads=(1, 1, 1, 1)))
    tensor, rng = tensor_of(bits, (7, 6, 3)), np.random.default_rng(bits)
    storage = dataclasses.replace(fold_storage(maker.graph.layers[0].window, tensor, 3), address=LOCAL)
    arena = rng.integers(0, 256, EXTERNAL + tensor.size_bytes, dtype=np.uint8)
    dense = arena[EXTERNAL:].reshape(7, 6, tensor.pixel_bytes)
    feature = np.full(TINY.memory.feature_bytes, 0xEE, np.uint8)
    expected = feature.copy()
    expected[LOCAL : LOCAL + storage.size_bytes] = 0
    for stored, sources in enumerate(source_rows(storage, 7)):
        for column in range(6):
            for fold, row in enumerate(sources):
                at = storage.first + stored * storage.row_pitch + (3 * column + fold) * tensor.pixel_bytes
                expected[at : at + tensor.pixel_bytes] = 0 if row < 0 else dense[row, column]
    for command in fill_border(storage, tensor):
        dma.fill(command.fields, feature)
    for command in load(storage, tensor, EXTERNAL, storage.rows):
        dma.load(command.fields, arena, {LocalMemory.FEATURE: feature}, lanes=TINY.array.lanes)
    np.testing.assert_array_equal(feature, expected)


@pytest.mark.parametrize("bits", [1, 16])
def test_layouts_and_the_arena_follow_the_width(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    take(monkeypatch, bits)
    maker = GraphMaker((6, 6, 16))
    graph = maker.finish(maker.convolution("x", 8, Window((3, 3), pads=(1, 1, 1, 1))))
    laid_out = plan_borders(Network(widened(graph, bits), TINY))
    plan = plan_arena(plan_of(Divided, laid_out, live_ranges=()))
    assert plan.storages["x"].row_pitch == (6 + 1) * 2 * bits
    assert plan.storages["t0"].size_bytes == 6 * 6 * bits
    assert plan.external == {"x": 0, "t0": aligned(6 * 6 * 2 * bits)}
    assert plan.external_bytes == aligned(6 * 6 * 2 * bits) + aligned(6 * 6 * bits)


def test_no_part_begins_within_a_byte() -> None:
    storage = storage_of(tensor_of(1))
    assert storage.view(ViewPlace("", 8), (6, 6, 8)).address == LOCAL + 1
    with pytest.raises(AssertionError, match=r"^channel 3 of 1 bits begins within a byte$"):
        storage.view(ViewPlace("", 3), (6, 6, 8))


@pytest.mark.parametrize(("bits", "words"), [(1, [0, 14]), (8, [0, 8, 16, 84, 92, 100]), (16, [*range(0, 48, 8)])])
def test_a_window_is_the_bytes_of_its_elements(bits: int, words: list[int]) -> None:
    storage = storage_of(tensor_of(bits, (7, 7, 12)))
    offsets = tap_offsets(Window((2, 2)), 12, storage)
    assert offsets.shape == (2, 2, storage.pixel_pitch)
    np.testing.assert_array_equal(np.sort(offsets.ravel()), storage.addresses(range(2), range(2)) - LOCAL)
    assert cover(offsets, 8)[: len(words)].tolist() == words


def test_layers_on_elements_of_a_width_that_no_lowering_takes_are_refused() -> None:
    maker = GraphMaker((6, 6, 8))
    graph = widened(maker.finish(maker.convolution("x", 8, Window((3, 3)))), 1)
    with pytest.raises(
        CompileError,
        match=r"^conv_t0: layer must be one that a lowering takes, not convolution on elements of 1 bits; leave it to",
    ):
        plan_graph(graph, TINY)


def test_channels_that_begin_within_a_byte_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    take(monkeypatch, 1)
    for name, channel, make in (
        ("x", 3, lambda maker: maker.slice("x", 3, 8)),
        ("x", 5, lambda maker: maker.slice("x", 0, 5)),
        ("t2", 5, lambda maker: maker.concat(maker.convolution("x", 5, Window((1, 1))), maker.slice("x", 8, 8))),
    ):
        maker = GraphMaker((6, 6, 24))
        graph = widened(maker.finish(make(maker)), 1)
        message = f"channel {channel} of {name} must begin at a byte, not within one, with 1 bits an element; let a "
        with pytest.raises(CompileError, match=rf"^\w+: {message}multiple of 8 channels lie before it$"):
            plan_graph(graph, TINY)
