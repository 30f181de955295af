# amaranth: UnusedElaboratable=no
"""Table ROMs: every entry, in order and out of it, with stalls on both sides; what is stored by half, and where."""

from __future__ import annotations

from pathlib import Path

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Shape
from cocotb.triggers import RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.table_bench import answers, check_every_entry, environment, facts, look_up
from lutterfly.golden.transfer.schemes import parse
from lutterfly.golden.transfer.tables import transfer_table
from lutterfly.hdl.parts.device import RAM_LATENCY
from lutterfly.hdl.parts.table_rom import TableRom

FUNCTIONS = {
    "tanh": np.tanh,
    "negative tanh": lambda x: -np.tanh(x),
    "abs": np.abs,
    "swish": lambda x: x / (np.float32(1) + np.exp(-x)),
    "sigmoid": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)),
}


def rom(source: str, function: str, target: str, **options) -> TableRom:
    before, after = parse(source), parse(target)
    table = transfer_table(before, FUNCTIONS[function], after)
    return TableRom(
        table.astype(int).tolist(), is_signed=before.is_signed, result=Shape(after.bits, after.is_signed), **options
    )


def run(simulate, dut: TableRom, folder: Path, testcase: str | None = None) -> None:
    simulate(dut, env=environment(dut, folder), testcase=testcase)


@pytest.mark.parametrize(
    ("source", "function", "target"),
    [
        pytest.param("q3.4", "tanh", "q0.7", marks=pytest.mark.regress),
        ("q3.4", "negative tanh", "q0.7"),
        pytest.param("q3.4", "abs", "uq4.4", marks=pytest.mark.regress),
        pytest.param("uint8:scale=0.05,zero_point=128", "sigmoid", "uq4.12", marks=pytest.mark.regress),
    ],
)
def test_half_tables(simulate, source: str, function: str, target: str, tmp_path: Path) -> None:
    dut = rom(source, function, target)
    assert dut.half
    assert (dut.stored_entries, dut.latency) == (128, RAM_LATENCY + 2)
    run(simulate, dut, tmp_path)


@pytest.mark.parametrize(
    ("source", "function", "target", "options"),
    [
        ("q3.4", "swish", "q3.4", {"is_block": True}),
        ("int8:scale=0.05,zero_point=-9", "tanh", "q0.15", {}),
        pytest.param("uint8:scale=0.01,zero_point=7", "sigmoid", "uq0.8", {}, marks=pytest.mark.regress),
        pytest.param("q3.4", "tanh", "q0.7", {"may_halve": False}, marks=pytest.mark.regress),
    ],
)
def test_whole_tables(simulate, source: str, function: str, target: str, options: dict, tmp_path: Path) -> None:
    dut = rom(source, function, target, **options)
    assert dut.half is None
    assert (dut.stored_entries, dut.latency, dut.is_block) == (256, RAM_LATENCY, options.get("is_block", False))
    run(simulate, dut, tmp_path)


@pytest.mark.regress
def test_a_table_of_16_bits(simulate, tmp_path: Path) -> None:
    dut = rom("q3.12", "tanh", "q0.7")
    assert (dut.stored_entries, dut.is_block) == (1 << 15, True)
    run(simulate, dut, tmp_path, testcase="every_entry_with_stalls")


@pytest.mark.parametrize(
    ("result", "entries"),
    [(Shape(1), 32), (Shape(1, signed=True), 32), (Shape(2), 4), (Shape(36), 16)],
    ids=str,
)
def test_any_width(simulate, result: Shape, entries: int, tmp_path: Path) -> None:
    least = -(1 << result.width - 1) if result.signed else 0
    table = least + np.random.default_rng(result.width).integers(0, 1 << result.width, entries)
    run(simulate, TableRom(table.tolist(), is_signed=False, result=result), tmp_path)


def test_half_a_table_of_one_bit(simulate, tmp_path: Path) -> None:
    dut = TableRom([0] * 8 + [1] * 8, is_signed=True, result=Shape(1))
    assert dut.half
    run(simulate, dut, tmp_path)


def test_large_tables_lie_in_block_ram() -> None:
    table = [*range(255), 3]
    assert not TableRom(table, is_signed=False, result=Shape(16)).is_block
    assert TableRom(table, is_signed=False, result=Shape(17)).is_block


@pytest.mark.parametrize(
    ("table", "result", "message"),
    [
        ([0] * 255, Shape(8), "entries must be a power of two, at least 4, not 255"),
        ([0, 0, 0, 256], Shape(8), "entries must be between 0 and 255, not 256"),
        ([0, 0, 0, -1], Shape(8), "entries must be between 0 and 255, not -1"),
        ([0, -129, 0, 0], Shape(8, True), "entries must be between -128 and 127, not -129"),
    ],
)
def test_refusals(table: list[int], result: Shape, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        TableRom(table, is_signed=True, result=result)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def every_entry_with_stalls(dut) -> None:
    await check_every_entry(dut, (0.2, 0.2), 5)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(is_ready=[0, 1], cycles=range(1, 7))
async def a_reset_forgets_what_is_under_way(dut, is_ready: int, cycles: int) -> None:
    """However far codes have come, and whether or not a result waits: only those after the reset are answered."""
    table, least, _, _, _ = facts()
    await start(dut, {"codes__valid": 1, "codes__payload": 0, "results__ready": is_ready})
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    dut.codes__valid.value = 0
    codes = np.random.default_rng(cycles).permutation(len(table))[:20] + least
    found, _ = await answers(dut, codes, (0.3, 0))
    np.testing.assert_array_equal(found, table[codes - least])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def one_each_cycle(dut) -> None:
    """In order and twice, without stalls; the first after the latency."""
    table, least, _, _, latency = facts()
    codes = np.tile(np.arange(len(table)), 2) + least
    found, cycles = await look_up(dut, codes, (0, 0))
    np.testing.assert_array_equal(found, np.tile(table, 2))
    np.testing.assert_array_equal(np.diff(cycles), 1)
    assert cycles[0] == latency


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(p_stall=[(0.7, 0.0), (0.0, 0.7), (0.5, 0.5)], seed=[0, 1])
async def stalls_on_either_side(dut, p_stall: tuple[float, float], seed: int) -> None:
    table, least, _, _, _ = facts()
    codes = np.random.default_rng(seed).integers(len(table), size=200) + least
    found, _ = await look_up(dut, codes, p_stall, seed)
    np.testing.assert_array_equal(found, table[codes - least])
