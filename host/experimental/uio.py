"""An accelerator on this machine's own bus, as on a Zynq: Linux's UIO, and the transport for the driver."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import select
import time
from pathlib import Path
from typing import ClassVar

import numpy as np

from ...golden import registers
from ...golden.config_parts import ArenaConfig, AxiConfig
from ..driver.transport import Transport

__all__ = [
    "UioError",
    "UioTransport",
    "open_device",
]


# The exception for devices of this machine.


class UioError(OSError):
    """A device cannot be opened or used; the message names it and the remedy."""


# Linux maps an accelerator's registers, with its interrupt, and a buffer that both can reach into a process.
#
# Source: Linux, Documentation/driver-api/uio-howto.rst (a device file: its first page is map 0; reading it waits for an
# interrupt and gives a count, writing 1 enables the interrupt again). u-dma-buf, README (size and physical address of a
# buffer in sysfs; opened with O_SYNC, the processor's cache is off).

#: Folder in which the system describes its devices.
SYSTEM = Path("/sys/class")
#: Interrupts are counted, and enabled, in words of this size.
_COUNT_BYTES = 4
_UNMASK = (1).to_bytes(_COUNT_BYTES, "little")
_REMEDIES = {
    errno.ENOENT: "load its driver, and see that the device tree has it",
    errno.EACCES: "run as root, or let your group have it with a rule of udev",
    errno.EPERM: "run as root, or let your group have it with a rule of udev",
}


class Mapping:
    """A device file, mapped from its beginning, which one process at a time may use.

    Parameters
    ----------
    path : Path
    size : int
        Bytes that are mapped.
    """

    def __init__(self, path: Path, size: int):
        self.path, self.size = path, size
        with contextlib.ExitStack() as failing:
            self._file = _open(path)
            failing.callback(os.close, self._file)
            try:
                self._map = mmap.mmap(self._file, size)
            except (OSError, ValueError) as error:
                raise UioError(f"{path}: {size} bytes must be there to be mapped: {error}") from None
            failing.pop_all()

    def close(self) -> None:
        """Close the device, so that other processes can open it."""
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self._file)


class Registers(Mapping):
    """A UIO device: the registers of an accelerator, and its interrupt.

    Parameters
    ----------
    path : Path
        The device file, as ``/dev/uio0``.
    needed_bytes : int
        Bytes of registers.
    system : Path
        Where sysfs has its classes.

    Raises
    ------
    UioError
        If it is not there, not permitted, in use, or has fewer registers.
    """

    def __init__(self, path: Path, needed_bytes: int, system: Path = SYSTEM):
        size = _number(system / "uio" / path.name / "maps" / "map0" / "size", path, "is no device of UIO")
        if size < needed_bytes:
            raise UioError(
                f"{path}: its map must have at least {needed_bytes} bytes, not {size}; correct `reg` in the device tree"
            )
        super().__init__(path, size)
        # Through NumPy every access is one of 32 bits: slices of a mapping are copied bytewise.
        self._words = np.frombuffer(self._map, np.uint32)
        self._events = self._file

    def read(self, address: int) -> int:
        """A register."""
        return int(self._words[address // 4])

    def write(self, address: int, value: int) -> None:
        """Change a register."""
        self._words[address // 4] = value

    def enable_interrupt(self) -> None:
        """Let the next interrupt, or the one that is pending, end :meth:`wait`."""
        try:
            os.write(self._events, _UNMASK)
        except OSError as error:
            raise UioError(
                f"{self.path}: its interrupt must be one that can be enabled: {error.strerror}; give `interrupts` in "
                "the device tree, and the driver uio_pdrv_genirq"
            ) from None

    def wait(self, seconds: float) -> bool:
        """Sleep until an interrupt has come, for so long at most; return whether one has."""
        ready, _, _ = select.select([self._events], [], [], max(seconds, 0.0))
        return bool(ready) and bool(os.read(self._events, _COUNT_BYTES))

    def close(self) -> None:
        """Close the device, so that other processes can open it."""
        del self._words
        super().close()


class DmaBuffer(Mapping):
    """A buffer of u-dma-buf: memory without gaps, which the accelerator reaches under its physical address.

    Parameters
    ----------
    path : Path
        The device file, as ``/dev/udmabuf0``.
    system : Path
        Where sysfs has its classes.

    Attributes
    ----------
    address : int
        Physical address of the buffer.

    Raises
    ------
    UioError
        If it is not there, not permitted, in use, or lies where the accelerator cannot reach it.
    """

    def __init__(self, path: Path, system: Path = SYSTEM):
        folder = system / "u-dma-buf" / path.name
        size = _number(folder / "size", path, "is no buffer of u-dma-buf")
        self.address = _number(folder / "phys_addr", path, "is no buffer of u-dma-buf")
        if self.address % ArenaConfig.PAGE_BYTES or self.address + size > 1 << AxiConfig.ADDRESS_BITS:
            raise UioError(
                f"{path}: must be at a multiple of {ArenaConfig.PAGE_BYTES} below 4 GiB, not at {self.address:#x} with "
                f"{size} bytes; give the driver u-dma-buf dma-mask=32, or reserved memory there"
            )
        super().__init__(path, size)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset on."""
        return self._map[offset : offset + size]

    def write(self, offset: int, data: bytes) -> None:
        """Change bytes from an offset on."""
        self._map[offset : offset + len(data)] = data


