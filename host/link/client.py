"""The client of a link: requests that are answered once, repeated when they are lost, and bounded in time."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence

from ...golden.link import frames
from ...golden.link.frames import INITIAL_RATE, Frame, Identity, pack_word
from ...golden.link.operations import Operation
from .answers import identity, result, silence
from .errors import LinkError, PortError
from .exchange import Exchange
from .line import Line
from .patience import Patience

#: How long the first answer may take at the initial rate, then at each wanted one, and at last at the initial one
#: again: nobody knows yet how fast the board is, which may be a simulated one.
_FIRST_S, _OTHER_S, _LAST_S = 0.5, 0.25, 2.5
#: How long it takes where the board is as fast as it says, at the initial rate.
_EXPECTED_S = 0.005
#: How far a rate may be from what is wanted: the other side may be off as well.
_MOST_ERROR = 0.015
#: How often a new rate is tried.
_PROBES = 3


class Client:
    """Requests to one board.

    Parameters
    ----------
    line : Line
    clock : callable
        Seconds, for time limits.

    Attributes
    ----------
    identity : Identity
        What the board says of itself, after :meth:`connect`.
    rate : int
        Bits a second.
    patience : Patience
        How long it may take.
    repeated : int
        Requests that had to be sent again.
    """

    identity: Identity

    def __init__(self, line: Line, *, clock: Callable[[], float] = time.monotonic):
        self._line = line
        self._name = line.name
        self._clock = clock
        self._exchange = Exchange(line, clock)
        # So that a client that follows another one does not begin with its last number.
        self._sequence = secrets.randbelow(1 << 16)
        self.patience = Patience()
        self.rate = INITIAL_RATE
        self._wanted: tuple[int, ...] = ()
        self.repeated = 0

    def connect(self, wanted: Sequence[int] = ()) -> Identity:
        """Find the board, and agree on the first of some rates at which frames pass.

        Parameters
        ----------
        wanted : sequence of int
            Bits a second; the initial rate holds if none does.

        Raises
        ------
        LinkError
            If nothing answers, or something else does.
        PortError
            If the port has gone.
        """
        heard, frame, first = 0, self._frame(Operation.IDENTIFY), self._clock()
        # Where a client has died the board comes back to the initial rate by itself, in a second of its own time; that
        # of a simulated one is long.
        others = ((rate, _OTHER_S) for rate in wanted)
        for rate, share in ((INITIAL_RATE, _FIRST_S), *others, (INITIAL_RATE, _LAST_S)):
            begin, limit = self._clock(), share * self._line.slowness
            with contextlib.suppress(PortError):
                self._exchange.use(rate)
            answer = self._exchange.send(frame, limit, afresh=True, patient=True)
            heard += self._exchange.heard
            if answer is not None:
                self.rate = rate
                break
        else:
            raise LinkError(silence(self._name, heard, self._clock() - first))
        self.identity = identity(self._name, answer)
        # Roughly, so that there is time to measure it.
        self.patience.learn(self.identity.clock_hz, self.identity.clock_hz * _EXPECTED_S / (self._clock() - begin))
        self.patience.learn(self.identity.clock_hz, self.measure_clock(0.0))
        self._wanted = tuple(rate for rate in wanted if self._fits(rate))
        self._raise_rate()
        return self.identity

    def request(self, operation: Operation, address: int = 0, data: bytes = b"", length: int | None = None) -> bytes:
        """Have something done, once.

        Parameters
        ----------
        operation : Operation
        address : int
        data : bytes
            At most MAX_DATA.
        length : int or None
            By default that of the data.

        Returns
        -------
        bytes
            The data of the answer.

        Raises
        ------
        LinkError
            If it is refused, or not answered in time.
        PortError
            If the port has gone.
        """
        if self._clock() - self._exchange.answered > self.patience.lapse_s:
            # It may be back at the initial rate, or not yet. A frame that asks for nothing finds out.
            self._ask(self._frame(Operation.IDENTIFY), INITIAL_RATE, self.rate)
        if self._wanted and self.rate != self._wanted[0]:
            self._raise_rate()
        return self._ask(self._frame(operation, address, data, length), self.rate, INITIAL_RATE)

    @property
    def is_simulated(self) -> bool:
        """Whether its clock is too slow for a board's."""
        return self.patience.slowness > 1

    def refuses_damage(self) -> bool:
        """Whether the board refuses a request of which a bit is wrong: it must not do what that says."""
        before = self.request(Operation.READ, 0, length=1)
        frame = self._frame(Operation.WRITE, 0, bytes([before[0] ^ 0xFF]))
        content = bytearray(frame.content())
        content[-1] ^= 1
        wrong = frames.encode(bytes(content) + pack_word(frame.crc)) + bytes([frames.DELIMITER])
        refused = self._exchange.refuses(wrong, self.patience.limit_s(frame, self.rate))
        return refused and self.request(Operation.READ, 0, length=1) == before

    def measure_clock(self, seconds: float) -> float:
        """The board's clock in Hz by this machine's: two answers, so far apart at least, and their counters."""
        first, begin = self._counted()
        while self._clock() - begin < seconds:
            self._counted()
        last, end = self._counted()
        return ((last - first) % (1 << 32)) / max(end - begin, 1e-9)

    def leave(self) -> None:
        """Go back to the initial rate, where the next client looks first; a silent board comes back by itself."""
        if self.rate != INITIAL_RATE:
            self._wanted = (INITIAL_RATE,)
            with contextlib.suppress(LinkError, PortError):
                self._raise_rate()

    def _counted(self) -> tuple[int, float]:
        answer = self._ask(self._frame(Operation.IDENTIFY), self.rate, INITIAL_RATE)
        return Identity.parse(answer).cycles, self._exchange.answered

    def _ask(self, frame: Frame, *among: int) -> bytes:
        """Send a frame until it is answered, twice at the likeliest rate and then once at each other one, and all that
        again; the rate of the answer is the board's."""
        limit, attempts = 0.0, 2 * (among[0], *among)
        for attempt, rate in enumerate(attempts):
            self.repeated += attempt > 0
            self._exchange.use(rate)
            limit = self.patience.limit_s(frame, rate)
            answer = self._exchange.send(frame, limit, afresh=attempt > 0)
            if answer is not None:
                self.rate = rate
                return result(self._name, frame, answer)
        raise LinkError(
            f"{self._name}: the board must answer within {limit:.1f} s, and does not, {len(attempts)} times; "
            "check cable and power"
        )

    def _raise_rate(self) -> None:
        """Go on at the first wanted rate that works; those that do not are not tried again."""
        while self._wanted:
            rate, *others = self._wanted
            bit_time = pack_word(frames.bit_time(self.identity.clock_hz, rate))
            # If its answer is lost, the board is there already.
            self._ask(self._frame(Operation.SET_RATE, data=bit_time), self.rate, rate, INITIAL_RATE)
            if self._works(rate):
                self.rate = rate
                return
            self._wanted = tuple(others)
            self._come_back()

    def _works(self, rate: int) -> bool:
        """Whether frames pass at the rate that was agreed on."""
        with contextlib.suppress(PortError):
            self._exchange.use(rate)
            for _ in range(_PROBES):
                frame = self._frame(Operation.IDENTIFY)
                if self._exchange.send(frame, self.patience.limit_s(frame, rate), afresh=True):
                    return True
        return False

    def _come_back(self) -> None:
        """Wait until the board, which hears nothing good, is at the initial rate again."""
        self.rate = INITIAL_RATE
        self._exchange.use(INITIAL_RATE)
        frame = self._frame(Operation.IDENTIFY)
        limit = self._clock() + 2 * frames.RATE_TIMEOUT_S * self.patience.slowness
        while self._clock() < limit:
            if self._exchange.send(frame, self.patience.limit_s(frame, INITIAL_RATE), afresh=True, patient=True):
                return
        raise LinkError(
            f"{self._name}: the board must come back to {INITIAL_RATE} bits a second, and does not; "
            "switch it off and on"
        )

    def _fits(self, rate: int) -> bool:
        """Whether the board's clock makes the rate well enough."""
        try:
            parts = frames.bit_time(self.identity.clock_hz, rate)
        except ValueError:
            return False
        return abs(frames.PARTS * self.identity.clock_hz / parts / rate - 1) <= _MOST_ERROR

    def _frame(self, operation: Operation, address: int = 0, data: bytes = b"", length: int | None = None) -> Frame:
        self._sequence = (self._sequence + 1) % (1 << 16)
        return Frame(self._sequence, operation, 0, address, len(data) if length is None else length, data)
