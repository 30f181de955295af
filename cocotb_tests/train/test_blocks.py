"""Blocks that are dropped and activated: by their norms, and never one that a filter needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")

from lutterfly.train.schedules.blocks import block_norms, drop, grow  # noqa: E402

shapes = st.tuples(st.integers(1, 5), st.integers(1, 5))


def test_norms_are_those_of_the_blocks_cut_out():
    weight = torch.randn(10, 20, 3, 2)
    norms = block_norms(weight, (16, 8))
    assert norms.shape == (2, 2)
    for row, column in np.ndindex(2, 2):
        block = weight[8 * column : 8 * column + 8, 16 * row : 16 * row + 16].double()
        assert norms[row, column] == pytest.approx(float(block.norm()), rel=1e-12)


@given(st.data(), shapes, st.integers(0, 25))
def test_what_is_dropped_has_the_smallest_norms(data: st.DataObject, shape: tuple[int, int], count: int):
    blocks = data.draw(arrays(bool, shape))
    norms = data.draw(arrays(np.float64, shape, elements=st.integers(0, 5)))
    left = drop(blocks, norms, count)
    dropped = blocks & ~left
    assert not (left & ~blocks).any()
    assert dropped.sum() == min(count, blocks.sum())
    assert not left.any() or not dropped.any() or norms[dropped].max() <= norms[left].min()


@given(st.data(), shapes, st.integers(0, 25))
def test_what_is_activated_has_the_greatest_norms(data: st.DataObject, shape: tuple[int, int], count: int):
    """Where no column is empty and rows may be."""
    blocks = data.draw(arrays(bool, shape)) | np.eye(*shape, dtype=bool)
    blocks[0] = True
    dropped = ~blocks & data.draw(arrays(bool, shape))
    norms = data.draw(arrays(np.float64, shape, elements=st.integers(0, 5)))
    count = min(count, int((~blocks & ~dropped).sum()))
    grown = grow(blocks, norms, count, dropped=dropped, covers_rows=False)
    added = grown & ~blocks
    assert (grown & blocks).sum() == blocks.sum()
    assert added.sum() == count
    assert not (added & dropped).any()
    others = norms[~grown & ~dropped]
    assert not count or not len(others) or norms[added].min() >= others.max()


@given(st.data(), shapes, st.booleans(), st.integers(0, 25))
def test_an_exchange_of_any_size_leaves_no_row_or_column_empty(
    data: st.DataObject, shape: tuple[int, int], covers_rows: bool, count: int
):
    """From a pattern with as few blocks as there can be, and some more."""
    rows, columns = shape
    numbers = np.arange(max(rows, columns) if covers_rows else columns)
    blocks = data.draw(arrays(bool, shape))
    blocks[numbers % rows, numbers % columns] = True
    weights, gradients = (data.draw(arrays(np.float64, shape, elements=st.integers(0, 5))) for _ in range(2))
    kept = drop(blocks, weights, count)
    dropped = blocks & ~kept
    grown = grow(kept, gradients, int(dropped.sum()), dropped=dropped, covers_rows=covers_rows)
    assert grown.sum() == blocks.sum()
    assert grown.any(axis=0).all()
    assert not covers_rows or grown.any(axis=1).all()


def test_where_the_least_is_connected_each_column_takes_the_better_row():
    blocks = np.array([[True, False, True], [False, True, False]])
    weights = np.array([[1.0, 0, 3], [0, 2, 0]])
    kept = drop(blocks, weights, 2)
    assert kept.tolist() == [[False, False, True], [False, False, False]]
    # The greatest gradient, 9, was dropped just now; the column of 0.5 would be empty.
    gradients = np.array([[9.0, 0.5, 0], [1, 7, 8]])
    grown = grow(kept, gradients, 2, dropped=blocks & ~kept, covers_rows=True)
    assert grown.tolist() == [[False, True, True], [True, False, False]]
