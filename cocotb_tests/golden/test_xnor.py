"""XNOR-popcount: bits that agree are inner products of binary values."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.golden.engines.xnor import agreeing
from lutterfly.golden.isa import LIST_COUNT_LSB, LIST_FIRE
from lutterfly.golden.numerics import binary
from lutterfly.golden.numerics.windows import step_counts


@pytest.mark.parametrize(("steps", "lanes", "columns"), [(1, 4, 2), (9, 16, 8), (5, 32, 3)])
def test_less_the_number_of_values_it_is_their_inner_product(steps: int, lanes: int, columns: int) -> None:
    rng = np.random.default_rng(steps)
    channels = 8 * lanes
    x, w = (rng.choice([-1, 1], shape) for shape in ((6, steps, channels), (steps, columns, channels)))
    found = agreeing(binary.pack(x).view(np.int8), binary.pack(w).view(np.int8))
    expected = np.einsum("psc,snc->pn", x, w)
    np.testing.assert_array_equal(found - steps * channels, expected)


def test_bytes_that_do_not_count_add_nothing() -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.choice([-1, 1], shape) for shape in ((6, 5, 128), (5, 3, 128)))
    counted = np.arange(16) < np.array([16, 1, 7, 15, 16])[:, None]
    found = agreeing(binary.pack(x).view(np.int8), binary.pack(w).view(np.int8), counted)
    expected = np.einsum("psc,snc,sc->pn", x, w, counted.repeat(8, axis=1))
    np.testing.assert_array_equal(found - 8 * counted.sum(), expected)


def test_what_stands_in_a_list_says_how_many_bytes_count() -> None:
    entries = np.array(
        [7 << LIST_COUNT_LSB | 300, 0, LIST_FIRE | 15 << LIST_COUNT_LSB, 16 << LIST_COUNT_LSB], np.uint32
    )
    assert step_counts({"list": 0, "steps": 4}, entries, lanes=16).tolist() == [7, 16, 15, 16]
    assert step_counts({"list": 1, "steps": 2}, entries, lanes=4).tolist() == [4, 3]


@pytest.mark.parametrize("name", ["words", "weights"])
def test_only_bytes_are_counted(name: str) -> None:
    arrays = {"words": np.zeros((2, 4), np.int8), "weights": np.zeros((2, 3, 4), np.int8)}
    arrays[name] = arrays[name].astype(np.int16)
    with pytest.raises(TypeError, match=rf"^{name} must be int8, not int16$"):
        agreeing(**arrays)


def test_words_of_other_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^words must end in the 2 steps of 4 lanes of weights, not \(3, 4\)$"):
        agreeing(np.zeros((3, 4), np.int8), np.zeros((2, 3, 4), np.int8))
