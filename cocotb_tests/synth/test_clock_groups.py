"""Sites by clock: groups of sites belong to one clock, those in which most is its."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from lutterfly.synth.device import DEVICES
from lutterfly.synth.floorplan import BlockSite, Pool, by_clock, floorplan

#: Four groups of four.
SITES = [BlockSite(f"X{column}/Y0/M", column, 0, f"group {column // 4}") for column in range(16)]


def cells(clocks: list[int | str]) -> list[dict[str, Any]]:
    return [{"connections": {"CLK0": [clock], "A0": [7]}} for clock in clocks]


def test_a_clock_has_the_groups_in_which_most_is_its() -> None:
    # Blocks of clock 2 are in groups 1 and 3, and one in group 0.
    clocks: list[int | str] = [3, 3, 2, 3, 2, 2, 3, 2, 3, 2, 2]
    plan = [SITES[place] for place in (0, 1, 2, 3, 4, 5, 8, 12, 9, 13, 14)]
    one, other = by_clock([Pool(list(range(11)), SITES)], cells(clocks), plan)
    assert one.blocks == [number for number, clock in enumerate(clocks) if clock == 3]
    assert other.blocks == [number for number, clock in enumerate(clocks) if clock == 2]
    assert {site.group for site in one.sites} == {"group 0", "group 2"}
    assert {site.group for site in other.sites} == {"group 1", "group 3"}
    assert sorted([*one.sites, *other.sites]) == sorted(SITES)


@pytest.mark.parametrize("clocks", [[2, 2, 2], [2, "x", 2], ["0", "0", "1"]])
def test_one_clock_has_all(clocks: list[int | str]) -> None:
    pool = Pool([0, 1, 2], SITES)
    assert by_clock([pool], cells(clocks), SITES[:3]) == [pool]


def test_blocks_without_a_clock_are_with_those_of_the_most_frequent_one() -> None:
    one, other = by_clock([Pool([0, 1, 2, 3], SITES)], cells([2, "x", 3, 3]), SITES[:4])
    assert (one.blocks, other.blocks) == ([0], [1, 2, 3])


def test_sites_with_clocks_of_their_own_are_for_all() -> None:
    pool = Pool([0, 1], [site._replace(group="") for site in SITES])
    assert by_clock([pool], cells([2, 3]), SITES[:2]) == [pool]


def test_too_few_groups_are_told() -> None:
    clocks: list[int | str] = [2] * 5 + [3] * 9
    message = "multipliers of one clock must be at most 8, not 9: others of their groups have another clock; choose"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        by_clock([Pool(list(range(14)), SITES)], cells(clocks), SITES[:14])


def test_a_devices_multipliers_stand_in_groups_of_four() -> None:
    for device in DEVICES.values():
        groups = [site.group for site in device.sites["MULT18X18D"]]
        assert {groups.count(group) for group in groups} == {4}
        assert not any(site.group for site in device.sites["DP16KD"])


@pytest.mark.regress
def test_a_floorplan_keeps_clocks_apart() -> None:
    """As many blocks as sites, in pairs of both clocks that want to be neighbours."""
    numbers = np.random.default_rng(0).permutation(16).tolist()
    design: dict[str, Any] = {f"m_{one}": {"type": "M", "connections": {"CLK0": [2 + one % 2]}} for one in numbers}
    for number in range(0, 16, 2):
        for name in (f"m_{number}", f"m_{number + 1}"):
            design[name]["connections"]["P0"] = [100 + number]
    floorplan({"modules": {"top": {"cells": design}}}, {"M": SITES}, tiles=(16, 1))
    groups = {site.bel: site.group for site in SITES}
    clocks: dict[str, set[int]] = {}
    for cell in design.values():
        clocks.setdefault(groups[cell["attributes"]["BEL"]], set()).add(cell["connections"]["CLK0"][0])
    assert [len(of_group) for of_group in clocks.values()] == [1] * 4
