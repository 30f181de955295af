"""The IcePi Zero, version 1.3.

Source: amaranth-boards, with which a test compares the pins, and the same pins in LiteX-Boards
(`platforms/icepi_zero.py`), by the board's designer.
"""

from __future__ import annotations

from .board import PARTS, Board, BoardPin, Sdram

ICEPI_ZERO = Board(
    name="icepi-zero",
    part=PARTS["LFE5U-25F"],
    package="CABGA256",
    speed=6,
    oscillator_mhz=50.0,
    clock=BoardPin("M1", "clk50"),
    # Both sources name them from the side of the FPGA.
    rx=BoardPin("K16", "serial rx", pull="UP"),
    tx=BoardPin("K15", "serial tx", pull="UP"),
    busy=BoardPin("E13", "user_led 0"),
    error=BoardPin("D14", "user_led 1"),
    held=(),
    loader="icepi-zero",
    preset="ecp5-25k-on-chip",
    core_mhz=100.0,
    # The chip is the one that LiteX-Boards names (`targets/icepi_zero.py`).
    sdram_preset="ecp5-25k-sdram",
    sdram=Sdram(
        chip="W9825G6KH6",
        size_bytes=32 << 20,
        clock="A3",
        clock_enable="B4",
        select_n="B12",
        ras_n="A12",
        cas_n="B13",
        we_n="A13",
        bank="A11 B11",
        address="B10 A9 B9 A8 B8 A7 B7 A6 B6 A5 A10 B5 A4",
        mask="B14 B3",
        data="B16 C14 C16 C15 D16 A15 B15 A14 A2 B2 E2 D1 C2 C1 C3 B1",
    ),
)
