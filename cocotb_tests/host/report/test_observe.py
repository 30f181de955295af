"""Observed inferences: every command's time is measured, in order, and near what the compiler predicts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, feeds, report_of
from lutterfly.golden.isa import COMMAND_BYTES, FORMATS, Compute, Opcode
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import Queue
from lutterfly.host import InferenceSession
from lutterfly.host.compiler.operation import Command
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.program import BodyCommand
from lutterfly.host.report.observe import (
    LOADED,
    REQUANTISER,
    RESULTS,
    STORED,
    TURNAROUND,
    WAITS,
    Observation,
    Occupant,
    Ran,
    observe,
    shares,
    used_bytes,
)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_command_of_the_program_is_there(network: str) -> None:
    _, facts = report_of(network)
    ran, body = facts.observation, facts.program.cores[0].body
    # Each queue ends with END, which the trace does not show and the counters count.
    assert len(ran.dma) == len(body.dma) - 1 == ran.counters["dma_done"] - 1
    assert len(ran.compute) == len(body.compute) - 1 == ran.counters["compute_done"] - 1
    opcodes = [
        Opcode(body.dma.commands[start] & 15)
        for start in range(0, len(body.dma.commands) - COMMAND_BYTES, COMMAND_BYTES)
    ]
    assert [command.command.opcode for command in ran.dma] == opcodes
    assert ran.cycles == ran.counters["cycles"]


@pytest.mark.parametrize("network", NETWORKS)
def test_times_are_in_order_and_within_the_run(network: str) -> None:
    ran = report_of(network)[1].observation
    for queue in (ran.dma, ran.compute):
        assert all(0 <= command.begin < command.issued <= command.end <= ran.cycles for command in queue)
        for one, other in itertools.pairwise(queue):
            assert one.begin < other.begin
            assert one.end < other.end
    for one, other in itertools.pairwise(ran.compute):
        assert one.issued <= other.begin
    assert ran.cycles - max(ran.dma[-1].end, ran.compute[-1].end) < 16


@pytest.mark.parametrize("network", NETWORKS)
def test_a_command_that_waits_for_another_runs_after_it(network: str) -> None:
    ran = report_of(network)[1].observation
    waited = 0
    for queue, other in ((ran.dma, ran.compute), (ran.compute, ran.dma)):
        for command in queue:
            if command.command.waits_for is not None:
                assert command.begin >= other[command.command.waits_for].end
                waited += 1
    assert waited


@pytest.mark.parametrize("network", NETWORKS)
def test_predicted_times_are_near_the_measured_ones(network: str) -> None:
    ran = report_of(network)[1].observation
    for command in (*ran.dma, *ran.compute):
        assert abs(command.command.end - command.end) <= max(16, 0.02 * ran.cycles), command


@pytest.mark.parametrize(("network", "most"), [("digits", 0), ("large", 4), ("joined", 2)])
def test_commands_begin_and_end_when_it_is_predicted(network: str, most: int) -> None:
    """All of them, or all but a few, most of which are a cycle off."""
    ran = report_of(network)[1].observation
    off = [one for one in (*ran.dma, *ran.compute) if (one.begin, one.end) != (one.command.begin, one.command.end)]
    assert len(off) <= most


def test_outputs_are_those_of_the_run() -> None:
    _, facts = report_of("digits")
    session = InferenceSession(facts.program, PRESETS["tiny"])
    inputs = feeds(session)
    expected = session.run(None, inputs)
    for _ in range(2):
        (observation,) = observe(session, session.transport.simulator, session.loaded.bodies, inputs)
        found = session.tail(inputs, observation.outputs)
        for info, array in zip(session.get_outputs(), expected, strict=True):
            np.testing.assert_array_equal(found[info.name], array)


# Occupants of the feature memory: nothing at two places at a time, and every command within its tensor's time.


def planned(plan: Plan, ran: Ran) -> Command:
    """The compiler's command, which knows every byte that it touches."""
    return plan.queue(Queue.COMPUTE if ran.kind == "COMPUTE" else Queue.DMA)[ran.index]


