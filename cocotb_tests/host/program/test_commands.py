"""The use of the bus: beats of both channels, and when they are the bound."""

from __future__ import annotations

import dataclasses

import pytest

from cocotb_tests.support.oracles.reported import model
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.isa import FORMATS, Opcode
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import command_beats
from lutterfly.golden.units import Queue
from lutterfly.host.program import BodyCommand, BusUse, SpreadBy, bus_bytes
from lutterfly.host.session.loading import load

CONFIG = PRESETS["tiny"]


def command(opcode: Opcode, **fields: int) -> BodyCommand:
    return BodyCommand(FORMATS[opcode].kind(**fields), None, None, 0, 0)


def test_runs_take_whole_beats_of_their_channel() -> None:
    # Four bytes a beat.
    load = command(Opcode.LOAD, external=3, rows=2, folds=3, row_pieces=5, piece_bytes=2)
    store = command(Opcode.STORE, external=4, rows=7, row_bytes=9)
    others = [command(Opcode.FILL, rows=9, piece_bytes=9), command(Opcode.BARRIER, group=3)]
    use = BusUse.of(CONFIG, [{Queue.DMA: [load, store, *others]}, {Queue.DMA: [store]}], 100)
    assert CONFIG.axi.data_bytes == 4
    assert (use.reads, use.writes) == (2 * 3 * 4, 2 * 7 * 3)


def test_commands_that_are_fetched_are_read() -> None:
    fits, longer = ({Queue.COMPUTE: [command(Opcode.COMPUTE)] * (CONFIG.resident_commands + more)} for more in (-1, 0))
    assert BusUse.of(CONFIG, [fits], 1) == BusUse(0, 0, 1)
    assert BusUse.of(CONFIG, [longer], 1).reads == (CONFIG.resident_commands + 1) * command_beats(CONFIG)


@pytest.mark.parametrize(
    ("reads", "writes", "is_bound"), [(799, 799, False), (800, 0, True), (0, 800, True), (400, 400, False)]
)
def test_either_channel_is_the_bound(reads: int, writes: int, is_bound: bool) -> None:
    use = BusUse(reads, writes, 1000)
    assert use.is_bound == is_bound
    assert use.text.endswith("; the bus is the bound") == is_bound
    assert use.text.startswith(f"{reads} beats read and {writes} written in 1,000 cycles ({reads / 10:.0f}% and ")


@pytest.mark.regress
@pytest.mark.parametrize("spread_by", SpreadBy)
def test_an_inference_moves_what_its_commands_say(spread_by: SpreadBy) -> None:
    config = dataclasses.replace(CONFIG, cluster=ClusterConfig(2))
    loaded = load(model("large"), config, spread_by=spread_by)
    commands = [command for body in loaded.bodies for queue in body.values() for command in queue]
    beats = {
        opcode: sum(bus_bytes(c.fields) for c in commands if c.opcode is opcode) / config.axi.data_bytes
        for opcode in (Opcode.LOAD, Opcode.STORE)
    }
    use = BusUse.of(config, loaded.bodies, loaded.program.predicted_cycles)
    assert 0 < beats[Opcode.STORE] <= use.writes < 1.5 * beats[Opcode.STORE]
    rings = [len(queue) + 1 for body in loaded.bodies for queue in body.values()]
    fetched = sum(length for length in rings if length > config.resident_commands) * command_beats(config)
    assert bool(fetched) == (spread_by is SpreadBy.SAMPLE)
    assert beats[Opcode.LOAD] <= use.reads - fetched < 1.5 * beats[Opcode.LOAD]
