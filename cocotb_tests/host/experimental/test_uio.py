"""The driver on devices of this machine: mapped as they are, and played by a thread with the golden machine."""

from __future__ import annotations

import errno
import json
import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.presets import PRESETS
from lutterfly.host.command import main
from lutterfly.host.driver.driver import AcceleratorError, HardwareError
from lutterfly.host.experimental import uio as module
from lutterfly.host.experimental.uio import DmaBuffer, Registers, UioError, UioTransport, open_device
from lutterfly.host.session.session import InferenceSession

# A device of UIO and a buffer as files, behind which the golden machine plays the core in a thread.

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


CONFIG = PRESETS["tiny"]
IMAGES = 3


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    board = Board(tmp_path, CONFIG)
    monkeypatch.setattr(PlayedRegisters, "board", board, raising=False)
    monkeypatch.setattr(module, "Registers", PlayedRegisters)
    yield board
    board.close()


@pytest.fixture
def transport(board: Board) -> Iterator[UioTransport]:
    transport = open_device(board.name, system=board.system)
    yield transport
    transport.close()


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core is played by a thread, whose pace is this machine's: no verdict by the clock on the wall."""
    monkeypatch.setattr(module, "SLOWEST_HZ", 50_000)


def classify(transport: UioTransport) -> None:
    """Digits, as the golden functions compute them, and back to back."""
    session = InferenceSession(digits.model_path(), CONFIG, transport)
    golden = InferenceSession(session.loaded, CONFIG, backend="golden")
    for image in digits.images()[:IMAGES]:
        feeds = {"pixels": image[np.newaxis]}
        np.testing.assert_array_equal(session.run(None, feeds)[0], golden.run(None, feeds)[0])


@pytest.mark.usefixtures("slow_clock")
def test_digits_through_the_files(transport: UioTransport) -> None:
    assert (transport.arena_base, transport.arena_bytes) == (ADDRESS, 1 << 20)
    classify(transport)


@pytest.mark.usefixtures("slow_clock")
def test_without_the_interrupts_wire_it_is_seen_all_the_same(board: Board, transport: UioTransport) -> None:
    board.has_wire = False
    classify(transport)