def _open(path: Path) -> int:
    """Open the file, and refuse one that another process has."""
    try:
        file = os.open(path, os.O_RDWR | os.O_SYNC)
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check its name")
        raise UioError(f"{path}: must be a device that can be opened: {error.strerror}; {remedy}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise UioError(f"{path}: must be free, and another program uses it; end that one") from None
    return file


def _number(file: Path, device: Path, otherwise: str) -> int:
    """Return a number from the system's description of a device."""
    if not device.exists():
        raise UioError(f"{device}: must be a device, and is not there; {_REMEDIES[errno.ENOENT]}")
    try:
        return int(file.read_text(), 0)
    except (OSError, ValueError):
        raise UioError(f"{device}: {otherwise}: {file} does not say; name another one") from None


# The transport to an accelerator on this machine's own bus.

#: A time limit in cycles is one in seconds at this clock: none is slower.
SLOWEST_HZ = 10_000_000
#: Interval in which the line is read directly, in case no interrupt comes, for example because its wire is missing.
_LOOK_S = 0.1
#: Prefix of the names of devices.
SCHEME = "uio:"
#: Form of a name, for messages.
EXAMPLE = f"{SCHEME}/dev/uio0,/dev/udmabuf0"
_INTERRUPT, _ENABLE = (registers.REGISTERS[name].address for name in ("INTERRUPT", "INTERRUPT_ENABLE"))


class UioTransport(Transport):
    """An accelerator whose registers and memory are mapped.

    Every wait ends: runs and resets by their numbers of cycles at a slow clock. Where the bus itself does not answer,
    as without a clock in the programmable logic, the processor hangs with it, which no software can prevent.

    Parameters
    ----------
    device : Registers
    buffer : DmaBuffer
        The arena.

    Attributes
    ----------
    clock_hz : None
        Cycles in a second, which are unknown here.
    """

    title = "accelerator on this machine's bus"
    clock_hz: ClassVar[int | None] = None

    def __init__(self, device: Registers, buffer: DmaBuffer):
        self._device, self._buffer = device, buffer

    def close(self) -> None:
        """Close both devices."""
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
    """Open the accelerator with a name such as ``uio:/dev/uio0,/dev/udmabuf0``; the caller closes it.

    Raises
    ------
    ValueError
        If the name has another form.
    UioError
        If a device cannot be used.
    """
    device, _, buffer = name.removeprefix(SCHEME).partition(",")
    if not name.startswith(SCHEME) or not device or not buffer:
        raise ValueError(f"device must be {SCHEME}, a device of UIO, a comma and a buffer, as {EXAMPLE}, not {name}")
    with contextlib.ExitStack() as failing:
        opened = Registers(Path(device), 1 << registers.address_bits(1), system)
        failing.callback(opened.close)
        transport = UioTransport(opened, DmaBuffer(Path(buffer), system))
        failing.pop_all()
    return transport
