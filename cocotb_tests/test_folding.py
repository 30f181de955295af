"""The source's fold planner on the source's examples."""
from __future__ import annotations

import pytest

from lutterfly.golden.folding import Fold, Layer, plan


@pytest.mark.parametrize(("inputs", "aligned", "folds"), [
    (3, 64, 16), (4, 64, 16), (5, 64, 8), (8, 64, 8), (1, 64, 64), (32, 64, 2), (33, 64, 1), (64, 64, 1), (100, 64, 1),
    (3, 16, 4),
])
def test_total_folds(inputs: int, aligned: int, folds: int) -> None:
    assert Layer(1, inputs, (3, 3), (1, 1), aligned).total_folds == folds


def test_whole_kernel_vanishes() -> None:
    fold = plan(Layer(64, 4, (4, 4), (4, 4), 64, 64))
    assert fold.folds == (4, 4)
    assert fold.zeros == 0
    assert fold.overlap == (0, 0)
    assert fold.folded == Layer(64, 64, (1, 1), (1, 1), 64, 64)
    assert fold.saving == 0.9375


@pytest.mark.parametrize(("folds", "padded", "zeros"), [
    ((4, 4), (4, 8), 26), ((2, 8), (2, 8), 10), ((1, 16), (1, 16), 10),
])
def test_zeros_of_a_flat_kernel(folds: tuple[int, int], padded: tuple[int, int], zeros: int) -> None:
    fold = Fold(Layer(64, 4, (1, 6), (1, 1), 64), folds)
    assert fold.padded_kernel == padded
    assert fold.zeros == zeros


def test_flat_kernel_prefers_the_width() -> None:
    assert plan(Layer(64, 4, (1, 6), (1, 1), 64)).folds == (1, 16)


def test_overlap_goes_to_the_height() -> None:
    layer = Layer(64, 4, (6, 6), (2, 2), 64)
    even = Fold(layer, (4, 4))
    assert even.effective[1] == 2
    assert even.overlap[1] == 2
    fold = plan(layer)
    assert fold.folds == (8, 2)
    assert fold.folded.kernel == (1, 3)
    assert fold.folded.stride == (1, 1)
    assert fold.overlap == (6, 0)


def test_even_split_comes_first() -> None:
    assert plan(Layer(64, 4, (8, 8), (4, 4), 64)).folds == (4, 4)
    assert plan(Layer(64, 4, (8, 8), (2, 2), 64)).folds == (8, 2)


def test_kernel_is_padded_to_the_folds() -> None:
    fold = Fold(Layer(64, 4, (3, 3), (1, 1), 64), (4, 4))
    assert fold.padded_kernel == (4, 4)
    assert fold.folded.kernel == (1, 1)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 7), (1, 6), (6, 1)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("inputs", [1, 3, 4, 20])
def test_saving_is_the_source_formula(kernel: tuple[int, int], stride: tuple[int, int], inputs: int) -> None:
    layer = Layer(40, inputs, kernel, stride, 32, 16)
    fold = plan(layer)
    (nh, nw), (padded_height, padded_width), (height, width) = fold.folds, fold.padded_kernel, kernel
    assert fold.saving == pytest.approx(1 - padded_width * padded_height / (nw * nh * width * height))
    assert layer.multiplications(100) == 32 * 48 * 100 * width * height
    assert fold.folded.inputs <= 32


def test_fully_used_layer_is_not_folded() -> None:
    fold = plan(Layer(8, 40, (3, 3), (1, 1), 64))
    assert fold.folds == (1, 1)
    assert fold.saving == 0


@pytest.mark.parametrize(("changed", "message"), [
    ({"aligned_inputs": 48}, r"^aligned_inputs must be a power of two, not 48$"),
    ({"inputs": 0}, r"^inputs must be at least 1, not 0$"),
    ({"stride": (0, 1)}, r"^stride must be at least 1, not \(0, 1\)$"),
])
def test_refusals(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layer(**{"outputs": 1, "inputs": 1, "kernel": (1, 1), "stride": (1, 1), "aligned_inputs": 16} | changed)
