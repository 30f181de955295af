"""Placed netlists, drawn by hand: registers, tables and blocks at their sites."""

from __future__ import annotations

from typing import Any


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
