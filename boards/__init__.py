"""Boards as data: their components, and the accelerator's pins."""

from __future__ import annotations

from .board import PARTS, Board, BoardPin, FpgaPart, Held, Sdram, check_speed
from .colorlight import I5, I9
from .ecpix5 import ECPIX5_45F, ECPIX5_85F
from .icepi_zero import ICEPI_ZERO
from .tang_mega import TANG_MEGA_138K
from .ulx3s import ULX3S_12F, ULX3S_25F, ULX3S_45F, ULX3S_85F

__all__ = [
    "BOARDS",
    "PARTS",
    "Board",
    "BoardPin",
    "FpgaPart",
    "Held",
    "Sdram",
    "check_speed",
    "find_board",
]

BOARDS: dict[str, Board] = {
    board.name: board
    for board in (
        *(ULX3S_85F, ULX3S_45F, ULX3S_25F, ULX3S_12F),
        *(ECPIX5_85F, ECPIX5_45F),
        *(ICEPI_ZERO, I5, I9),
        TANG_MEGA_138K,
    )
}


def find_board(name: str) -> Board:
    """Return the board of a name; ValueError, with the known names, if there is none."""
    if name not in BOARDS:
        raise ValueError(f"board must be one of {', '.join(BOARDS)}, not {name}")
    return BOARDS[name]
