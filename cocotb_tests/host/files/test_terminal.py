"""What a terminal shows: bars, lines in a pipe, and refusals where a stream is closed, full or unread."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from cocotb_tests.support.oracles.lifetimes import wait_until
from lutterfly.examples import digits
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


# The command line on closed, full and unread streams: a refusal with exit code 2 where an answer is lost, never a
# traceback, and never another file's number for a standard stream.

MODEL = digits.model_path("qop")
COMMAND = f"{sys.executable} -c 'import sys; from lutterfly.host.command.main import main; sys.exit(main())'"
FULL = "standard output must be writable, and is not: No space left on device; name another place for it"


def shell(line: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a line in which `lutterfly` is the command."""
    line = re.sub(r"\blutterfly ", f"{COMMAND} ", line)
    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.regress
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [f"check {MODEL} --json", "check nothing --json", "--version", "run --help"])
def test_a_full_disk_under_the_answer_is_said(words: str) -> None:
    assert shell(f"lutterfly {words} >/dev/full") == (2, "", f"lutterfly: {FULL}\n")


@pytest.mark.regress
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", ["check nothing", "check", "nothing"])
def test_a_full_disk_under_the_complaint_leaves_the_exit_code(words: str) -> None:
    assert shell(f"lutterfly {words} 2>/dev/full") == (2, "", "")


def test_without_standard_output_nothing_is_done(tmp_path: Path) -> None:
    target = tmp_path / "digits.program"
    code, _, error = shell(f"lutterfly compile {MODEL} -o {target} >&-")
    assert (code, error) == (
        2,
        ("lutterfly: standard output must be writable, and is not: it is closed; name another place for it\n"),
    )
    assert not target.exists()


def test_what_is_said_without_standard_error_goes_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where print takes None for standard output."""
    monkeypatch.setattr(sys, "stderr", None)
    terminal.prepare()
    with sys.stderr as nowhere:
        print("a complaint", file=nowhere)
    assert capsys.readouterr().out == ""


@pytest.mark.regress
def test_without_standard_error_the_answer_is_the_same() -> None:
    code, answer, _ = shell(f"lutterfly check {MODEL} 2>&-")
    assert (code, answer) == shell(f"lutterfly check {MODEL}")[:2]
    assert code == 0
    assert shell("lutterfly check nothing 2>&-") == (2, "", "")
    code, answer, _ = shell("lutterfly check nothing --json 2>&-")
    assert (code, json.loads(answer).keys()) == (2, {"error"})


@pytest.mark.regress
def test_a_file_never_gets_the_number_of_a_closed_stream() -> None:
    """What libraries print to standard error would stand in it."""
    script = (
        "from lutterfly.host.files import standard_streams; standard_streams.prepare(); "
        "file = open(standard_streams.__file__); print(file.fileno()); file.close()"
    )
    for closed in ("", "<&-", "2>&-", "<&- 2>&-"):
        code, answer, _ = shell(f"{sys.executable} -c '{script}' {closed}")
        assert code == 0
        assert int(answer) > 2, closed


def test_who_closes_the_pipe_has_seen_enough() -> None:
    """As other tools end in a pipe: without a word, with the code that a shell gives to SIGPIPE."""
    assert shell("lutterfly --version | true; exit ${PIPESTATUS[0]}") == (141, "", "")


@pytest.mark.regress
def test_text_that_the_terminal_cannot_show_is_spelt_out() -> None:
    """The name of a file need be no text, and a terminal need not be in UTF-8."""
    code, answer, error = shell("PYTHONIOENCODING=ascii lutterfly check $'\\xffä.onnx'")
    assert (code, answer) == (2, "")
    assert error == "lutterfly: \\udcff\\xe4.onnx: must be a file that can be read: No such file or directory\n"
