"""The command line on closed, full and unread streams: a refusal with exit code 2 where an answer is lost, never a
traceback, and never another file's number for a standard stream."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lutterfly.examples import digits
from lutterfly.host.files import terminal

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
