"""Long work is never silent: a bar on a terminal, lines in a pipe, nothing where nobody asks."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace

import pytest

from cocotb_tests.support.oracles.lifetimes import wait_until
from lutterfly.host.files import terminal


class Stream(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def wait_for(text: str, stream: Stream) -> None:
    wait_until(lambda: text in stream.getvalue())


def started_since(before: list[threading.Thread]) -> set[threading.Thread]:
    """Threads that run now, and did not before."""
    return {*threading.enumerate()} - {*before}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "DELAY_SECONDS", 0.01)
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, before = 5.0, threading.enumerate()
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(sys, "stderr", stream := Stream(is_terminal=False))
    with terminal.showing(enabled=True) as show:
        show("compiling the simulator")
        wait_for("lutterfly: compiling the simulator (0 s)\n", stream)
        now = 17.0
        show("comparing samples", 3, 8)
        wait_for("lutterfly: comparing samples, 3 of 8 (12 s)\n", stream)
    assert not started_since(before)


def test_short_work_is_silent_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Stream(is_terminal=False))
    with terminal.showing(enabled=True) as show:
        show("compiling")
    assert stream.getvalue() == ""


@pytest.mark.usefixtures("impatient")
def test_a_terminal_gets_a_bar_that_goes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Stream(is_terminal=True))
    monkeypatch.setenv("TERM", "xterm")
    with terminal.showing(enabled=True) as show:
        show("comparing samples", 3, 8)
        wait_for("comparing samples", stream)
    assert "lutterfly: " not in stream.getvalue()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_who_asks_for_an_object_gets_nothing_else(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    before = threading.enumerate()
    monkeypatch.setattr(sys, "stderr", stream := Stream(is_terminal=is_terminal))
    with terminal.showing(enabled=False) as show:
        show("comparing samples", 3, 8)
        # Nobody is there who would say something later.
        assert not started_since(before)
    assert stream.getvalue() == ""


def test_an_error_ends_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.enumerate()
    monkeypatch.setattr(sys, "stderr", Stream(is_terminal=False))
    with pytest.raises(ValueError, match=r"^wrong$"), terminal.showing(enabled=True):
        raise ValueError("wrong")
    assert not started_since(before)
