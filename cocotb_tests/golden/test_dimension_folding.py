"""The fold planner of the source, on the examples that the source works out."""

from __future__ import annotations

import pytest

from lutterfly.golden.connections.dimension_folding import fold_split, folding_multiple, plan_fold


@pytest.mark.parametrize(("channels", "multiple"), [(3, 16), (5, 8), (4, 16), (32, 2), (33, 1), (64, 1), (1, 64)])
def test_multiple(channels: int, multiple: int) -> None:
    assert folding_multiple(channels, 64) == multiple


@pytest.mark.parametrize(
    ("folds", "aligned", "padding"), [((4, 4), (4, 8), 26), ((2, 8), (2, 8), 10), ((1, 16), (1, 16), 10)]
)
def test_splits_of_a_flat_kernel(folds: tuple[int, int], aligned: tuple[int, int], padding: int) -> None:
    plan = fold_split((1, 6), (1, 1), folds)
    assert plan.padding == padding
    assert tuple(n * size for n, size in zip(plan.folds, plan.kernel, strict=True)) == aligned


def test_a_flat_kernel_is_folded_in_width() -> None:
    assert plan_fold((1, 6), (1, 1), 4, 64).folds == (1, 16)


def test_overlap_goes_to_the_height() -> None:
    plan = plan_fold((6, 6), (2, 2), 4, 64)
    assert (plan.folds, plan.kernel, plan.stride) == ((8, 2), (1, 3), (1, 1))


def test_a_kernel_that_becomes_one_by_one() -> None:
    plan = plan_fold((4, 4), (4, 4), 4, 64)
    assert (plan.folds, plan.kernel, plan.stride) == ((4, 4), (1, 1), (1, 1))
    assert plan.saving == 0.9375


def test_alignment_must_be_a_power_of_two() -> None:
    with pytest.raises(ValueError, match=r"^alignment must be a power of two, not 48$"):
        folding_multiple(3, 48)
