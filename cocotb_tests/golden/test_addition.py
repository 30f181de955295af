"""Sum of two quantised tensors against ONNX Runtime's QLinearAdd, on all 65,536 pairs of codes."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.oracles.exactness import needs_reference, runtime_pairs
from lutterfly.golden.engines.add import ENTRY_BITS
from lutterfly.golden.numerics.addition import UNSIGNED_OFFSET, add, sum_tables

PAIRS = np.meshgrid(np.arange(-128, 128, dtype=np.int8), np.arange(-128, 128, dtype=np.int8), indexing="ij")


def random_quantisation(seed: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales of both operands and the result, every second time with few decimals, so that ties are many; zero
    points."""
    rng = np.random.default_rng(seed)
    scales = np.exp(rng.uniform(-6, 0, 3)) if seed % 2 else rng.integers(1, 101, 3) / 1000
    zero_points = [int(rng.choice([-128, 127, 0, rng.integers(-128, 128)])) for _ in range(3)]
    return tuple(scales.tolist()), tuple(zero_points)


@needs_reference
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("first_seed", [0, pytest.param(20, marks=pytest.mark.regress)])
def test_every_pair_is_qlinear_add(first_seed: int, unsigned: bool) -> None:
    for seed in range(first_seed, first_seed + (20 if first_seed == 0 else 200)):
        scales, zero_points = random_quantisation(seed)
        first, second, fraction = sum_tables(scales, zero_points, unsigned=unsigned)
        result = add(*PAIRS, first, second, fraction, offset=UNSIGNED_OFFSET if unsigned else 0)
        np.testing.assert_array_equal(result, runtime_pairs("QLinearAdd", scales, zero_points, unsigned=unsigned))


def test_tables_use_the_bits_that_they_have() -> None:
    for seed in range(50):
        first, second, fraction = sum_tables(*random_quantisation(seed))
        largest = max(np.abs(first).max(), np.abs(second).max(), np.abs(first[[0, -1], None] + second[[0, -1]]).max())
        assert largest < 1 << ENTRY_BITS - 1
        assert fraction == 32 or 2 * largest >= (1 << ENTRY_BITS - 1) - 8


FIRST, SECOND = np.zeros(256, np.int64), np.zeros(256, np.int64)


@pytest.mark.parametrize(("sum_in_halves", "code"), [(1, 0), (3, 2), (5, 2), (-1, 0), (-3, -2), (-5, -2), (300, 127)])
def test_halves_go_to_the_even_code(sum_in_halves: int, code: int) -> None:
    first = np.full(256, sum_in_halves << 20)
    assert add(np.zeros(1, np.int8), np.zeros(1, np.int8), first, SECOND, 21).tolist() == [code]


def test_sums_are_rounded_to_24_bits_before_they_are_rounded_to_codes() -> None:
    # 100.5 - 2**-28 has 35 bits; the nearest float32 is 100.5, which rounds to 100. 101.5 - 2**-28 becomes 102.
    codes = np.array([0], np.int8)
    for whole, code in ((100, 100), (101, 102)):
        first = np.full(256, (2 * whole + 1 << 27) - 1)
        assert add(codes, codes, first, SECOND, 28).tolist() == [code]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"first_codes": np.zeros(3, np.uint8)}, TypeError, r"^first_codes must be int8, not uint8$"),
        ({"second": SECOND.astype(np.int32)}, TypeError, r"^second must be int64, not int32$"),
        (
            {"second_codes": np.zeros(4, np.int8)},
            ValueError,
            r"^second_codes must have the shape of first_codes \(3,\), not \(4,\)$",
        ),
        ({"first": FIRST[:255]}, ValueError, r"^first must have the shape \(256,\), not \(255,\)$"),
        ({"first": FIRST + (1 << 35)}, ValueError, r"^first must have entries of 36 bits$"),
        ({"fraction": 33}, ValueError, r"^fraction must be between 0 and 32, not 33$"),
        ({"low": 5, "high": 4}, ValueError, r"^low must be at most high \(4\), not 5$"),
    ],
)
def test_refusals(changed: dict[str, object], error: type[Exception], message: str) -> None:
    codes = np.zeros(3, np.int8)
    arguments = {"first_codes": codes, "second_codes": codes, "first": FIRST, "second": SECOND, "fraction": 32}
    with pytest.raises(error, match=message):
        add(**arguments | changed)
