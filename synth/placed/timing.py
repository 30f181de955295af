"""An estimate of all paths of a placed netlist, before it is routed.

Delays are about those of the slowest speed grade of an ECP5: those of wires grow with the distance, as nextpnr's own
estimate does. Loops of logic have no delay.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...hdl.parts.pumped_multipliers import DOUBLE
from ..critical import CLOCKS, start_of

__all__ = ["WITHIN", "Path", "Place", "Timing"]

#: Column and row.
Place = tuple[int, int]
Cell = dict[str, Any]

#: Nanoseconds: of logic, and of a wire, for each tile and whatever its length. Near a cell a tile counts twice.
_TABLE, _CARRY_IN, _CARRY, _SUM = 0.24, 0.45, 0.07, 0.44
_TILE, _LEAST_TILES, _NEAR = 0.088, 3, 5
_SETUP = {"CE": 0.1, "LSR": 0.4, "M": 0.1}
_BLOCK_SETUP = 0.3
#: Ports that have wires of their own within a tile, to or from.
WITHIN = frozenset({"DI", "F1", "FCI", "FXA", "FXB", "FCO"})
_TABLE_INPUTS = ("A", "B", "C", "D", "M", "F1", "FXA", "FXB", "FCI")
_TABLE_OUTPUTS = ("F", "OFX", "FCO")
_PLACE = re.compile(r"X(\d+)/Y(\d+)/")


class Path(NamedTuple):
    """The longest path to an end: its delay in ns, as a path of the slower clock, its two registers, and the net that
    leads to the second one."""

    delay_ns: float
    start: str
    end: str
    net: int


class _Arc(NamedTuple):
    """From an input of a cell to an output."""

    net: int
    delay: float
    cell: str
    port: str


def place_of(cell: Cell) -> Place | None:
    """Where a cell stands."""
    found = _PLACE.match(cell.get("attributes", {}).get("NEXTPNR_BEL", ""))
    return (int(found[1]), int(found[2])) if found else None


def net_of(cell: Cell, port: str) -> int | None:
    """The net at a port of one bit."""
    bits = cell["connections"].get(port) or [None]
    return bits[0] if isinstance(bits[0], int) else None


class Timing:
    """Arrivals at all nets, and what follows them, for the places of the cells.

    Parameters
    ----------
    module : dict
        A module of a netlist that nextpnr has placed, as it writes it.

    Attributes
    ----------
    places : dict of str to Place or None
        Of each cell; after a change, :meth:`update`.
    drivers : dict of int to tuple
        Cell and port that drive a net.
    sinks : dict of int to list of tuple
        Cells and ports that it leads to.
    clocks : set of int
        Nets of clocks.
    arrivals : dict of int to dict of float to tuple
        When a net's driver has its value, in ns from the edge, and the register that the longest path to it starts at:
        for each of the clocks by :meth:`cycles`.
    """

    def __init__(self, module: dict[str, Any]):
        self.cells: dict[str, Cell] = module["cells"]
        doubled = {bit for name, net in module["netnames"].items() for bit in net["bits"] if DOUBLE in name}
        self.places = {name: place_of(cell) for name, cell in self.cells.items()}
        self.drivers: dict[int, tuple[str, str]] = {}
        self.sinks: dict[int, list[tuple[str, str]]] = defaultdict(list)
        self.clocks: set[int] = set()
        self._clocked: dict[str, bool] = {}
        self._after: dict[int, list[_Arc]] = defaultdict(list)
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
                # One with an enable changes with edges of the slower clock only (`hdl/parts/pumped_multipliers.py`).
                self._clocked[name] = clock in doubled and net_of(cell, "CE") is None
            for source, arc in _arcs(name, cell):
                self._after[source].append(arc)
        self._starts, self._order = self._in_order()
        self.update()

    def _in_order(self) -> tuple[list[int], list[int]]:
        """Nets that come from no table, and all nets but those of loops, each after those that it depends on."""
        before = Counter(arc.net for arcs in self._after.values() for arc in arcs)
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
        """Work out the arrivals anew."""
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
        """What a nanosecond of a path counts that starts at this register: twice if it changes with each edge of the
        faster clock."""
        return 2.0 if self._clocked.get(name) else 1.0

    def wire_to(self, net: int, cell: str, port: str, place: Place | None) -> float:
        """The delay of a net's wire to a port, if the cell stands at ``place``."""
        driver, output = self.drivers[net]
        return wire(self.places[driver] if driver != cell else place, output, place, port)

    def latest(self, net: int, after: float) -> tuple[float, str] | None:
        """The longest path through a net of which ``after`` is left, and where it starts; None if none leads there."""
        return max(
            ((cycles * (when + after), start) for cycles, (when, start) in self.arrivals.get(net, {}).items()),
            default=None,
        )

    def left_from(self, net: int, place: Place | None, *, but_to: str | None = None) -> float:
        """The longest delay from a net's driver, if that stands at ``place``, to an end, not through ``but_to``."""
        output, left = self.drivers[net][1], 0.0
        for name, port in self.sinks.get(net, ()):
            if self._is_end(name, port):
                left = max(left, wire(place, output, self.places[name], port) + self.setup(name, port))
        for arc in (arc for arc in self._after.get(net, ()) if arc.cell != but_to):
            there = wire(place, output, self.places[arc.cell], arc.port)
            left = max(left, there + arc.delay + self._left.get(arc.net, 0.0))
        return left

    def paths(self, limit_ns: float) -> list[Path]:
        """The longest path to each end, those above ``limit_ns``, the longest first."""
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
        """The tables that a path passes, the last one first."""
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
                for source, arc in _arcs(name, self.cells[name])
                if arc.net == net and cycles in self.arrivals.get(source, {})
            ]
            # What is passed twice is a loop.
            if not before or name in found:
                return found
            found.append(name)
            _, net = max(before)

    def _is_end(self, name: str, port: str) -> bool:
        if name not in self._clocked or port in CLOCKS:
            return False
        # Of a table that is a memory: what is written, and where.
        return self.cells[name]["type"] != "TRELLIS_COMB" or port.startswith(("WD", "WAD", "WRE"))

    def setup(self, name: str, port: str) -> float:
        """How long a cell takes with what is at a port: a table, or a register before its edge."""
        if not self._is_end(name, port):
            return _TABLE
        return _BLOCK_SETUP if self.cells[name]["type"] in ("DP16KD", "MULT18X18D") else _SETUP.get(port, 0.0)


def wire(start: Place | None, output: str, end: Place | None, port: str) -> float:
    """The delay of a wire between two ports, in ns."""
    if output in WITHIN or port in WITHIN or start is None or end is None:
        return 0.0
    lengths = [abs(one - other) for one, other in zip(start, end, strict=True)]
    return _TILE * (_LEAST_TILES + sum(length + min(length, _NEAR) for length in lengths))


def _arcs(name: str, cell: Cell) -> Iterator[tuple[int, _Arc]]:
    """From which input to which output of a table, and with what delay."""
    if cell["type"] != "TRELLIS_COMB":
        return
    is_carry = cell.get("parameters", {}).get("MODE", "LOGIC").startswith("CCU2")
    for port in _TABLE_INPUTS:
        source = net_of(cell, port)
        if source is None or (is_carry and port == "M"):
            continue
        for output in _TABLE_OUTPUTS:
            target = net_of(cell, output)
            if target is not None:
                yield source, _Arc(target, _delay(port, output) if is_carry else _TABLE, name, port)


def _delay(port: str, output: str) -> float:
    """Of a table in a carry chain."""
    if output != "FCO":
        return _SUM if port == "FCI" else _TABLE
    return _CARRY if port == "FCI" else _CARRY_IN
