"""Product of two quantised tensors against ONNX Runtime's QLinearMul, on all 65,536 pairs of codes."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.oracles.exactness import needs_reference, runtime_pairs
from lutterfly.golden.numerics.multiplication import (
    PRODUCT_FRACTION_BITS,
    ProductScaling,
    multiply,
    product_scaling,
    products,
)

CODES = np.arange(-128, 128, dtype=np.int8)
PAIRS = np.meshgrid(CODES, CODES, indexing="ij")


def random_quantisation(seed: int) -> tuple[tuple[float, float, float], tuple[int, int, int]]:
    """Scales of both operands and the result, and zero points: of a gate, of powers of two with many ties, or any."""
    rng = np.random.default_rng(seed)
    first, second = np.exp(rng.uniform(-7, -1, 2))
    zero_points = [int(rng.choice([-128, 127, 0, rng.integers(-128, 128)])) for _ in range(3)]
    if seed % 3 == 0:
        second, zero_points[1] = 1 / 255, -128
    result = first * second * 128 * rng.uniform(0.1, 2)
    if seed % 3 == 1:
        first, second, result = 2.0**-5, 2.0**-7, 2.0 ** -int(rng.integers(2, 8))
    return (float(first), float(second), float(result)), (zero_points[0], zero_points[1], zero_points[2])


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("first_seed", [0, pytest.param(60, marks=pytest.mark.regress)])
def test_every_pair_is_qlinear_mul(first_seed: int, unsigned: bool) -> None:
    plain = 0
    for seed in range(first_seed, first_seed + (60 if first_seed == 0 else 1000)):
        scales, zero_points = random_quantisation(seed)
        expected = runtime_pairs("QLinearMul", scales, zero_points, unsigned=unsigned)
        scaling = product_scaling(scales, zero_points, expected)
        assert scaling is not None, (scales, zero_points)
        limits = {"low": int(expected.min()), "high": int(expected.max())}
        np.testing.assert_array_equal(multiply(*PAIRS, zero_points[:2], scaling, **limits), expected)
        plain += scaling.bias == 0
    # The zero point after the rounding is not enough for all of them.
    assert 0 < plain < 60 or first_seed


def test_products_are_those_of_integers() -> None:
    for zero_points in ((0, 0), (-128, 127), (127, 127), (-128, -128), (3, -77)):
        found = products(*PAIRS, *zero_points)
        wanted = np.outer(*(CODES.astype(np.int64) - zero_point for zero_point in zero_points))
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, wanted << PRODUCT_FRACTION_BITS)
        assert np.abs(found.astype(np.int64)).max() <= 1 << 30


def test_a_vector_is_for_all_pixels() -> None:
    rng = np.random.default_rng(1)
    maps, vector = rng.integers(-128, 128, (3, 4, 5), np.int8), rng.integers(-128, 128, (1, 1, 5), np.int8)
    scaling = ProductScaling(0, np.float32(2.0**-20), 0)
    found = multiply(maps, vector, (1, 2), scaling)
    np.testing.assert_array_equal(found, multiply(maps, np.broadcast_to(vector, maps.shape), (1, 2), scaling))


def test_what_is_no_product_has_no_scaling() -> None:
    """A sum; and a product of which one code is wrong."""
    total = np.clip(PAIRS[0].astype(np.int64) + PAIRS[1], -128, 127).astype(np.int8)
    assert product_scaling((0.1, 0.1, 0.1), (0, 0, 0), total) is None
    right = np.clip(np.rint(np.outer(CODES.astype(float), CODES) / 128), -128, 127).astype(np.int8)
    scales = (1.0, 1.0, 128.0)
    assert product_scaling(scales, (0, 0, 0), right) == ProductScaling(0, np.float32(2.0**-21), 0)
    for place in ((200, 129), (128, 3)):
        wrong = right.copy()
        wrong[place] += 1
        assert product_scaling(scales, (0, 0, 0), wrong) is None


@pytest.mark.parametrize("place", [0, 1])
def test_other_arrays_are_refused(place: int) -> None:
    operands = [np.zeros(2, np.int8), np.zeros(2, np.int8)]
    operands[place] = operands[place].astype(np.int16)
    with pytest.raises(TypeError, match=rf"^{('first', 'second')[place]} must be int8, not int16$"):
        products(operands[0], operands[1], 0, 0)
