"""A mapped netlist with its drivers and users, for passes that change it in place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

__all__ = ["OPEN", "Bit", "MappedNetlist"]

Cell = dict[str, Any]
Bit = int | str

#: A pin without a net.
OPEN = "x"


class MappedNetlist:
    """A flat netlist, as ``write_json`` of Yosys writes it after ``synth_ecp5``, with the driver and the users of each
    net; a port of the module is a user without a name.

    Parameters
    ----------
    netlist : dict
        The netlist; changed in place.
    top : str
        Name of the module.

    Attributes
    ----------
    cells : dict of str to dict
    driver : dict of bit to str
        The cell that drives a net.
    users : dict of bit to set of (str, str)
        Cells, and their ports.
    """

    def __init__(self, netlist: dict[str, Any], top: str):
        module = netlist["modules"][top]
        self.cells: dict[str, Cell] = module["cells"]
        self.driver: dict[Bit, str] = {}
        self.users: dict[Bit, set[tuple[str, str]]] = defaultdict(set)
        for name in self.cells:
            for port, bit in self.pins(name):
                if self.is_output(name, port):
                    self.driver[bit] = name
                else:
                    self.users[bit].add((name, port))
        for port in module["ports"].values():
            for bit in port["bits"]:
                self.users[bit].add(("", ""))

    def pins(self, name: str) -> Iterator[tuple[str, Bit]]:
        """Yield the ports of a cell, and the net at each of their bits."""
        for port, bits in self.cells[name]["connections"].items():
            yield from ((port, bit) for bit in bits)

    def is_output(self, name: str, port: str) -> bool:
        """Return whether a port of a cell drives its net."""
        return bool(self.cells[name]["port_directions"][port] == "output")

    def bit(self, name: str, port: str) -> Bit:
        """Return the net at a port of one bit."""
        return self.cells[name]["connections"].get(port, [OPEN])[0]

    def connect(self, name: str, port: str, bit: Bit, *, direction: str = "input") -> None:
        """Connect ``port`` to ``bit`` instead of its present net."""
        cell = self.cells[name]
        for old in cell["connections"].get(port, []):
            self.users[old].discard((name, port))
        cell["connections"][port] = [bit]
        cell["port_directions"][port] = direction
        if direction == "input":
            self.users[bit].add((name, port))
        else:
            self.driver[bit] = name

    def drop(self, name: str) -> None:
        """Remove a cell."""
        for port, bit in self.pins(name):
            self.users[bit].discard((name, port))
        del self.cells[name]
