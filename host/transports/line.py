"""Lines, which carry bytes to and from a board at some rate, such as a serial port; and time-outs of requests."""

from __future__ import annotations

import contextlib
import errno
import os
from types import ModuleType
from typing import Protocol

from ...golden.link.frames import INITIAL_RATE, LEAST_BYTES, RATE_TIMEOUT_S, Frame
from ...golden.link.operations import MOST_WORDS, WORD_BYTES, Operation
from ...synth.tools import missing

# Errors of the serial link.


class LinkError(RuntimeError):
    """A board does not answer, or answers wrongly; the message names the attempts and the remedy."""


class PortError(OSError):
    """A serial port cannot be opened or used; the message names it and the remedy."""


#: Seconds after which a port that takes no bytes is stuck.
_WRITE_LIMIT_S = 10.0
#: The folder of pseudo-terminals in Linux.
_PSEUDO_TERMINALS, _SIMULATED_SLOWNESS = "/dev/pts/", 10.0
#: What FTDI's adapters can make, and those of its high-speed series: FT2232H, FT4232H, FT232H, by their USB numbers.
_MOST_RATE, _FAST_RATE = 3_000_000, 12_000_000
_FAST_ADAPTERS = {(0x0403, product) for product in (0x6010, 0x6011, 0x6014)}
_BUSY = (errno.EBUSY, errno.EAGAIN, errno.EWOULDBLOCK)


