"""One frame and its answer over a line, at a rate, within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...golden.link import frames
from ...golden.link.frames import INITIAL_RATE, DamagedFrameError, Frame
from ...golden.link.operations import Operation
from .line import Line

_DELIMITER = bytes([frames.DELIMITER])
#: How many times longer, at most.
_PATIENCE = 8


class Exchange:
    """Frames to a board and back.

    Parameters
    ----------
    line : Line
        At the initial rate.
    clock : callable
        Seconds.

    Attributes
    ----------
    rate : int
        Of the line, bits a second.
    answered : float
        When the last good answer came.
    heard : int
        Bytes that have come since :meth:`send` was called last.
    """

    def __init__(self, line: Line, clock: Callable[[], float]):
        self._line = line
        self._clock = clock
        self._received = bytearray()
        self.rate = INITIAL_RATE
        self.answered = -float("inf")
        self.heard = 0

    def use(self, rate: int) -> None:
        """Go on at this rate.

        Raises
        ------
        PortError
            If the port cannot.
        """
        if rate != self.rate:
            self._line.set_rate(rate)
            self.rate = rate

    def send(self, frame: Frame, limit_s: float, *, afresh: bool = False, patient: bool = False) -> Frame | None:
        """Send a request; its answer, or None if none comes in time.

        Parameters
        ----------
        frame : Frame
        limit_s : float
        afresh : bool
            What the board may have received before does not belong to the frame.
        patient : bool
            Wait even if an answer is damaged, which may be none, and longer while bytes come: a simulated board is
            slow.

        Raises
        ------
        PortError
            If the port has gone.
        """
        answer, is_refused = self._send(frame, limit_s, afresh=afresh, patient=patient)
        if is_refused and afresh:
            # It was refused for what came before it, and lost while the board said so.
            answer, _ = self._send(frame, limit_s, patient=patient)
        return answer

    def _send(self, frame: Frame, limit_s: float, *, afresh: bool = False, patient: bool) -> tuple[Frame | None, bool]:
        """Send a request once; its answer, or whether the board has refused something damaged."""
        self._line.write((_DELIMITER if afresh else b"") + frame.encode())
        for found in self._arriving(limit_s, patient=patient):
            if found is None:
                if patient:
                    continue
                return None, False
            if found.operation == Operation.NAK:
                return None, True
            # An answer to a request that was given up comes late.
            if (found.sequence, found.operation, found.address) == (frame.sequence, frame.operation, frame.address):
                self.answered = self._clock()
                return found, False
        return None, False

    def refuses(self, damaged: bytes, limit_s: float) -> bool:
        """Send what is no frame, with a delimiter after it; whether the answer, in time, is a refusal."""
        self._line.write(damaged)
        found = next(self._arriving(limit_s), None)
        return found is not None and found.operation == Operation.NAK

    def _arriving(self, limit_s: float, *, patient: bool = False) -> Iterator[Frame | None]:
        """Frames as they come within a time, None for what is damaged."""
        self._received.clear()
        begin = self._clock()
        self.heard, limit = 0, begin + limit_s
        while (left := limit - self._clock()) > 0:
            data = self._line.read(left)
            self.heard += len(data)
            if data and patient:
                limit = min(self._clock() + limit_s, begin + _PATIENCE * limit_s)
            self._received += data
            *whole, rest = bytes(self._received).split(_DELIMITER)
            self._received[:] = rest
            yield from map(_decode, filter(None, whole))


def _decode(encoded: bytes) -> Frame | None:
    try:
        return Frame.decode(encoded)
    except DamagedFrameError:
        return None
