"""The pins of a simulated board as a line whose time is the board's: what happens depends on no machine's speed."""

from __future__ import annotations

from ...golden.link.frames import INITIAL_RATE
from .pins import Pins


class PinsLine:
    """A :class:`~lutterfly.host.link.line.Line` to simulated pins, without a terminal between.

    Parameters
    ----------
    pins : Pins

    Attributes
    ----------
    name : str
        For messages.
    slowness : float
        Its clock says how long an answer takes.
    """

    name = "simulated pins"
    slowness = 1.0

    def __init__(self, pins: Pins):
        self.pins = pins
        self._rate = INITIAL_RATE

    def clock(self) -> float:
        """Seconds of the board's time, for the client."""
        return self.pins.cycle / self.pins.clock_hz

    def set_rate(self, rate: int) -> None:
        """Go on at ``rate`` bits a second."""
        self._rate = rate

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.pins.send(data, self._rate)

    def read(self, limit_s: float) -> bytes:
        """Let time pass until a byte comes, or the limit."""
        return self.pins.run(max(1, round(limit_s * self.pins.clock_hz)), self._rate, 1)

    def close(self) -> None:
        """Nothing is held."""
