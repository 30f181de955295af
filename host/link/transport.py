"""The transport to a board behind a serial link."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable

from ...golden import registers
from ...golden.config import Config
from ...golden.link.frames import pack_word, parse_word
from ...golden.link.operations import MAX_DATA, WORD_BYTES, Operation
from ...golden.presets import PRESETS
from ..driver.errors import HardwareError
from ..driver.transport import Transport
from .client import Client
from .errors import LinkError
from .line import Line, SerialLine

#: Rates to agree on, the fastest first.
RATES = (3_000_000, 2_000_000, 1_500_000, 1_000_000, 921_600, 460_800, 230_400)
#: A request waits for the interrupt so long, then the next one does: nobody else can ask meanwhile.
_CYCLES_PER_WAIT = 1_000_000
#: Names of devices begin with it.
SCHEME = "uart:"


class LinkTransport(Transport):
    """A board behind a line.

    Parameters
    ----------
    line : Line
    rates : sequence of int
        Bits a second to agree on, the first that works.
    clock : callable
        Seconds, for time limits.

    Attributes
    ----------
    client : Client

    Raises
    ------
    LinkError
        If no board answers.
    PortError
        If the port has gone.
    """

    title = "board"

    def __init__(self, line: Line, rates: tuple[int, ...] = RATES, *, clock: Callable[[], float] = time.monotonic):
        self.client = Client(line, clock=clock)
        self._line = line
        with contextlib.ExitStack() as failing:
            failing.callback(line.close)
            self._arena_bytes = self.client.connect(rates).arena_bytes
            failing.pop_all()

    def close(self) -> None:
        """Let others have the board, and the line."""
        with self.exclusive():
            self.client.leave()
            self._line.close()

    @property
    def clock_hz(self) -> int:
        """As the board says."""
        return self.client.identity.clock_hz

    @property
    def arena_base(self) -> int:
        """The arena is all that there is."""
        return 0

    @property
    def arena_bytes(self) -> int:
        """Size of the memory on the chip, as the board says."""
        return self._arena_bytes

    def read_register(self, address: int) -> int:
        """Ask for a register."""
        return parse_word(self.client.request(Operation.READ_REGISTER, address, length=WORD_BYTES))

    def write_register(self, address: int, value: int) -> None:
        """Have a register written, once."""
        self.client.request(Operation.WRITE_REGISTER, address, pack_word(value))

    def read_memory(self, address: int, size: int) -> bytes:
        """Ask for bytes of the arena."""
        self.check_range(address, size)
        parts = ((at, min(MAX_DATA, address + size - at)) for at in range(address, address + size, MAX_DATA))
        return b"".join(self.client.request(Operation.READ, at, length=length) for at, length in parts)

    def write_memory(self, address: int, data: bytes) -> None:
        """Have bytes written into the arena, and ask for their checksum there where it took several frames.

        Raises
        ------
        LinkError
            If they are not what lies there then, in particular.
        """
        self.check_range(address, len(data))
        for at in range(0, len(data), MAX_DATA):
            self.client.request(Operation.WRITE, address + at, data[at : at + MAX_DATA])
        if len(data) > MAX_DATA:
            found = parse_word(self.client.request(Operation.CHECKSUM, address, length=len(data)))
            if found != zlib.crc32(data):
                raise LinkError(
                    f"{self._line.name}: {len(data)} bytes at {address:#x} of the arena must have the checksum "
                    f"{zlib.crc32(data):#010x}, not {found:#010x}: the board's memory is faulty; "
                    "check its supply and clock"
                )

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Let the board wait, a part at a time."""
        left = timeout_cycles
        while left > 0:
            if parse_word(self.client.request(Operation.WAIT, length=min(left, _CYCLES_PER_WAIT))):
                return True
            left -= _CYCLES_PER_WAIT
        return False


def open_device(name: str) -> LinkTransport:
    """The board that a name says, as ``uart:/dev/ttyUSB0``; to be closed.

    Raises
    ------
    ValueError
        If it is no such name.
    PortError
        If the port cannot be opened.
    LinkError
        If no board answers there.
    """
    if not name.startswith(SCHEME) or name == SCHEME:
        raise ValueError(f"device must be {SCHEME} and a serial port, as {SCHEME}/dev/ttyUSB0, not {name}")
    return LinkTransport(SerialLine(name.removeprefix(SCHEME)))


def configuration_of(transport: Transport) -> Config:
    """The preset that a board holds, by its hash.

    Raises
    ------
    HardwareError
        If it is no accelerator, or of none of them.
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
