"""The modules i5 (v7.0) and i9 (v7.2) of Colorlight, on the extension board of MuseLab.

Source: the pins that github.com/wuxx/Colorlight-FPGA-Projects documents (`README.md`, `colorlight_i9_v7.2.md`), and the
same in LiteX-Boards (`platforms/colorlight_i5.py`), which has the serial port of the extension board's USB as well. No
source here has the schematic's own names, and amaranth-boards does not have these boards.
"""

from __future__ import annotations

from .board import PARTS, Board, BoardPin


def _module(name: str, part: str, led: str, preset: str) -> Board:
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
        preset=preset,
        core_mhz=100.0,
    )


I5 = _module("colorlight-i5", "LFE5U-25F", "U16", "ecp5-25k-on-chip")
I9 = _module("colorlight-i9", "LFE5U-45F", "L2", "ecp5-45k-on-chip")
