"""The driver on mapped files, behind which a thread plays the core: bytes, interrupts, time limits, commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cocotb_tests.support.transports.played_uio import ADDRESS, Board, PlayedRegisters
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host.command import main
from lutterfly.host.driver.driver import AcceleratorError, HardwareError
from lutterfly.host.experimental import uio as module
from lutterfly.host.experimental.uio import UioTransport, open_device
from lutterfly.host.session.session import InferenceSession

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
