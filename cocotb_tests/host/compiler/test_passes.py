"""The compiler's page names its passes as they are, in their order, and files that exist."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import lutterfly.host.compiler as compiler
from lutterfly.host.compiler.network import Network
from lutterfly.host.compiler.plan import Plan

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "compiler.md").read_text()
ROWS = re.findall(r"^\| (\w+) \| (`.+?`) \| .+ \|$", PAGE.split("| pass |")[1].split("\n\n")[0], re.MULTILINE)


def test_the_table_has_every_pass_in_its_order() -> None:
    assert [name for name, _ in ROWS] == [step.name for step in compiler.PASSES]


def test_every_pass_takes_what_the_ones_before_it_give() -> None:
    """The state of a plan, by the annotations of the passes."""
    state: type = Network
    for step in compiler.PASSES:
        hints = typing.get_type_hints(step.run)
        given = hints.pop("return")
        (taken,) = hints.values()
        assert issubclass(state, taken), step.name
        assert issubclass(given, state), step.name
        state = given
    assert state is Plan


def test_no_plan_can_be_changed() -> None:
    for state in Plan.__mro__[:-1]:
        assert state.__dataclass_params__.frozen, state.__name__


def test_the_page_names_every_state_in_its_order() -> None:
    names = re.findall(r"^\| `(\w+)` \|", PAGE.split("| state |")[1].split("\n\n")[0], re.MULTILINE)
    assert names == [state.__name__ for state in reversed(Plan.__mro__[:-1])]


def test_the_files_of_the_table_exist() -> None:
    folder = Path(compiler.__file__).parent
    names = [name for _, files in ROWS for name in re.findall("`(.+?)`", files)]
    assert [name for name in names if not list(folder.glob(name))] == []
