"""The serial link to a board: frames, a client that repeats lost requests, and the transport for the driver."""

from __future__ import annotations

import contextlib
import secrets
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...golden import registers
from ...golden.config import Config
from ...golden.link import frames
from ...golden.link.frames import INITIAL_RATE, NAK, DamagedFrameError, Frame, Identity, pack_word, parse_word
from ...golden.link.operations import (
    AFTER,
    LINK_VERSION,
    MAX_DATA,
    QUEUE_BYTES,
    RULES,
    WORD_BYTES,
    Counts,
    Operation,
    Status,
)
from ...golden.presets import PRESETS
from ..driver.driver import HardwareError
from ..driver.transport import Promise, Transport
from .line import BoardLine, LinkError, PortError, SerialLine, TimeOuts

__all__ = [
    "LinkError",
    "LinkTransport",
    "PortError",
    "open_device",
]


# A frame and its answer over a line, at a rate, within a time-out.

_DELIMITER = bytes([frames.DELIMITER])
#: The greatest factor by which a time-out is extended.
_EXTENSION = 8


class FrameExchange:
    """Send frames to a board and receive the answers.

    Parameters
    ----------
    line : BoardLine
        The line, at the initial rate.
    clock : callable
        Returns seconds.

    Attributes
    ----------
    rate : int
        The rate of the line, in bits a second.
    sent, answered : float
        When the last request was sent that was answered, and when its answer came.
    heard : int
        Bytes that have arrived since the last call of :meth:`send`.
    """

    def __init__(self, line: BoardLine, clock: Callable[[], float]):
        self._line = line
        self._clock = clock
        self._received = bytearray()
        self._answers: deque[Frame] = deque()
        self.rate = INITIAL_RATE
        self.sent = self.answered = -float("inf")
        self.heard = 0

    def use(self, rate: int) -> None:
        """Continue at this rate.

        Raises
        ------
        PortError
            If the port does not support the rate.
        """
        if rate != self.rate:
            self._line.set_rate(rate)
            self.rate = rate

    def write(self, frame: Frame) -> None:
        """Send a request, and do not wait for its answer.

        Raises
        ------
        PortError
            If the port has disappeared.
        """
        self._line.write(frame.encode())

    def next(self, limit_s: float) -> Frame | None:
        """Return the next answer, a NAK in place of a damaged one, or None if none comes in time.

        Raises
        ------
        PortError
            If the port has disappeared.
        """
        limit = self._clock() + limit_s
        while not self._answers and (left := limit - self._clock()) > 0:
            self._read(left)
        return self._answers.popleft() if self._answers else None

    def send(self, frame: Frame, limit_s: float, *, afresh: bool = False, tolerant: bool = False) -> Frame | None:
        """Send a request; return its answer, or None if none comes in time.

        Parameters
        ----------
        frame : Frame
        limit_s : float
        afresh : bool
            Whether bytes that the board may have received before have to be terminated first: it may refuse them.
        tolerant : bool
            Whether to wait on after a damaged answer, which may be noise, and longer while bytes arrive, as a simulated
            board is slow.

        Raises
        ------
        PortError
            If the port has disappeared.
        """
        begin = self._clock()
        self._line.write((_DELIMITER if afresh else b"") + frame.encode())
        for found in self._arriving(limit_s, tolerant=tolerant):
            if found.operation == Operation.NAK:
                if afresh or tolerant:
                    afresh = False
                    continue
                return None
            # Others are late answers to requests that were given up.
            if answers(found, frame):
                self.note(begin)
                return found
        return None

    def note(self, sent: float) -> None:
        """Note that a request was answered which was sent then."""
        self.sent, self.answered = sent, self._clock()

    def refuses(self, damaged: bytes, limit_s: float) -> bool:
        """Send bytes that are not a frame, and a delimiter; return whether a refusal comes in time."""
        self._line.write(damaged)
        found = next(self._arriving(limit_s), None)
        return found is not None and found.operation == Operation.NAK

    def _arriving(self, limit_s: float, *, tolerant: bool = False) -> Iterator[Frame]:
        """Yield the answers that arrive within a time from now on, NAKs in place of damaged ones."""
        self._received.clear()
        self._answers.clear()
        begin = self._clock()
        self.heard, limit = 0, begin + limit_s
        while (left := limit - self._clock()) > 0:
            if self._read(left) and tolerant:
                limit = min(self._clock() + limit_s, begin + _EXTENSION * limit_s)
            while self._answers:
                yield self._answers.popleft()

    def _read(self, limit_s: float) -> bool:
        """Receive what comes, and wait for it as long; return whether anything has come."""
        data = self._line.read(limit_s)
        self.heard += len(data)
        self._received += data
        *whole, rest = bytes(self._received).split(_DELIMITER)
        self._received[:] = rest
        self._answers.extend(map(_decode, filter(None, whole)))
        return bool(data)


