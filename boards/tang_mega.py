"""The Tang Mega 138K of Sipeed, on its dock.

Source: LiteX-Boards (`platforms/sipeed_tang_mega_138k.py`) and the examples of Project Apicula for this board, which
have the same clock and serial port. amaranth-boards does not have this board.
"""

from __future__ import annotations

from .board import PARTS, Board, BoardPin

TANG_MEGA_138K = Board(
    name="tang-mega-138k",
    part=PARTS["GW5AST-LV138PG484AC1/I0"],
    package="PG484A",
    speed=1,
    oscillator_mhz=50.0,
    clock=BoardPin("V22", "clk50"),
    rx=BoardPin("V14", "serial rx", pull="UP"),
    tx=BoardPin("U15", "serial tx", pull="UP"),
    # The dock has no lights at pins without another use: these are two of a module in PMOD 0.
    busy=BoardPin("P19", "pmod0 led 0"),
    error=BoardPin("R19", "pmod0 led 1"),
    held=(),
    loader="tangmega138k",
    preset="gw5a-138-on-chip",
    # Project Apicula has no PLL of this FPGA yet, so that the core has the oscillator's clock.
    core_mhz=50.0,
)
