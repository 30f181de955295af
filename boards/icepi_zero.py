"""The IcePi Zero, version 1.3.

Source: amaranth-boards, with which a test compares the pins, and the same pins in LiteX-Boards
(`platforms/icepi_zero.py`), by the board's designer.
"""

from __future__ import annotations

from .board import PARTS, Board, BoardPin

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
)
