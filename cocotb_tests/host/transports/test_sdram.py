"""The chip of SDRAM beside a simulated board: it keeps words, and stops at what its data sheet forbids."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lutterfly.host.transports import twin

SOURCE = Path(twin.__file__).parent
TIMES = {"power_up": 100, "rp": 2, "rcd": 2, "wr": 2, "rfc": 7, "rrd": 2, "rc": 8, "ras": 5, "refi": 500}
#: Two bits of bank, 13 of row, 9 of column, 16 of data.
CODE = f"""
#include "sdram.h"
using Chip = Sdram<2, 13, 9, 16, true>;
static Chip* chip;
extern "C" void begin() {{
    delete chip;
    chip = new Chip(SdramTimes{{{", ".join(f".{name} = {value}" for name, value in TIMES.items())}, .cas_latency = 2}});
}}
extern "C" const char* broken() {{ return chip->broken().c_str(); }}
extern "C" uint32_t step(unsigned command, unsigned bank, unsigned address, unsigned mask, unsigned data, bool on) {{
    const bool ras_n = command >> 2 & 1, cas_n = command >> 1 & 1, we_n = command & 1;
    return chip->step({{true, false, ras_n, cas_n, we_n, bank, address, mask, data, on ? 0u : 0xffffu}});
}}
"""
MODE, REFRESH, PRECHARGE, OPEN, WRITE, READ, BURST_END, NOTHING = range(8)
ALL = 1 << 10


class Chip:
    def __init__(self, functions: ctypes.CDLL):
        self._functions = functions
        functions.begin()

    def do(
        self, command: int = NOTHING, bank: int = 0, address: int = 0, *, mask: int = 0, data: int | None = None
    ) -> int:
        return self._functions.step(command, bank, address, mask, data or 0, data is not None)

    def wait(self, cycles: int) -> None:
        for _ in range(cycles):
            self.do()

    @property
    def broken(self) -> str:
        return self._functions.broken().decode()

    def initialise(self, mode: int = 0x20) -> None:
        self.wait(100)
        self.do(PRECHARGE, address=ALL)
        self.wait(1)
        for _ in range(2):
            self.do(REFRESH)
            self.wait(6)
        self.do(MODE, address=mode)
        self.wait(1)

    def open(self, bank: int, row: int) -> None:
        self.do(OPEN, bank, row)
        self.wait(1)


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("sdram")
    (folder / "chip.cpp").write_text(CODE)
    command = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{SOURCE}", "-o", "chip.so", "chip.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    found = ctypes.CDLL(str(folder / "chip.so"))
    found.step.restype, found.broken.restype = ctypes.c_uint32, ctypes.c_char_p
    return found


@pytest.fixture
def chip(functions: ctypes.CDLL) -> Chip:
    return Chip(functions)


def test_words_are_kept_and_read_after_the_latency(chip: Chip) -> None:
    chip.initialise()
    for bank, row, column in ((0, 0, 0), (3, 8191, 511), (1, 4096, 256)):
        chip.open(bank, row)
        chip.do(WRITE, bank, column, data=0x1234 + bank)
        chip.do(WRITE, bank, column, mask=0b10, data=0xFFFF)
        chip.do(WRITE, bank, column ^ 1, data=0x5555)
        chip.wait(2)
        chip.do(READ, bank, column)
        other = chip.do(READ, bank, column ^ 1)
        # The FPGA has the first word in its registers three cycles after its command: the pins two cycles after it.
        assert (other, chip.do()) == (0x1234 + bank | 0xFF, 0x5555)
        chip.wait(4)
        chip.do(PRECHARGE, bank)
        chip.wait(6)
    assert chip.broken == ""


def after_an_open(*commands: tuple) -> Callable[[Chip], None]:
    """Open a row of bank 0, wait two cycles, and do the commands."""

    def run(chip: Chip) -> None:
        chip.initialise()
        chip.open(0, 1)
        for command in commands:
            chip.do(*command[:3], data=command[3] if len(command) > 3 else None)

    return run


def early(chip: Chip) -> None:
    chip.do(PRECHARGE, address=ALL)


def never_initialised(chip: Chip) -> None:
    chip.wait(100)
    chip.do(OPEN)


def wrong_mode(chip: Chip) -> None:
    chip.initialise(0x23)


def wrong_latency(chip: Chip) -> None:
    chip.initialise(0x30)


def no_refresh(chip: Chip) -> None:
    chip.initialise()
    chip.wait(500 * 7)


def refresh_of_an_open_bank(chip: Chip) -> None:
    after_an_open((REFRESH, 0, 0))(chip)


def too_soon_after_refresh(chip: Chip) -> None:
    chip.initialise()
    chip.do(REFRESH)
    chip.do(OPEN)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (early, "a command comes before the clock is steady"),
        (never_initialised, "a row is opened before the chip is initialised"),
        (wrong_mode, "bursts must be of one word"),
        (wrong_latency, "the latency is another one"),
        (no_refresh, "a refresh is missing"),
        (refresh_of_an_open_bank, "a bank is open"),
        (too_soon_after_refresh, "tRFC is too short"),
        (after_an_open((OPEN, 1, 0), (READ, 1, 0)), "tRCD is too short"),
        (after_an_open((OPEN, 1, 0), (OPEN, 2, 0)), "tRRD is too short"),
        (after_an_open((OPEN, 0, 2)), "a row is opened in an open bank"),
        (after_an_open((PRECHARGE, 0, 0)), "tRAS is too short"),
        (after_an_open(*[(NOTHING, 0, 0)] * 4, (WRITE, 0, 0, 7), (PRECHARGE, 0, 0)), "tWR is too short"),
        (after_an_open(*[(NOTHING, 0, 0)] * 4, (PRECHARGE, 0, 0), (OPEN, 0, 0)), "tRP is too short"),
        (after_an_open(*[(NOTHING, 0, 0)] * 3, (PRECHARGE, 0, 0), (NOTHING, 0, 0), (OPEN, 0, 0)), "tRC is too short"),
        (after_an_open((READ, 1, 0)), "a word of a closed bank is accessed"),
        (after_an_open((WRITE, 0, 0)), "a word is written that the FPGA does not drive"),
        (after_an_open((READ, 0, 0), (WRITE, 0, 0, 7)), "the FPGA drives data while the chip does"),
        (after_an_open((BURST_END, 0, 0)), "a burst is ended, and there are none"),
    ],
)
def test_what_is_forbidden_stops_it(chip: Chip, run: Callable[[Chip], None], message: str) -> None:
    run(chip)
    assert chip.broken == f"SDRAM: {message}"
