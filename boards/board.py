"""The description of a board: an FPGA, an oscillator, a serial port, lights, and other components at the FPGA's pins.

Standard library only.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass

#: A ball of a package: rows are letters without those that look like digits.
_SITE = re.compile(r"[A-HJ-NPRT-WY]{1,2}[1-9]\d?")


def check_speed(speed: int, speeds: Iterable[int]) -> None:
    """Raise ValueError unless a speed grade is one of ``speeds``."""
    known = tuple(speeds)
    if speed not in known:
        *others, last = map(str, known)
        raise ValueError(f"speed must be {' or '.join(filter(None, (', '.join(others), last)))}, not {speed}")


@dataclass(frozen=True, slots=True)
class FpgaPart:
    """A type of FPGA, without its package.

    Attributes
    ----------
    name : str
        The maker's name.
    device : str
        The device with its area, by its name in :mod:`lutterfly.synth.families`.
    flag : str
        What place and route calls it: an option of nextpnr-ecp5, or the name of the die in Project Apicula.
    idcode : int
        Its IDCODE in JTAG and at the beginning of its bitstreams.
    speeds : tuple of int
        Its speed grades, the slowest one first.
    """

    name: str
    device: str
    flag: str
    idcode: int
    speeds: tuple[int, ...] = (6, 7, 8)


#: Source: Lattice FPGA-TN-02039, table of IDCODEs; tests compare them with Project Trellis and Project Apicula.
PARTS = {
    part.name: part
    for part in (
        FpgaPart("LFE5U-12F", "ecp5-25k", "--12k", 0x21111043),
        FpgaPart("LFE5U-25F", "ecp5-25k", "--25k", 0x41111043),
        FpgaPart("LFE5U-45F", "ecp5-45k", "--45k", 0x41112043),
        FpgaPart("LFE5U-85F", "ecp5-85k", "--85k", 0x41113043),
        FpgaPart("LFE5UM5G-45F", "ecp5-45k", "--um5g-45k", 0x81112043),
        FpgaPart("LFE5UM5G-85F", "ecp5-85k", "--um5g-85k", 0x81113043),
        FpgaPart("GW5AST-LV138PG484AC1/I0", "gw5a-138", "GW5AST-138C", 0x0001081B, speeds=(1,)),
    )
}


@dataclass(frozen=True, slots=True)
class BoardPin:
    """A pin of the FPGA.

    Attributes
    ----------
    site : str
        The ball.
    net : str
        Name in the board's schematic.
    is_inverted : bool
        Whether a low level switches the light on.
    pull : str
        UP, DOWN or NONE.
    standard : str
        The standard of the pin's levels.
    """

    site: str
    net: str
    is_inverted: bool = False
    pull: str = "NONE"
    standard: str = "LVCMOS33"

    def __post_init__(self) -> None:
        if not _SITE.fullmatch(self.site):
            raise ValueError(f"site must be a ball such as G2, not {self.site}")
        if self.pull not in ("UP", "DOWN", "NONE"):
            raise ValueError(f"pull must be UP, DOWN or NONE, not {self.pull}")


@dataclass(frozen=True, slots=True)
class Held:
    """A pin that the accelerator does not use, and that must be at a level."""

    pin: BoardPin
    level: int


@dataclass(frozen=True, slots=True)
class Sdram:
    """A chip of SDR SDRAM at the FPGA, for an arena in external memory.

    Every pin has levels of LVCMOS33. Buses are balls, separated by spaces, beginning with bit 0.

    Attributes
    ----------
    chip : str
        Its name in :mod:`litedram.modules`, which has its geometry and its times.
    size_bytes : int
    clock, ras_n, cas_n, we_n : str
        Balls of the clock and of the command.
    bank, address, data : str
        Balls of the buses.
    clock_enable, select_n : str
        Balls, or empty where the board ties the chip's pin to the level at which it is active.
    mask : str
        Balls of the data masks, one for each byte, or empty where the board ties them low: then every write is of
        whole words.
    """

    chip: str
    size_bytes: int
    clock: str
    ras_n: str
    cas_n: str
    we_n: str
    bank: str
    address: str
    data: str
    clock_enable: str = ""
    select_n: str = ""
    mask: str = ""

    def __post_init__(self) -> None:
        count = len(self.mask.split())
        if count not in (0, self.data_bits // 8):
            raise ValueError(f"mask must be 0 or {self.data_bits // 8} balls, not {count}")

    @property
    def data_bits(self) -> int:
        """The width of its words."""
        return len(self.data.split())

    @property
    def chip_fields(self) -> tuple[str, int, bool]:
        """The fields of :class:`lutterfly.hdl.memories.sdram.SdramChip`."""
        return self.chip, self.data_bits, bool(self.mask)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the FPGA that the board connects, beside the clock."""
        names = ("clock_enable", "select_n", "ras_n", "cas_n", "we_n", "bank", "address", "mask")
        return tuple(name for name in names if getattr(self, name))

    @property
    def pins(self) -> dict[str, BoardPin]:
        """The pins by the names of the ports of :class:`lutterfly.hdl.top_board.TopBoard`; buses have an index."""
        return {
            f"sdram_{name}[{bit}]" if name in ("bank", "address", "mask", "data") else f"sdram_{name}": BoardPin(
                site, f"sdram {name}"
            )
            for name in ("clock", *self.outputs, "data")
            for bit, site in enumerate(getattr(self, name).split())
        }


