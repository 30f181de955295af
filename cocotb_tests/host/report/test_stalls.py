"""Shares of cycles: they add up to the run's own counters, and each reason is charged what it caused."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, report_of
from lutterfly.golden.isa import FORMATS, Compute, Opcode
from lutterfly.host.program import BodyCommand
from lutterfly.host.report.observe import Observation, Ran
from lutterfly.host.report.stalls import LOADED, REQUANTISER, RESULTS, STORED, TURNAROUND, WAITS, shares


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