class BoardLine(Protocol):
    """The interface of a line.

    Attributes
    ----------
    name : str
        The name in messages.
    slowness : float
        The factor by which the first answer may be later than that of a board.
    """

    name: str
    slowness: float

    def set_rate(self, rate: int) -> None:
        """Continue at ``rate`` bits a second, and drop bytes that have not been read."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def read(self, limit_s: float) -> bytes:
        """Return the bytes that have arrived; wait up to ``limit_s`` for the first one, and return nothing if none
        comes."""

    def close(self) -> None:
        """Close the line."""


class SerialLine:
    """A serial port of this machine, 8 data bits, no parity, one stop bit.

    Parameters
    ----------
    path : str
        The system's name of the port, for instance ``/dev/ttyUSB0``.

    Attributes
    ----------
    name : str
        The path.
    slowness : float
        More than 1 for a pseudo-terminal, at which only a simulated board can be.
    most_rate : int
        Bits a second that the adapter can make, as far as its kind is known.

    Raises
    ------
    PortError
        If it does not exist, may not be opened, or is in use; also if the extra ``board`` is not installed.
    """

    def __init__(self, path: str):
        self.name = path
        self.slowness = _SIMULATED_SLOWNESS if path.startswith(_PSEUDO_TERMINALS) else 1.0
        self._serial = _pyserial()
        self.most_rate = _most_rate(path)
        try:
            # This locks out other programs that lock the port too.
            self._port = self._serial.Serial(
                path, INITIAL_RATE, timeout=0, write_timeout=_WRITE_LIMIT_S, exclusive=True
            )
        except (OSError, ValueError) as error:
            raise PortError(_reason(path, error)) from error
        # An adapter that waits to fill a packet delays every answer. Where that cannot be changed, it is only slower.
        with contextlib.suppress(OSError, ValueError, AttributeError, NotImplementedError):
            self._port.set_low_latency_mode(True)

    def set_rate(self, rate: int) -> None:
        """Continue at another rate.

        Raises
        ------
        PortError
            If the adapter does not support the rate.
        """
        try:
            self._port.flush()
            self._port.baudrate = rate
            self._port.reset_input_buffer()
        except (OSError, ValueError) as error:
            raise PortError(f"{self.name}: must take {rate} bits a second, and does not: {error}") from error

    def write(self, data: bytes) -> None:
        """Send bytes.

        Raises
        ------
        PortError
            If the port has disappeared, or takes no bytes.
        """
        try:
            self._port.write(data)
        except OSError as error:
            raise PortError(self._gone(error)) from error

    def read(self, limit_s: float) -> bytes:
        """Return the bytes that have arrived.

        Raises
        ------
        PortError
            If the port has disappeared.
        """
        try:
            self._port.timeout = limit_s
            first = self._port.read(1)
            return bytes(first + self._port.read(self._port.in_waiting) if first else first)
        except OSError as error:
            raise PortError(self._gone(error)) from error

    def close(self) -> None:
        """Close the port."""
        with contextlib.suppress(OSError):
            self._port.close()

    def _gone(self, error: OSError) -> str:
        return f"{self.name}: must stay connected, and does not answer any more ({error}); check cable and power"


def _pyserial() -> ModuleType:
    try:
        import serial  # noqa: PLC0415  (an extra)
    except ImportError:
        raise PortError(missing("a serial port", ["pyserial"], "board")) from None
    return serial


def _most_rate(path: str) -> int:
    """Return the bits a second that the adapter behind a port can make."""
    from serial.tools import list_ports  # noqa: PLC0415  (an extra)

    kinds = {port.device: (port.vid, port.pid) for port in list_ports.comports()}
    return _FAST_RATE if kinds.get(os.path.realpath(path)) in _FAST_ADAPTERS else _MOST_RATE


def _reason(path: str, error: Exception) -> str:
    """Return the cause why a port cannot be opened, and a remedy."""
    number = getattr(error, "errno", None)
    if number in _BUSY or "lock" in str(error):
        return f"{path}: must be free, and another program uses it; end that one"
    if number == errno.ENOENT:
        return f"{path}: must be a serial port, and is not there; {_found()}"
    if number in (errno.EACCES, errno.EPERM):
        return (
            f"{path}: must be open to this user, and is not; join the group that `ls -l {path}` shows, and log in anew"
        )
    return f"{path}: must be a serial port, and is none ({error}); {_found()}"


def _found() -> str:
    """Return a list of the ports."""
    from serial.tools import list_ports  # noqa: PLC0415  (an extra)

    names = ", ".join(sorted(port.device for port in list_ports.comports()))
    return f"there are {names}" if names else "there is none: plug the board in"


# Time-outs of requests, by the board's own clock and, for a simulated board, by its slowness.

#: Seconds that adapter and system may take beside the line itself.
LATENCY_S = 0.25
#: A clock below this share of the nominal one is that of a simulated board: time-outs grow by the ratio, and by a
#: margin for the load of its machine.
_SLOW, _MARGIN = 0.5, 3.0
#: The most bytes of data in any answer but that of READ.
_WORDS = MOST_WORDS * WORD_BYTES
#: Bits of a byte on the line.
_BYTE_BITS = 10
#: The most cycles for each unit of a request's length.
_CYCLES = {Operation.WAIT: 1, Operation.CHECKSUM: 8}


class TimeOuts:
    """Time-outs of requests.

    Attributes
    ----------
    clock_hz : float
        The nominal clock of the board.
    slowness : float
        The factor by which answers may take longer than by that clock: 1, or more for a simulated board.
    """

    def __init__(self) -> None:
        self.clock_hz = 1.0
        self.slowness = 1.0

    def learn(self, clock_hz: float, measured_hz: float) -> None:
        """Store the board's nominal clock, and its speed as measured by this machine."""
        self.clock_hz, self.slowness = clock_hz, 1.0
        if measured_hz < _SLOW * clock_hz:
            self.slowness = _MARGIN * clock_hz / max(measured_hz, 1.0)

    def limit_s(self, frame: Frame, rate: int) -> float:
        """Return the seconds within which a request must be answered."""
        # This is twice the time of request and answer together.
        size = 2 * (LEAST_BYTES + len(frame.data) + (frame.length if frame.operation == Operation.READ else _WORDS))
        cycles = _CYCLES.get(Operation(frame.operation), 0) * frame.length
        return LATENCY_S + self.line_s(size, rate) + self.slowness * cycles / self.clock_hz

    def line_s(self, size: int, rate: int) -> float:
        """Return the seconds that so many bytes take on the line."""
        return self.slowness * size * _BYTE_BITS / rate

    @property
    def lapse_s(self) -> float:
        """The seconds without an answer after which the board may be back at the initial rate."""
        return RATE_TIMEOUT_S * self.slowness * 0.9
