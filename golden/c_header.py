"""The C header of the registers, generated from the contract: offsets, bits, reset values, codes. Standard library."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from . import registers
from .isa import COMMAND_BYTES
from .registers import Access, Register
from .units import MOST_CORES, REMEDIES_OF_UNITS, WITH_ADDRESS, ErrorCode, Unit, remedy

#: The name of the file.
NAME = "lutterfly_registers.h"
_WIDTH = 120
_WHOLE = 0xFFFF_FFFF

_HEAD = f"""\
/* Registers of a Lutterfly accelerator: offsets in bytes, bits, reset values, codes of errors.
 *
 * Generated from golden/registers.py and golden/units.py; do not edit. For C99 and C++.
 * Registers are 32 bits wide, on AXI4-Lite. Bits outside a register's mask do not exist: they read zero. An access that
 * is not permitted, or to another offset, is answered with SLVERR (and reads zero).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LUTTERFLY_REGISTERS_H
#define LUTTERFLY_REGISTERS_H

/* What the register ID reads ("LUTF", first letter lowest), and the register VERSION. */
#define LUTTERFLY_ID {registers.ID:#x}u
#define LUTTERFLY_VERSION {registers.VERSION}u

/* Bytes of a command; the addresses of commands are multiples of it. */
#define LUTTERFLY_COMMAND_BYTES {COMMAND_BYTES}u
/* Cores of an accelerator at most. */
#define LUTTERFLY_MOST_CORES {MOST_CORES}u
/* Where a core has a register of its own: its offset, given that of core 0. */
#define LUTTERFLY_CORE_BYTES {registers.CORE_BYTES:#x}u
#define LUTTERFLY_OF_CORE(offset, core) ((offset) + LUTTERFLY_CORE_BYTES * (core))
"""
_BITS = (
    ("CONTROL", (("START", registers.CONTROL_START), ("RESET", registers.CONTROL_RESET))),
    (
        "STATUS",
        (
            ("BUSY", registers.STATUS_BUSY),
            ("DONE", registers.STATUS_DONE),
            ("ERROR", registers.STATUS_ERROR),
            ("RESETTING", registers.STATUS_RESETTING),
        ),
    ),
)


def text() -> str:
    """Return the text of the header."""
    parts = [
        _HEAD,
        *map(_register, registers.REGISTERS.values()),
        "/* Registers that are there beside these where there are several cores. */\n",
        *map(_register, registers.CLUSTER_REGISTERS.values()),
        *(_bits(name, bits) for name, bits in _BITS),
        _error_fields(),
        _codes(),
        _units(),
        "#endif\n",
    ]
    return "\n".join(parts)


def _comment(words: str) -> str:
    lines = textwrap.wrap(words, _WIDTH - len("/*  */"))
    return "/* " + "\n * ".join(lines) + " */\n"


def _define(name: str, value: str) -> str:
    return f"#define LUTTERFLY_{name} {value}\n"


def _register(register: Register) -> str:
    of_core = " There is one for each core." if register.core == 0 else ""
    values = [("OFFSET", register.address)]
    if register.access is not Access.WRITE and register.mask != _WHOLE:
        values.append(("MASK", register.mask))
    if register.access is Access.READ_WRITE:
        values.append(("RESET_VALUE", register.reset))
    lines = (_define(f"{register.name}_{what}", f"{value:#x}u") for what, value in values)
    return _comment(f"{register.name} ({register.access.value}). {register.doc}{of_core}") + "".join(lines)


def _bits(name: str, bits: Iterable[tuple[str, int]]) -> str:
    lines = (_define(f"{name}_{bit}", f"{value:#x}u") for bit, value in bits)
    return _comment(f"Bits of {name}.") + "".join(lines)


def _error_fields() -> str:
    lines = (
        _define(f"ERROR_{field.name.upper()}(word)", f"(((word) >> {field.lsb}) & {field.limits[1]:#x}u)")
        for field in registers.ERROR_FIELDS
    )
    return _comment("Fields of ERROR.") + "".join(lines)


def _listed(name: str, rows: Iterable[str]) -> str:
    """Return a macro that calls another one for each row."""
    return " \\\n".join([f"#define LUTTERFLY_{name}(X)", *(f"    X({row})" for row in rows)]) + "\n"


def _codes() -> str:
    def rows() -> Iterator[str]:
        for code in ErrorCode:
            yield f'{code.name}, {int(code)}, {int(code in WITH_ADDRESS)}, "{remedy(code)}"'

    lines = (_define(f"CODE_{code.name}", f"{int(code)}u") for code in ErrorCode)
    words = "All of them: name, value, whether ERROR_ADDRESS means something, what to do about it."
    head = _comment("Error codes: why a run stopped.")
    return head + "".join(lines) + _comment(words) + _listed("CODES", rows())


def _units() -> str:
    lines = (_define(f"UNIT_{unit.name}", f"{int(unit)}u") for unit in Unit)
    rows = (f"{unit.name}, {int(unit)}" for unit in Unit)
    own = (f'{int(code)}, {int(unit)}, "{what}"' for (code, unit), what in REMEDIES_OF_UNITS.items())
    head = _comment("Units: where a run stopped.") + "".join(lines)
    units = _comment("All of them: name, value.") + _listed("UNITS", rows)
    words = "Codes that ask for something else in a unit: value of the code, of the unit, what to do about it."
    return head + units + _comment(words) + _listed("REMEDIES_OF_UNITS", own)
