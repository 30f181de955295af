"""Requantisation in float32: the bytes of the integer one, on ties, their neighbours and scales of every magnitude."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.golden.numerics.requant import pack_parameters, requantise, requantise_float

CLAMPS = [(0, -128, 127), (-128, -128, 127), (127, -128, 127), (5, 5, 100), (-3, -7, -7)]


def totals_and_scales() -> tuple[np.ndarray, np.ndarray]:
    """int32[totals, scales] and float32[scales]."""
    rng = np.random.default_rng(0)
    scales = np.exp2(rng.uniform(-130, 120, 300)).astype(np.float32)
    edges = [0, 1e-45, 2.0**-33, 2.0**-32, 2.0**-31, 2.0**-24, 1 / 3, 0.5, 1, 1.5, 511.9, 512, 1024, 1e9, 3e38]
    coarse = (scales[:100].view(np.uint32) & 0xFFF0_0000).view(np.float32)
    scales = np.concatenate([np.array(edges, np.float32), scales, coarse])
    # Halves, with what lies beside them, and sums that float32 rounds.
    with np.errstate(divide="ignore", over="ignore"):
        halves = np.rint((np.arange(-140, 140) + 0.5)[:, np.newaxis] / scales.astype(np.float64))
    halves = np.clip(halves, -(2**31) + 1, 2**31 - 2).astype(np.int64)
    powers = np.array([sign * (1 << bits) for bits in range(31) for sign in (1, -1)])[:, np.newaxis]
    near = np.concatenate([halves, np.broadcast_to(powers, (len(powers), len(scales)))])
    anywhere = rng.integers(-(2**31), 2**31, (500, len(scales)))
    totals = np.concatenate([near + delta for delta in (-1, 0, 1)] + [anywhere, anywhere >> 20])
    return np.clip(totals, -(2**31), 2**31 - 1).astype(np.int32), scales


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("zero_point", "low", "high"), CLAMPS)
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
def test_bytes_are_those_of_integers(kind: type, zero_point: int, low: int, high: int) -> None:
    totals, scales = totals_and_scales()
    parameters = pack_parameters(np.zeros(len(scales), np.int32), scales)
    expected = requantise(totals, parameters, zero_point, low, high)
    before = totals.copy()
    found = requantise_float(totals.astype(kind), scales, zero_point, low, high)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(totals, before)
    assert len(np.unique(found)) == min(256, high - low + 1)


def test_refusals() -> None:
    with pytest.raises(TypeError, match=r"^total must be int32, int64, float32 or float64, not int16$"):
        requantise_float(np.zeros(1, np.int16), np.ones(1, np.float32), 0)
    with pytest.raises(TypeError, match=r"^multiplier must be float32, not float64$"):
        requantise_float(np.zeros(1, np.int32), np.ones(1), 0)
