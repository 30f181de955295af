"""The memories' figures show what the plan says, and the tables are the model's functions."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, report_of
from lutterfly.host.report import memory_figures
from lutterfly.host.report.occupancy import used_bytes


@pytest.mark.parametrize("network", NETWORKS)
def test_every_occupant_is_a_rectangle(network: str) -> None:
    _, facts = report_of(network)
    boxes, level = memory_figures.feature_memory(facts).to_dict()["data"]
    found = [
        (text, y - width / 2, width, base, base + x)
        for text, y, width, base, x in zip(*(boxes[name] for name in ("text", "y", "width", "base", "x")), strict=True)
    ]
    assert found == [(o.tensor, o.address, o.size_bytes, o.begin, o.end) for o in facts.occupants]
    assert dict(zip(level["x"], level["y"], strict=True)) == used_bytes(facts.occupants)


@pytest.mark.parametrize("network", NETWORKS)
def test_bars_of_memories_are_as_long_as_the_memories_are_full(network: str) -> None:
    _, facts = report_of(network)
    for drawn, uses in (
        (memory_figures.constant_memories(facts), facts.constants),
        (memory_figures.external_memory(facts), (facts.external,)),
    ):
        length = np.zeros(len(uses))
        free = np.zeros(len(uses))
        for trace in drawn.to_dict()["data"]:
            length[trace["y"][0]] += trace["x"][0]
            free[trace["y"][0]] += trace["x"][0] if trace["text"] == ["free"] else 0
        np.testing.assert_allclose(length, 100)
        np.testing.assert_allclose(free, [100 * (1 - use.used / (use.capacity or use.used)) for use in uses])


@pytest.mark.parametrize("network", NETWORKS)
def test_tables_are_drawn_code_by_code(network: str) -> None:
    _, facts = report_of(network)
    drawn = memory_figures.transfer_tables(facts).to_dict()["data"]
    assert [trace["y"] for trace in drawn] == [table.codes.tolist() for table in facts.tables]
    assert all(trace["x"] == list(range(-128, 128)) for trace in drawn)