def answers(found: Frame, request: Frame) -> bool:
    """Return whether a frame is the answer to a request."""
    return (found.sequence, found.operation, found.address) == (request.sequence, request.operation, request.address)


def _decode(encoded: bytes) -> Frame:
    try:
        return Frame.decode(encoded)
    except DamagedFrameError:
        return NAK


# Answers of a board, and messages of errors in them.

_AGAIN = "generate the board's bitstream again with this release"
_MEANINGS: dict[int, str] = {
    Status.UNKNOWN_OPERATION: f"does not know the operation {{operation}}; {_AGAIN}",
    Status.LENGTH: f"refuses a length of {{length}} for {{operation}}; {_AGAIN}",
    Status.ADDRESS: f"has nothing at {{address:#x}} for {{length}} bytes; {_AGAIN}",
    Status.REGISTER_REFUSED: f"refuses access to register {{address:#x}}; {_AGAIN}",
    Status.SEQUENCE: "was asked by somebody else meanwhile; end other programs that use the port",
    Status.RATE: f"refuses a rate that its clock can make; {_AGAIN}",
}


def result(name: str, request: Frame, answer: Frame) -> bytes:
    """Return the data of an answer.

    Parameters
    ----------
    name : str
        Name of the line, for messages.
    request, answer : Frame

    Raises
    ------
    LinkError
        If the request was refused.
    """
    if answer.status == Status.OK:
        return answer.data
    meaning = _MEANINGS.get(answer.status, f"answers with the status {answer.status}; {_AGAIN}")
    operation = Operation(request.operation).name
    raise LinkError(
        f"{name}: the board {meaning.format(operation=operation, address=request.address, length=request.length)}"
    )


def identity(name: str, answer: Frame) -> Identity:
    """Parse a board's answer to IDENTIFY.

    Raises
    ------
    LinkError
        If it has another version of the link.
    """
    try:
        found = Identity.parse(result(name, answer, answer))
    except ValueError:
        found = Identity(0, 0, 0, 0, 0)
    if found.link_version != LINK_VERSION or found.max_data < MAX_DATA or not found.clock_hz:
        raise LinkError(
            f"{name}: the board must speak version {LINK_VERSION} of the link, not {found.link_version}; {_AGAIN}"
        )
    return found


def silence(name: str, heard: int, waited_s: float) -> str:
    """Return the message for a missing frame, given the number of other bytes that have arrived."""
    if heard:
        return (
            f"{name}: a board must answer in frames at {INITIAL_RATE} bits a second, and {heard} bytes came that are "
            "none; check that the port is the board's, and that the board holds a bitstream of `lutterfly bitstream`"
        )
    return (
        f"{name}: a board must answer within {waited_s:.0f} s, and does not; check that it is on, that the port is its "
        "own, and that it holds a bitstream of `lutterfly bitstream`"
    )


# The client of a link: requests are carried out once, repeated when they are lost, and bounded in time.
#
# Requests that are posted are on the way together. Each one but the first is to come after the one before it, so that
# the board carries out none beyond one that is lost or refused. If something goes wrong, the client finds out how far
# the board has come, and asks for the rest request by request.

#: Time-outs of the first answer: at the initial rate, then at each wanted one, and at last at the initial one again.
#: The board's speed is not known yet, and it may be a simulated one.
_FIRST_S, _OTHER_S, _LAST_S = 0.5, 0.25, 2.5
#: Seconds until the answer of a board of its nominal speed, at the initial rate.
_EXPECTED_S = 0.005
#: The tolerance of a rate, as the other side may be off as well.
_MOST_ERROR = 0.015
#: Attempts at a new rate.
_PROBES = 3


