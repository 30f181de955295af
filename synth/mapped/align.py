"""Move factors to the upper end of a multiplier's inputs, to save wires for copies of their signs.

Yosys extends a narrow signed factor of a MULT18X18D with copies of its sign: one of 8 bits takes 18 pins, each with a
wire, and multipliers are close to one another. This pass moves factors to the upper pins, with zeros below them, which
are set in the block (Lattice FPGA-TN-02205). Products move up as far as both factors together.
"""

from __future__ import annotations

from typing import Any

from .netlist import Bit, MappedNetlist

_MULTIPLIER, _FACTOR_BITS, _PRODUCT_BITS = "MULT18X18D", 18, 36


def align_factors(netlist: dict[str, Any], top: str = "top") -> int:
    """Move signed factors, and with them products, to the upper pins of multipliers.

    Parameters
    ----------
    netlist : dict
        A netlist as ``write_json`` of Yosys writes it after ``synth_ecp5``; changed in place.
    top : str
        Name of the module.

    Returns
    -------
    int
        The number of pins that have no wire any more.
    """
    net = MappedNetlist(netlist, top)
    return sum(_align(net, name) for name, cell in net.cells.items() if cell["type"] == _MULTIPLIER)


def _align(net: MappedNetlist, name: str) -> int:
    copies = {side: _sign_copies(net, name, side) for side in "AB"}
    shift = sum(copies.values())
    products = [net.bit(name, f"P{index}") for index in range(_PRODUCT_BITS)]
    kept = _PRODUCT_BITS - shift
    sign, surplus = products[kept - 1], products[kept:]
    if any(not user for bit in surplus for user, _ in net.users[bit]):
        return 0
    for side, count in copies.items():
        factor: list[Bit] = [net.bit(name, f"{side}{index}") for index in range(_FACTOR_BITS - count)]
        for index, bit in enumerate(["0"] * count + factor):
            net.connect(name, f"{side}{index}", bit)
    # Bits above the product's sign were copies of it; their nets have no reader now.
    for bit in surplus:
        for user, port in list(net.users[bit]):
            net.connect(user, port, sign)
    for index, bit in enumerate(surplus + products[:kept]):
        net.connect(name, f"P{index}", bit, direction="output")
    return shift


def _sign_copies(net: MappedNetlist, name: str, side: str) -> int:
    """Count the pins of a factor that are copies of its sign."""
    if net.bit(name, f"SIGNED{side}") != "1":
        return 0
    sign = net.bit(name, f"{side}{_FACTOR_BITS - 1}")
    below = (net.bit(name, f"{side}{index}") != sign for index in reversed(range(_FACTOR_BITS)))
    return next((count for count, differs in enumerate(below) if differs), _FACTOR_BITS) - 1