def feature_spans(plan: Plan, ran: Ran) -> Iterator[tuple[int, int, int]]:
    """First and last address of the feature memory that a command reads or writes, and until when it does."""
    limit = PRESETS["tiny"].memory.feature_bytes
    for touched, end in ((planned(plan, ran).reads, ran.issued), (planned(plan, ran).writes, ran.end)):
        # Further numbers stand for other memories.
        addresses = touched[touched < limit]
        if len(addresses):
            yield int(addresses.min()), int(addresses.max()), end


@pytest.mark.parametrize("network", NETWORKS)
def test_where_two_share_bytes_the_first_is_done_with_them(network: str) -> None:
    plan, facts = report_of(network)
    ran = (*facts.observation.dma, *facts.observation.compute)
    overlapping = 0
    for one, other in itertools.permutations(facts.occupants, 2):
        first, last = (
            max(one.address, other.address),
            min(one.address + one.size_bytes, other.address + other.size_bytes),
        )
        if first < last and one.begin < other.begin < one.end:
            overlapping += 1
            for command in ran:
                # After its last step a command only writes.
                known = planned(plan, command)
                for touched, end in ((known.reads, command.issued), (known.writes, command.end)):
                    if one.begin <= command.begin < other.begin and ((first <= touched) & (touched < last)).any():
                        assert end <= other.begin, (one, other, command)
    assert bool(overlapping) == (network == "large")


@pytest.mark.parametrize("network", NETWORKS)
def test_whatever_is_read_or_written_belongs_to_occupants_of_that_time(network: str) -> None:
    plan, facts = report_of(network)
    ran, checked = facts.observation, 0
    for command in (*ran.dma, *ran.compute):
        for first, last, end in feature_spans(plan, command):
            checked += 1
            # A sum reads two tensors: both ends are looked for.
            for address in (first, last):
                assert any(
                    occupant.address <= address < occupant.address + occupant.size_bytes
                    and occupant.begin <= command.begin
                    and end <= occupant.end
                    for occupant in facts.occupants
                ), command
    assert checked >= 2 * len(ran.compute)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_tensor_of_the_feature_memory_is_shown(network: str) -> None:
    plan, facts = report_of(network)
    shown = {occupant.tensor for occupant in facts.occupants}
    assert shown == set(plan.roots)
    assert bool(plan.views) == (network == "joined")
    parts = {occupant.tensor for occupant in facts.occupants if not occupant.is_whole}
    assert parts == {plan.root(name) for layer in facts.layers for name in layer.planned.in_parts}
    assert bool(parts) == (network == "large")


@pytest.mark.parametrize("network", NETWORKS)
def test_the_level_never_exceeds_the_memory_and_ends_at_zero(network: str) -> None:
    _, facts = report_of(network)
    levels = used_bytes(facts.occupants)
    assert 0 < max(levels.values()) <= facts.config.memory.feature_bytes
    assert list(levels.values())[-1] == 0


def test_levels_count_a_byte_once() -> None:
    found = [Occupant("a", 0, 10, 0, 8, is_whole=True), Occupant("b", 8, 5, 4, 12, is_whole=True)]
    assert used_bytes(found) == {0: 10, 4: 13, 8: 5, 12: 0}


# Shares of cycles: they add up to the run's own counters, and each reason is charged what it caused.


@pytest.mark.parametrize("network", NETWORKS)
def test_shares_add_up_to_the_counters(network: str) -> None:
    _, facts = report_of(network)
    divided = [layer.share for layer in facts.layers]
    assert divided[0].begin == 0
    assert all(one.end == other.begin for one, other in itertools.pairwise(divided))
    assert divided[-1].end == facts.observation.compute[-1].issued <= facts.observation.cycles
    assert sum(share.steps for share in divided) == facts.observation.counters["compute_busy"]
    for share in divided:
        assert share.steps + sum(share.waits.values()) == share.cycles
        assert min(share.waits.values()) >= 0
        assert tuple(share.waits) == WAITS


@pytest.mark.parametrize("network", NETWORKS)
def test_the_dma_is_in_progress_as_long_as_its_counter_says(network: str) -> None:
    _, facts = report_of(network)
    ran = facts.observation
    after = shares(dataclasses.replace(ran, compute=(ran.compute[-1],)), [(0,)])[0].end
    moving = sum(layer.share.dma for layer in facts.layers)
    later = sum(command.end - max(command.begin, after) for command in ran.dma if command.end > after)
    # END, which the trace does not show, is a command too; a queue knows a cycle later that its unit is done.
    assert abs(moving + later - ran.counters["dma_busy"]) <= 2 * len(ran.dma)
    assert all(layer.share.dma <= layer.share.cycles for layer in facts.layers)


