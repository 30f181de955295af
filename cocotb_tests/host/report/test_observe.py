"""Observed inferences: every command's time is measured, in order, and near what the compiler predicts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, feeds, report_of
from lutterfly.golden.isa import COMMAND_BYTES, Opcode
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.report.observe import observe


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
