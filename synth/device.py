"""The devices that area and timing are measured on, and what of them the design may take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .floorplan import Site

#: Columns at which groups of block RAMs and of multipliers begin in an ECP5-85F; the wider gap is in the middle.
_GROUPS = (*range(4, 59, 9), *range(69, 115, 9))


def _sites(name: str, rows: Iterable[int], offsets: Mapping[int, int]) -> tuple[Site, ...]:
    """The sites of all groups: ``offsets`` says how many columns after the begin of its group each one is."""
    return tuple(
        Site(f"X{column + offset}/Y{row}/{name}{number}", column + offset, row)
        for row in rows
        for column in _GROUPS
        for number, offset in offsets.items()
    )


@dataclass(frozen=True, slots=True)
class Device:
    """An FPGA of the ECP5 family, and a budget for the core.

    Attributes
    ----------
    name : str
    flags : tuple of str
        How nextpnr-ecp5 is told of it.
    lut, ff, dsp, bram : int
        What it has: look-up tables of 4 inputs, flip-flops, multipliers of 18 x 18 bits, block RAMs of 18 Kibit.
    budget_lut : int
        Look-up tables that the core may take: room for engines to come, and for routing. Multipliers and block RAMs may
        all be taken.
    fmax_mhz, aim_mhz : float
        Clock to reach, and the clock that place and route is told to aim at: the router goes on while a wire misses it,
        so that it must be within reach.
    tiles : tuple of int
        Columns and rows.
    sites : mapping of str to tuple of Site
        Where block RAMs and multipliers can be, by type of cell.
    """

    name: str
    flags: tuple[str, ...]
    lut: int
    ff: int
    dsp: int
    bram: int
    budget_lut: int
    fmax_mhz: float
    aim_mhz: float
    tiles: tuple[int, int]
    sites: Mapping[str, tuple[Site, ...]] = field(repr=False)


DEVICES = {
    "ecp5-85k": Device(
        name="ecp5-85k",
        # The slowest speed grade of the largest device without transceivers, in the package with the most pins.
        flags=("--85k", "--package", "CABGA756", "--speed", "6"),
        lut=83_640,
        ff=83_640,
        dsp=156,
        bram=208,
        budget_lut=50_000,
        fmax_mhz=100.0,
        aim_mhz=101.0,
        tiles=(126, 95),
        sites={
            "DP16KD": _sites("EBR", (22, 46, 70, 82), {0: 0, 1: 2, 2: 4, 3: 6}),
            "MULT18X18D": _sites("MULT18_", (10, 34, 58), {0: 0, 1: 1, 4: 4, 5: 5}),
        },
    ),
}
