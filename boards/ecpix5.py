"""The ECPIX-5 of LambdaConcept, with each of its FPGAs.

Source: amaranth-boards, with which a test compares the pins, and the same pins in LiteX-Boards
(`platforms/lambdaconcept_ecpix5.py`).
"""

from __future__ import annotations

from .board import PARTS, Board, BoardPin


def _ecpix5(name: str, part: str, preset: str, core_mhz: float) -> Board:
    return Board(
        name=name,
        part=PARTS[part],
        package="CABGA554",
        speed=8,
        oscillator_mhz=100.0,
        clock=BoardPin("K23", "clk100"),
        # Both sources name them from the side of the FPGA.
        rx=BoardPin("R26", "serial rx", pull="UP"),
        tx=BoardPin("R24", "serial tx", pull="UP"),
        # Green and red of one light, which a low level switches on.
        busy=BoardPin("R21", "rgb_led 0 g", is_inverted=True, pull="UP"),
        error=BoardPin("T23", "rgb_led 0 r", is_inverted=True, pull="UP"),
        held=(),
        # Of the revision R02; R03 is `ecpix5_r03`.
        loader="ecpix5",
        preset=preset,
        core_mhz=core_mhz,
    )


ECPIX5_45F = _ecpix5("ecpix5-45f", "LFE5UM5G-45F", "ecp5-45k-on-chip", 100.0)
ECPIX5_85F = _ecpix5("ecpix5-85f", "LFE5UM5G-85F", "ecp5-85k-on-chip", 100.0)
