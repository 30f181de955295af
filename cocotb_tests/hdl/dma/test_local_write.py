# amaranth: UnusedElaboratable=no
"""Chunks into the memories: those for features at once, others gathered into units; void ones go nowhere."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack, unpack
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.memories import LocalMemory, memories
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.dma.chunks import LocalWrite, chunk_layout, local_write_layout
from lutterfly.hdl.memories.feature_memory import feature_write_layout


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_writes(simulate, preset: str) -> None:
    simulate(LocalWrite(PRESETS[preset]), env={"PRESET": preset})


def chunk(memory: int, address: int, data: bytes, *, void: bool = False, last: bool = False) -> dict[str, int]:
    """A chunk of some bytes."""
    value = int.from_bytes(data, "little")
    flags = {"void": int(void), "last": int(last)}
    return {"memory": int(memory), "address": address, "count": len(data), "data": value, **flags}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def units_of_every_memory(dut) -> None:
    """Chunks one after the other; some between them are void."""
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(8)
    lanes, data_bytes = config.array.lanes, config.axi.data_bytes
    chunks, expected, dones = [], [], 0
    for memory in [one for one in memories(config) if one is not LocalMemory.FEATURE] * 20:
        unit, number = memory.write_bytes(lanes), int(rng.integers(64))
        data = rng.bytes(unit)
        parts = [data[at : at + data_bytes] for at in range(0, unit, data_bytes)]
        is_void = bool(rng.random() < 0.2)
        for position, part in enumerate(parts):
            is_last = position == len(parts) - 1
            at = number * unit + position * data_bytes
            chunks.append(chunk(memory, at, part, void=is_void, last=is_last))
            dones += is_last and not is_void
        if not is_void:
            expected.append((int(memory), number, data))
    await start(dut, {"chunks__valid": 0, "feature__ready": 0})
    found, done_cycles = [], 0
    for one in [*chunks, None, None, None]:
        inputs = {"chunks__valid": int(one is not None)}
        if one is not None:
            inputs["chunks__payload"] = pack(one, chunk_layout(config))
        write, ready, features, done = await cycle(dut, inputs, "local", "chunks__ready", "feature__valid", "done")
        assert one is None or ready == 1, "the other memories are always ready"
        assert features == 0
        done_cycles += done
        write = unpack(write, local_write_layout(config))
        if write["valid"]:
            found.append((write["memory"], write["address"], write["data"]))
    units = {int(memory): memory.write_bytes(lanes) for memory in memories(config)}
    assert [
        (memory, address, (data & (1 << 8 * units[memory]) - 1).to_bytes(units[memory], "little"))
        for memory, address, data in found
    ] == expected
    assert done_cycles == dones


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def features_pass_at_once_and_wait(dut) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(9)
    lanes, data_bytes = config.array.lanes, config.axi.data_bytes
    await start(dut, {"chunks__valid": 0, "feature__ready": 0})
    for number in range(200):
        data, is_void, is_ready = rng.bytes(int(rng.integers(1, data_bytes + 1))), number % 5 == 0, number % 3 != 0
        one = chunk(LocalMemory.FEATURE, number, data, void=is_void, last=number % 2 == 0)
        inputs = {"chunks__payload": pack(one, chunk_layout(config)), "feature__ready": int(is_ready)}
        inputs["chunks__valid"] = 1
        valid, payload, ready, done, write = await cycle(
            dut, inputs, "feature__valid", "feature__payload", "chunks__ready", "done", "local"
        )
        assert (valid, ready) == (not is_void, is_ready)
        assert done == (not is_void and is_ready and one["last"])
        assert unpack(write, local_write_layout(config))["valid"] == 0
        found = unpack(payload, feature_write_layout(config))
        assert (found["address"], found["count"]) == (number, len(data))
        assert found["data"].to_bytes(lanes, "little")[: len(data)] == data


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_fill_repeats_its_byte_over_all_lanes(dut) -> None:
    config = PRESETS[os.environ["PRESET"]]
    lanes = config.array.lanes
    one = {**chunk(LocalMemory.FEATURE, 0, b"\x5a" * config.axi.data_bytes), "count": lanes}
    await start(dut, {"chunks__valid": 1, "feature__ready": 1, "chunks__payload": pack(one, chunk_layout(config))})
    (payload,) = await cycle(dut, {}, "feature__payload")
    assert unpack(payload, feature_write_layout(config))["data"] == int.from_bytes(b"\x5a" * lanes, "little")
