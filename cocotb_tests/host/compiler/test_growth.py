"""Compile time: the work of every line of the compiler grows with the layers of a network, and not with their square.

Lines are counted instead of seconds. `bench/compile_time.py` measures seconds and memory.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS
from lutterfly.host import compiler
from lutterfly.host.compiler import compile_graph, plan_graph
from lutterfly.host.graph import Graph, Window

ROOT = Path(compiler.__file__).parent
#: Not `layout`: what stays in the feature memory is chosen again for each tensor that does not fit.
FOLDERS, FILES = ("clock", "lower", "rewrite", "schedule"), ("emit.py", "outline.py")
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
    """How often each line of these folders and files is run while a graph is compiled."""
    files = {str(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    files |= {str(ROOT / name) for name in FILES}
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
        f"{Path(file).relative_to(ROOT)}:{line}": (one[file, line], two[file, line], count)
        for (file, line), count in four.items()
        if count - two[file, line] > 2.5 * (two[file, line] - one[file, line]) + LENGTHS[-1]
    }
    assert not found, found
