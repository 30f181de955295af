"""The ULX3S of Radiona, with each of its FPGAs.

Source: the constraints `doc/constraints/ulx3s_v20.lpf` of the board's designer (github.com/emard/ulx3s, boards v2.x and
v3.0.x), and amaranth-boards, with which a test compares the pins.
"""

from __future__ import annotations

from .board import PARTS, Board, BoardPin, Held, Sdram

#: The chip is LiteX-Boards' default (`targets/radiona_ulx3s.py`), which has AS4C16M16 and the larger AS4C32M16 as
#: options: boards were made with chips of several makers.
_SDRAM = Sdram(
    chip="MT48LC16M16",
    size_bytes=32 << 20,
    clock="F19",
    clock_enable="F20",
    select_n="P20",
    ras_n="R20",
    cas_n="T19",
    we_n="T20",
    bank="P19 N20",
    address="M20 M19 L20 L19 K20 K19 K18 J20 J19 H20 N19 G20 G19",
    mask="U19 E20",
    data="J16 L18 M18 N18 P18 T18 T17 U20 E19 D20 D19 C20 E18 F18 J18 J17",
)


def _ulx3s(name: str, part: str, size: str) -> Board:
    return Board(
        name=name,
        part=PARTS[part],
        package="CABGA381",
        speed=6,
        oscillator_mhz=25.0,
        clock=BoardPin("G2", "clk_25mhz"),
        # The schematic names them from the side of the FT231X: the FPGA receives at its transmitter's pin.
        rx=BoardPin("M1", "ftdi_txd", pull="UP"),
        tx=BoardPin("L4", "ftdi_rxd", pull="UP"),
        busy=BoardPin("B2", "led[0]"),
        error=BoardPin("C2", "led[1]"),
        # The firmware with which ESP32s were shipped takes over the board if a design leaves this pin low for a second.
        held=(Held(BoardPin("L2", "wifi_gpio0"), 1),),
        loader="ulx3s",
        preset=f"ecp5-{size}-on-chip",
        core_mhz=100.0,
        sdram=_SDRAM,
        sdram_preset=f"ecp5-{size}-sdram",
    )


ULX3S_12F = _ulx3s("ulx3s-12f", "LFE5U-12F", "25k")
ULX3S_25F = _ulx3s("ulx3s-25f", "LFE5U-25F", "25k")
ULX3S_45F = _ulx3s("ulx3s-45f", "LFE5U-45F", "45k")
ULX3S_85F = _ulx3s("ulx3s-85f", "LFE5U-85F", "85k")
