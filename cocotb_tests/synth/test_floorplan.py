"""The floorplan: a site of its kind for every block, neighbours together, and room for cells."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from lutterfly.synth.families import FAMILIES
from lutterfly.synth.floorplan import BlockSite, floorplan, path_delays, spread

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
@pytest.mark.parametrize(("between", "merges"), [(0, 0), (2, 0), (2, 1), (8, 2)])
def test_what_is_connected_lies_together(between: int, merges: int) -> None:
    design = chain(16, between=between)
    assert floorplan(design, SITES, tiles=TILES, merges=merges) == 16
    sites = sites_of(design)
    wires = sum(distance(sites[one], sites[other]) for one, other in itertools.pairwise(design["order"]))
    # Sites are two apart in a row: nothing is shorter than 30; in any order it is about 200.
    assert wires <= 60


def test_few_proposals_are_enough_where_cells_are_merged() -> None:
    """What a GW5A's floorplan asks for; the same without annealing is far longer."""
    design, random = chain(16, between=5), chain(16, between=5)
    floorplan(design, SITES, tiles=TILES, merges=1, proposals=600)
    floorplan(random, SITES, tiles=TILES, merges=1, proposals=0)
    found = [
        sum(distance(sites[one], sites[other]) for one, other in itertools.pairwise(chained["order"]))
        for chained, sites in ((design, sites_of(design)), (random, sites_of(random)))
    ]
    assert found[0] <= 60 < 150 < found[1]


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
    for device in FAMILIES["ecp5"].devices.values():
        counts = {kind: len({site.bel for site in sites}) for kind, sites in device.sites.items()}
        assert counts == {"DP16KD": device.bram, "MULT18X18D": device.dsp}


# Delays of paths through nets, before placement: what is on a long path, and what ends one.

WIRE, REGISTER, LUT = 0.9, 0.6, 0.24


def cell(kind: str, inputs: dict[str, list[Any]], outputs: dict[str, list[int]], **parameters: str) -> dict[str, Any]:
    directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {
        "type": kind,
        "parameters": parameters,
        "port_directions": directions,
        "connections": {**inputs, **outputs},
    }


def register(source: int, target: int, **more: list[Any]) -> dict[str, Any]:
    return cell("TRELLIS_FF", {"DI": [source], "CLK": [1], **more}, {"Q": [target]})


def lut(*sources: int | str, target: int) -> dict[str, Any]:
    return cell("LUT4", {port: [bit] for port, bit in zip("ABCD", sources, strict=False)}, {"Z": [target]})


def test_each_level_of_logic_counts() -> None:
    cells = {
        "from": register(9, 2),
        "first": lut(2, 3, "0", target=4),
        "second": lut(4, target=5),
        "to": register(5, 6),
        "beside": register(8, 3),
        "short": register(6, 7),
    }
    delays = path_delays(cells)
    longest = REGISTER + 3 * WIRE + 2 * LUT
    # All of one path have its delay; the clock is on none.
    assert [delays[net] for net in (2, 3, 4, 5)] == pytest.approx([longest] * 4)
    assert delays[6] == pytest.approx(REGISTER + WIRE)
    assert 1 not in delays


def test_a_net_has_the_longest_of_its_paths() -> None:
    cells = {"from": register(9, 2), "deep": lut(2, target=3), "to": register(3, 4), "straight": register(2, 5)}
    assert path_delays(cells)[2] == pytest.approx(REGISTER + 2 * WIRE + LUT)


def test_enables_and_resets_end_earlier() -> None:
    cells = {"from": register(9, 2), "to": register(8, 3, LSR=[2])}
    assert path_delays(cells)[2] == pytest.approx(REGISTER + WIRE + 0.4)


def test_carries_have_wires_of_their_own() -> None:
    def carry(a: int, carry_in: int | str, target: int, carry_out: int) -> dict[str, Any]:
        inputs = {"A0": [a], "B0": ["0"], "A1": [a], "B1": ["0"], "CIN": [carry_in]}
        return cell("CCU2C", inputs, {"S0": [target], "S1": [target + 1], "COUT": [carry_out]})

    cells = {
        "from": register(9, 2),
        "low": carry(2, "0", 10, 12),
        "high": carry(3, 12, 20, 22),
        "to": register(20, 30),
        "other": register(8, 3),
    }
    delays = path_delays(cells)
    assert delays[12] == pytest.approx(REGISTER + WIRE + 0.45 + 0.44 + WIRE)
    # The second half's operands do not reach the first half's sum.
    assert delays[10] == pytest.approx(REGISTER + 2 * WIRE + 0.45)


@pytest.mark.parametrize(
    ("kind", "slow", "fast", "delay"),
    [
        ("DP16KD", {"REGMODE_B": "NOREG"}, {"REGMODE_B": "OUTREG"}, 5.7),
        ("MULT18X18D", {}, {"REG_OUTPUT_CLK": "CLK0"}, 3.5),
    ],
)
def test_blocks_without_a_register_begin_late(kind: str, slow: dict, fast: dict, delay: float) -> None:
    for parameters, start in ((slow, delay), (fast, REGISTER)):
        cells = {"block": cell(kind, {}, {"D": [2]}, **parameters), "to": register(2, 3)}
        assert path_delays(cells)[2] == pytest.approx(start + WIRE)


def test_loops_of_logic_have_no_delay() -> None:
    cells = {"one": lut(2, target=3), "other": lut(3, target=2), "from": register(9, 4), "to": register(4, 5)}
    assert path_delays(cells) == {4: pytest.approx(REGISTER + WIRE), 5: pytest.approx(REGISTER + WIRE)}


# Spreading: cells get room and keep their order.

SPREAD_TILES = (32, 24)


def fullest(positions: np.ndarray, areas: np.ndarray) -> float:
    """Look-up tables of a tile, on average of 8 columns and 12 rows."""
    borders = np.arange(0, 33, 8), np.arange(0, 25, 12)
    return float(np.histogram2d(*positions.T, bins=borders, weights=areas)[0].max()) / (8 * 12)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_crowd_gets_room(share: float) -> None:
    rng = np.random.default_rng(0)
    areas = rng.choice([0.5, 1.0, 2.0, 6.0], 3000)
    areas *= share * 8 * np.prod(SPREAD_TILES) / areas.sum()
    positions = rng.normal((20, 9), 1.0, (3000, 2))
    moved = spread(positions, areas, SPREAD_TILES)
    assert fullest(positions, areas) > 3 * 8 * share
    # Six look-up tables of a tile's eight, and what the last cell of a rectangle is more.
    assert fullest(moved, areas) <= 1.05 * 6
    assert np.all((moved >= 0) & (moved <= SPREAD_TILES))
    # Who was left is left still, but for what lies in the same column of rectangles.
    left, right = positions[:, 0] < 18, positions[:, 0] > 22
    assert moved[left, 0].max() <= moved[right, 0].min() + 8


def test_what_has_room_stays() -> None:
    positions = np.random.default_rng(1).uniform((0, 0), SPREAD_TILES, (400, 2))
    np.testing.assert_array_equal(spread(positions, np.ones(400), SPREAD_TILES), positions)


def test_what_is_outside_comes_in() -> None:
    moved = spread(np.array([[-3.0, 40.0], [50.0, -1.0]]), np.ones(2), SPREAD_TILES)
    assert np.all((moved >= 0) & (moved <= SPREAD_TILES))
    assert moved[0, 0] < moved[1, 0]
    assert moved[0, 1] > moved[1, 1]
