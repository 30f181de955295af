"""Half tables: which functions have one, and that it gives every entry of the whole table."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.golden.transfer.schemes import parse
from lutterfly.golden.transfer.tables import halve, transfer_table


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def table(source: str, function, target: str) -> np.ndarray:
    return transfer_table(parse(source), function, parse(target)).astype(np.int64)


@pytest.mark.parametrize(
    ("source", "function", "target", "total"),
    [
        # Saturates above zero only: 127 there, and -128 below.
        ("q3.4", np.tanh, "q0.7", 0),
        ("q3.12", np.tanh, "q0.15", 0),
        ("q3.4", np.tanh, "q0.7:symmetric", 0),
        # Saturates below zero where the stored side is the one above.
        ("q3.4", lambda x: -np.tanh(x), "q0.7", 0),
        ("q3.4", sigmoid, "uq0.8", 256),
        ("q3.12", sigmoid, "uq0.8", 256),
        ("q3.4", np.tanh, "uint8:scale=0.0078125,zero_point=128", 256),
        ("q3.4", lambda x: -x, "q3.4", 0),
        ("q3.4", np.abs, "uq4.4", None),
        ("q3.4", np.abs, "q3.4", None),
        ("q3.12", np.cos, "q0.15", None),
        ("uint8:scale=0.05,zero_point=128", np.tanh, "q0.7", 0),
        ("q3.4", lambda x: x * np.float32(0), "q3.4", None),
        # Neither, but below zero it saturates throughout.
        ("q3.4", lambda x: np.maximum(x, np.float32(0)), "q3.4", 1),
        # Saturates everywhere but in the middle.
        ("q3.4", lambda x: x * np.float32(1e9), "q3.4", -1),
    ],
)
def test_even_and_odd_functions_have_a_half(source: str, function, target: str, total: int | None) -> None:
    whole = table(source, function, target)
    half = halve(whole)
    assert half is not None
    assert len(half.stored) == len(whole) // 2
    assert half.total == total
    np.testing.assert_array_equal(half.expand(), whole)
    assert min(half.stored) >= whole.min()
    assert max(half.stored) <= whole.max()


@pytest.mark.parametrize(
    ("source", "function", "target"),
    [
        ("q3.4", lambda x: x * sigmoid(x), "q3.4"),
        ("q3.4", np.exp, "q3.4"),
        ("q3.4", lambda x: np.maximum(x, np.float32(0.1) * x), "q3.4"),
        # Another middle than that of the codes.
        ("int8:scale=0.05,zero_point=-9", np.tanh, "q0.7"),
        ("uq1.7", np.tanh, "q0.7"),
    ],
)
def test_other_functions_have_none(source: str, function, target: str) -> None:
    assert halve(table(source, function, target)) is None


@pytest.mark.parametrize("entry", [0, 1, 100, 127, 129, 254, 255])
def test_one_entry_that_differs_is_enough(entry: int) -> None:
    whole = table("q3.4", lambda x: x, "q6.9")
    assert halve(whole) is not None
    whole[entry] += 1
    half = halve(whole)
    # The least code's partner lies beyond the table, so that it may be anything.
    assert (half is None) == (entry != 0)
    if half:
        np.testing.assert_array_equal(half.expand(), whole)


def test_the_middle_is_free() -> None:
    whole = table("q3.4", np.tanh, "q0.7")
    whole[128] = 77
    np.testing.assert_array_equal(halve(whole).expand(), whole)


@pytest.mark.parametrize("seed", range(20))
def test_small_tables(seed: int) -> None:
    """What is found is right, and what is odd or even by construction is found."""
    rng = np.random.default_rng(seed)
    below = rng.integers(-9, 10, 8)
    other = below if seed % 2 else np.clip(seed - below, -9, 9)
    whole = np.concatenate([below[::-1], rng.integers(-9, 10, 1), other[:7]])
    half = halve(whole)
    if seed % 2 or np.ptp(below[:7] + other[:7]) == 0:
        assert half is not None
    if half is not None:
        np.testing.assert_array_equal(half.expand(), whole)


@pytest.mark.parametrize("entries", [0, 2, 3, 255, 257])
def test_refused_numbers_of_entries(entries: int) -> None:
    with pytest.raises(ValueError, match=f"^entries must be a power of two, at least 4, not {entries}$"):
        halve(np.zeros(entries, np.int64))
