"""The transport to an accelerator on this machine's own bus."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import ClassVar

from ...golden import registers
from ..driver.transport import Transport
from .mapping import SYSTEM, Buffer, Registers

#: A time limit in cycles is one in seconds at this clock: none is slower.
SLOWEST_HZ = 10_000_000
#: So often it is looked whether the line is high without an interrupt having come, as where its wire is missing.
_LOOK_S = 0.1
#: Names of devices begin with it.
SCHEME = "uio:"
#: What a name must be.
EXAMPLE = f"{SCHEME}/dev/uio0,/dev/udmabuf0"
_INTERRUPT, _ENABLE = (registers.REGISTERS[name].address for name in ("INTERRUPT", "INTERRUPT_ENABLE"))


class UioTransport(Transport):
    """An accelerator whose registers and memory are mapped.

    Every wait ends: runs and resets by their numbers of cycles at a slow clock. Where the bus itself does not answer,
    as without a clock in the programmable logic, the processor hangs with it, which no software can prevent.

    Parameters
    ----------
    device : Registers
    buffer : Buffer
        The arena.

    Attributes
    ----------
    clock_hz : None
        Cycles in a second, which nobody says here.
    """

    title = "accelerator on this machine's bus"
    clock_hz: ClassVar[int | None] = None

    def __init__(self, device: Registers, buffer: Buffer):
        self._device, self._buffer = device, buffer

    def close(self) -> None:
        """Let others have the devices."""
        with self.exclusive():
            self._device.close()
            self._buffer.close()

    @property
    def arena_base(self) -> int:
        """The buffer's physical address."""
        return self._buffer.address

    @property
    def arena_bytes(self) -> int:
        """The buffer's size."""
        return self._buffer.size

    def read_register(self, address: int) -> int:
        """Read through the mapping."""
        return self._device.read(address)

    def write_register(self, address: int, value: int) -> None:
        """Write through the mapping."""
        self._device.write(address, value)

    def read_memory(self, address: int, size: int) -> bytes:
        """Copy from the buffer."""
        self.check_range(address, size)
        return self._buffer.read(address - self.arena_base, size)

    def write_memory(self, address: int, data: bytes) -> None:
        """Copy into the buffer."""
        self.check_range(address, len(data))
        self._buffer.write(address - self.arena_base, data)

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Sleep until the line is high; an interrupt that came for an earlier run, or for nothing, changes nothing."""
        end = time.monotonic() + timeout_cycles / SLOWEST_HZ
        while not self._is_high():
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._device.enable_interrupt()
            self._device.wait(min(left, _LOOK_S))
        return True

    def _is_high(self) -> bool:
        return bool(self._device.read(_INTERRUPT) & self._device.read(_ENABLE) & 1)


def open_device(name: str, *, system: Path = SYSTEM) -> UioTransport:
    """The accelerator that a name says, as ``uio:/dev/uio0,/dev/udmabuf0``; to be closed.

    Raises
    ------
    ValueError
        If it is no such name.
    UioError
        If a device cannot be used.
    """
    device, _, buffer = name.removeprefix(SCHEME).partition(",")
    if not name.startswith(SCHEME) or not device or not buffer:
        raise ValueError(f"device must be {SCHEME}, a device of UIO, a comma and a buffer, as {EXAMPLE}, not {name}")
    with contextlib.ExitStack() as failing:
        opened = Registers(Path(device), 1 << registers.address_bits(1), system)
        failing.callback(opened.close)
        transport = UioTransport(opened, Buffer(Path(buffer), system))
        failing.pop_all()
    return transport
