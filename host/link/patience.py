"""Patience: how long a board may take, by its own clock, and how much slower than that a simulated one is."""

from __future__ import annotations

from ...golden.link.frames import LEAST_BYTES, RATE_TIMEOUT_S, Frame
from ...golden.link.operations import Operation

#: What an adapter and the system may take beside the line itself.
LATENCY_S = 0.25
#: A clock below this share of what the board says is a simulated one's: limits grow likewise, and by a margin for what
#: else its machine does.
_SLOW, _MARGIN = 0.5, 3.0
#: Bytes of data in any answer but that of READ, at most.
_WORDS = 64
#: Bits of a byte on the line.
_BYTE_BITS = 10
#: Cycles for each that the length of a request counts, at most.
_CYCLES = {Operation.WAIT: 1, Operation.CHECKSUM: 8}


class Patience:
    """Time limits of requests.

    Attributes
    ----------
    clock_hz : float
        Of the board, as it says.
    slowness : float
        How many times longer than that clock says answers may take: 1, or more for a simulated board.
    """

    def __init__(self) -> None:
        self.clock_hz = 1.0
        self.slowness = 1.0

    def learn(self, clock_hz: float, measured_hz: float) -> None:
        """Take the board's clock, and what it is by this machine's."""
        self.clock_hz, self.slowness = clock_hz, 1.0
        if measured_hz < _SLOW * clock_hz:
            self.slowness = _MARGIN * clock_hz / max(measured_hz, 1.0)

    def limit_s(self, frame: Frame, rate: int) -> float:
        """Seconds in which a request must be answered."""
        # Of request and answer together, with as much to spare.
        size = 2 * (LEAST_BYTES + len(frame.data) + (frame.length if frame.operation == Operation.READ else _WORDS))
        cycles = _CYCLES.get(Operation(frame.operation), 0) * frame.length
        return LATENCY_S + self.slowness * (size * _BYTE_BITS / rate + cycles / self.clock_hz)

    @property
    def lapse_s(self) -> float:
        """Seconds without an answer after which the board may be back at the initial rate."""
        return RATE_TIMEOUT_S * self.slowness * 0.9
