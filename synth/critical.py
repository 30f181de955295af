"""Which nets of a mapped netlist are on long paths, before anything is placed.

Logic has about the delays of an ECP5. A wire that is not a carry counts the same everywhere: where its ends will be is
what is asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["CLOCKS", "path_delays", "start_of"]

#: Ports of clocks, whose nets have wires of their own.
CLOCKS = frozenset({"CLK", "CLKA", "CLKB", "CLK0", "CLK1", "CLK2", "CLK3", "WCK"})

#: Nanoseconds: of a wire, of what starts a path, and of logic, by type of cell.
_WIRE = 0.9
_REGISTER, _SLOW_RAM, _SLOW_MULTIPLIER = 0.6, 5.7, 3.5
_SETUP = {"CE": 0.4, "LSR": 0.4}
_LOGIC = {
    "LUT4": ("ABCD", "Z", 0.24),
    "PFUMX": (("ALUT", "BLUT", "C0"), "Z", 0.2),
    "L6MUX21": (("D0", "D1", "SD"), "Z", 0.2),
    "TRELLIS_DPR16X4": (("RAD",), ("DO",), 0.24),
}
_CARRY_IN, _CARRY, _SUM = 0.45, 0.07, 0.44

Cell = Mapping[str, Any]


def path_delays(cells: Mapping[str, Cell]) -> dict[int, float]:
    """The delay of the longest path through each net, by the net's number, in ns.

    Parameters
    ----------
    cells : mapping
        Of a flat netlist, as ``write_json`` of Yosys writes it. Loops of logic have no delay.
    """
    after: dict[int, list[tuple[int, float]]] = defaultdict(list)
    before: Counter[int] = Counter()
    arrival: dict[int, float] = {}
    setup: dict[int, float] = {}
    carries = {bit for cell in cells.values() if cell["type"] == "CCU2C" for bit in _bits(cell, "COUT")}
    for cell in cells.values():
        arcs = list(_arcs(cell))
        for source, target, delay in arcs:
            after[source].append((target, delay))
            before[target] += 1
        driven = {target for _, target, _ in arcs}
        for port, direction in cell.get("port_directions", {}).items():
            for bit in _bits(cell, port):
                if direction == "output" and bit not in driven:
                    arrival[bit] = start_of(cell)
                elif direction == "input" and port not in CLOCKS:
                    setup[bit] = max(setup.get(bit, 0.0), _SETUP.get(port, 0.0))

    def wire(net: int) -> float:
        return 0.0 if net in carries else _WIRE

    ready = [net for net in arrival.keys() | after.keys() if not before[net]]
    order = []
    while ready:
        net = ready.pop()
        order.append(net)
        for target, delay in after.get(net, ()):
            arrival[target] = max(arrival.get(target, 0.0), arrival.get(net, 0.0) + wire(net) + delay)
            before[target] -= 1
            if not before[target]:
                ready.append(target)
    left: dict[int, float] = {}
    for net in reversed(order):
        later = [delay + left[target] for target, delay in after.get(net, ())]
        left[net] = wire(net) + max([setup.get(net, 0.0), *later])
    return {net: arrival.get(net, 0.0) + left[net] for net in order}


def _bits(cell: Cell, port: str) -> list[int]:
    return [bit for bit in cell["connections"].get(port, ()) if isinstance(bit, int)]


def start_of(cell: Cell) -> float:
    """When a path begins at the output of a register, or of a block that may have none."""
    parameters = cell.get("parameters", {})
    if cell["type"] == "DP16KD":
        modes = (parameters.get("REGMODE_A"), parameters.get("REGMODE_B"))
        return _REGISTER if "OUTREG" in modes else _SLOW_RAM
    if cell["type"] == "MULT18X18D":
        return _SLOW_MULTIPLIER if parameters.get("REG_OUTPUT_CLK", "NONE") == "NONE" else _REGISTER
    return _REGISTER


def _arcs(cell: Cell) -> Iterator[tuple[int, int, float]]:
    """From which input to which output of a cell, and with what delay."""
    if cell["type"] == "CCU2C":
        for port in ("A0", "B0", "C0", "D0", "A1", "B1", "C1", "D1", "CIN"):
            for output in ("S0", "S1", "COUT"):
                # The second sum alone depends on the second operands.
                if output == "S0" and port.endswith("1"):
                    continue
                delay = _CARRY_IN if port != "CIN" else _CARRY if output == "COUT" else _SUM
                yield from ((source, target, delay) for source in _bits(cell, port) for target in _bits(cell, output))
    elif cell["type"] in _LOGIC:
        inputs, outputs, delay = _LOGIC[cell["type"]]
        for port in inputs:
            for output in outputs:
                yield from ((source, target, delay) for source in _bits(cell, port) for target in _bits(cell, output))
