# amaranth: UnusedElaboratable=no
"""Which multipliers work twice a cycle, counted in the Verilog; and where their factors are chosen."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any

import pytest

from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, ClusterConfig
from lutterfly.golden.engines import ENGINES, MAC, MAXIMUM
from lutterfly.golden.engines.configurations import EngineConfigs
from lutterfly.golden.engines.depthwise.configuration import DepthwiseConfig
from lutterfly.golden.engines.fpc.configuration import FpcConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.platforms import Platform
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.hdl.top_axi import TopAxi
from lutterfly.synth.device import DEVICES
from lutterfly.synth.pumped import is_pumped, multipliers, place_factors

TINY = PRESETS["tiny"]
PLAIN = EngineConfigs.of(MAC, MAXIMUM)
CONFIGS = {
    "tiny": TINY,
    "without borrowers": dataclasses.replace(TINY, engines=PLAIN),
    "own columns, two cores": dataclasses.replace(
        TINY,
        array=ArrayConfig(lanes=4, columns=2, requant_lanes=2),
        engines=EngineConfigs.of(*ENGINES.values(), FPC=FpcConfig(width=16), DEPTHWISE=DepthwiseConfig(taps=2)),
        cluster=ClusterConfig(cores=2),
    ),
}


def blocks(config: Config, *, pumped: bool) -> int:
    """Products of two registers in the Verilog: others are by constants."""
    text = to_verilog(TopAxi(config), name="top", platform=Platform(is_pumped=pumped))
    return len(re.findall(r" \* (?:\\?\w+|\$signed\(\\?\w+\));", text))


@pytest.mark.parametrize("name", CONFIGS)
def test_blocks_are_those_that_the_verilog_has(name: str) -> None:
    config = CONFIGS[name]
    assert blocks(config, pumped=False) == multipliers(config)
    assert blocks(config, pumped=True) == multipliers(config) - config.cores * config.array.lanes


@pytest.mark.parametrize(("lacking", "wanted"), [(0, False), (1, True)])
def test_where_the_device_has_too_few(lacking: int, wanted: bool) -> None:
    config = PRESETS["ecp5-85k"]
    device = dataclasses.replace(DEVICES["ecp5-85k"], dsp=multipliers(config) - lacking)
    assert is_pumped(config, device) == wanted
    one = dataclasses.replace(config, array=ArrayConfig(lanes=64, columns=1, requant_lanes=1), engines=PLAIN)
    assert not is_pumped(one, dataclasses.replace(device, dsp=1))


@pytest.mark.parametrize("name", ["ecp5-85k", "ecp5-85k-on-chip", "ecp5-45k-on-chip", "ecp5-25k-on-chip"])
def test_these_presets_have_enough(name: str) -> None:
    (device,) = (device for kind, device in DEVICES.items() if name.startswith(kind))
    assert not is_pumped(PRESETS[name], device)


def test_256_products_are_more_than_an_85f_has() -> None:
    assert is_pumped(PRESETS["ecp5-85k-256"], DEVICES["ecp5-85k"])


def test_one_column_has_its_own() -> None:
    config = dataclasses.replace(TINY, array=ArrayConfig(lanes=4, columns=1, requant_lanes=1), engines=PLAIN)
    assert blocks(config, pumped=True) == multipliers(config)


FAST, SLOW = 2, 3


def cell(kind: str, inputs: dict[str, int], outputs: dict[str, int], **attributes: str) -> dict[str, Any]:
    """A cell as `write_json` of Yosys writes it."""
    ports = {port: [bit] for port, bit in (inputs | outputs).items()}
    directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {"type": kind, "connections": ports, "port_directions": directions, "attributes": attributes}


def pumped_lanes(places: list[tuple[int, int]], bits: int) -> dict[str, Any]:
    """Multipliers at these places: of each factor's bit a table between a register of either clock, and the turn."""
    cells: dict[str, Any] = {}
    fresh = itertools.count(10)
    for number, (x, y) in enumerate(places):
        factors, turn = {}, next(fresh)
        cells[f"turn_{number}"] = cell("TRELLIS_FF", {"CLK": FAST, "DI": next(fresh)}, {"Q": turn})
        for bit in range(bits):
            first, held, chosen = next(fresh), next(fresh), next(fresh)
            name = f"{number}_{bit}"
            cells[f"first_{name}"] = cell("TRELLIS_FF", {"CLK": SLOW, "DI": next(fresh)}, {"Q": first})
            cells[f"held_{name}"] = cell("TRELLIS_FF", {"CLK": FAST, "DI": next(fresh)}, {"Q": held})
            cells[f"table_{name}"] = cell("LUT4", {"A": first, "B": held, "C": turn}, {"Z": chosen})
            factors[f"{'AB'[bit % 2]}{bit // 2}"] = chosen
        products = {"P0": next(fresh)}
        cells[f"multiplier_{number}"] = cell(
            "MULT18X18D", factors | {"CLK0": FAST}, products, BEL=f"X{x}/Y{y}/MULT18_0"
        )
    return {"modules": {"top": {"cells": cells}}}