@pytest.mark.usefixtures("slow_clock")
def test_interrupts_of_others_end_no_wait(
    board: Board, transport: UioTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three have come. A quarter of a second is waited all the same, on a clock that waiting alone moves."""
    now, waits, wait = 0.0, [], transport._device.wait

    def wait_on_the_clock(seconds: float) -> bool:
        nonlocal now
        has_come = wait(0)
        waits.append((round(seconds, 6), has_come))
        now += 0 if has_come else seconds
        return has_come

    with monkeypatch.context() as patched:
        patched.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
        patched.setattr(transport._device, "wait", wait_on_the_clock)
        for _ in range(3):
            board.interrupt()
        assert not transport.wait_for_interrupt(module.SLOWEST_HZ // 4)
    assert waits == [(0.1, True)] * 3 + [(0.1, False), (0.1, False), (0.05, False)]
    classify(transport)


@pytest.mark.regress
def test_a_core_that_hangs_ends_within_its_time(board: Board, transport: UioTransport) -> None:
    session = InferenceSession(digits.model_path(), CONFIG, transport)
    session.run(None, {"pixels": digits.images()[:1]})
    board.core.hangs = True
    with pytest.raises(AcceleratorError, match=r"^a run must end within \d+ cycles, and does not; "):
        session.run(None, {"pixels": digits.images()[:1]})
    with pytest.raises(AcceleratorError, match=r"^a soft reset must end within \d+ cycles, and does not; "):
        session.run(None, {"pixels": digits.images()[:1]})
    board.core.hangs = False
    classify(transport)


def test_another_configuration_is_refused_before_anything_is_written(board: Board, transport: UioTransport) -> None:
    with pytest.raises(HardwareError, match=r"configuration"):
        InferenceSession(digits.model_path(), PRESETS["ecp5-85k"], transport).run(None, {"pixels": digits.images()[:1]})
    assert not board.buffer.read_bytes().strip(b"\0")


def test_what_lies_outside_the_buffer_is_refused(transport: UioTransport) -> None:
    for address in (ADDRESS - 1, ADDRESS + transport.arena_bytes):
        with pytest.raises(ValueError, match=r"^address must be in the arena of 1048576 bytes at 0x1f400000, not"):
            transport.read_memory(address, 1)
        with pytest.raises(ValueError, match=r"^address must be in the arena"):
            transport.write_memory(address, b"\0")


@pytest.mark.regress
def test_the_command_line_reaches_it(
    board: Board, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(open_device, "__kwdefaults__", {"system": board.system})
    command = ["verify", str(digits.model_path()), "--samples", "2", "--device", board.name, "--json"]
    code = main.main(command)
    answered = json.loads(capsys.readouterr().out)
    assert answered["bytes_right"] is True
    # The golden machine counts no cycles.
    assert code == 3
    assert board.core.starts


def test_the_command_line_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(digits.model_path())
    for device, code, said in (
        ("uio:/dev/uioNONE,/dev/udmabuf0", 2, "/dev/uioNONE: must be a device, and is not there; load its driver"),
        ("uio:/dev/uio0", 2, "as uio:/dev/uio0,/dev/udmabuf0, not uio:/dev/uio0"),
        ("usb:0", 2, "device must be uart:PORT or uio:DEVICE,BUFFER, not usb:0"),
    ):
        assert main.main(["verify", model, "--device", device]) == code
        assert said in capsys.readouterr().err
    assert main.main(["selftest", "--device", "uio:/dev/uio0,/dev/udmabuf0"]) == 2
    assert "selftest is for a board at a serial port" in capsys.readouterr().err


# Devices of this machine: mapped as they are, or refused with the reason.


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Board]:
    files = Board(tmp_path, PRESETS["tiny"])
    yield files
    files.close()


def test_registers_are_words_of_the_file(files: Board) -> None:
    device = Registers(files.device, 256, files.system)
    device.write(0x44, 0x8765_4321)
    assert files.device.read_bytes()[0x44:0x48] == bytes.fromhex("21436587")
    assert device.read(0x44) == 0x8765_4321
    assert files.device.read_bytes()[0x48:] == bytes(PAGE - 0x48)
    device.close()


def test_the_buffer_is_the_bytes_of_the_file(files: Board) -> None:
    buffer = DmaBuffer(files.buffer, files.system)
    assert (buffer.address, buffer.size) == (ADDRESS, 1 << 20)
    buffer.write(5, b"accelerator")
    assert files.buffer.read_bytes()[:17] == b"\0\0\0\0\0accelerator\0"
    assert buffer.read(6, 4) == b"ccel"
    buffer.write(buffer.size - 1, b"\xff")
    assert buffer.read(buffer.size - 1, 1) == b"\xff"
    buffer.close()


def test_one_program_at_a_time(files: Board) -> None:
    first = open_device(files.name, system=files.system)
    with pytest.raises(UioError, match=rf"^{files.device}: must be free, and another program uses it; end that one$"):
        open_device(files.name, system=files.system)
    first.close()
    open_device(files.name, system=files.system).close()


def test_a_buffer_that_is_refused_leaves_the_device_free(files: Board) -> None:
    (files.system / "u-dma-buf/udmabuf0/size").unlink()
    with pytest.raises(UioError, match=r"udmabuf0: is no buffer of u-dma-buf: .*/size does not say; name another one$"):
        open_device(files.name, system=files.system)
    Registers(files.device, 256, files.system).close()


def says(name: str, text: str) -> Callable[[Board], None]:
    return lambda files: files.say(name, text)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda files: files.device.unlink(), r"uio0: must be a device, and is not there; load its driver, .* has it$"),
        (lambda files: files.buffer.unlink(), r"udmabuf0: must be a device, and is not there; load its driver, "),
        (says("uio/uio0/maps/map0/size", "0xff"), r"at least 256 bytes, not 255; correct `reg` in "),
        (says("uio/uio0/maps/map0/size", "?"), r"uio0: is no device of UIO: .* does not say; name "),
        (lambda files: os.truncate(files.device, 0), r"uio0: 4096 bytes must be there to be mapped: "),
        (says("u-dma-buf/udmabuf0/size", "0x200000"), r"udmabuf0: 2097152 bytes must be there to be "),
        (says("u-dma-buf/udmabuf0/phys_addr", "0x1f400800"), r"a multiple of 4096 below 4 GiB, not at"),
        (says("u-dma-buf/udmabuf0/phys_addr", "0xfff01000"), r"below 4 GiB, .*; give .* dma-mask=32, "),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(files: Board, spoil: Callable[[Board], None], message: str) -> None:
    spoil(files)
    with pytest.raises(UioError, match=message):
        open_device(files.name, system=files.system)


def test_the_last_places_are_taken(files: Board) -> None:
    files.say("uio/uio0/maps/map0/size", "0x100")
    files.say("u-dma-buf/udmabuf0/phys_addr", "0xfff00000")
    open_device(files.name, system=files.system).close()


def test_what_is_not_permitted_has_its_remedy(files: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    message = r"uio0: must be a device that can be opened: Permission denied; run as root, or .* a rule of udev$"
    with pytest.raises(UioError, match=message):
        open_device(files.name, system=files.system)


def test_an_interrupt_that_cannot_be_enabled_has_its_remedy(files: Board) -> None:
    device = Registers(files.device, 256, files.system)
    device._events = os.open("/dev/full", os.O_RDWR)
    with pytest.raises(UioError, match=r"uio0: its interrupt must be one that can be enabled: .* uio_pdrv_genirq$"):
        device.enable_interrupt()
    os.close(device._events)
    device.close()


@pytest.mark.parametrize(
    "name", ["uio:", "uio:/dev/uio0", "uio:/dev/uio0,", "uio:,/dev/udmabuf0", "/dev/uio0,/dev/udmabuf0"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^device must be uio:, .*, as uio:/dev/uio0,/dev/udmabuf0, not {name}$"):
        open_device(name)
