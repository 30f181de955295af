"""README and docs: the Python that they show runs, and the commands that they show exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import cocotb
import onnx
import pytest
import typer

from cocotb_tests.support.checkout import EXEMPT, ROOT, Provider, Snippet, snippets
from lutterfly.host.command.cli import app


def _mean() -> dict[str, object]:
    """What `docs/frontend.md` takes to be there, in the current folder."""
    text = '<ir_version: 8, opset_import: ["" : 13]> g (float[1, 2, 4, 4] x) => (float[1, 2, 1, 1] y) '
    onnx.save(onnx.parser.parse_model(text + "{ y = ReduceMean<axes = [2, 3]>(x) }"), "net.onnx")
    return {}


PROVIDERS: dict[str, Provider] = {
    "docs/frontend.md 1": _mean,
    "docs/simulation.md 1": lambda: {"pytest": pytest, "cocotb": cocotb, "Thing": object},
}
ALL = list(snippets())
PLAIN = [snippet for snippet in ALL if not snippet.is_exempt and not snippet.trains]
COMMAND = re.compile(r"(?:^    (?:\S.*&& )?|`)(?:\.venv/bin/)?lutterfly ([a-z]+\b[^`\n]*)", re.MULTILINE)
SCRIPT = re.compile(r"(?:^    (?:\S.*&& )?|`)(?:\.venv/bin/)?python ((?:\w+/)+\w+\.py)", re.MULTILINE)
TARGET = re.compile(r"(?:^    (?:\S.*&& )?|`)make ([a-z][a-z-]*)", re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize(
    "snippet",
    # The session of README simulates the default accelerator.
    [pytest.param(one, marks=[pytest.mark.demo_core] * (one.key == "README.md 1"), id=one.key) for one in PLAIN],
)
def test_a_snippet_runs(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    snippet.run(PROVIDERS.get(snippet.key, dict)())


def test_providers_and_exemptions_are_of_snippets_that_exist():
    there = {name for snippet in ALL for name in (snippet.key, snippet.page)}
    assert (PROVIDERS.keys() | EXEMPT.keys()) - there == set()
    assert len(PLAIN) >= 4


def test_a_snippet_that_needs_what_nobody_gives_fails_with_its_place(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(
        "# Page\n\n```python\nx = 1\ny = x + missing\n```\n\n```python\n1 +\n```\n"
    )
    first, second = snippets(tmp_path)
    with pytest.raises(AssertionError, match=r"^docs/page.md:5: NameError: name 'missing' is not defined$"):
        first.run({})
    assert first.run({"missing": 2})["y"] == 3
    with pytest.raises(AssertionError, match=r"^docs/page.md:9: SyntaxError: "):
        second.run({})


def shown(pattern: re.Pattern) -> list[tuple[str, str]]:
    """Place and text of all that the pages show of one form."""
    return [
        (f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}", found[1])
        for page in PAGES
        for text in [page.read_text()]
        for found in pattern.finditer(text)
    ]


def unknown(text: str) -> list[str]:
    """What the command line does not know of a command with options: the comment of a usage line is two blanks away."""
    commands = typer.main.get_command(app).commands
    name, *words = shlex.split(text.split("  ", maxsplit=1)[0])
    if name not in commands:
        return [name]
    options = {option for parameter in commands[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in words if word.startswith("-") and word.split("=")[0] not in {*options, "--help"}]


def test_every_command_and_option_exists():
    found = shown(COMMAND)
    assert len(found) > 20
    assert [(place, text, lost) for place, text in found if (lost := unknown(text))] == []
    assert unknown("run MODEL --inputs x.npy -q y  and --more") == ["--inputs", "-q"]
    assert unknown("runs MODEL") == ["runs"]


def test_every_command_of_the_command_line_is_in_the_usage_of_the_readme():
    used = {text.split()[0] for place, text in shown(COMMAND) if place.startswith("README.md")}
    assert set(typer.main.get_command(app).commands) - used == set()


def test_every_script_and_every_target_exists():
    scripts, targets = shown(SCRIPT), shown(TARGET)
    assert scripts
    assert [(place, name) for place, name in scripts if not (ROOT / name).is_file()] == []
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert len(targets) > 3
    assert [(place, name) for place, name in targets if name not in known] == []