def test_cycles_of_the_dma_are_counted_once() -> None:
    commands = [compute(10, 20, 30, 60), compute(60, 40, 100, 140)]
    dma = [dataclasses.replace(moved(Opcode.LOAD, end), begin=begin) for begin, end in ((5, 12), (8, 25), (28, 50))]
    found = shares(Observation(200, {}, tuple(dma), tuple(commands), []), [(0,), (1,)])
    assert [share.dma for share in found] == [20 + 2, 20]


@pytest.mark.parametrize("network", NETWORKS)
def test_layers_take_what_is_predicted(network: str) -> None:
    for layer in report_of(network)[1].layers:
        assert abs(layer.share.cycles - layer.planned.cycles) <= max(16, 0.02 * layer.share.cycles), layer.label


@pytest.mark.parametrize(("network", "most"), [("digits", 0), ("joined", 0), ("pruned", 0), ("large", 2)])
def test_every_command_completes_in_the_cycle_that_is_predicted(network: str, most: int) -> None:
    plan, facts = report_of(network)
    ran = facts.observation
    assert abs(ran.cycles - plan.predicted_cycles) <= most
    for commands in (ran.compute, ran.dma):
        assert commands
        assert max(abs(one.end - one.command.end) for one in commands) <= most


def compute(
    begin: int, steps: int, issued: int, end: int, *, engine: int = 0, after: bool = False, waits_for: int | None = None
) -> Ran:
    fields = Compute(outer=1, middle=1, inner=1, steps=steps, engine=engine, after=int(after))
    return Ran(BodyCommand(fields, None, waits_for, 0, 0), 0, begin, issued, end)


def moved(opcode: Opcode, end: int) -> Ran:
    return Ran(BodyCommand(FORMATS[opcode].kind(), None, None, 0, 0), 0, 0, end, end)


def waits_of(commands: Iterable[Ran], dma: Iterable[Ran] = ()) -> dict[str, int]:
    """What the last of the commands waited for, each being a layer, as far as it did."""
    commands = tuple(commands)
    observation = Observation(1000, {}, tuple(dma), commands, [])
    found = shares(observation, [(index,) for index in range(len(commands))])[-1]
    assert found.steps + sum(found.waits.values()) == found.cycles
    return {reason: cycles for reason, cycles in found.waits.items() if cycles}


def test_each_reason_is_charged_what_it_caused() -> None:
    first = compute(10, 20, 30, 60)
    assert waits_of([first]) == {TURNAROUND: 10}
    assert waits_of([first, compute(33, 20, 53, 90)]) == {TURNAROUND: 3}
    assert waits_of([first, compute(62, 20, 82, 90, after=True)]) == {RESULTS: 30, TURNAROUND: 2}
    assert waits_of([first, compute(60, 20, 80, 90, engine=1)]) == {RESULTS: 30}
    assert waits_of([first, compute(30, 20, 57, 90)]) == {REQUANTISER: 7}


@pytest.mark.parametrize(("opcode", "reason"), [(Opcode.LOAD, LOADED), (Opcode.FILL, LOADED), (Opcode.STORE, STORED)])
def test_the_dma_is_charged_only_what_would_not_have_passed_anyway(opcode: Opcode, reason: str) -> None:
    first, waiting = compute(10, 20, 30, 60), compute(80, 20, 100, 140, waits_for=0)
    assert waits_of([first, waiting], [moved(opcode, 75)]) == {reason: 45, TURNAROUND: 5}
    assert waits_of([first, waiting], [moved(opcode, 20)]) == {TURNAROUND: 50}
    dependent = compute(80, 20, 100, 140, waits_for=0, after=True)
    assert waits_of([first, dependent], [moved(opcode, 75)]) == {RESULTS: 30, reason: 15, TURNAROUND: 5}
    assert waits_of([first, dependent], [moved(opcode, 50)]) == {RESULTS: 30, TURNAROUND: 20}
