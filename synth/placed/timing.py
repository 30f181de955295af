"""An estimate of all paths of a placed netlist, before it is routed. Loops of logic have no delay."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container
from typing import Any, NamedTuple

from ...hdl.parts.device import DOUBLE
from ..floorplan import CLOCKS, start_of
from .delays import BLOCK_SETUP, SETUP, TABLE, Arc, Cell, Place, arcs, net_of, place_of, wire

__all__ = ["Path", "Sink", "Timing"]

#: A cell, and its port.
Sink = tuple[str, str]


class Path(NamedTuple):
    """The longest path to an end: its delay in ns, as a path of the slower clock, its two registers, and the net at the
    second one."""

    delay_ns: float
    start: str
    end: str
    net: int


class Timing:
    """Arrivals at all nets, and the delays after them, for the places of the cells.

    Parameters
    ----------
    module : dict
        A module of a placed netlist, as nextpnr writes it.

    Attributes
    ----------
    cells, nets : dict
        Cells and nets of the module, by name.
    places : dict of str to Place or None
        The place of each cell; call :meth:`update` after a change.
    drivers : dict of int to tuple
        Cell and port that drive a net.
    sinks : dict of int to list of tuple
        Cells and ports that read a net.
    clocks : set of int
        Nets of clocks.
    arrivals : dict of int to dict of float to tuple
        The arrival of a net's value, in ns from the edge, and the register at which the longest path to it starts, for
        each of the clocks by :meth:`cycles`.
    """

    def __init__(self, module: dict[str, Any]):
        self.cells: dict[str, Cell] = module["cells"]
        self.nets: dict[str, dict[str, Any]] = module["netnames"]
        doubled = {bit for name, net in self.nets.items() for bit in net["bits"] if DOUBLE in name}
        self.places = {name: place_of(cell) for name, cell in self.cells.items()}
        self.drivers: dict[int, tuple[str, str]] = {}
        self.sinks: dict[int, list[tuple[str, str]]] = defaultdict(list)
        self.clocks: set[int] = set()
        self._clocked: dict[str, bool] = {}
        self._after: dict[int, list[Arc]] = defaultdict(list)
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                for bit in (bit for bit in bits if isinstance(bit, int)):
                    if cell["port_directions"][port] == "output":
                        self.drivers[bit] = (name, port)
                    else:
                        self.sinks[bit].append((name, port))
            clock = next((net for port in CLOCKS if (net := net_of(cell, port)) is not None), None)
            if clock is not None:
                self.clocks.add(clock)
                # A register with an enable changes with edges of the slower clock only (`hdl/parts/device.py`).
                self._clocked[name] = clock in doubled and net_of(cell, "CE") is None
            for source, arc in arcs(name, cell):
                self._after[source].append(arc)
        self._starts, self._order = self._in_order()
        self.update()

    def _in_order(self) -> tuple[list[int], list[int]]:
        """Return nets that do not come from a table, and all nets but those of loops in topological order."""
        before = Counter(arc.net for net in self.drivers for arc in self._after.get(net, ()))
        starts = [net for net in self.drivers if not before[net]]
        ready, order = list(starts), []
        while ready:
            net = ready.pop()
            order.append(net)
            for arc in self._after.get(net, ()):
                before[arc.net] -= 1
                if not before[arc.net]:
                    ready.append(arc.net)
        return starts, order

    def update(self) -> None:
        """Compute the arrivals again."""
        self.arrivals: dict[int, dict[float, tuple[float, str]]] = {}
        self._left: dict[int, float] = {}
        for net in self._starts:
            name = self.drivers[net][0]
            is_start = name in self._clocked
            self.arrivals[net] = {self.cycles(name): (start_of(self.cells[name]), name)} if is_start else {}
        for net in self._order:
            for arc in self._after.get(net, ()):
                there = arc.delay + self.wire_to(net, arc.cell, arc.port, self.places[arc.cell])
                arrivals = self.arrivals.setdefault(arc.net, {})
                for cycles, (when, start) in self.arrivals[net].items():
                    arrivals[cycles] = max(arrivals.get(cycles, (0.0, "")), (when + there, start))
        for net in reversed(self._order):
            self._left[net] = self.left_from(net, self.places[self.drivers[net][0]])

    def cycles(self, name: str) -> float:
        """Return the weight of delays of paths that start at this register: 2 if it changes with each edge of the
        faster clock, else 1."""
        return 2.0 if self._clocked.get(name) else 1.0

    def wire_to(self, net: int, cell: str, port: str, place: Place | None) -> float:
        """Return the delay of a net's wire to a port, if the cell is at ``place``."""
        driver, output = self.drivers[net]
        return wire(self.places[driver] if driver != cell else place, output, place, port)

    def latest(self, net: int, after: float) -> tuple[float, str] | None:
        """Return the longest path through a net with the delay ``after`` left, and its start; None if there is none."""
        return max(
            ((cycles * (when + after), start) for cycles, (when, start) in self.arrivals.get(net, {}).items()),
            default=None,
        )

    def left_from(self, net: int, place: Place | None, *, but_to: Container[str | None] = ()) -> float:
        """Return the longest delay from a net's driver at ``place`` to an end, not through ``but_to``; minus infinity
        if no end is reached."""
        output, left = self.drivers[net][1], -math.inf
        for name, port in self.sinks.get(net, ()):
            if self._is_end(name, port):
                left = max(left, wire(place, output, self.places[name], port) + self.setup(name, port))
        for arc in (arc for arc in self._after.get(net, ()) if arc.cell not in but_to):
            there = wire(place, output, self.places[arc.cell], arc.port)
            left = max(left, there + arc.delay + self._left.get(arc.net, 0.0))
        return left

    def paths(self, limit_ns: float) -> list[Path]:
        """Return the longest path to each end, of those above ``limit_ns``, the longest first."""
        found = []
        for net, sinks in self.sinks.items():
            if not self.arrivals.get(net):
                continue
            for name, port in sinks:
                if self._is_end(name, port):
                    after = self.wire_to(net, name, port, self.places[name]) + self.setup(name, port)
                    latest = self.latest(net, after)
                    if latest is not None and latest[0] > limit_ns:
                        found.append(Path(*latest, name, net))
        return sorted(found, reverse=True)

    def tables(self, path: Path) -> list[str]:
        """Return the tables of a path, the last one first."""
        net, cycles, found = path.net, self.cycles(path.start), list[str]()
        while True:
            name, _ = self.drivers[net]
            before = [
                (
                    self.arrivals[source][cycles][0]
                    + arc.delay
                    + self.wire_to(source, name, arc.port, self.places[name]),
                    source,
                )
                for source, arc in arcs(name, self.cells[name])
                if arc.net == net and cycles in self.arrivals.get(source, {})
            ]
            # A table that comes twice is on a loop.
            if not before or name in found:
                return found
            found.append(name)
            _, net = max(before)

    def _is_end(self, name: str, port: str) -> bool:
        if name not in self._clocked or port in CLOCKS:
            return False
        # These are data and address of a table that is a memory.
        return self.cells[name]["type"] != "TRELLIS_COMB" or port.startswith(("WD", "WAD", "WRE"))

    def setup(self, name: str, port: str) -> float:
        """Return the delay from a port through a table, or the setup time of a register."""
        if not self._is_end(name, port):
            return TABLE
        return BLOCK_SETUP if self.cells[name]["type"] in ("DP16KD", "MULT18X18D") else SETUP.get(port, 0.0)

    def through(self, net: int, sink: Sink, place: Place | None) -> float:
        """Return the longest path that begins at a net's register, if that is at ``place``, and goes to one of its
        sinks.

        It is in ns of the slower clock, and 0 if there is no path.
        """
        name, output = self.drivers[net]
        cell, port = sink
        after = [self.setup(cell, port)] if self._is_end(cell, port) else []
        after += [
            arc.delay + self._left.get(arc.net, 0.0) for arc in self._after.get(net, ()) if (arc.cell, arc.port) == sink
        ]
        there = start_of(self.cells[name]) + wire(place, output, self.places[cell], port)
        return max(0.0, self.cycles(name) * (there + max(after, default=-math.inf)))

    def inputs(self, name: str) -> dict[str, int]:
        """Return the nets of a register's inputs, by the ports that it uses when it is not beside its table."""
        nets = {port: net_of(self.cells[name], port) for port in ("DI", *SETUP)}
        nets["M"] = nets.pop("DI") or nets["M"]
        return {port: net for port, net in nets.items() if net is not None and net in self.drivers}

    def to_register(self, name: str, place: Place) -> float:
        """Return the longest path to a register, if it is at ``place`` and not beside its table."""
        paths = []
        for port, net in self.inputs(name).items():
            driver, output = self.drivers[net]
            paths.append(self.latest(net, wire(self.places[driver], output, place, port) + SETUP[port]))
        return max((latest[0] for latest in paths if latest is not None), default=0.0)

    def copy(self, name: str, place: Place, sinks: list[Sink]) -> str:
        """Add a copy of a register at ``place`` that drives these of its sinks; return its name.

        Call :meth:`update` afterwards.
        """
        cell, net = self.cells[name], self.cells[name]["connections"]["Q"][0]
        copied, new = f"{name}$copy{len(self.cells)}", 1 + max(bit for net in self.nets.values() for bit in net["bits"])
        taken = {port: bits for port, bits in cell["connections"].items() if port not in ("DI", "Q")}
        taken |= {port: [bit] for port, bit in self.inputs(name).items()}
        self.cells[copied] = cell | {
            "parameters": cell["parameters"] | {"SD": "0 "},
            "attributes": dict(cell["attributes"]),
            "port_directions": dict.fromkeys(taken, "input") | {"Q": "output"},
            "connections": taken | {"Q": [new]},
        }
        self.nets[copied] = {"hide_name": 1, "bits": [new], "attributes": {"ROUTING": " "}}
        self.places[copied], self._clocked[copied] = place, self._clocked[name]
        self.drivers[new], self.sinks[new] = (copied, "Q"), sinks
        # The sinks are updated before :meth:`update`, as one of them may be copied next.
        self.arrivals[new] = {self.cycles(copied): (start_of(cell), copied)}
        self.sinks[net] = [sink for sink in self.sinks[net] if sink not in sinks]
        for port, bits in taken.items():
            for bit in bits:
                self.sinks[bit].append((copied, port))
        for sink, port in sinks:
            self.cells[sink]["connections"][port] = [new]
        arcs_of = self._after.pop(net, [])
        self._after[new] = [arc for arc in arcs_of if (arc.cell, arc.port) in sinks]
        self._after[net] = [arc for arc in arcs_of if (arc.cell, arc.port) not in sinks]
        self._starts.append(new)
        self._order.insert(0, new)
        return copied