#: The longest WAIT, in cycles.
_MOST_WAIT = Counts.CYCLES.value[2]


@dataclass(eq=False, slots=True)
class Posted:
    """A request on the way.

    Attributes
    ----------
    frame : Frame
    answer : Frame or None
        Its answer, once it has come.
    sent : float
        When it was sent.
    line_bytes : int
        Bytes on the line, of the request or of its answer, at most.
    cycles : int
        What a WAIT has to wait beyond this frame.
    """

    frame: Frame
    sent: float
    line_bytes: int
    answer: Frame | None = None
    cycles: int = 0


class Client:
    """Requests to one board.

    Parameters
    ----------
    line : BoardLine
    clock : callable
        Returns seconds, for time-outs.

    Attributes
    ----------
    identity : Identity
        The board's answer to IDENTIFY, after :meth:`connect`.
    rate : int
        Bits a second.
    time_outs : TimeOuts
        The time-outs of requests.
    repeated : int
        Requests that had to be sent again.
    """

    identity: Identity

    def __init__(self, line: BoardLine, *, clock: Callable[[], float] = time.monotonic):
        self._line = line
        self._name = line.name
        self._clock = clock
        self._exchange = FrameExchange(line, clock)
        # A random start keeps a client from beginning with the last number of the client before it.
        self._sequence = secrets.randbelow(1 << 16)
        self.time_outs = TimeOuts()
        self.rate = INITIAL_RATE
        self._wanted: tuple[int, ...] = ()
        self._pending: deque[Posted] = deque()
        self.repeated = 0

    def connect(self, wanted: Sequence[int] = ()) -> Identity:
        """Find the board, and agree on the first of the wanted rates that works.

        Parameters
        ----------
        wanted : sequence of int
            Rates in bits a second; the initial rate stays if none works.

        Raises
        ------
        LinkError
            If nothing answers, or another device does.
        PortError
            If the port has disappeared.
        """
        heard, frame, first = 0, self._frame(Operation.IDENTIFY), self._clock()
        # After a client's death the board returns to the initial rate by itself, in a second of its own time, which is
        # long for a simulated one.
        others = ((rate, _OTHER_S) for rate in wanted)
        for rate, share in ((INITIAL_RATE, _FIRST_S), *others, (INITIAL_RATE, _LAST_S)):
            begin, limit = self._clock(), share * self._line.slowness
            with contextlib.suppress(PortError):
                self._exchange.use(rate)
            answer = self._exchange.send(frame, limit, afresh=True, tolerant=True)
            heard += self._exchange.heard
            if answer is not None:
                self.rate = rate
                break
        else:
            raise LinkError(silence(self._name, heard, self._clock() - first))
        self.identity = identity(self._name, answer)
        # This is a rough factor, which leaves time for a measurement.
        self.time_outs.learn(self.identity.clock_hz, self.identity.clock_hz * _EXPECTED_S / (self._clock() - begin))
        self.time_outs.learn(self.identity.clock_hz, self.measure_clock(0.0))
        self._wanted = tuple(rate for rate in wanted if self._fits(rate))
        self._raise_rate()
        return self.identity

    def request(self, operation: Operation, address: int = 0, data: bytes = b"", length: int | None = None) -> bytes:
        """Have a request carried out, once.

        Parameters
        ----------
        operation : Operation
        address : int
        data : bytes
            The data, at most MAX_DATA bytes.
        length : int or None
            The field ``length``, by default that of the data.

        Returns
        -------
        bytes
            The data of the answer.

        Raises
        ------
        LinkError
            If the request is refused, or not answered in time.
        PortError
            If the port has disappeared.
        """
        self.settle()
        self._revive()
        return self._ask(self._frame(operation, address, data, length), self.rate, INITIAL_RATE)

    def post(
        self, operation: Operation, address: int = 0, data: bytes = b"", length: int | None = None, *, cycles: int = 0
    ) -> Posted:
        """Send a request after those that are on the way; it is carried out, once, if all of these are.

        A request that changes what an earlier one reads must not be posted before the answer to that one has come:
        if this is lost, the board is asked again.

        Parameters
        ----------
        operation : Operation
        address : int
        data : bytes
            The data, at most MAX_DATA bytes.
        length : int or None
            The field ``length``, by default that of the data.
        cycles : int
            The cycles for which a WAIT is repeated.

        Raises
        ------
        LinkError, PortError
            As :meth:`request`, for a request that was posted before.
        """
        reads = operation in (Operation.READ, Operation.READ_REGISTERS)
        most = max(len(data), length or 0 if reads else 0)
        size = frames.encoded_bytes(frames.LEAST_BYTES + most) + 1
        # The board may be busy with the first one: the others wait there, as their answers may here.
        self._receive(lambda: sum(one.line_bytes for one in self._pending) + size <= QUEUE_BYTES)
        if self._has_lapsed:
            self.settle()
        if not self._pending:
            self._revive()
        status = AFTER if self._pending else 0
        frame = self._frame(operation, address, data, length, status=status)
        posted = Posted(frame, self._clock(), size, cycles=cycles)
        self._exchange.write(posted.frame)
        self._pending.append(posted)
        return posted

    def answer(self, posted: Posted) -> Frame:
        """Wait for the answer to a posted request, and return it.

        Raises
        ------
        LinkError
            If it, or one that was posted before, is refused or not answered in time.
        PortError
            If the port has disappeared.
        """
        self._receive(lambda: posted.answer is not None)
        if posted.answer is None:
            raise LinkError(f"{self._name}: a request must be carried out, and an earlier one has failed; ask again")
        return posted.answer

    def settle(self) -> None:
        """Wait for the answers to all posted requests.

        Raises
        ------
        LinkError, PortError
            As :meth:`answer`.
        """
        self._receive(lambda: not self._pending)

    def post_wait(self, cycles: int) -> Posted:
        """Post a WAIT for as many cycles; its answer has the status TIMED_OUT if the line is still low then."""
        length = min(cycles, _MOST_WAIT)
        return self.post(Operation.WAIT, length=length, cycles=cycles - length)

    def _receive(self, is_enough: Callable[[], bool]) -> None:
        """Take answers to posted requests until it is enough, and see to whatever goes wrong."""
        while self._pending and not is_enough():
            posted = self._pending[0]
            found = self._exchange.next(self._limit_s(posted.frame))
            if found is None or not answers(found, posted.frame) or found.status != Status.OK:
                self._recover(found)
                return
            posted.answer = found
            self._exchange.note(posted.sent)
            self._pending.popleft()

    def _limit_s(self, frame: Frame) -> float:
        """Return the seconds within which the first posted request must be answered: all may still be on the line."""
        return self.time_outs.limit_s(frame, self.rate) + self.time_outs.line_s(2 * QUEUE_BYTES, self.rate)

    def _recover(self, found: Frame | None) -> None:
        """Have all posted requests carried out after one was not answered as it should; ``found`` came instead."""
        posted = list(self._pending)
        # Whatever happens now, nothing remains on the way.
        self._pending.clear()
        done = self._carried_out(posted, found)
        for one in posted[:done]:
            if one.answer is None or one.answer.status != Status.OK:
                # What has no data is known to be done. What reads may be asked again.
                again = RULES[Operation(one.frame.operation)].answer
                one.answer = self._anew(one.frame) if again else one.frame.answered(Status.OK)
        for one in posted[done:]:
            if one.answer is None or one.answer.status != Status.TIMED_OUT:
                one.answer = self._anew(one.frame)
            while one.answer.status == Status.TIMED_OUT and one.cycles > 0:
                length = min(one.cycles, _MOST_WAIT)
                one.cycles -= length
                one.answer = self._anew(replace(one.frame, length=length))

    def _carried_out(self, posted: Sequence[Posted], found: Frame | None) -> int:
        """Return how many posted requests the board has carried out, in their order."""
        limit_s = max(self._limit_s(one.frame) for one in posted)
        end = self._clock() + len(posted) * limit_s
        while found is not None and posted[-1].answer is None and self._clock() < end:
            for one in posted:
                if answers(found, one.frame):
                    one.answer = found
            if posted[-1].answer is None:
                found = self._exchange.next(limit_s)
        statuses = [one.answer.status if one.answer else None for one in posted]
        # All before one that is not refused for its place have been carried out.
        done = max((place for place, status in enumerate(statuses) if status not in (None, Status.SEQUENCE)), default=0)
        done += statuses[done] == Status.OK
        # All from one on that is refused for its place have not. The last one of the others that the board accepts is
        # the last one that it has carried out, at the latest now.
        misplaced = statuses.index(Status.SEQUENCE) if Status.SEQUENCE in statuses else len(posted)
        for place in reversed(range(done, misplaced)):
            if statuses[place] is None:
                self.repeated += 1
                answer = self._exchanged(posted[place].frame, self.rate, INITIAL_RATE)
                if answer.status != Status.SEQUENCE:
                    posted[place].answer = answer
                    return place + (answer.status == Status.OK)
        return done

    def _anew(self, frame: Frame) -> Frame:
        """Have a posted request carried out by itself, under another number; it may only be refused for its time."""
        self.repeated += 1
        frame = self._frame(Operation(frame.operation), frame.address, frame.data, frame.length)
        answer = self._exchanged(frame, self.rate, INITIAL_RATE)
        if answer.status != Status.TIMED_OUT:
            result(self._name, frame, answer)
        return answer

    @property
    def _has_lapsed(self) -> bool:
        """Whether the board has heard nothing for so long that it may be back at the initial rate."""
        return self._clock() - self._exchange.sent > self.time_outs.lapse_s

    def _revive(self) -> None:
        """Find the board after a pause, at the rate that was agreed on."""
        if self._has_lapsed:
            # The board may be back at the initial rate, or not yet. An IDENTIFY finds out.
            self._ask(self._frame(Operation.IDENTIFY), INITIAL_RATE, self.rate)
        if self._wanted and self.rate != self._wanted[0]:
            self._raise_rate()

    @property
    def is_simulated(self) -> bool:
        """Whether its clock is too slow for a real board."""
        return self.time_outs.slowness > 1

    def refuses_damage(self) -> bool:
        """Return whether the board refuses a request with a wrong bit, which it must not carry out."""
        before = self.request(Operation.READ, 0, length=1)
        frame = self._frame(Operation.WRITE, 0, bytes([before[0] ^ 0xFF]))
        content = bytearray(frame.content())
        content[-1] ^= 1
        wrong = frames.encode(bytes(content) + pack_word(frame.crc)) + bytes([frames.DELIMITER])
        refused = self._exchange.refuses(wrong, self.time_outs.limit_s(frame, self.rate))
        return refused and self.request(Operation.READ, 0, length=1) == before

    def measure_clock(self, seconds: float) -> float:
        """Measure the board's clock in Hz by this machine's: by the counters of two answers, at least this far
        apart."""
        first, begin = self._counted()
        while self._clock() - begin < seconds:
            self._counted()
        last, end = self._counted()
        return ((last - first) % (1 << 32)) / max(end - begin, 1e-9)

    def leave(self) -> None:
        """Return to the initial rate, which the next client tries first; a silent board returns by itself."""
        if self.rate != INITIAL_RATE:
            self._wanted = (INITIAL_RATE,)
            with contextlib.suppress(LinkError, PortError):
                self._raise_rate()

    def _counted(self) -> tuple[int, float]:
        answer = self._ask(self._frame(Operation.IDENTIFY), self.rate, INITIAL_RATE)
        return Identity.parse(answer).cycles, self._exchange.answered

    def _ask(self, frame: Frame, *among: int) -> bytes:
        """Send a frame until it is answered, and return the data of its answer."""
        return result(self._name, frame, self._exchanged(frame, *among))

    def _exchanged(self, frame: Frame, *among: int) -> Frame:
        """Send a frame until it is answered; the rate of the answer is the board's.

        It is sent twice at the likeliest rate and then once at each other one, and all that again.
        """
        limit, attempts = 0.0, 2 * (among[0], *among)
        for attempt, rate in enumerate(attempts):
            self.repeated += attempt > 0
            self._exchange.use(rate)
            limit = self.time_outs.limit_s(frame, rate)
            answer = self._exchange.send(frame, limit, afresh=attempt > 0)
            if answer is not None:
                self.rate = rate
                return answer
        raise LinkError(
            f"{self._name}: the board must answer within {limit:.1f} s, and does not, {len(attempts)} times; "
            "check cable and power"
        )

    def _raise_rate(self) -> None:
        """Continue at the first wanted rate that works; the others are not tried again."""
        while self._wanted:
            rate, *others = self._wanted
            bit_time = pack_word(frames.bit_time(self.identity.clock_hz, rate))
            # If its answer is lost, the board is at the new rate already.
            self._ask(self._frame(Operation.SET_RATE, data=bit_time), self.rate, rate, INITIAL_RATE)
            if self._works(rate):
                self.rate = rate
                return
            self._wanted = tuple(others)
            self._come_back()

    def _works(self, rate: int) -> bool:
        """Return whether frames pass at the agreed rate."""
        with contextlib.suppress(PortError):
            self._exchange.use(rate)
            for _ in range(_PROBES):
                frame = self._frame(Operation.IDENTIFY)
                if self._exchange.send(frame, self.time_outs.limit_s(frame, rate), afresh=True):
                    return True
        return False

    def _come_back(self) -> None:
        """Wait until the board, which receives no good frame, is at the initial rate again."""
        self.rate = INITIAL_RATE
        self._exchange.use(INITIAL_RATE)
        frame = self._frame(Operation.IDENTIFY)
        limit = self._clock() + 2 * frames.RATE_TIMEOUT_S * self.time_outs.slowness
        while self._clock() < limit:
            if self._exchange.send(frame, self.time_outs.limit_s(frame, INITIAL_RATE), afresh=True, tolerant=True):
                return
        raise LinkError(
            f"{self._name}: the board must come back to {INITIAL_RATE} bits a second, and does not; "
            "switch it off and on"
        )

    def _fits(self, rate: int) -> bool:
        """Return whether the board's clock can make the rate well enough."""
        try:
            parts = frames.bit_time(self.identity.clock_hz, rate)
        except ValueError:
            return False
        return abs(frames.PARTS * self.identity.clock_hz / parts / rate - 1) <= _MOST_ERROR

    def _frame(
        self, operation: Operation, address: int = 0, data: bytes = b"", length: int | None = None, *, status: int = 0
    ) -> Frame:
        self._sequence = (self._sequence + 1) % (1 << 16)
        return Frame(self._sequence, operation, status, address, len(data) if length is None else length, data)


