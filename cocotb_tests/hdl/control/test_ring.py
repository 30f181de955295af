# amaranth: UnusedElaboratable=no
"""A ring of commands: words in order at any pace, programs that fit and that do not, and a run from what it holds."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import pack, receive
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.isa import COMMAND_BYTES
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.control.program import CommandRing, burst_layout, program_layout
from lutterfly.hdl.parts.verilog import to_verilog

START = 64
#: Cycles from a burst to its first word, at least: a bus takes longer.
_LATENCY = 3


@pytest.mark.parametrize("preset", sweep(["tiny", "large"], kept=["tiny"]))
def test_ring(simulate, preset: str) -> None:
    simulate(CommandRing(PRESETS[preset]), env={"PRESET": preset})


@pytest.mark.parametrize(("resident", "is_block"), [(16, False), (32, True)])
def test_a_short_ring_takes_no_block_ram(resident: int, is_block: bool) -> None:
    """Of words of 16 bytes, four a command: in a block RAM they would be an eighth of what four hold."""
    config = dataclasses.replace(PRESETS["large"], resident_commands=resident)
    assert ('ram_style = "distributed"' in to_verilog(CommandRing(config), name="ring")) != is_block


async def memory(
    dut, words: list[int], rng: np.random.Generator, p_stall: float, bursts: list[tuple[int, int]]
) -> None:
    """Answer bursts with the program's words, one burst at a time."""
    each = COMMAND_BYTES * 8 // PRESETS[os.environ["PRESET"]].axi.data_bits
    while True:
        (burst,) = await receive(dut.clk, dut, "burst", 1, rng, p_stall, shape=burst_layout())
        assert burst["address"] == START + COMMAND_BYTES * burst["index"]
        count = 1 + burst["two"]
        bursts.append((burst["index"], count))
        for _ in range(_LATENCY):
            await RisingEdge(dut.clk)
        for word in words[burst["index"] * each : (burst["index"] + count) * each]:
            while rng.random() < p_stall:
                await RisingEdge(dut.clk)
            dut.word_valid.value, dut.word.value = 1, word
            await RisingEdge(dut.clk)
            dut.word_valid.value = 0


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5], overfull=[False, True])
async def hands_out_its_program(dut, p_stall: float, overfull: bool) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(3)
    commands = config.resident_commands + 5 if overfull else config.resident_commands - 1
    count = commands * COMMAND_BYTES * 8 // config.axi.data_bits
    words = [int.from_bytes(rng.bytes(config.axi.data_bytes), "little") for _ in range(count)]
    program = pack({"address": START, "commands": commands}, program_layout())
    idle = ("start", "changed", "stop", "halt", "burst__ready", "word_valid", "word", "words__ready")
    await start(dut, {**dict.fromkeys(idle, 0), "program": program})
    bursts: list[tuple[int, int]] = []
    cocotb.start_soon(memory(dut, words, rng, p_stall, bursts))
    for run in range(3):
        asked = len(bursts)
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        assert await receive(dut.clk, dut, "words", count, rng, p_stall) == words
        for _ in range(3):
            await FallingEdge(dut.clk)
        assert dut.exhausted.value == 1
        dut.stop.value = 1
        await RisingEdge(dut.clk)
        dut.stop.value = 0
        while dut.busy.value:
            await RisingEdge(dut.clk)
        # What fits is not fetched again, unless the program may be another one.
        fetched = sum(size for _, size in bursts[asked:])
        assert fetched == (commands if overfull or run != 1 else 0)
        if run == 1:
            dut.changed.value = 1
            await RisingEdge(dut.clk)
            dut.changed.value = 0
