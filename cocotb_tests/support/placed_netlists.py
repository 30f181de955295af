"""Placed netlists, drawn by hand: registers, tables and blocks at their sites."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

from hypothesis import strategies as st

from lutterfly.synth.placed.timing import Timing


class Sketch:
    """A module as nextpnr writes it. Nets are called by names; each cell drives one, and ``site`` is its place."""

    def __init__(self) -> None:
        self.nets: dict[str, int] = {}
        self.cells: dict[str, dict[str, Any]] = {}

    def net(self, name: str) -> int:
        """The number of a net."""
        return self.nets.setdefault(name, len(self.nets) + 2)

    def cell(self, name: str, kind: str, site: str, inputs: dict[str, str], outputs: dict[str, str], **parameters: str):
        """Any cell, from ports to nets."""
        self.cells[name] = {
            "type": kind,
            "attributes": {"NEXTPNR_BEL": site},
            "parameters": parameters,
            "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
            "connections": {port: [self.net(net)] for port, net in (inputs | outputs).items()},
        }

    def register(self, name: str, site: str, source: str, *, clock: str = "clk", port: str = "M", **more: str) -> None:
        """A register; ``more`` are its reset and its enable, by their ports."""
        shared = {"CLKMUX": "CLK", "LSRMUX": "LSR", "SRMODE": "LSR_OVER_CE"}
        self.cell(name, "TRELLIS_FF", site, {port: source, "CLK": clock, **more}, {"Q": name}, **shared)

    def table(self, name: str, site: str, *sources: str, **more: str) -> None:
        """A table of up to four inputs; ``more`` are other inputs, by their ports."""
        inputs = dict(zip("ABCD", sources, strict=False)) | more
        self.cell(name, "TRELLIS_COMB", site, inputs, {"F": name}, MODE="LOGIC")

    def wide(self, name: str, slice_site: str, sources: tuple[str, str], select: str) -> None:
        """A table of five inputs, of which the last one chooses between two halves."""
        self.table(f"{name}_upper", f"{slice_site}.K1", sources[1])
        inputs = {"A": sources[0], "F1": f"{name}_upper", "M": select}
        outputs = {"OFX": name, "F": f"{name}_lower"}
        self.cell(name, "TRELLIS_COMB", f"{slice_site}.K0", inputs, outputs, MODE="LOGIC")

    def sum(self, name: str, slice_site: str, source: str) -> None:
        """A register of a sum, which stays where it is: in front of it is a table of a carry chain."""
        self.table(f"{name}_sum", f"{slice_site}.K0", source, FCI="carry")
        self.register(name, f"{slice_site}.FF0", f"{name}_sum", port="DI")

    @property
    def module(self) -> dict[str, Any]:
        """The module."""
        return {"cells": self.cells, "netnames": {name: {"bits": [bit]} for name, bit in self.nets.items()}}

    @property
    def netlist(self) -> dict[str, Any]:
        """With nothing but the module."""
        return {"modules": {"top": self.module}}

    def site(self, name: str) -> str:
        """Where a cell stands."""
        return self.cells[name]["attributes"]["NEXTPNR_BEL"]


def longest(sketch: Sketch) -> float:
    """The longest path in ns; there has to be one."""
    return max(path.delay_ns for path in Timing(sketch.module).paths(0.0))


@st.composite
def designs(draw: st.DrawFn) -> Sketch:
    """Registers and tables all over a device, connected at random, each site taken once."""
    sketch, taken = Sketch(), set()
    names: list[str] = ["in"]
    tile_sets: dict[tuple[int, int], tuple[str, ...]] = {}
    slices: dict[str, str] = {}
    for number in range(draw(st.integers(2, 24))):
        place = (draw(st.integers(0, 30)), draw(st.integers(0, 30)))
        letter, position = draw(st.sampled_from("ABCD")), draw(st.sampled_from("01"))
        source = draw(st.sampled_from(names))
        kind, name = draw(st.sampled_from(["register", "table", "both", "wide"])), f"n{number}"
        shared = (draw(st.sampled_from(["clk", "double_clk"])), draw(st.sampled_from(["", *names[:3]])))
        enable = draw(st.sampled_from(["", *names[:2]]))
        more_nets = {port: net for port, net in (("LSR", shared[1]), ("CE", enable)) if net}
        if kind == "wide":
            all_sites = {f"X{place[0]}/Y{place[1]}/SLICE{letter}.{kind}{half}" for kind in ("K", "FF") for half in "01"}
            if not all_sites & taken:
                taken |= all_sites
                sources = source, draw(st.sampled_from(names))
                sketch.wide(name, f"X{place[0]}/Y{place[1]}/SLICE{letter}", sources, draw(st.sampled_from(names)))
                names.append(name)
            continue
        if kind != "table" and tile_sets.setdefault(place, shared) != shared:
            continue
        table, register = (f"X{place[0]}/Y{place[1]}/SLICE{letter}.{site}{position}" for site in ("K", "FF"))
        if {table, register} & taken or (kind != "table" and slices.setdefault(register[:-1], enable) != enable):
            continue
        taken |= {table, register}
        if kind == "register":
            sketch.register(name, register, source, clock=shared[0], **more_nets)
        else:
            more = draw(st.sampled_from(names))
            own = name if kind == "table" else f"{name}_table"
            sketch.table(own, table, source, more)
            if kind == "both":
                sketch.register(name, register, own, clock=shared[0], port="DI", **more_nets)
        names.append(name)
    return sketch


def check_sites(sketch: Sketch) -> None:
    """Whether each site has one cell, and tiles and slices have what an ECP5 can give them."""
    sites = {name: sketch.site(name) for name in sketch.cells}
    assert max(Counter(sites.values()).values(), default=1) == 1
    for name, cell in sketch.cells.items():
        if "F1" in cell["connections"]:
            taken = {site for site in sites.values() if site.startswith(sketch.site(name)[:-2])}
            # Only a register of the upper half has an input that the wider table does not take.
            own = {sketch.site(name), sketch.site(f"{name}_upper")}
            assert taken in (own, own | {sketch.site(name).replace("K0", "FF1")})
            assert sketch.site(f"{name}_upper") == sketch.site(name)[:-1] + "1"
    shared, enables = defaultdict(set), defaultdict(set)
    for name, cell in sketch.cells.items():
        if cell["type"] == "TRELLIS_FF":
            tile = re.match(r"X\d+/Y\d+", cell["attributes"]["NEXTPNR_BEL"])[0]
            nets = cell["connections"]
            shared[tile].add((*nets["CLK"], *nets.get("LSR", [])))
            enables[sketch.site(name)[:-1]].add(tuple(nets.get("CE", [])))
            if "DI" in nets:
                table = next(name for name, bit in sketch.nets.items() if bit == nets["DI"][0])
                site = cell["attributes"]["NEXTPNR_BEL"]
                assert sketch.site(table) == site.replace("FF", "K")
    assert all(len(kinds) == 1 for kinds in [*shared.values(), *enables.values()])