@dataclass(frozen=True, slots=True)
class Board:
    """A board that the accelerator can be built for.

    Attributes
    ----------
    name : str
    part : FpgaPart
    package : str
        The package's name in nextpnr-ecp5.
    speed : int
        The speed grade.
    oscillator_mhz : float
        The clock of the board's oscillator.
    clock : BoardPin
    rx, tx : BoardPin
        Pins of the serial port; the FPGA receives at ``rx``.
    busy : BoardPin
        A light that is on while a program runs.
    error : BoardPin or None
        A light that is on after an error, if the board has two lights.
    held : tuple of Held
    loader : str
        The board's name in openFPGALoader.
    preset : str
        The default configuration, by its name in `golden/presets.py`.
    core_mhz : float
        The clock of the accelerator on this board.
    sdram : Sdram or None
        The board's SDR SDRAM, if it has one.
    sdram_preset : str
        The configuration with its arena there, if one fits the FPGA; else empty.
    sdram_mhz : float
        The clock of the accelerator and of the SDRAM then.
    """

    name: str
    part: FpgaPart
    package: str
    speed: int
    oscillator_mhz: float
    clock: BoardPin
    rx: BoardPin
    tx: BoardPin
    busy: BoardPin
    error: BoardPin | None
    held: tuple[Held, ...]
    loader: str
    preset: str
    core_mhz: float
    sdram: Sdram | None = None
    sdram_preset: str = ""
    sdram_mhz: float = 75.0

    def __post_init__(self) -> None:
        check_speed(self.speed, self.part.speeds)
        sites = [pin.site for pin in (*self.pins.values(), *(self.sdram.pins.values() if self.sdram else ()))]
        double = [site for site in dict.fromkeys(sites) if sites.count(site) > 1]
        if double:
            raise ValueError(f"pins must be at a ball each, not several at {', '.join(double)}")

    @property
    def variants(self) -> tuple[Board, ...]:
        """The board with the arena on the chip, and, if a configuration for that fits it, with the arena in SDRAM: with
        that preset and clock."""
        return (self, *([self.with_sdram()] if self.sdram_preset else ()))

    def with_sdram(self) -> Board:
        """Return the board for an arena in its SDRAM; ValueError if it has none."""
        if self.sdram is None:
            raise ValueError(f"{self.name} has no SDRAM for an arena outside the chip; choose {self.preset}")
        return dataclasses.replace(self, preset=self.sdram_preset or self.preset, core_mhz=self.sdram_mhz)

    @property
    def pins(self) -> dict[str, BoardPin]:
        """The pins by the names of the ports of :class:`lutterfly.hdl.top_board.TopBoard`."""
        found = {"clock": self.clock, "rx": self.rx, "tx": self.tx, "busy": self.busy}
        if self.error is not None:
            found["error"] = self.error
        return found | {f"held_{number}": held.pin for number, held in enumerate(self.held)}

    @property
    def oscillator_hz(self) -> int:
        """The oscillator's clock."""
        return round(self.oscillator_mhz * 1e6)

    @property
    def core_hz(self) -> int:
        """The accelerator's clock."""
        return round(self.core_mhz * 1e6)
