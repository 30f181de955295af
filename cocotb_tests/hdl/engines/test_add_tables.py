# amaranth: UnusedElaboratable=no
"""Add tables against their golden twin: every entry of every table, and accumulators and biases that pass."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from benches.clocking import cycle, start
from benches.streams import pack
from lutterfly.golden.engines import ADD
from lutterfly.golden.engines.add.memory import ENTRIES, ENTRY_BITS
from lutterfly.golden.engines.add.specification import add
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.requant import SUM_BITS, SUM_FRACTION_BITS
from lutterfly.hdl.engines.add_tables import LATENCY, AddTables
from lutterfly.hdl.engines.engine import terms_settings_layout

LIMIT = 1 << ENTRY_BITS - 1


@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_matches_golden(simulate, preset: str) -> None:
    simulate(AddTables(PRESETS[preset]), env={"PRESET": preset})


def signed_terms(word: int, lanes: int) -> np.ndarray:
    """int64[lanes, 2] of what the component gives."""
    limit = 1 << SUM_BITS - 1
    fields = [word >> SUM_BITS * place & 2 * limit - 1 for place in range(2 * lanes)]
    return np.array([field - 2 * limit if field >= limit else field for field in fields]).reshape(lanes, 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def looks_up_or_lets_pass(dut) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(1)
    lanes = config.array.requant_lanes
    tables = rng.integers(-LIMIT, LIMIT, (config.engines[ADD].tables, 2, ENTRIES // 2))
    await start(dut, {"write__en": 0, "settings": 0})
    settings = terms_settings_layout(ADD)
    for address, value in enumerate(tables.reshape(-1)):
        inputs = {"write__en": 1, "write__addr": address, "write__data": int(value) & 2 * LIMIT - 1}
        await cycle(dut, inputs)
    dut.write__en.value = 0

    count = 2000
    accumulators, biases = rng.integers(-(2**31), 2**31, (2, count, lanes)).astype(np.int32)
    accumulators[:256] = np.arange(256)[:, None] * 0x101
    pairs, enables = rng.integers(0, len(tables), count), rng.integers(0, 2, count)
    enables[:256] = 1
    outputs = []
    for cycle_number in [*range(count), *[0] * LATENCY]:
        inputs = {
            "accumulators": int.from_bytes(accumulators[cycle_number].tobytes(), "little"),
            "biases": int.from_bytes(biases[cycle_number].tobytes(), "little"),
            "settings": pack(
                {"enable": int(enables[cycle_number]), "fields": {"add": {"add_table": int(pairs[cycle_number])}}},
                settings,
            ),
        }
        outputs += await cycle(dut, inputs, "terms")
    for number, word in enumerate(outputs[LATENCY:]):
        terms = signed_terms(word, lanes)
        if enables[number]:
            codes = accumulators[number].view(np.int8).reshape(lanes, 4)[:, :2].T
            np.testing.assert_array_equal(terms.sum(1), add(codes, tables[pairs[number]]))
        else:
            passed = np.stack([accumulators[number], biases[number]], 1).astype(np.int64)
            np.testing.assert_array_equal(terms, passed << SUM_FRACTION_BITS)
