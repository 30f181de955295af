"""The passes: the page names them in their order, and their work grows with the layers, not with their square."""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import lutterfly.host.compiler as compiler
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, plan_graph
from lutterfly.host.compiler.network import Network
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.graph import Graph, Window

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


# Compile time: the work of every line of the compiler grows with the layers of a network, and not with their square.
#
# Lines are counted instead of seconds. `bench/compile_time.py` measures seconds and memory.

COMPILER = Path(compiler.__file__).parent
#: Of `layout` the constants alone: what stays in the feature memory is chosen again for each tensor that does not
#: fit.
FILES = (
    *(f"{folder}/*.py" for folder in ("clock", "lower", "rewrite", "schedule")),
    *("layout/constants.py", "emit.py", "outline.py"),
)
#: Two feature maps do not fit its memory, nor two layers' weights theirs.
CONFIG = dataclasses.replace(
    PRESETS["tiny"],
    memory=dataclasses.replace(PRESETS["tiny"].memory, feature_bytes=512, weight_bytes=256),
)
LENGTHS = (6, 12, 24)

#: A file, and a line of it.
_Place = tuple[str, int]


def chain(layers: int) -> Graph:
    """So many equal convolutions, one after the other."""
    maker, name = GraphMaker((9, 9, 4)), "x"
    for _ in range(layers):
        name = maker.convolution(name, 4, Window((3, 3), pads=(1, 1, 1, 1)), zero_point=0)
    return maker.finish(name)


def lines_run(graph: Graph) -> Counter[_Place]:
    """How often each line of these files is run while a graph is compiled."""
    assert all(any(COMPILER.glob(name)) for name in FILES)
    files = {str(path) for name in FILES for path in COMPILER.glob(name)}
    counts: Counter[_Place] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            counts[frame.f_code.co_filename, frame.f_lineno] += 1
        return count

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: count if frame.f_code.co_filename in files else None)
    try:
        compile_graph(graph, CONFIG, permute=False)
    finally:
        sys.settrace(before)
    return counts


@pytest.fixture(scope="module")
def counted() -> list[Counter[_Place]]:
    return [lines_run(chain(layers)) for layers in LENGTHS]


def test_the_chain_has_parts_transfers_and_streamed_weights() -> None:
    plan = plan_graph(chain(LENGTHS[0]), CONFIG, permute=False)
    assert len(plan.cuts) == LENGTHS[0]
    assert any(arrival.tensor is None for arrival in plan.arrivals)


@pytest.mark.regress
def test_no_line_is_run_for_pairs_of_what_grows(counted: list[Counter[_Place]]) -> None:
    """From the second length to the third there are twice as many layers more as from the first to the second. What is
    run for pairs of them is run four times as often more."""
    one, two, four = counted
    assert sum(four.values()) > 100_000
    found = {
        f"{Path(file).relative_to(COMPILER)}:{line}": (one[file, line], two[file, line], count)
        for (file, line), count in four.items()
        if count - two[file, line] > 2.5 * (two[file, line] - one[file, line]) + LENGTHS[-1]
    }
    assert not found, found
