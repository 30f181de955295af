"""Transfers: what lies around a tensor is filled once, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.host.compiler.schedule.dma import fill_border
from lutterfly.host.compiler.storage import Storage, pieces
from lutterfly.host.graph import Tensor


@pytest.mark.parametrize("borders", [(1, 1, 1, 1), (0, 2, 1, 0), (1, 0, 0, 2), (0, 1, 0, 1)], ids=str)
def test_each_byte_of_a_border_is_filled_once(borders: tuple[int, int, int, int]) -> None:
    top, left, bottom, right = borders
    storage = Storage(4, 5, 3, top, left, bottom, right, gap=max(left, right), value=7, address=100)
    filled = [command.writes for command in fill_border(storage, Tensor("x", (4, 5, 3), 1.0, 7, ()))]
    every = storage.address + np.arange(storage.size_bytes)
    own = pieces(storage.first, storage.row_bytes, storage.height, storage.row_pitch)
    np.testing.assert_array_equal(np.sort(np.concatenate(filled)), np.setdiff1d(every, own))
