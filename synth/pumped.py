"""Multipliers that work twice a cycle: where a device has too few blocks, and where their factors are chosen."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ..golden.config import Config
from .device import Device

__all__ = ["is_pumped", "multipliers", "place_factors"]

_FACTOR = re.compile(r"[AB]\d+")
_SITE = re.compile(r"X(\d+)/Y(\d+)/")
#: Look-up tables of a tile, each with a register beside it; and how far from the multipliers' columns they may be.
_SLICES, _MARGIN = [f"SLICE{slice_}.{{}}{number}" for slice_ in "ABCD" for number in range(2)], 2


def multipliers(config: Config) -> int:
    """Multipliers of an accelerator: those of the array, engines' own, and one for each lane of the requantiser."""
    array = config.array
    own = sum(engine.own_columns(array) for engine in config.engines.values())
    return config.cores * (array.lanes * (array.columns + own) + array.requant_lanes)


def is_pumped(config: Config, device: Device) -> bool:
    """Whether multipliers of the array have to work for two columns each, because the device has too few blocks."""
    return config.array.columns > 1 and multipliers(config) > device.dsp


class _Choice(NamedTuple):
    """A look-up table in front of a multiplier, and a register of its clock that such tables read; or one of both."""

    column: int
    table: str | None
    register: str | None


def place_factors(netlist: dict[str, Any], *, top: str = "top") -> int:
    """Give what chooses the factors of a multiplier sites in the rows of tiles above and below it.

    It has half a cycle. Nextpnr moves each cell to where there is room, which beside multipliers there is not, and some
    of thousands would lie far away.

    Parameters
    ----------
    netlist : dict
        As :func:`.floorplan.floorplan` leaves it; changed in place.
    top : str
        The module.

    Returns
    -------
    int
        How many cells have got a site: look-up tables that nothing but one multiplier reads, and registers of its clock
        that they read.

    Raises
    ------
    ValueError
        If they do not fit into these rows.
    """
    # Of the `synth` extra: running networks does not need it.
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    cells = netlist["modules"][top]["cells"]
    rows: dict[int, list[_Choice]] = defaultdict(list)
    for row, choice in _choices(cells):
        rows[row].append(choice)
    placed = 0
    for row, choices in rows.items():
        columns = [choice.column for choice in choices]
        sites = [
            (column, f"X{column}/Y{beside}/{slice_}")
            for beside in (row - 1, row + 1)
            for column in range(min(columns) - _MARGIN, max(columns) + _MARGIN + 1)
            for slice_ in _SLICES
        ]
        if len(choices) > len(sites):
            raise ValueError(
                f"what chooses factors in row {row} takes {len(choices)} places, and there are {len(sites)} "
                "above and below; choose fewer lanes of the array, or a larger device"
            )
        # Squares: rather all a little to the side than one far away.
        costs = np.subtract.outer(np.array(columns), np.array([column for column, _ in sites])) ** 2
        for choice, chosen in zip(choices, linear_sum_assignment(costs)[1], strict=True):
            for name, kind in ((choice.table, "K"), (choice.register, "FF")):
                if name is not None:
                    cells[name].setdefault("attributes", {})["BEL"] = sites[chosen][1].format(kind)
                    placed += 1
    return placed


def _choices(cells: Mapping[str, Any]) -> Iterator[tuple[int, _Choice]]:
    """What chooses factors, with the row of its multiplier."""
    drivers: dict[int, str] = {}
    readers: dict[int, set[str]] = defaultdict(set)
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            is_output = cell.get("port_directions", {}).get(port) == "output"
            for bit in bits:
                if isinstance(bit, int) and is_output:
                    drivers[bit] = name
                elif isinstance(bit, int):
                    readers[bit].add(name)

    def driving(name: str, ports: re.Pattern[str], kind: str) -> list[str]:
        """Cells of a type that drive these inputs of a cell."""
        found = {}
        for port, bits in cells[name]["connections"].items():
            if ports.fullmatch(port):
                found |= {drivers[bit]: None for bit in bits if cells.get(drivers.get(bit, ""), {}).get("type") == kind}
        return list(found)

    registers_taken: set[str] = set()
    for name, cell in cells.items():
        clock = cell["connections"].get("CLK0")
        if cell["type"] != "MULT18X18D" or not clock:
            continue
        column, row = map(int, _SITE.match(cell["attributes"]["BEL"]).groups())
        tables = [
            table for table in driving(name, _FACTOR, "LUT4") if readers[cells[table]["connections"]["Z"][0]] == {name}
        ]
        registers = {
            register: None
            for table in tables
            for register in driving(table, re.compile("[ABCD]"), "TRELLIS_FF")
            if cells[register]["connections"]["CLK"] == clock and register not in registers_taken
        }
        registers_taken |= registers.keys()
        yield from ((row, _Choice(column, *both)) for both in zip_longest(tables, registers))