# The transport to a board at a serial link.

#: Rates to agree on, the fastest first.
RATES = (3_000_000, 2_000_000, 1_500_000, 1_000_000, 921_600, 460_800, 230_400)
#: Those that only some adapters make.
FAST_RATES = (12_000_000, 6_000_000)
#: Bytes of data in a frame, so that two frames may be on the way.
FRAME_DATA = 992
#: Prefix of the names of devices.
SCHEME = "uart:"


class LinkTransport(Transport):
    """A board at a line.

    Parameters
    ----------
    line : BoardLine
    rates : sequence of int
        Rates in bits a second, the first of which that works is used.
    clock : callable
        Returns seconds, for time-outs.

    Attributes
    ----------
    client : Client

    Raises
    ------
    LinkError
        If no board answers.
    PortError
        If the port has disappeared.
    """

    title = "board"

    def __init__(self, line: BoardLine, rates: tuple[int, ...] = RATES, *, clock: Callable[[], float] = time.monotonic):
        self.client = Client(line, clock=clock)
        self._line = line
        with contextlib.ExitStack() as failing:
            failing.callback(line.close)
            self._arena_bytes = self.client.connect(rates).arena_bytes
            failing.pop_all()

    def close(self) -> None:
        """Release the board and the line."""
        with self.exclusive():
            self.client.leave()
            self._line.close()

    @property
    def clock_hz(self) -> int:
        """The nominal clock of the board."""
        return self.client.identity.clock_hz

    @property
    def arena_base(self) -> int:
        """The address of the arena, which is the only memory, is 0."""
        return 0

    @property
    def arena_bytes(self) -> int:
        """Size of the memory on the chip, from the board's answer to IDENTIFY."""
        return self._arena_bytes

    def read_register(self, address: int) -> int:
        """Request the value of a register."""
        return parse_word(self.client.request(Operation.READ_REGISTER, address, length=WORD_BYTES))

    def write_register(self, address: int, value: int) -> None:
        """Request a write of a register, which is carried out once."""
        self.client.request(Operation.WRITE_REGISTER, address, pack_word(value))

    def read_memory(self, address: int, size: int) -> bytes:
        """Request bytes of the arena."""
        return self.post_read_memory(address, size)()

    def write_memory(self, address: int, data: bytes) -> None:
        """Request a write of bytes of the arena, and compare their checksum where it took several frames.

        Raises
        ------
        LinkError
            Also if the arena does not contain the bytes afterwards.
        """
        self.post_write_memory(address, data)
        if len(data) > FRAME_DATA:
            found = parse_word(self.client.request(Operation.CHECKSUM, address, length=len(data)))
            if found != zlib.crc32(data):
                raise LinkError(
                    f"{self._line.name}: {len(data)} bytes at {address:#x} of the arena must have the checksum "
                    f"{zlib.crc32(data):#010x}, not {found:#010x}: the board's memory is faulty; "
                    "check its supply and clock"
                )
        self.client.settle()

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Let the board wait."""
        return self.post_wait(timeout_cycles)()

    def post_write_register(self, address: int, value: int) -> None:
        """Request a write of a register, which is carried out once."""
        self.client.post(Operation.WRITE_REGISTER, address, pack_word(value))

    def post_read_register(self, address: int) -> Promise[int]:
        """Request the value of a register."""
        posted = self.client.post(Operation.READ_REGISTER, address, length=WORD_BYTES)
        return lambda: parse_word(self.client.answer(posted).data)

    def post_read_registers(self, address: int, count: int) -> Promise[list[int]]:
        """Request the values of registers that follow one another."""
        posted = self.client.post(Operation.READ_REGISTERS, address, length=WORD_BYTES * count)

        def values() -> list[int]:
            data = self.client.answer(posted).data
            return [parse_word(data[at : at + WORD_BYTES]) for at in range(0, len(data), WORD_BYTES)]

        return values

    def post_write_memory(self, address: int, data: bytes) -> None:
        """Request a write of bytes of the arena."""
        self.check_range(address, len(data))
        for at in range(0, len(data), FRAME_DATA):
            self.client.post(Operation.WRITE, address + at, data[at : at + FRAME_DATA])

    def post_read_memory(self, address: int, size: int) -> Promise[bytes]:
        """Request bytes of the arena."""
        self.check_range(address, size)
        parts = ((at, min(FRAME_DATA, address + size - at)) for at in range(address, address + size, FRAME_DATA))
        posted = [self.client.post(Operation.READ, at, length=length) for at, length in parts]
        return lambda: b"".join(self.client.answer(one).data for one in posted)

    def post_wait(self, timeout_cycles: int) -> Promise[bool]:
        """Let the board wait."""
        posted = self.client.post_wait(timeout_cycles)
        return lambda: self.client.answer(posted).status == Status.OK


def open_device(name: str) -> LinkTransport:
    """Open the board of a name such as ``uart:/dev/ttyUSB0``; the caller has to close it.

    Raises
    ------
    ValueError
        If it is not such a name.
    PortError
        If the port cannot be opened.
    LinkError
        If no board answers there.
    """
    if not name.startswith(SCHEME) or name == SCHEME:
        raise ValueError(f"device must be {SCHEME} and a serial port, as {SCHEME}/dev/ttyUSB0, not {name}")
    line = SerialLine(name.removeprefix(SCHEME))
    return LinkTransport(line, tuple(rate for rate in (*FAST_RATES, *RATES) if rate <= line.most_rate))


def configuration_of(transport: Transport) -> Config:
    """Return the preset that a board holds, by its hash.

    Raises
    ------
    HardwareError
        If it is not an accelerator, or has the hash of no preset.
    """
    found = {name: transport.read_register(registers.REGISTERS[name].address) for name in ("ID", "CONFIG_HASH")}
    if found["ID"] != registers.ID:
        raise HardwareError(f"ID must be {registers.ID:#010x}, not {found['ID']:#010x}: the board holds something else")
    for config in PRESETS.values():
        if config.hash == found["CONFIG_HASH"]:
            return config
    raise HardwareError(
        f"CONFIG_HASH must be a preset's, and {found['CONFIG_HASH']:#010x} is of none; give the configuration that the "
        "board was generated from with --config FILE"
    )
