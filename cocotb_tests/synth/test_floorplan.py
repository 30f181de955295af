"""The floorplan: every block has a site of its kind, and blocks that belong together lie together."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from lutterfly.synth.device import DEVICES
from lutterfly.synth.floorplan import BlockSite, floorplan

SITES = {
    "DP16KD": [BlockSite(f"X{x}/Y{y}/EBR0", x, y) for y in (0, 10) for x in range(0, 32, 2)],
    "MULT18X18D": [BlockSite(f"X{x}/Y5/MULT18_0", x, 5) for x in range(0, 32, 2)],
}
TILES = (32, 11)
SITE_OF = {site.bel: site for sites in SITES.values() for site in sites}


def netlist(kinds: dict[str, str], nets: list[tuple[str, ...]], clock: tuple[str, ...] = ()) -> dict[str, Any]:
    """Cells by name, and which of them each net connects."""
    cells: dict[str, Any] = {name: {"type": kind, "connections": {}} for name, kind in kinds.items()}
    for bit, connected in enumerate(nets, 2):
        for name in connected:
            cells[name]["connections"][f"P{bit}"] = [bit, "0"]
    for name in clock:
        cells[name]["connections"]["CLK"] = [1]
    return {"modules": {"top": {"cells": cells}}}


def sites_of(design: dict[str, Any]) -> dict[str, BlockSite]:
    cells = design["modules"]["top"]["cells"]
    return {name: SITE_OF[cell["attributes"]["BEL"]] for name, cell in cells.items() if cell["type"] in SITES}


def distance(one: BlockSite, other: BlockSite) -> int:
    return abs(one.x - other.x) + abs(one.y - other.y)


def chain(blocks: int, *, between: int) -> dict[str, Any]:
    """RAMs one after the other, in an order that their names do not tell, each with cells of logic to the next."""
    order = np.random.default_rng(0).permutation(blocks)
    kinds, nets = {}, []
    for position, number in enumerate(order):
        kinds[f"ram_{number}"] = "DP16KD"
        steps = [f"ram_{number}", *(f"lut_{position}_{step}" for step in range(between))]
        kinds |= dict.fromkeys(steps[1:], "LUT4")
        if position + 1 < blocks:
            nets += itertools.pairwise([*steps, f"ram_{order[position + 1]}"])
    return netlist(dict(sorted(kinds.items())), nets) | {"order": [f"ram_{number}" for number in order]}


@pytest.mark.regress
@pytest.mark.parametrize("between", [0, 2])
def test_what_is_connected_lies_together(between: int) -> None:
    design = chain(16, between=between)
    assert floorplan(design, SITES, tiles=TILES) == 16
    sites = sites_of(design)
    wires = sum(distance(sites[one], sites[other]) for one, other in itertools.pairwise(design["order"]))
    # Sites are two apart in a row: nothing is shorter than 30; in any order it is about 200.
    assert wires <= 60


@pytest.mark.regress
def test_every_block_has_a_site_of_its_own_kind() -> None:
    kinds = {f"ram_{number}": "DP16KD" for number in range(32)}
    kinds |= {f"mult_{number}": "MULT18X18D" for number in range(9)}
    nets = [(f"ram_{number}", f"mult_{number % 9}") for number in range(32)]
    design = netlist(kinds, nets)
    assert floorplan(design, SITES, tiles=TILES) == 41
    sites = sites_of(design)
    assert len({site.bel for site in sites.values()}) == 41
    for name, site in sites.items():
        assert site in SITES[kinds[name]]
    near = [distance(sites[one], sites[other]) for one, other in nets]
    assert np.mean(near) < 10


@pytest.mark.regress
def test_clocks_and_wide_nets_tie_nothing_together() -> None:
    design, tied = chain(16, between=0), chain(16, between=0)
    rams = tuple(tied["modules"]["top"]["cells"])
    tied["modules"]["top"]["cells"] |= netlist(
        dict.fromkeys((f"ff_{number}" for number in range(500)), "TRELLIS_FF"), []
    )["modules"]["top"]["cells"]
    for cell in tied["modules"]["top"]["cells"].values():
        cell["connections"] |= {"CLK": [1000], "CE": [1001]}
    assert floorplan(design, SITES, tiles=TILES) == floorplan(tied, SITES, tiles=TILES) == len(rams)
    assert sites_of(design) == sites_of(tied)


@pytest.mark.regress
def test_what_is_slow_lies_nearest() -> None:
    """RAMs around one, half of them without an output register."""
    names = [f"ram_{number:02}" for number in range(16)]
    design = netlist(dict.fromkeys(["hub", *names], "DP16KD"), [("hub", name) for name in names])
    for number, name in enumerate(names):
        design["modules"]["top"]["cells"][name] |= {
            "port_directions": {f"P{number + 2}": "output"},
            "parameters": {"REGMODE_B": "NOREG" if number % 2 else "OUTREG"},
        }
    floorplan(design, SITES, tiles=TILES)
    sites = sites_of(design)
    far = [distance(sites["hub"], sites[name]) for name in names]
    assert np.mean(far[1::2]) < 0.7 * np.mean(far[::2])


@pytest.mark.regress
def test_the_same_seed_gives_the_same_plan() -> None:
    one, same, other = (chain(16, between=1) for _ in range(3))
    floorplan(one, SITES, tiles=TILES, seed=1)
    floorplan(same, SITES, tiles=TILES, seed=1)
    floorplan(other, SITES, tiles=TILES, seed=2)
    assert sites_of(one) == sites_of(same) != sites_of(other)


@pytest.mark.regress
def test_blocks_are_near_the_room_that_their_cells_need() -> None:
    """RAMs that a cell ties together, with logic of their own that fills most of the device, or is nothing."""

    def columns(kind: str) -> list[int]:
        kinds, nets = {"hub": "TRELLIS_FF"}, []
        for ram in range(16):
            logic = [f"logic_{ram}_{number}" for number in range(125)]
            kinds |= {f"ram_{ram}": "DP16KD", **dict.fromkeys(logic, kind)}
            nets += [(f"ram_{ram}", name) for name in logic] + [(f"ram_{ram}", "hub")]
        design = netlist(kinds, nets)
        floorplan(design, SITES, tiles=TILES)
        return [site.x for site in sites_of(design).values()]

    assert np.std(columns("LUT4")) > 1.1 * np.std(columns("$scopeinfo"))


def test_too_many_blocks_are_named() -> None:
    design = netlist({f"mult_{number}": "MULT18X18D" for number in range(17)}, [])
    with pytest.raises(ValueError, match="the design has 17 MULT18X18D, the device 16"):
        floorplan(design, SITES, tiles=TILES)


def test_a_single_block_goes_anywhere() -> None:
    design = netlist({"ram": "DP16KD", "lut": "LUT4"}, [("ram", "lut")])
    assert floorplan(design, SITES, tiles=TILES) == 0
    assert all("attributes" not in cell for cell in design["modules"]["top"]["cells"].values())


def test_a_device_has_a_site_for_each_of_its_blocks() -> None:
    for device in DEVICES.values():
        counts = {kind: len({site.bel for site in sites}) for kind, sites in device.sites.items()}
        assert counts == {"DP16KD": device.bram, "MULT18X18D": device.dsp}
