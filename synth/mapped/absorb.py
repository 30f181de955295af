"""Move registers into the block RAMs and multipliers of an ECP5.

Yosys maps memories and products to the device's blocks but leaves the registers around them in the fabric, though the
blocks have registers of their own: MULT18X18D at its inputs, in the middle and at its output, DP16KD after its read
port (Lattice FPGA-TN-02205 and FPGA-TN-02204). `hdl/parts/device.py` has these registers in its generic bodies;
this pass moves them in the mapped netlist, so that the hardware description stays free of primitives.

A register is moved if it has neither enable nor reset and no other reader needs it. Its value before the first clock
does not matter, because such registers carry data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .netlist import OPEN, Bit, MappedNetlist

_FLIP_FLOP, _MULTIPLIER, _RAM = "TRELLIS_FF", "MULT18X18D", "DP16KD"
_FACTOR_BITS, _PRODUCT_BITS, _RAM_BITS = 18, 36, 18
#: Read ports of this width use both sides of a block RAM, whose registers are configured separately.
_WIDE_RAM_BITS = 36


class _Registers(MappedNetlist):
    """A netlist with its flip-flops."""

    def is_plain(self, name: str) -> bool:
        """Return whether a cell is a flip-flop that takes its input on every clock."""
        cell = self.cells[name]
        return (
            cell["type"] == _FLIP_FLOP
            and cell["parameters"].get("CEMUX", "1 ").strip() == "1"
            and self.bit(name, "LSR") in ("0", OPEN)
        )

    def register_after(self, bits: Iterable[Bit]) -> dict[Bit, str] | None:
        """Return the flip-flop after each bit that has users; None if some have other users, or clocks differ."""
        found = {}
        for bit in bits:
            if bit == OPEN or not self.users[bit]:
                continue
            (name, port), *others = self.users[bit]
            if others or not name or port != "DI" or not self.is_plain(name):
                return None
            found[bit] = name
        return found if len({self.bit(name, "CLK") for name in found.values()}) == 1 else None

    def absorb_after(self, cell: str, ports: Iterable[str], registers: dict[Bit, str]) -> None:
        """Let ``ports`` drive the nets of the registers after them."""
        for port in ports:
            bit = self.bit(cell, port)
            if bit in registers:
                output = self.bit(registers[bit], "Q")
                self.drop(registers[bit])
                self.connect(cell, port, output, direction="output")


def absorb_registers(netlist: dict[str, Any], top: str = "top") -> dict[str, int]:
    """Move registers into block RAMs and multipliers.

    Parameters
    ----------
    netlist : dict
        A netlist as ``write_json`` of Yosys writes it after ``synth_ecp5``; changed in place.
    top : str
        Name of the module.

    Returns
    -------
    dict of str to int
        The numbers of block RAMs and multipliers that took registers, and of removed flip-flops.
    """
    net = _Registers(netlist, top)
    before = sum(cell["type"] == _FLIP_FLOP for cell in net.cells.values())
    names = list(net.cells)
    taken = {
        "rams": sum(_absorb_ram(net, name) for name in names if net.cells.get(name, {}).get("type") == _RAM),
        "multipliers": sum(
            _absorb_multiplier(net, name) for name in names if net.cells.get(name, {}).get("type") == _MULTIPLIER
        ),
    }
    for name in names:
        cell = net.cells.get(name)
        if cell and cell["type"] == _FLIP_FLOP and not net.users[net.bit(name, "Q")]:
            net.drop(name)
    return taken | {"flip_flops": before - sum(cell["type"] == _FLIP_FLOP for cell in net.cells.values())}


def _absorb_ram(net: _Registers, name: str) -> bool:
    """Absorb the register after the read port."""
    parameters = net.cells[name]["parameters"]
    if any(int(parameters[f"DATA_WIDTH_{side}"], 2) == _WIDE_RAM_BITS for side in "AB"):
        return False
    done = False
    for side in "AB":
        ports = [f"DO{side}{index}" for index in range(_RAM_BITS)]
        registers = net.register_after(net.bit(name, port) for port in ports)
        if registers and net.bit(name, f"CLK{side}") == net.bit(next(iter(registers.values())), "CLK"):
            net.absorb_after(name, ports, registers)
            parameters[f"REGMODE_{side}"] = "OUTREG"
            net.connect(name, f"OCE{side}", "1")
            done = True
    return done


def _absorb_multiplier(net: _Registers, name: str) -> bool:
    """Absorb the registers of both factors, and one or two after the product."""
    factors = {side: [f"{side}{index}" for index in range(_FACTOR_BITS)] for side in "AB"}
    products = [f"P{index}" for index in range(_PRODUCT_BITS)]
    inputs = {side: _registers_before(net, name, ports) for side, ports in factors.items()}
    first = net.register_after(net.bit(name, port) for port in products)
    if first is None or any(registers is None for registers in inputs.values()):
        return False
    clocks = {
        net.bit(register, "CLK")
        for registers in (*inputs.values(), first)
        if registers
        for register in registers.values()
    }
    if len(clocks) != 1:
        return False
    for ports, registers in zip(factors.values(), inputs.values(), strict=True):
        for port in ports:
            bit = net.bit(name, port)
            if registers and bit in registers:
                net.connect(name, port, net.bit(registers[bit], "DI"))
    net.absorb_after(name, products, first)
    stages = ["INPUTA", "INPUTB", "OUTPUT"]
    second = net.register_after(net.bit(name, port) for port in products)
    if second and {net.bit(register, "CLK") for register in second.values()} == clocks:
        net.absorb_after(name, products, second)
        stages.append("PIPELINE")
    parameters = net.cells[name]["parameters"]
    for stage in stages:
        parameters |= {f"REG_{stage}_{kind}": f"{kind}0" for kind in ("CLK", "CE", "RST")}
    parameters |= {"CLK0_DIV": "ENABLED", "GSR": "DISABLED"}
    for port, bit in (("CLK0", clocks.pop()), ("CE0", "1"), ("RST0", "0")):
        net.connect(name, port, bit)
    return True


def _registers_before(net: _Registers, name: str, ports: Iterable[str]) -> dict[Bit, str] | None:
    """Return the flip-flop that drives each bit, which may have other users; None if another cell drives one."""
    found = {}
    for port in ports:
        bit = net.bit(name, port)
        if bit in ("0", OPEN):
            continue
        driver = net.driver.get(bit, "")
        if not driver or not net.is_plain(driver):
            return None
        found[bit] = driver
    return found
