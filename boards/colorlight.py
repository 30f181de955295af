"""The modules i5 (v7.0) and i9 (v7.2) of Colorlight, on the extension board of MuseLab.

Source: the pins that github.com/wuxx/Colorlight-FPGA-Projects documents (`README.md`, `colorlight_i9_v7.2.md`), and the
same in LiteX-Boards (`platforms/colorlight_i5.py`), which has the serial port of the extension board's USB as well. No
source here has the schematic's own names, and amaranth-boards does not have these boards.
"""

from __future__ import annotations

from .board import PARTS, Board, BoardPin, Sdram

#: The same on both modules; LiteX-Boards notes an EM638325 on the i5, and drives it as this chip. Clock enable and
#: select are tied to their active levels, and the masks low: no byte of a word can be left alone. The bits of the data
#: are numbered as the first source does; LiteX-Boards numbers them otherwise, which makes no difference to a chip whose
#: words are always written whole.
_SDRAM = Sdram(
    chip="M12L64322A",
    size_bytes=8 << 20,
    clock="B9",
    ras_n="B10",
    cas_n="A9",
    we_n="A10",
    bank="B11 C8",
    address="B13 C14 A16 A17 B16 B15 A14 A13 A12 A11 B12",
    data="B6 A5 A6 A7 C7 B8 B5 A8 D8 D7 E8 D6 C6 D5 E7 C5 "
    "C10 D9 E11 D11 C11 D12 E9 C12 E14 C15 E13 D15 E12 B17 D14 D13",
)


def _module(name: str, part: str, led: str, size: str) -> Board:
    return Board(
        name=name,
        part=PARTS[part],
        package="CABGA381",
        speed=6,
        oscillator_mhz=25.0,
        clock=BoardPin("P3", "clk25"),
        # LiteX-Boards names them from the side of the FPGA; contacts 86 and 84 of the module's socket.
        rx=BoardPin("H18", "serial rx", pull="UP"),
        tx=BoardPin("J17", "serial tx", pull="UP"),
        # The module's only light; a low level switches it on.
        busy=BoardPin(led, "user_led_n", is_inverted=True),
        error=None,
        held=(),
        loader=name,
        preset=f"ecp5-{size}-on-chip",
        core_mhz=100.0,
        sdram=_SDRAM,
        sdram_preset=f"ecp5-{size}-sdram",
    )


I5 = _module("colorlight-i5", "LFE5U-25F", "U16", "25k")
I9 = _module("colorlight-i9", "LFE5U-45F", "L2", "45k")
