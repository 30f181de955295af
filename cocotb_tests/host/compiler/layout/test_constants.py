"""Networks whose weights, parameters, tables or lists are more than their memories: streamed after the array."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import differing_bytes, exact_plan
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.engines import ADD
from lutterfly.golden.isa import Opcode
from lutterfly.golden.memories import LocalMemory, constant_memories, memories
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import encode, plan_graph
from lutterfly.host.compiler.layout.constants import Item, choose_streamed
from lutterfly.host.compiler.network import CompileError
from lutterfly.host.compiler.storage import capacity, unit_count, unit_numbers
from lutterfly.host.graph import Graph, Window

TINY, ECP5 = PRESETS["tiny"], PRESETS["ecp5-85k"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))
POINT = Window((1, 1))


def fully_connected(sizes: tuple[int, ...]) -> Graph:
    maker = GraphMaker((1, 1, sizes[0]))
    name = "x"
    for size in sizes[1:]:
        name = maker.fully_connected(name, size)
    return maker.finish(name)


def autoencoder() -> Graph:
    """The anomaly detector of MLPerf Tiny: 2,072 words of weights, 24 more than there is room for."""
    return fully_connected((640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640))


def streamed(plan, memory: LocalMemory) -> int:
    """Units that every inference loads."""
    return sum(arrival.size for arrival in plan.arrivals if arrival.memory is memory)


@pytest.mark.regress
def test_of_a_model_slightly_too_large_little_more_than_that_is_streamed_and_hidden() -> None:
    plan = exact_plan(autoencoder(), ECP5)
    assert 24 <= streamed(plan, LocalMemory.WEIGHT) <= 64
    assert plan.predicted_cycles <= 2900
    whole = dataclasses.replace(ECP5, memory=dataclasses.replace(ECP5.memory, weight_bytes=512 << 10))
    assert plan.predicted_cycles <= plan_graph(autoencoder(), whole).predicted_cycles + 16


def test_weights_of_one_layer_are_streamed_in_pieces() -> None:
    plan = exact_plan(fully_connected((2048, 16)), TINY)
    assert streamed(plan, LocalMemory.WEIGHT) + len(plan.images[LocalMemory.WEIGHT]) // TINY.weight_word_bytes == 4096
    # Loaded as fast as the bus can, since the array is faster: 1,024 words of 8 bytes stay.
    beats = streamed(plan, LocalMemory.WEIGHT) * TINY.weight_word_bytes // TINY.axi.data_bytes
    assert beats <= plan.predicted_cycles <= 1.25 * beats


@pytest.mark.regress
@pytest.mark.parametrize("shape", [(6, 6, 32), (14, 9, 20)])
def test_streamed_convolutions_are_exact(shape: tuple[int, int, int]) -> None:
    maker = GraphMaker(shape)
    name = maker.convolution(maker.convolution("x", 48, SAME), 40, SAME, table=True)
    plan = exact_plan(maker.finish(maker.convolution(maker.max_pool(name, Window((2, 2), (2, 2))), 60, POINT)), TINY)
    assert streamed(plan, LocalMemory.WEIGHT)


@pytest.mark.regress
def test_a_large_pointwise_layer_is_bound_by_the_array() -> None:
    """Neither input nor weights fit, each beside the other: 1024 to 1024 channels on 7x7."""
    maker = GraphMaker((7, 7, 1024))
    graph = maker.finish(maker.convolution("x", 1024, POINT))
    plan = plan_graph(graph, ECP5)
    assert differing_bytes(graph, encode(plan), ECP5, order="random") == 0
    assert plan.predictions[0].cycles < 1.1 * plan.predictions[0].array_cycles
    assert streamed(plan, LocalMemory.WEIGHT) <= 8192


@pytest.mark.regress
def test_parameters_are_streamed() -> None:
    plan = exact_plan(fully_connected((4, 600, 4, 500)), TINY)
    assert streamed(plan, LocalMemory.PARAMETER)


def averages(count: int, *, convolution: bool) -> Graph:
    """Poolings with six parameter words each, which all channels share."""
    maker, name = GraphMaker((5, 5, 2)), "x"
    if convolution:
        name = maker.convolution(name, 2, SAME)
    for _ in range(count):
        name = maker.average_pool(name, Window((5, 5), pads=(2, 2, 2, 2)))
    return maker.finish(name)


@pytest.mark.regress
def test_parameters_that_tiles_share_are_streamed() -> None:
    """Where no layer has any of its own."""
    plan = exact_plan(averages(99, convolution=False), TINY)
    assert streamed(plan, LocalMemory.PARAMETER)


def test_too_much_that_tiles_share_is_refused() -> None:
    with pytest.raises(
        CompileError,
        match=r"^conv_t0: one tile of its output needs \d+ bytes of parameter memory beside \d{4} that tiles share, "
        r"the configuration has 4096; choose a larger --config$",
    ):
        plan_graph(averages(99, convolution=True), TINY)


def test_tables_are_streamed() -> None:
    maker = GraphMaker((3, 4, 5))
    name = "x"
    for _ in range(9):
        name = maker.pointwise(name)
    plan = exact_plan(maker.finish(name), TINY)
    assert streamed(plan, LocalMemory.TABLE) >= 7
    program = encode(plan)
    assert (program.outline.transfer_functions, program.cores[0].outline.transfer_tables) == (9, 9)


@pytest.mark.regress
def test_lists_are_streamed() -> None:
    plan = exact_plan(fully_connected((2400, 3, 2000, 2)), TINY)
    assert streamed(plan, LocalMemory.LIST)


def test_add_tables_are_streamed() -> None:
    maker = GraphMaker((4, 4, 6))
    name = "x"
    for _ in range(5):
        name = maker.add(name, maker.convolution(name, 6, POINT))
    plan = exact_plan(maker.finish(name), TINY)
    assert streamed(plan, ADD.memory) >= 3


def test_what_fits_is_never_loaded_again() -> None:
    plan = plan_graph(fully_connected((64, 64, 64)), TINY)
    assert not plan.arrivals
    assert all(
        command.fields["memory"] == LocalMemory.FEATURE for command in plan.commands if command.opcode is Opcode.LOAD
    )


def test_the_pace_of_streaming_is_even_and_the_least() -> None:
    items = [Item(10, 1, 100, 200) for _ in range(40)]
    chosen, pace = choose_streamed(items, 100)
    assert sum(chosen) == 10
    places = np.flatnonzero(chosen)
    assert set(np.diff(places)) == {4}
    assert pace == pytest.approx(100 / (4 * 200), rel=0.01)


def test_what_would_be_loaded_often_stays() -> None:
    items = [Item(10, 8 if index % 2 else 1, 100, 200) for index in range(20)]
    chosen, _ = choose_streamed(items, 80)
    assert [index % 2 for index in np.flatnonzero(chosen)] == [0] * 8


def test_numbers_of_all_memories_are_distinct() -> None:
    found = np.concatenate([unit_numbers(TINY, memory, 0, capacity(TINY, memory)) for memory in memories(TINY)])
    assert len(np.unique(found)) == len(found) == unit_count(TINY)
    assert unit_numbers(TINY, LocalMemory.FEATURE, 5, 2).tolist() == [5, 6]
    assert set(constant_memories(TINY)) == set(memories(TINY)) - {LocalMemory.FEATURE}
