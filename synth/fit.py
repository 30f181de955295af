"""Whether a mapped design fits a device: seen before place and route, which takes long to find out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .device import Device

#: Look-up tables that a cell takes, at least: place and route adds some at the ends of carry chains.
_LUTS = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}


def check_fit(netlist: dict[str, Any], device: Device, *, top: str = "top") -> None:
    """Compare what a netlist takes with what a device has.

    Parameters
    ----------
    netlist : dict
        As ``write_json`` of Yosys writes it, flat.
    device : Device
    top : str
        The module.

    Raises
    ------
    ValueError
        If it takes more of something; names all of them.
    """
    counts = Counter(cell["type"] for cell in netlist["modules"][top]["cells"].values())
    taken = (
        ("look-up tables", sum(size * counts[kind] for kind, size in _LUTS.items()), device.lut),
        ("flip-flops", counts["TRELLIS_FF"], device.ff),
        ("multipliers", counts["MULT18X18D"], device.dsp),
        ("block RAMs", counts["DP16KD"], device.bram),
    )
    lacking = [f"{what} must be at most {limit:,}, not {used:,}" for what, used, limit in taken if used > limit]
    if lacking:
        raise ValueError(f"{device.name}: {'; '.join(lacking)}; choose a smaller configuration, or a larger device")
