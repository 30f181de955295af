"""Devices of this machine: mapped as they are, or refused with the reason."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cocotb_tests.support.transports.played_uio import ADDRESS, PAGE, Board
from lutterfly.golden.presets import PRESETS
from lutterfly.host.experimental.uio import DmaBuffer, Registers, UioError, open_device


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    board = Board(tmp_path, PRESETS["tiny"])
    yield board
    board.close()


def test_registers_are_words_of_the_file(board: Board) -> None:
    device = Registers(board.device, 256, board.system)
    device.write(0x44, 0x8765_4321)
    assert board.device.read_bytes()[0x44:0x48] == bytes.fromhex("21436587")
    assert device.read(0x44) == 0x8765_4321
    assert board.device.read_bytes()[0x48:] == bytes(PAGE - 0x48)
    device.close()


def test_the_buffer_is_the_bytes_of_the_file(board: Board) -> None:
    buffer = DmaBuffer(board.buffer, board.system)
    assert (buffer.address, buffer.size) == (ADDRESS, 1 << 20)
    buffer.write(5, b"accelerator")
    assert board.buffer.read_bytes()[:17] == b"\0\0\0\0\0accelerator\0"
    assert buffer.read(6, 4) == b"ccel"
    buffer.write(buffer.size - 1, b"\xff")
    assert buffer.read(buffer.size - 1, 1) == b"\xff"
    buffer.close()


def test_one_program_at_a_time(board: Board) -> None:
    first = open_device(board.name, system=board.system)
    with pytest.raises(UioError, match=rf"^{board.device}: must be free, and another program uses it; end that one$"):
        open_device(board.name, system=board.system)
    first.close()
    open_device(board.name, system=board.system).close()


def test_a_buffer_that_is_refused_leaves_the_device_free(board: Board) -> None:
    (board.system / "u-dma-buf/udmabuf0/size").unlink()
    with pytest.raises(UioError, match=r"udmabuf0: is no buffer of u-dma-buf: .*/size does not say; name another one$"):
        open_device(board.name, system=board.system)
    Registers(board.device, 256, board.system).close()


def says(name: str, text: str) -> Callable[[Board], None]:
    return lambda board: board.say(name, text)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda board: board.device.unlink(), r"uio0: must be a device, and is not there; load its driver, .* has it$"),
        (lambda board: board.buffer.unlink(), r"udmabuf0: must be a device, and is not there; load its driver, "),
        (says("uio/uio0/maps/map0/size", "0xff"), r"at least 256 bytes, not 255; correct `reg` in "),
        (says("uio/uio0/maps/map0/size", "?"), r"uio0: is no device of UIO: .* does not say; name "),
        (lambda board: os.truncate(board.device, 0), r"uio0: 4096 bytes must be there to be mapped: "),
        (says("u-dma-buf/udmabuf0/size", "0x200000"), r"udmabuf0: 2097152 bytes must be there to be "),
        (says("u-dma-buf/udmabuf0/phys_addr", "0x1f400800"), r"a multiple of 4096 below 4 GiB, not at"),
        (says("u-dma-buf/udmabuf0/phys_addr", "0xfff01000"), r"below 4 GiB, .*; give .* dma-mask=32, "),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(board: Board, spoil: Callable[[Board], None], message: str) -> None:
    spoil(board)
    with pytest.raises(UioError, match=message):
        open_device(board.name, system=board.system)


def test_the_last_places_are_taken(board: Board) -> None:
    board.say("uio/uio0/maps/map0/size", "0x100")
    board.say("u-dma-buf/udmabuf0/phys_addr", "0xfff00000")
    open_device(board.name, system=board.system).close()


def test_what_is_not_permitted_has_its_remedy(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    message = r"uio0: must be a device that can be opened: Permission denied; run as root, or .* a rule of udev$"
    with pytest.raises(UioError, match=message):
        open_device(board.name, system=board.system)


def test_an_interrupt_that_cannot_be_enabled_has_its_remedy(board: Board) -> None:
    device = Registers(board.device, 256, board.system)
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
