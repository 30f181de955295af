"""A board's pins and clock as Lattice's preference file, which nextpnr-ecp5 reads.

Source: Lattice Diamond's preferences LOCATE, IOBUF and FREQUENCY; nextpnr's `ecp5/docs` and `ecp5/lpf.cc`.
"""

from __future__ import annotations

from .board import Board

__all__ = ["constraints"]


def constraints(board: Board, *, margin: float = 1.0) -> str:
    """Return the preference file of a board.

    Parameters
    ----------
    board : Board
    margin : float
        The factor by which the oscillator's clock is overstated, so that place and route aims at a clock of the core
        that is higher by this factor.
    """
    lines = []
    for port, pin in board.pins.items():
        lines += [
            f'LOCATE COMP "{port}" SITE "{pin.site}"; # {pin.net}',
            f'IOBUF PORT "{port}" IO_TYPE={pin.standard} PULLMODE={pin.pull};',
        ]
    lines.append(f'FREQUENCY PORT "clock" {board.oscillator_mhz * margin:.6f} MHZ;')
    return "\n".join(lines) + "\n"
