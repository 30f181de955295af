"""The C header of the registers: compilers take it, and every value is the contract's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from lutterfly.golden import c_header, isa, registers
from lutterfly.golden.registers import Access, register_map
from lutterfly.golden.units import MOST_CORES, REMEDIES_OF_UNITS, WITH_ADDRESS, ErrorCode, Unit, remedy

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
COMPILERS = {"C99": ("gcc", "-std=c99", ".c"), "C++": ("g++", "-std=c++11", ".cpp")}
#: A word with another value in each field.
WORD = 0x1234_5607


def values() -> dict[str, int]:
    """What an expression in C must be, by the expression."""
    found = {
        "LUTTERFLY_ID": registers.ID,
        "LUTTERFLY_VERSION": registers.VERSION,
        "LUTTERFLY_COMMAND_BYTES": isa.COMMAND_BYTES,
        "LUTTERFLY_MOST_CORES": MOST_CORES,
        "LUTTERFLY_CONTROL_START": registers.CONTROL_START,
        "LUTTERFLY_CONTROL_RESET": registers.CONTROL_RESET,
        **{f"LUTTERFLY_{name}": getattr(registers, name) for name in vars(registers) if name.startswith("STATUS_")},
        **{f"LUTTERFLY_CODE_{code.name}": int(code) for code in ErrorCode},
        **{f"LUTTERFLY_UNIT_{unit.name}": int(unit) for unit in Unit},
        f"LUTTERFLY_ERROR_CODE({WORD:#x}u)": 0x07,
        f"LUTTERFLY_ERROR_UNIT({WORD:#x}u)": 0x56,
        f"LUTTERFLY_ERROR_INDEX({WORD:#x}u)": 0x1234,
    }
    for register in register_map(MOST_CORES).values():
        name = register.name.rstrip("_01234567")
        own = f"LUTTERFLY_{name}_OFFSET"
        found[own if register.core is None else f"LUTTERFLY_OF_CORE({own}, {register.core}u)"] = register.address
        if register.access is Access.READ_WRITE:
            found[f"LUTTERFLY_{name}_RESET_VALUE"] = register.reset
        if register.access is not Access.WRITE and register.mask != 0xFFFF_FFFF:
            found[f"LUTTERFLY_{name}_MASK"] = register.mask
    return found


def run(folder: Path, body: str, language: str) -> list[str]:
    """The lines that a program prints, which includes the header twice."""
    compiler, standard, suffix = COMPILERS[language]
    include = f'#include "{c_header.NAME}"\n'
    (folder / c_header.NAME).write_text(c_header.text())
    (folder / f"main{suffix}").write_text(f"{2 * include}#include <stdio.h>\nint main(void) {{\n{body}return 0;\n}}\n")
    command = [compiler, standard, *STRICT, "-o", "main", f"main{suffix}"]
    subprocess.run(command, cwd=folder, check=True)
    return subprocess.run([folder / "main"], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("language", COMPILERS)
def test_every_value_is_the_contracts(tmp_path: Path, language: str) -> None:
    expected = values()
    body = "".join(f'printf("%lu\\n", (unsigned long)({expression}));\n' for expression in expected)
    found = dict(zip(expected, map(int, run(tmp_path, body, language)), strict=True))
    assert found == expected
    assert len(expected) > 100


@pytest.mark.parametrize("language", COMPILERS)
def test_lists_of_codes_and_units_are_whole(tmp_path: Path, language: str) -> None:
    body = (
        '#define CODE(name, value, where, remedy) printf("%s %d %d %s\\n", #name, value, where, remedy);\n'
        "LUTTERFLY_CODES(CODE)\n"
        '#define UNIT(name, value) printf("%s %d\\n", #name, value);\n'
        "LUTTERFLY_UNITS(UNIT)\n"
        '#define OF_UNIT(code, unit, remedy) printf("%d %d %s\\n", code, unit, remedy);\n'
        "LUTTERFLY_REMEDIES_OF_UNITS(OF_UNIT)\n"
    )
    codes = [f"{code.name} {int(code)} {int(code in WITH_ADDRESS)} {remedy(code)}" for code in ErrorCode]
    units = [f"{unit.name} {int(unit)}" for unit in Unit]
    own = [f"{int(code)} {int(unit)} {remedy(code, unit)}" for code, unit in REMEDIES_OF_UNITS]
    assert run(tmp_path, body, language) == [*codes, *units, *own]


def test_every_macro_is_compared() -> None:
    """All that the header defines for users, but the lists."""
    defined = {
        line.split()[1].split("(")[0]
        for line in c_header.text().splitlines()
        if line.startswith("#define LUTTERFLY_") and not line.endswith(("\\", "_H"))
    }
    used = {name for expression in values() for name in re.findall("LUTTERFLY_[A-Z_]+", expression)}
    # Through the other one.
    assert defined == used | {"LUTTERFLY_CORE_BYTES"}


def test_lines_fit_a_screen_and_comments_end() -> None:
    text = c_header.text()
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("/*") == text.count("*/") > 30
    assert text.isascii()
