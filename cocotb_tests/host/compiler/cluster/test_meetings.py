"""Meetings: what would wait for ever, or be read too early, is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.isa import Opcode
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import Queue
from lutterfly.host.compiler.cluster.by_layer import check_meetings
from lutterfly.host.compiler.cluster.split import Split, parts_of
from lutterfly.host.compiler.passes import rewritten
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.compiler.search import Candidate
from lutterfly.host.graph import Window

SAME = Window((3, 3), pads=(1, 1, 1, 1))
CORES = 2
CONFIG = dataclasses.replace(PRESETS["ecp5-85k"], cluster=ClusterConfig(CORES))


def spread() -> tuple[Plan, ...]:
    """Two convolutions, the rows of each on two cores: each gives the other a row of the tensor between them."""
    maker = GraphMaker((8, 8, 16))
    graph = maker.finish(maker.convolution(maker.convolution("x", 16, SAME), 16, SAME))
    network = rewritten(graph, CONFIG)
    parts = [parts_of(network.graph, layer, Split.ROWS, CORES, 8) for layer in network.graph.layers]
    return Candidate(network, is_permuted=False, parts=parts, way=0, is_wide=True).planned().plans


def test_halo_rows_are_stored_then_met_then_loaded() -> None:
    for plan in spread():
        commands = plan.queue(Queue.DMA)
        opcodes = [command.opcode for command in commands if command.opcode is not Opcode.FILL]
        assert opcodes.count(Opcode.BARRIER) == 1
        met = opcodes.index(Opcode.BARRIER)
        assert (opcodes[met - 1], opcodes[met + 1]) == (Opcode.STORE, Opcode.LOAD)
        stored = next(command for command in commands if command.opcode is Opcode.STORE)
        # One row of the four that the core has computed, and nothing is copied in its memory.
        assert stored.fields["rows"] * stored.fields["row_bytes"] == 8 * 16
        assert len([command for command in plan.commands if command.opcode is Opcode.COMPUTE]) >= 2


def without(plan: Plan, opcode: Opcode) -> Plan:
    left = tuple(command for command in plan.commands if command.opcode is not opcode)
    return dataclasses.replace(plan, commands=left)


def swap_around_barrier(plan: Plan, step: int) -> Plan:
    """Put the barrier before the STORE, or behind the LOAD, beside it."""
    moved = [index for index, command in enumerate(plan.commands) if command.opcode is Opcode.BARRIER]
    wanted = Opcode.STORE if step < 0 else Opcode.LOAD
    other = moved[0] + step
    while plan.commands[other].opcode is not wanted:
        other += step
    commands = [*plan.commands]
    commands[moved[0]], commands[other] = commands[other], commands[moved[0]]
    return dataclasses.replace(plan, commands=tuple(commands))


def other_group(plan: Plan) -> Plan:
    commands = (
        command.with_fields(group=1) if command.opcode is Opcode.BARRIER else command for command in plan.commands
    )
    return dataclasses.replace(plan, commands=tuple(commands))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda plan: without(plan, Opcode.BARRIER), "deadlock"),
        (lambda plan: without(plan, Opcode.LOAD), "deadlock|tokens left"),
        (other_group, "deadlock"),
        (lambda plan: swap_around_barrier(plan, -1), "before barrier"),
        (lambda plan: swap_around_barrier(plan, 1), "before barrier"),
    ],
    ids=["no barrier", "no load", "another group", "store behind the barrier", "load before the barrier"],
)
@pytest.mark.parametrize("core", range(CORES))
def test_what_is_wrong_is_found(damage: Callable[[Plan], Plan], message: str, core: int) -> None:
    plans = [*spread()]
    check_meetings(plans)
    plans[core] = damage(plans[core])
    with pytest.raises(AssertionError, match=message):
        check_meetings(plans)


def test_the_next_job_leaves_a_store_time_if_others_wait_for_it() -> None:
    """A window on even rows needs no row of the core above: that core gives, and need not wait itself."""
    maker = GraphMaker((16, 16, 16))
    first = maker.convolution("x", 16, SAME)
    down = Window((3, 3), (2, 2), pads=(0, 0, 1, 1))
    graph = maker.finish(maker.convolution(first, 16, down))
    network = rewritten(graph, CONFIG)
    parts = [parts_of(network.graph, layer, Split.ROWS, CORES, 8) for layer in network.graph.layers]
    _, lower = Candidate(network, is_permuted=False, parts=parts, way=0, is_wide=True).planned().plans
    (following,) = [command for command in lower.commands if command.follows is not None]
    assert (following.layer, following.follows.opcode) == (1, Opcode.STORE)
    dma = lower.queue(Queue.DMA)
    assert dma[following.waits_for].fields is following.follows.fields
    loads = [command for command in dma if command.fields.get("memory") == LocalMemory.FEATURE]
    assert all(command.layer == 0 for command in loads)
