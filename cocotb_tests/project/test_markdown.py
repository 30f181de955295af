"""README, changelog and docs: lines that a reader of the source and of a difference can take in, one sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
#: The longest line of prose, in characters; targets of links do not count.
LONGEST = 150
#: Their text stands in Python, whose lines have a limit of their own.
GENERATED = {"isa.md", "registers.md", "onnx-backend-tests.md", "supported.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED),
]

FENCE = re.compile(r"^ *```")
MARKER = re.compile(r"^ *(?:[-*]|\d+\.) +")
TARGET = re.compile(r"\]\([^)]*\)")
SPAN = re.compile(r"`[^`]*`")
#: The end of one sentence, and the beginning of another: a capital, a number or code. Not an ellipsis.
BREAK = re.compile(r"(\S*[^\s.])[.!?][)\"'*_\]]*\s+[(\"'*_\[]*(?=[A-Z0-9`])")
#: Words whose full stop ends no sentence; so does none after an initial.
ABBREVIATIONS = {"e.g", "i.e", "cf", "vs", "No", "Fig"}


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Line number and text of what is neither code, table, heading nor picture."""
    is_fenced = is_code = False
    after_blank = True
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_fenced = not is_fenced
        elif not line.strip():
            after_blank = True
            continue
        elif not is_fenced:
            if after_blank:
                is_code = line.startswith("    ")
            if not is_code and not line.lstrip().startswith(("|", "#", "![", "<")):
                yield number, line
        after_blank = False


def length(line: str) -> int:
    """Characters of a line without the targets of its links."""
    return len(TARGET.sub("]", line))


def is_several(line: str) -> bool:
    """Whether a sentence ends before the end of the line, and another one begins."""
    plain = SPAN.sub("``", TARGET.sub("]", MARKER.sub("", line)))
    words = (found[1].lstrip("(\"'*_[") for found in BREAK.finditer(plain))
    return any(word not in ABBREVIATIONS and not re.fullmatch(r"[A-Z]", word) for word in words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_are_short(page: Path):
    long = [(number, length(line)) for number, line in prose(page.read_text()) if length(line) > LONGEST]
    assert long == [], f"{page.name}: lines of prose must have at most {LONGEST} characters: divide the sentence"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_line_holds_one_sentence(page: Path):
    several = [(number, line) for number, line in prose(page.read_text()) if is_several(line)]
    assert several == [], f"{page.name}: begin each sentence on a line of its own"


def test_code_tables_and_headings_are_no_prose():
    code = "    code. Code\n\n- item\n    more\n\n```python\nx = 1. # A\n```\n"
    text = f"# A. B\n\nProse.\n\n{code}| a. B |\n![A. B](c.svg)\nend"
    assert [line for _, line in prose(text)] == ["Prose.", "- item", "    more", "end"]
    assert [number for number, _ in prose(text)] == [3, 7, 8, 15]


@pytest.mark.parametrize(
    "line",
    [
        "It runs. It stops.",
        "It runs (as said). It stops.",
        "**It runs.** It stops.",
        "It ends with `x`. `y` begins.",
        "It takes 3. 40 of these are free.",
        "- It runs! [Here](a.md) it stops",
        "It is in [a page](page.md). The rest is not.",
    ],
)
def test_two_sentences_are_seen(line: str):
    assert is_several(line)


@pytest.mark.parametrize(
    "line",
    [
        "4. What it costs.",
        "- One item, of version 1.1.0 (e.g. Verilator 5.48).",
        "By E. Alpaydin and C. Kaynak.",
        "DequantizeLinear ... QuantizeLinear on codes.",
        "A span `a. B` and a [link](a. B) are one.",
        "It runs: It says so.",
    ],
)
def test_one_sentence_is_seen_as_one(line: str):
    assert not is_several(line)


def test_targets_of_links_do_not_count():
    assert length("a [b](" + "c" * 200 + ") d") == len("a [b] d")


def test_every_picture_is_well_formed_and_shown_by_a_page():
    text = "".join(page.read_text() for page in PAGES)
    pictures = sorted((ROOT / "docs").glob("*.svg"))
    assert [path.name for path in pictures if f"{path.name})" not in text] == []
    assert {ElementTree.parse(path).getroot().tag for path in pictures} == {"{http://www.w3.org/2000/svg}svg"}
