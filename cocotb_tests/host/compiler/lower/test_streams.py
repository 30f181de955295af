"""Streams: a window that has fewer results reads what these need, and nothing beyond."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from lutterfly.host.compiler.lower.windows import Stream
from lutterfly.host.graph import Window

SIZES = st.tuples(st.integers(1, 5), st.integers(1, 5))
STEPS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(SIZES, STEPS, STEPS, st.integers(0, 1), st.integers(1, 5), st.data())
def test_what_is_left_reads_no_row_after_its_last(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    along: int,
    results: int,
    data: st.DataObject,
) -> None:
    """And each row that it needs stands where the whole window has it, with the same weights."""
    window = Window(kernel=kernel, stride=stride, dilation=dilation)
    stream = Stream(window, taps=3, along=along, results=results)
    left = data.draw(st.integers(1, results))
    rows = stream.nearest(left)
    needed = dataclasses.replace(stream, results=left).across
    assert len(rows) == len(stream.across)
    assert {row for row, whole in zip(rows, stream.across, strict=True) if row == whole} >= set(needed)
    assert max(rows) == max(needed)