def sites_of(netlist: dict[str, Any], prefix: str) -> dict[str, tuple[int, int, str]]:
    """Column, row and the rest of the sites of those cells that have one."""
    cells, found = netlist["modules"]["top"]["cells"], {}
    for name, one in cells.items():
        if name.startswith(prefix) and "BEL" in one["attributes"]:
            column, row, rest = re.fullmatch(r"X(\d+)/Y(\d+)/(.*)", one["attributes"]["BEL"]).groups()
            found[name] = int(column), int(row), rest
    return found


def test_factors_are_chosen_beside_their_multiplier() -> None:
    places = [(20, 10), (21, 10), (22, 10), (20, 34)]
    netlist = pumped_lanes(places, 18)
    assert place_factors(netlist) == 4 * (18 + 18 + 1)
    tables, registers = sites_of(netlist, "table"), sites_of(netlist, "held") | sites_of(netlist, "turn")
    assert (len(tables), len(registers)) == (4 * 18, 4 * 19)
    assert not sites_of(netlist, "first")
    for found, kinds in ((tables, "K0 K1"), (registers, "FF0 FF1")):
        assert len(set(found.values())) == len(found)
        assert {rest for _, _, rest in found.values()} == {f"SLICE{s}.{kind}" for s in "ABCD" for kind in kinds.split()}
        for name, (column, row, _) in found.items():
            x, y = places[int(name.split("_")[1])]
            assert abs(row - y) == 1
            assert abs(column - x) <= 1


def test_what_others_need_is_left_where_it_is_wanted() -> None:
    netlist = pumped_lanes([(20, 10)], 2)
    cells = netlist["modules"]["top"]["cells"]
    cells["reader"] = cell("LUT4", {"A": cells["table_0_0"]["connections"]["Z"][0]}, {"Z": 900})
    # Logic of one clock, which has a whole cycle.
    cells["multiplier_0"]["connections"]["A1"] = [901]
    cells["multiplier_0"]["port_directions"]["A1"] = "input"
    cells["register"] = cell("TRELLIS_FF", {"CLK": FAST, "DI": 902}, {"Q": 901})
    without_clock = cell("MULT18X18D", {"A0": 903}, {"P0": 904}, BEL="X30/Y10/MULT18_0")
    cells |= {"slow": without_clock, "table": cell("LUT4", {"A": 905}, {"Z": 903})}
    assert place_factors(netlist) == 3
    assert set(sites_of(netlist, "")) == {"table_0_1", "held_0_1", "turn_0", "multiplier_0", "slow"}


def test_more_than_rows_hold_is_refused() -> None:
    place_factors(pumped_lanes([(20, 10)], 36))
    with pytest.raises(ValueError, match="row 10 takes 111 places, and there are 80 above and below; choose"):
        place_factors(pumped_lanes([(20, 10)] * 3, 36))
