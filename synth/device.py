"""A device for which area and timing are measured, and the design's budget on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..boards import check_speed
from .floorplan import BlockSite

__all__ = ["MARGIN", "Device"]

#: The factor by which place and route aims above a clock: a path that it counts as met can miss the aim by half a
#: percent.
MARGIN = 1.01
_LEAST_MHZ, _MOST_MHZ = 1, 400


@dataclass(frozen=True, slots=True)
class Device:
    """An FPGA, and a budget for the core.

    Attributes
    ----------
    name : str
    family : str
        Its family, a key of :data:`lutterfly.synth.families.FAMILIES`.
    flags : tuple of str
        Options of place and route for it, without the speed grade.
    lut, ff, dsp, bram : int
        Its look-up tables of 4 inputs, flip-flops, multipliers, and block RAMs of 18 Kibit.
    budget_lut : int
        Look-up tables that the core may take: room for engines to come, and for routing. Multipliers and block RAMs may
        all be taken.
    fmax_mhz, aim_mhz : float
        Clock to reach, and the clock at which place and route aims: the router continues while a wire misses it, so it
        must be within reach.
    preset : str
        The default configuration of measurements.
    speed : int
        The speed grade.
    delays : mapping of int to float
        The speed grades, the slowest one first, with the delays of each relative to the slowest.
    tiles : tuple of int
        Columns and rows, where :attr:`sites` are known.
    sites : mapping of str to tuple of BlockSite
        Sites of block RAMs and multipliers, by type of cell, where the floorplan gives them theirs.
    headroom : float
        The factor by which place and route must exceed the clock of a board, where its delays are known coarsely.
    clock_pin : str
        A pin of the package from which a clock reaches its wires, where one is known: nextpnr puts pins anywhere, and
        finds no way for a clock from some of them.
    """

    name: str
    family: str
    flags: tuple[str, ...]
    lut: int
    ff: int
    dsp: int
    bram: int
    budget_lut: int
    fmax_mhz: float
    aim_mhz: float
    preset: str
    speed: int
    delays: Mapping[int, float] = field(repr=False)
    tiles: tuple[int, int] = (0, 0)
    sites: Mapping[str, tuple[BlockSite, ...]] = field(default_factory=dict, repr=False)
    headroom: float = 1.0
    clock_pin: str = ""

    def __post_init__(self) -> None:
        check_speed(self.speed, self.delays)

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

    def of_speed(self, speed: int) -> Device:
        """Return the device in another speed grade: the clock to reach is the same, that to aim at is scaled by the
        delays.

        Raises
        ------
        ValueError
            If there is no such grade.
        """
        found = dataclasses.replace(self, speed=speed)
        return dataclasses.replace(found, aim_mhz=self.aim_mhz * self.delays[self.speed] / self.delays[speed])
