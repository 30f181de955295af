"""Tools that are started end with whoever started them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cocotb_tests.support.oracles.lifetimes import Presence, start_python
from lutterfly.synth import tools

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
        tools.run(["sh", "-c", FAMILY, str(presence.path)], cwd=tmp_path, is_vain=lambda: presence.begins() is None)
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
