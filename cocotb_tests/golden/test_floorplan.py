"""The floorplan of the array: rows, hops, neighbours, and what engines that stand one behind the other wait for."""

from __future__ import annotations

import dataclasses

import pytest

from lutterfly.golden.engines import DEPTHWISE
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.floorplan import ArrayWaits, Floorplan
from lutterfly.golden.presets import PRESETS


def test_waits_of_several_engines_add_up() -> None:
    assert ArrayWaits.sum([ArrayWaits(), ArrayWaits(4, 1, 2), ArrayWaits(words=1, totals=3)]) == ArrayWaits(5, 1, 5)


def test_columns_stand_in_rows_of_a_chain() -> None:
    preset = PRESETS["ecp5-85k"]
    alone = Floorplan.of(preset)
    assert (alone.row_columns, alone.hops) == (8, (0, 1, 2, 3, 4, 5, 6, 7))
    of_two = dataclasses.replace(preset, engines=preset.engines.having(DEPTHWISE, DepthwiseConfig(3, chains=2)))
    rows = Floorplan.of(of_two)
    assert (rows.row_columns, rows.hops) == (3, (0, 1, 2, 1, 2, 3, 2, 3))


@pytest.mark.parametrize(
    ("taps", "chains", "pairs"),
    [
        (3, 1, ((0, 1), (2, 3), (4, 5), (6, 7))),
        (4, 2, ((0, 4), (1, 5), (2, 6), (3, 7))),
        (3, 2, ((0, 3), (1, 4), (2, 5), (6, 7))),
        (2, 3, ((0, 2), (1, 3), (4, 6), (5, 7))),
    ],
)
def test_pairs_of_columns_are_neighbours(taps: int, chains: int, pairs: tuple[tuple[int, int], ...]) -> None:
    preset = PRESETS["ecp5-85k"]
    config = dataclasses.replace(preset, engines=preset.engines.having(DEPTHWISE, DepthwiseConfig(taps, chains=chains)))
    floorplan = Floorplan.of(config)
    assert floorplan.pairs == pairs
    assert all(floorplan.hops[later] - floorplan.hops[first] == 1 for first, later in pairs)


def test_columns_of_a_row_that_is_not_full_are_neighbours_too() -> None:
    pairs = Floorplan.of(PRESETS["ecp5-85k-256"]).pairs
    assert pairs == ((0, 3), (1, 4), (2, 5), (6, 9), (7, 10), (8, 11), (12, 15), (13, 14))
