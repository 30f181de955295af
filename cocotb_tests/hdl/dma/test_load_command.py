# amaranth: UnusedElaboratable=no
"""LOAD and FILL as loops: runs and transfers by the book, and each way in which a command is illegal."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack, receive, send, unpack
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.memories import LocalMemory, memories
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.dma.chunks import chunk_bytes, transfer_nest
from lutterfly.hdl.dma.load import LoadCommands, load_command_layout, run_nest
from lutterfly.hdl.parts.isa import ErrorReport

IDLE = {"commands__valid": 0, "runs__ready": 0, "transfers__ready": 0, "halt": 0}


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_takes_commands(simulate, preset: str) -> None:
    simulate(LoadCommands(PRESETS[preset]), env={"PRESET": preset})


def drawn(rng: np.random.Generator, fmt: isa.Format) -> dict[str, int]:
    """Any fields, but no count of zero."""
    fields = [field for field in fmt.fields if field.lsb >= 32]
    return {field.name: int(rng.integers(1, 1 << min(field.width, 32))) for field in fields}


def random_command(config: Config, rng: np.random.Generator, number: int) -> dict[str, Any]:
    """A legal one."""
    if rng.random() < 0.4:
        return {"is_fill": 1, "fill": {"index": number, **drawn(rng, isa.FILL)}}
    built = memories(config)
    memory = built[int(rng.integers(len(built)))]
    load = {"index": number, **drawn(rng, isa.LOAD), "memory": memory}
    pieces = rng.choice([1, 2, int(rng.integers(1, 1 << 16))])
    load |= {"row_pieces": int(pieces), "piece_bytes": int(rng.integers(1, min(1 << 24, (1 << 32) // pieces)))}
    if memory is not LocalMemory.FEATURE:
        unit = memory.write_bytes(config.array.lanes)
        single = dict.fromkeys(("row_pieces", "rows", "folds"), 1)
        load |= single | {name: -(-(load[name] & 0xFFFF) // unit) * unit for name in ("local", "piece_bytes")}
    return {"is_fill": 0, "load": load}


def run_of(load: dict[str, int]) -> dict[str, Any]:
    return {
        "count": {loop: load[f"{loop}s"] for loop in ("row", "fold")},
        "start": {"external": load["external"]},
        "pitch": {"external": {loop: load[f"external_{loop}"] for loop in ("row", "fold")}},
        "context": {"index": load["index"], "last_byte": load["row_pieces"] * load["piece_bytes"] - 1},
    }


def transfer_of(command: dict[str, Any], config: Config) -> dict[str, Any]:
    """What a transfer is, but for pitches of loops with a single round, and for what no FILL has."""
    is_fill, fields = command["is_fill"], command["fill" if command["is_fill"] else "load"]
    memory = LocalMemory.FEATURE if is_fill else fields["memory"]
    most = config.array.lanes if is_fill else chunk_bytes(memory, config)
    last_byte = fields["piece_bytes"] - 1
    counts = {"row": fields["rows"], "fold": fields.get("folds", 1), "piece": fields.get("row_pieces", 1)}
    context = {"index": fields["index"], "is_fill": is_fill, "memory": int(memory), "last_byte": last_byte}
    context |= {"chunk_bytes": most, "chunks_left": last_byte // most, "tail_bytes": last_byte % most + 1}
    pitches = {loop: fields[f"local_{loop}"] for loop, count in counts.items() if count > 1}
    transfer = {"count": counts, "local": fields["local"], "pitch": pitches, "context": context}
    if is_fill:
        return transfer | {"value": fields["value"]}
    offset_bits = transfer_nest(config).pointers["offset"]
    offsets = [fields[name] % (1 << offset_bits) for name in ("external", "external_row", "external_fold")]
    return transfer | {"offsets": offsets}


def as_transfer(found: dict[str, Any]) -> dict[str, Any]:
    """The same of what the hardware gives."""
    value, pitch = found["context"].pop("value"), found["pitch"]
    pitches = {loop: pitch["local"][loop] for loop, count in found["count"].items() if count > 1}
    transfer = {"count": found["count"], "local": found["start"]["local"], "pitch": pitches}
    transfer["context"] = found["context"]
    if found["context"]["is_fill"]:
        return transfer | {"value": value}
    return transfer | {"offsets": [found["start"]["offset"], *(pitch["offset"][loop] for loop in ("row", "fold"))]}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def every_command(dut, p_stall: float) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(3)
    commands = [random_command(config, rng, number) for number in range(80)]
    runs = [run_of(command["load"]) for command in commands if not command["is_fill"]]
    await start(dut, IDLE)
    cocotb.start_soon(send(dut.clk, dut, "commands", commands, rng, p_stall, shape=load_command_layout()))
    layouts = {"runs": run_nest().nest_layout, "transfers": transfer_nest(config).nest_layout}
    tasks = [
        cocotb.start_soon(
            receive(dut.clk, dut, name, count, np.random.default_rng(count), p_stall, shape=layouts[name])
        )
        for name, count in (("runs", len(runs)), ("transfers", len(commands)))
    ]
    assert await tasks[0] == runs
    assert [as_transfer(one) for one in await tasks[1]] == [transfer_of(one, config) for one in commands]


PARAMETER = {"memory": int(LocalMemory.PARAMETER)}
#: Of a LOAD to the feature memory of 16 bytes, unless they say something else.
ILLEGAL = [
    *({name: 0} for name in ("rows", "folds", "row_pieces", "piece_bytes")),
    *(PARAMETER | {name: 2} for name in ("rows", "folds", "row_pieces")),
    # Part of a unit, and beside one; no memory; a run of 2**32 bytes and more.
    PARAMETER | {"piece_bytes": 12},
    PARAMETER | {"local": 4},
    {"memory": 15},
    {"row_pieces": 1 << 15, "piece_bytes": (1 << 17) + 1},
]
LEGAL = {"index": 5, "rows": 1, "folds": 1, "row_pieces": 1, "piece_bytes": 16, "memory": int(LocalMemory.FEATURE)}
WRONG = [
    *({"is_fill": 0, "load": LEGAL | fields} for fields in ILLEGAL),
    *({"is_fill": 1, "fill": {"index": 5, "rows": rows, "piece_bytes": 1 - rows}} for rows in (0, 1)),
]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(command=WRONG)
async def refused(dut, command: dict[str, Any]) -> None:
    await start(dut, IDLE | {"runs__ready": 1, "transfers__ready": 1})
    inputs = {"commands__valid": 1, "commands__payload": pack(command, load_command_layout())}
    reports = []
    for _ in range(30):
        valid_run, valid_transfer, error = await cycle(dut, inputs, "runs__valid", "transfers__valid", "refused")
        assert not valid_run
        assert not valid_transfer
        reports += [unpack(error, ErrorReport)] * (error & 1)
    unit = Unit.FILL if command["is_fill"] else Unit.LOAD
    assert reports == [{"valid": 1, "code": int(ErrorCode.ILLEGAL_FIELD), "unit": int(unit), "index": 5, "address": 0}]
