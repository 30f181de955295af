"""Pages and docstrings name only what exists: files by their paths, modules and names in them, links, pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from cocotb_tests.support.checkout import ROOT, tracked

FOLDERS = ("golden", "hdl", "host", "boards", "synth", "train", "bench", "examples", "tools")
#: They tell of what was there once.
OF_THE_PAST = ("CHANGELOG.md", "docs/results-history.md")
_PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)}|cocotb_tests)/[\w/.-]*\w")
_FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")
_NAME = re.compile(r"lutterfly((?:\.(?:golden|hdl|host|boards|synth|train|examples))(?:\.\w+)*)")


def texts() -> Iterator[tuple[str, str]]:
    """Every page and every module, by its path."""
    pages = (path for folder in (".", "docs") for path in (ROOT / folder).glob("*.md"))
    modules = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    for path in sorted((*pages, *modules)):
        if (name := path.relative_to(ROOT).as_posix()) not in OF_THE_PAST:
            yield name, path.read_text()


def is_there(name: str) -> bool:
    """Whether ``.folder.module.thing`` leads to a module that says ``thing``, or to a folder."""
    place, parts = ROOT, name.strip(".").split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    file = place / (f"{parts.pop(0)}.py" if parts and (place / f"{parts[0]}.py").is_file() else "__init__.py")
    return not parts or (file.is_file() and re.search(rf"\b{parts[0]}\b", file.read_text()) is not None)


def lost(text: str) -> list[str]:
    """What a text names and what is not there."""
    paths = [path for path in _PATH.findall(text) if not ((ROOT / path).exists() or (ROOT / f"{path}.py").exists())]
    return paths + [f"lutterfly{name}" for name in _NAME.findall(text) if not is_there(name)]


def lost_files(text: str) -> list[str]:
    """Return the files that are not there, of those that a page names by the ends of their paths (`clock/buses.py`)."""
    return [name for name in _FILE.findall(text) if not any(f"/{path}".endswith(f"/{name}") for path in tracked())]


def test_what_is_named_is_there() -> None:
    assert {name: found for name, text in texts() if (found := lost(text))} == {}
    assert {name: found for name, text in texts() if name.endswith(".md") and (found := lost_files(text))} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see `golden/isa.py` and `hdl/compute/`, `hdl/core`", []),
        ("see `golden/fpc.py`", ["golden/fpc.py"]),
        (":func:`~lutterfly.golden.numerics.fpc.enter`, ``import lutterfly.golden``", []),
        (":func:`lutterfly.golden.fpc.enter`", ["lutterfly.golden.fpc.enter"]),
        (":func:`lutterfly.golden.numerics.fpc.leave`", ["lutterfly.golden.numerics.fpc.leave"]),
    ],
)
def test_what_is_not_there_is_seen(text: str, expected: list[str]) -> None:
    assert lost(text) == expected


def test_a_file_that_is_named_by_the_end_of_its_path_is_there() -> None:
    assert lost_files("`golden/isa.py`, `clock/buses.py`, `buses.py` and `lock/buses.py`") == ["lock/buses.py"]


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page}: {link}"
        for page in tracked()
        if page.endswith(".md")
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
        if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()
    ]
    assert broken == []


def test_every_picture_is_well_formed_and_shown_by_a_page() -> None:
    text = "".join((ROOT / page).read_text() for page in tracked() if page.endswith(".md"))
    pictures = sorted((ROOT / "docs").glob("*.svg"))
    assert [path.name for path in pictures if f"{path.name})" not in text] == []
    assert {ElementTree.parse(path).getroot().tag for path in pictures} == {"{http://www.w3.org/2000/svg}svg"}
