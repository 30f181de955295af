# amaranth: UnusedElaboratable=no
"""The shifting epilogue against golden.numerics.fpc: every shift, ties, and values far outside of the codes."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.networks.butterflies import FPC_CONFIGS
from lutterfly.golden.engines import FPC
from lutterfly.golden.numerics.fpc import FpcEpilogue, shift_values
from lutterfly.hdl.engines.engine import epilogue_settings_layout
from lutterfly.hdl.engines.shift_epilogue import LATENCY, ShiftEpilogue

CONFIG = FPC_CONFIGS["bottom-up"]
LANES = CONFIG.array.lanes


@pytest.mark.regress
def test_matches_golden(simulate) -> None:
    simulate(ShiftEpilogue(CONFIG))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_shift(dut) -> None:
    rng, expected, outputs = np.random.default_rng(2), [], []
    await start(dut, {"values": 0, "biases": 0, "settings": 0})
    for number in range(6000):
        shift, zero_point = number % 8, int(rng.choice([-128, 127, rng.integers(-128, 128)]))
        low, high = sorted(int(code) for code in rng.choice([-128, 127, *rng.integers(-128, 128, 3)], 2))
        reach = int(rng.choice([1 << 15, 200 << shift, 4]))
        values = rng.integers(-min(reach, 1 << 15), min(reach, 1 << 15), LANES).astype(np.int16)
        biases = rng.choice([rng.integers(-(1 << 15), 1 << 15), 0, 1], LANES).astype(np.int16)
        epilogue = FpcEpilogue(biases, np.full(LANES, 2.0**-shift, np.float32), zero_point, low, high)
        expected.append(shift_values(values, epilogue).tobytes())
        settings = {"zero_point": zero_point, "low": low, "high": high, "fields": {"fpc": {"shift": shift}}}
        inputs = {
            "values": int.from_bytes(values.tobytes(), "little"),
            "biases": int.from_bytes(biases.tobytes(), "little"),
            "settings": pack(settings, epilogue_settings_layout(FPC)),
        }
        outputs += await cycle(dut, inputs, "codes")
    for _ in range(LATENCY):
        outputs += await cycle(dut, {}, "codes")
    assert [output.to_bytes(LANES, "little") for output in outputs[LATENCY:]] == expected
