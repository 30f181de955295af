"""A device of UIO and a buffer as files, behind which the golden machine plays the core in a thread."""

from __future__ import annotations

import mmap
import os
import socket
import threading
from pathlib import Path

import numpy as np

from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.host.experimental.uio import Registers

PAGE = 4096
ADDRESS = 0x1F40_0000


class Board:
    """The files of a system with one accelerator, and the core.

    Attributes
    ----------
    system : Path
        Its folder of classes.
    name : str
        For ``--device``.
    has_wire : bool
        Whether the interrupt arrives.
    events : socket
        Where interrupts are counted.
    """

    def __init__(self, folder: Path, config: Config, arena_bytes: int = 1 << 20):
        self.system = folder / "sys"
        self.device, self.buffer = folder / "dev" / "uio0", folder / "dev" / "udmabuf0"
        self.name = f"uio:{self.device},{self.buffer}"
        for path, size in ((self.device, PAGE), (self.buffer, arena_bytes)):
            path.parent.mkdir(exist_ok=True)
            path.touch()
            os.truncate(path, size)
        self.say("uio/uio0/maps/map0/size", hex(PAGE))
        self.say("u-dma-buf/udmabuf0/size", str(arena_bytes))
        self.say("u-dma-buf/udmabuf0/phys_addr", hex(ADDRESS))
        self.has_wire = True
        self.core = GoldenTransport(config, arena_bytes=arena_bytes, arena_base=ADDRESS)
        self.core.memory = np.memmap(self.buffer, np.uint8, "r+")
        with self.device.open("r+b") as file:
            self._words = np.frombuffer(mmap.mmap(file.fileno(), PAGE), np.uint32)
        self.events, self._ours = socket.socketpair()
        self._lock = threading.Lock()
        self._publish()

    def close(self) -> None:
        """Let nobody wait for interrupts any more."""
        self.events.close()
        self._ours.close()

    def say(self, name: str, text: str) -> None:
        """Let the system say something of a device."""
        path = self.system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def interrupt(self) -> None:
        """Count an interrupt."""
        self._ours.send((1).to_bytes(4, "little"))

    def written(self, address: int, value: int) -> None:
        """The core has a register written."""
        with self._lock:
            if address == registers.REGISTERS["INTERRUPT"].address:
                self.core.values["INTERRUPT"] &= ~value
            else:
                self.core.write_register(address, value)
            self._publish()
        starts = address == registers.REGISTERS["CONTROL"].address and value & registers.CONTROL_START
        if starts and not self.core.hangs:
            threading.Thread(target=self._run).start()

    def _run(self) -> None:
        with self._lock:
            self.core.wait_for_interrupt(1)
            self.core.values["INTERRUPT"] = 1
            self._publish()
        if self.has_wire:
            self.interrupt()

    def _publish(self) -> None:
        for address, name in self.core._names.items():
            self._words[address // 4] = self.core.values[name]


class PlayedRegisters(Registers):
    """The mapped file, of which the core sees every write as on a bus."""

    board: Board

    def __init__(self, path: Path, needed_bytes: int, system: Path):
        super().__init__(path, needed_bytes, system)
        self._events = self.board.events.fileno()

    def write(self, address: int, value: int) -> None:
        """Change the file, and let the core see it."""
        super().write(address, value)
        self.board.written(address, value)
