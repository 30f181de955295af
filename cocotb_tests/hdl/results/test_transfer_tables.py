# amaranth: UnusedElaboratable=no
"""Transfer tables against golden.transfer.tables: every table, every code, and codes that pass."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.transfer.tables import apply_table
from lutterfly.hdl.parts.device import RAM_LATENCY
from lutterfly.hdl.results.epilogues import TransferTables


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_matches_golden(simulate, preset: str) -> None:
    simulate(TransferTables(PRESETS[preset]), env={"PRESET": preset})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def looks_up_or_lets_pass(dut) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(1)
    lanes = config.array.requant_lanes
    tables = rng.integers(-128, 128, (config.memory.tables, 256), dtype=np.int8)
    await start(dut, {"write__en": 0, "enable": 0})
    for address, value in enumerate(tables.reshape(-1)):
        await cycle(dut, {"write__en": 1, "write__addr": address, "write__data": int(value) & 255})
    dut.write__en.value = 0

    codes = rng.integers(-128, 128, (2000, lanes), dtype=np.int8)
    codes[:256] = np.arange(-128, 128, dtype=np.int8)[:, None]
    chosen, enabled = rng.integers(0, len(tables), len(codes)), rng.integers(0, 2, len(codes))
    values = []
    for row, table, enable in [*zip(codes, chosen, enabled, strict=True), *[(codes[0], 0, 0)] * RAM_LATENCY]:
        inputs = {"codes": int.from_bytes(row.tobytes(), "little"), "table": int(table), "enable": int(enable)}
        values += await cycle(dut, inputs, "values")
    expected = [
        apply_table(row, tables[table]) if enable else row
        for row, table, enable in zip(codes, chosen, enabled, strict=True)
    ]
    assert values[RAM_LATENCY:] == [int.from_bytes(row.tobytes(), "little") for row in expected]
