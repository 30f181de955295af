"""The devices for which area and timing are measured, and the design's budget on them.

Source: Lattice FPGA-DS-02012, table 1.1, for the resources; Project Trellis' grid of tiles for their places, and its
delays for the ratios of speed grades.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..boards import SPEEDS, check_speed
from .floorplan import BlockSite

#: Columns of block RAMs and multipliers in a group, counted from its first column.
_RAMS, _MULTIPLIERS = {0: 0, 1: 2, 2: 4, 3: 6}, {0: 0, 1: 1, 4: 4, 5: 5}

#: The factor by which place and route aims above a clock: a path that it counts as met can miss the aim by half a
#: percent.
MARGIN = 1.01
_LEAST_MHZ, _MOST_MHZ = 1, 400
#: Delays of each speed grade relative to the slowest: upper bounds of the medians of cells and of wires.
DELAYS = {6: 1.0, 7: 0.9, 8: 0.8}


def _sites(
    name: str, rows: Iterable[int], groups: Sequence[int], offsets: Mapping[int, int], *, has_groups: bool
) -> tuple[BlockSite, ...]:
    """Return the sites of all groups: ``offsets`` are the columns from the beginning of the group to each site."""
    return tuple(
        BlockSite(
            f"X{column + offset}/Y{row}/{name}{number}", column + offset, row, f"X{column}/Y{row}" if has_groups else ""
        )
        for row in rows
        for column in groups
        for number, offset in offsets.items()
    )


def _blocks(
    groups: Sequence[int], ram_rows: Sequence[int], multiplier_rows: Sequence[int]
) -> Mapping[str, tuple[BlockSite, ...]]:
    """Return all sites of a die: ``groups`` are the columns at which groups of block RAMs and of multipliers begin."""
    return {
        "DP16KD": _sites("EBR", ram_rows, groups, _RAMS, has_groups=False),
        "MULT18X18D": _sites("MULT18_", multiplier_rows, groups, _MULTIPLIERS, has_groups=True),
    }


@dataclass(frozen=True, slots=True)
class Device:
    """An FPGA of the ECP5 family, and a budget for the core.

    Attributes
    ----------
    name : str
    flags : tuple of str
        Options of nextpnr-ecp5 for it, without the speed grade.
    lut, ff, dsp, bram : int
        Its look-up tables of 4 inputs, flip-flops, multipliers of 18 x 18 bits, and block RAMs of 18 Kibit.
    budget_lut : int
        Look-up tables that the core may take: room for engines to come, and for routing. Multipliers and block RAMs may
        all be taken.
    fmax_mhz, aim_mhz : float
        Clock to reach, and the clock at which place and route aims: the router continues while a wire misses it, so it
        must be within reach.
    tiles : tuple of int
        Columns and rows.
    sites : mapping of str to tuple of BlockSite
        Sites of block RAMs and multipliers, by type of cell.
    preset : str
        The default configuration of measurements.
    clock_pin : str
        A pin of the package from which a clock reaches its wires, where one is known: nextpnr puts pins anywhere, and
        finds no way for a clock from some of them.
    speed : int
        The speed grade.
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
    sites: Mapping[str, tuple[BlockSite, ...]] = field(repr=False)
    preset: str
    clock_pin: str = ""
    speed: int = SPEEDS[0]

    def __post_init__(self) -> None:
        check_speed(self.speed)

    def to_reach(self, mhz: float) -> Device:
        """Return the device with another clock to reach.

        Raises
        ------
        ValueError
            If no FPGA of the family could have such a clock.
        """
        if not _LEAST_MHZ <= mhz <= _MOST_MHZ:
            raise ValueError(f"mhz must be between {_LEAST_MHZ} and {_MOST_MHZ}, not {mhz:g}")
        return dataclasses.replace(self, fmax_mhz=mhz, aim_mhz=MARGIN * mhz)

    @property
    def options(self) -> tuple[str, ...]:
        """Options of nextpnr-ecp5 for it."""
        return (*self.flags, "--speed", str(self.speed))

    def of_speed(self, speed: int) -> Device:
        """Return the device in another speed grade: the clock to reach is the same, that to aim at is scaled by the
        delays.

        Raises
        ------
        ValueError
            If there is no such grade.
        """
        check_speed(speed)
        aim_mhz = self.aim_mhz * DELAYS[self.speed] / DELAYS[speed]
        return dataclasses.replace(self, speed=speed, aim_mhz=aim_mhz)


#: Devices of the slowest speed grade, without transceivers, in the package with the most pins. The 12F has the die of
#: the 25F.
DEVICES = {
    "ecp5-85k": Device(
        name="ecp5-85k",
        flags=("--85k", "--package", "CABGA756"),
        lut=83_640,
        ff=83_640,
        dsp=156,
        bram=208,
        budget_lut=50_000,
        fmax_mhz=100.0,
        aim_mhz=101.0,
        tiles=(126, 95),
        sites=_blocks((*range(4, 59, 9), *range(69, 115, 9)), (22, 46, 70, 82), (10, 34, 58)),
        preset="ecp5-85k",
    ),
    "ecp5-45k": Device(
        name="ecp5-45k",
        flags=("--45k", "--package", "CABGA554"),
        lut=43_848,
        ff=43_848,
        dsp=72,
        bram=108,
        budget_lut=36_000,
        fmax_mhz=100.0,
        aim_mhz=101.0,
        tiles=(90, 71),
        sites=_blocks((*range(4, 32, 9), *range(42, 79, 9)), (10, 34, 58), (22, 46)),
        preset="ecp5-45k-on-chip",
        clock_pin="K23",
    ),
    "ecp5-25k": Device(
        name="ecp5-25k",
        flags=("--25k", "--package", "CABGA381"),
        lut=24_288,
        ff=24_288,
        dsp=28,
        bram=56,
        budget_lut=20_000,
        fmax_mhz=100.0,
        aim_mhz=101.0,
        tiles=(72, 50),
        sites=_blocks((*range(4, 23, 9), *range(33, 61, 9)), (25, 37), (13,)),
        preset="ecp5-25k-on-chip",
        clock_pin="P3",
    ),
}
