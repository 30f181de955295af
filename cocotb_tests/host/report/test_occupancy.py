"""Occupants of the feature memory: nothing at two places at a time, and every command within its tensor's time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, report_of
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import Queue
from lutterfly.host.compiler.operation import Command
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.report.observe import Ran
from lutterfly.host.report.occupancy import Occupant, used_bytes


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
