"""Drive a table ROM in cocotb: its streams, and what its test has to know of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cocotb
import numpy as np
from amaranth.hdl import Shape

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import StreamMonitor, receive, send
from lutterfly.hdl.parts.table_rom import TableRom


def environment(dut: TableRom, folder: Path) -> dict[str, str]:
    """What :func:`facts` reads in the simulator's process."""
    values = {"table": dut.table.tolist(), "signed": dut.is_signed, "latency": dut.latency}
    values["result"] = [dut.result.width, dut.result.signed]
    path = folder / "facts.json"
    path.write_text(json.dumps(values))
    return {"FACTS": str(path)}


def facts() -> tuple[np.ndarray, int, Shape, Shape, int]:
    """Table, least code, shapes of codes and results, latency."""
    found = json.loads(Path(os.environ["FACTS"]).read_text())
    table = np.array(found["table"])
    bits = (len(table) - 1).bit_length()
    least = -(len(table) // 2) if found["signed"] else 0
    return table, least, Shape(bits, found["signed"]), Shape(*found["result"]), found["latency"]


async def check_every_entry(dut, p_stall: tuple[float, float], seed: int) -> None:
    """Look all codes up, in an order of their own."""
    table, least, _, _, _ = facts()
    codes = np.random.default_rng(seed).permutation(len(table)) + least
    found, _ = await look_up(dut, codes, p_stall)
    np.testing.assert_array_equal(found, table[codes - least])


async def look_up(dut, codes: np.ndarray, p_stall: tuple[float, float], seed: int = 0) -> tuple[list[int], list[int]]:
    """Reset, and what comes for ``codes`` then, and in which cycles."""
    await start(dut, {"codes__valid": 0, "results__ready": 0})
    return await answers(dut, codes, p_stall, seed)


async def answers(dut, codes: np.ndarray, p_stall: tuple[float, float], seed: int = 0) -> tuple[list[int], list[int]]:
    """What comes for ``codes`` from now on, and in which cycles."""
    _, _, shape, result, _ = facts()
    rng, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    watch = StreamMonitor(dut.clk, dut, "results", shape=result)
    cocotb.start_soon(send(dut.clk, dut, "codes", codes.tolist(), rng, p_stall[0], shape=shape))
    found = await receive(dut.clk, dut, "results", len(codes), other, p_stall[1], shape=result)
    watch.stop()
    assert watch.words == found
    return found, watch.cycles
