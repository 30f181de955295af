"""The order of jobs and transfers: what other cores read comes first, and what fills a tensor waits for no other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.isa import Opcode
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.cluster.split import Split, parts_of
from lutterfly.host.compiler.passes import rewritten
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.compiler.schedule import dma
from lutterfly.host.compiler.schedule.dma import fill_border
from lutterfly.host.compiler.search import Candidate
from lutterfly.host.compiler.storage import Storage, pieces
from lutterfly.host.graph import Graph, Tensor, Window

SAME = Window((3, 3), pads=(1, 1, 1, 1))


def spread(graph: Graph, cores: int, preset: str = "ecp5-85k") -> tuple[Plan, ...]:
    """The rows of every layer on several cores."""
    config = dataclasses.replace(PRESETS[preset], cluster=ClusterConfig(cores))
    network = rewritten(graph, config)
    parts = [parts_of(network.graph, layer, Split.ROWS, cores, 8) for layer in graph.layers]
    return Candidate(network, is_permuted=False, parts=parts, way=0, is_wide=True).planned().plans


def computed(plan: Plan, index: int) -> list[range]:
    return [job.rows for job in plan.jobs if job.index == index]


@pytest.mark.parametrize(
    ("cores", "rows"),
    [
        (2, [[range(15, 16), range(15)], [range(1), range(1, 16)]]),
        (
            4,
            [
                [range(7, 8), range(7)],
                *[[range(1), range(7, 8), range(1, 7)]] * 2,
                [range(1), range(1, 8)],
            ],
        ),
    ],
)
def test_rows_at_the_edges_come_first(cores: int, rows: list[list[range]]) -> None:
    maker = GraphMaker((32, 16, 16))
    hidden = maker.convolution(maker.convolution("x", 16, SAME), 16, SAME)
    plans = spread(maker.finish(maker.convolution(hidden, 16, SAME)), cores)
    assert [computed(plan, 1) for plan in plans] == rows
    # Nobody waits for the last layer.
    assert all(len(computed(plan, 2)) == 1 for plan in plans)


def test_what_is_stored_first_is_met_while_the_rest_is_computed() -> None:
    maker = GraphMaker((32, 16, 16))
    hidden = maker.convolution(maker.convolution("x", 16, SAME), 16, SAME)
    for plan in spread(maker.finish(maker.convolution(hidden, 16, SAME)), 2):
        first, rest = [command for command in plan.commands if command.layer == 1 and command.opcode is Opcode.COMPUTE]
        met = [index for index, command in enumerate(plan.commands) if command.opcode is Opcode.BARRIER][-1]
        assert plan.commands.index(first) < met < plan.commands.index(rest)
        # The rest leaves no time to read, and waits for the STORE, but not for what comes behind the barrier.
        dma = plan.queue(Queue.DMA)
        assert dma[rest.waits_for].opcode is Opcode.STORE


@pytest.mark.parametrize(("channels", "jobs"), [(16, 2), (128, 1)])
def test_rows_stay_together_where_more_jobs_cost_more_than_they_save(channels: int, jobs: int) -> None:
    """On the chained columns windows follow one another down a column: a row apart begins every column anew."""
    maker = GraphMaker((64, 4, channels))
    hidden = maker.depthwise(maker.convolution("x", channels, Window((1, 1))), SAME)
    plans = spread(maker.finish(maker.convolution(hidden, 16, SAME)), 2)
    assert [plan.operations[1].stream.along for plan in plans] == [0, 0]
    assert {len(computed(plan, 1)) for plan in plans} == {jobs}


def test_no_barrier_stands_between_the_parts_of_an_input() -> None:
    """The core below computes the row that the other one reads first of all, but that one comes to it last."""
    maker = GraphMaker((96, 16, 16))
    hidden = maker.convolution("x", 2, Window((1, 1)))
    for plan in spread(maker.finish(maker.convolution(hidden, 2, SAME)), 2, "tiny"):
        assert 0 in plan.cuts
        dma = plan.queue(Queue.DMA)
        (met,) = [index for index, command in enumerate(dma) if command.opcode is Opcode.BARRIER]
        assert all(command.layer != 0 or command.opcode is not Opcode.LOAD for command in dma[met:])


# The order of transfers: what reads the feature memory waits apart from what writes it.


def test_stores_wait_apart_from_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    choose, waiting = dma._next, {"loads": [], "stores": []}

    def watch(loads: list, stores: list, queue: object, job: int) -> list | None:
        for name, heap in (("loads", loads), ("stores", stores)):
            waiting[name] += [task.is_store for *_, task in heap]
        return choose(loads, stores, queue, job)

    monkeypatch.setattr(dma, "_next", watch)
    maker = GraphMaker((24, 24, 16))
    name = maker.convolution(maker.convolution("x", 16, Window((3, 3))), 16, Window((3, 3)))
    assert plan_graph(maker.finish(name), PRESETS["tiny"]).cuts
    assert waiting["loads"]
    assert waiting["stores"]
    assert not any(waiting["loads"])
    assert all(waiting["stores"])


# Transfers: what lies around a tensor is filled once, and nothing else is.


@pytest.mark.parametrize("borders", [(1, 1, 1, 1), (0, 2, 1, 0), (1, 0, 0, 2), (0, 1, 0, 1)], ids=str)
def test_each_byte_of_a_border_is_filled_once(borders: tuple[int, int, int, int]) -> None:
    top, left, bottom, right = borders
    storage = Storage(4, 5, 3, top, left, bottom, right, gap=max(left, right), value=7, address=100)
    filled = [command.writes for command in fill_border(storage, Tensor("x", (4, 5, 3), 1.0, 7, ()))]
    every = storage.address + np.arange(storage.size_bytes)
    own = pieces(storage.first, storage.row_bytes, storage.height, storage.row_pitch)
    np.testing.assert_array_equal(np.sort(np.concatenate(filled)), np.setdiff1d(every, own))
