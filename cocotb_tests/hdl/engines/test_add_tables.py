# amaranth: UnusedElaboratable=no
"""Add tables against their golden twin: every entry of every table, with anything in what does not count."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.engines import ADD
from lutterfly.golden.engines.add import ENTRIES, ENTRY_BITS
from lutterfly.golden.numerics.addition import add_words
from lutterfly.golden.numerics.requant import SUM_BITS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.add import AddTables
from lutterfly.hdl.engines.engine import epilogue_settings_layout
from lutterfly.hdl.parts.device import RAM_LATENCY

LIMIT = 1 << ENTRY_BITS - 1


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_matches_golden(simulate, preset: str) -> None:
    simulate(AddTables(PRESETS[preset]), env={"PRESET": preset})


def signed_addends(word: int, lanes: int) -> np.ndarray:
    """int64[lanes, 2] of what the component gives."""
    limit = 1 << SUM_BITS - 1
    fields = [word >> SUM_BITS * place & 2 * limit - 1 for place in range(2 * lanes)]
    return np.array([field - 2 * limit if field >= limit else field for field in fields]).reshape(lanes, 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def looks_up(dut) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(1)
    lanes = config.array.requant_lanes
    tables = rng.integers(-LIMIT, LIMIT, (config.engines[ADD].tables, 2, ENTRIES // 2))
    await start(dut, {"write__en": 0, "settings": 0})
    settings = epilogue_settings_layout(ADD)
    for address, value in enumerate(tables.reshape(-1)):
        inputs = {"write__en": 1, "write__addr": address, "write__data": int(value) & 2 * LIMIT - 1}
        await cycle(dut, inputs)
    dut.write__en.value = 0

    count = 2000
    accumulators, biases = rng.integers(-(2**31), 2**31, (2, count, lanes)).astype(np.int32)
    accumulators[:256] = np.arange(256)[:, None] * 0x101
    pairs = rng.integers(0, len(tables), count)
    codes = {"zero_point": 3, "low": -100, "high": 100}
    outputs = []
    for cycle_number in [*range(count), *[0] * RAM_LATENCY]:
        inputs = {
            "accumulators": int.from_bytes(accumulators[cycle_number].tobytes(), "little"),
            "biases": int.from_bytes(biases[cycle_number].tobytes(), "little"),
            "settings": pack(codes | {"fields": {"add": {"add_table": int(pairs[cycle_number])}}}, settings),
        }
        outputs += await cycle(dut, inputs, "addends")
    for number, word in enumerate(outputs[RAM_LATENCY:]):
        operands = accumulators[number].view(np.int8).reshape(lanes, 4)[:, :2].T
        np.testing.assert_array_equal(signed_addends(word, lanes).sum(1), add_words(operands, tables[pairs[number]]))
