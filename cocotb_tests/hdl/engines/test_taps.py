# amaranth: UnusedElaboratable=no
"""Sums of the weights of Winograd steps, and all other weights as they are."""

from __future__ import annotations

import cocotb
import numpy as np

from cocotb_tests.support.benches.array_bench import (
    LANES,
    WAITS,
    control_of,
    drawn,
    phases,
    signed_bits,
    transformed,
    windows,
)
from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from lutterfly.golden.numerics.winograd import WEIGHT_BITS, transform_taps
from lutterfly.hdl.engines.winograd import TAP_CONTROL, WinogradTaps


def test_factors_of_weights(simulate) -> None:
    simulate(WinogradTaps(LANES))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_gap=[0.0, 0.4])
async def every_weight(dut, p_gap: float) -> None:
    """A cycle later; in gaps as well, where nothing becomes of them."""
    rng = np.random.default_rng(12)
    inputs, expected = [], []
    for window in windows(rng, 150, p_gap):
        weights = drawn(rng, len(window), LANES)
        taps = transformed(window, weights, lambda group: transform_taps(group[:, :, np.newaxis]))
        controls = [control_of(step, phase) for step, phase in zip(window, phases(window), strict=True)]
        inputs += zip(controls, weights, strict=True)
        expected += list(taps)
    await start(dut, {"control": 0, "weights": 0})
    outputs = []
    for control, weight in [*inputs, *inputs[: WAITS.weights]]:
        given = {"control": pack(control, TAP_CONTROL), "weights": signed_bits(weight, 8)}
        outputs += await cycle(dut, given, "taps")
    assert outputs[WAITS.weights :] == [signed_bits(taps, WEIGHT_BITS) for taps in expected]
    # The least and the greatest sums have been among them.
    assert (np.min(expected), np.max(expected)) == (-384, 382)
