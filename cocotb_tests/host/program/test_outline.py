"""The outline in a program: every command, layer and block as the compiler's plan has them."""

from __future__ import annotations

import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, report_of
from cocotb_tests.support.programs import with_body, with_commands
from lutterfly.golden.isa import Sync
from lutterfly.golden.program.program import Program
from lutterfly.golden.units import Queue
from lutterfly.host.program import read_body
from lutterfly.host.session.loading import LoadedProgram


@pytest.mark.parametrize("network", NETWORKS)
def test_commands_are_the_plans(network: str) -> None:
    plan, facts = report_of(network)
    (core,) = Program.from_bytes(facts.program.to_bytes()).cores
    body = read_body(core)
    for queue in Queue:
        commands = plan.queue(queue)
        assert commands
        for found, known in zip(body[queue], commands, strict=True):
            assert found.opcode is known.opcode
            own = known.fields.keys() - Sync().keys()
            assert own
            assert {name: found.fields[name] for name in own} == {name: known.fields[name] for name in own}
            assert (found.after, found.layer, found.waits_for) == (known.after, known.layer, known.waits_for)
            assert (found.begin, found.end) == (known.begin, known.end)


@pytest.mark.parametrize("network", NETWORKS)
def test_rows_lead_to_every_layer_once(network: str) -> None:
    program = report_of(network)[1].program
    rows = [row for row in program.outline.rows if row.layers[0] >= 0]
    assert [row.layers[0] for row in rows] == [*range(len(program.layers))]
    assert [row.name for row in rows] == [layer.name for layer in program.layers]


@pytest.mark.parametrize("network", NETWORKS)
def test_every_command_that_computes_writes_a_tensor_that_is_placed(network: str) -> None:
    plan, facts = report_of(network)
    written = {index for placed in facts.program.cores[0].outline.placed for index in placed.written}
    assert written == {*range(len(plan.queue(Queue.COMPUTE)))}


def test_a_command_that_there_is_not_is_refused() -> None:
    program = report_of("digits")[1].program
    known = program.cores[0].body
    body = with_commands(known, Queue.DMA, b"\x0f" + known.dma.commands[1:])
    with pytest.raises(ValueError, match=r"^net.program: 15 "):
        _ = LoadedProgram.of("net.program", with_body(program, body)).bodies
