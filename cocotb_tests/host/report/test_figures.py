"""The figures show the numbers of the program and of the run, and nothing else."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, report_of
from lutterfly.golden.engines import DEPTHWISE
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.report import figures
from lutterfly.host.report.figures import MOST_BARS, Bar, _joined
from lutterfly.host.report.observe import used_bytes


def traces(drawn) -> dict[str, dict]:
    return {trace["name"]: trace for trace in drawn.to_dict()["data"]}


def bars(trace: dict, rows: range) -> list[tuple[int, int, int]]:
    """(row, begin, end) of the bars in some rows."""
    return [
        (row, begin, begin + length)
        for row, begin, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
        if row in rows
    ]


@pytest.mark.parametrize("network", NETWORKS)
def test_every_command_is_a_bar_in_its_layers_row_and_in_its_units(network: str) -> None:
    _, facts = report_of(network)
    ran, shown = facts.observation, traces(figures.timeline(facts))
    expected = [(2 + r.command.layer, r.begin, r.issued) for r in ran.compute]
    assert bars(shown["array takes steps"], range(2, 99)) == expected
    assert bars(shown["array takes steps"], range(1)) == [(0, begin, end) for _, begin, end in expected]
    for kind in ("LOAD", "STORE", "FILL"):
        name = kind if kind in shown else "FILL (borders)"
        moved = [r for r in ran.dma if r.kind == kind]
        assert bars(shown[name], range(1, 2)) == [(1, r.begin, r.end) for r in moved]
        assert bars(shown[name], range(2, 99)) == [
            (2 + r.command.layer, r.begin, r.end) for r in moved if r.command.layer is not None
        ]
    assert shown["predicted"]["visible"] == "legendonly"
    assert max(base + length for *_, base, length in bars(shown["predicted"], range(2, 99))) > 0


def test_of_too_many_bars_neighbours_are_joined_and_no_cycle_is_lost() -> None:
    many = [Bar(row, 10 * index, 10 * index + 9, 1, f"LOAD {index}") for row in (0, 1) for index in range(3000)]
    far = Bar(0, 100_000, 100_010, 1, "LOAD 9999")
    joined = _joined([*many, far], cycles=200_000)
    assert joined == [
        Bar(0, 0, 29_999, 3000, "LOAD 0 to LOAD 2999"),
        far,
        Bar(1, 0, 29_999, 3000, "LOAD 0 to LOAD 2999"),
    ]
    assert _joined(many[:10], cycles=200_000) == many[:10]


def test_bars_are_joined_that_are_no_more_apart_than_a_2000th_of_the_run() -> None:
    for apart, count in ((2000, 1), (2001, MOST_BARS + 1)):
        many = [Bar(0, (apart + 1) * index, (apart + 1) * index + 1, 1, "LOAD") for index in range(MOST_BARS + 1)]
        assert len(_joined(many, cycles=4_000_000)) == count


@pytest.mark.parametrize("network", NETWORKS)
def test_shares_of_cycles_add_up_to_the_inference(network: str) -> None:
    _, facts = report_of(network)
    drawn = figures.cycle_shares(facts)
    total = np.zeros(len(facts.layers) + 1)
    for trace in drawn.to_dict()["data"]:
        np.add.at(total, trace["y"], trace["x"])
    np.testing.assert_allclose(total[:-1], [layer.share.cycles for layer in facts.layers])
    assert total.sum() == pytest.approx(facts.observation.counters["cycles"])
    assert list(drawn.layout.yaxis.ticktext) == [*(layer.label for layer in facts.layers), figures.AFTER]


@pytest.mark.parametrize("network", NETWORKS)
def test_points_of_the_roofline_are_under_its_ceilings(network: str) -> None:
    _, facts = report_of(network)
    shown = traces(figures.roofline(facts))
    array, bus = facts.config.multipliers, facts.config.axi.data_bytes
    assert shown[f"array: {array} multipliers"]["y"] == [array, array]
    assert shown[f"bus: {bus} bytes per cycle"]["y"][1] / shown[f"bus: {bus} bytes per cycle"]["x"][1] == bus
    points = {}
    for name in ("layers", "layers without bus traffic"):
        trace = shown.get(name, {"text": [], "x": [], "y": [], "customdata": []})
        labels = [label for label, _ in trace["customdata"]]
        points |= {int(label.split()[0]) - 1: at for label, *at in zip(labels, trace["x"], trace["y"], strict=True)}
        # "3 +2" stands for three points.
        assert sum(1 + int(text.partition(" +")[2] or 0) for text in trace["text"] if text) == len(labels)
    assert set(points) == {index for index, layer in enumerate(facts.layers) if layer.planned.macs}
    for index, (x, y) in points.items():
        layer = facts.layers[index]
        assert y == layer.planned.macs / layer.share.cycles <= array
        if layer.planned.moved_bytes:
            assert x == layer.planned.macs / layer.planned.moved_bytes
    whole = shown["whole network"]
    assert whole["y"][0] <= min(array, bus * whole["x"][0])


@pytest.mark.parametrize(
    ("chains", "name", "most"),
    [(1, "depthwise: 16 lanes x 3 taps", 48), (2, "depthwise: 16 lanes x 3 taps x 2 rows", 96)],
)
def test_depthwise_layers_have_a_ceiling_of_their_own(chains: int, name: str, most: int) -> None:
    _, facts = report_of("digits")
    engines = PRESETS["ecp5-85k"].engines.having(DEPTHWISE, DepthwiseConfig(3, chains))
    config = dataclasses.replace(PRESETS["ecp5-85k"], engines=engines)
    # As if they were depthwise.
    layers = tuple(
        dataclasses.replace(layer, planned=dataclasses.replace(layer.planned, is_depthwise=True))
        for layer in facts.layers
    )
    shown = traces(figures.roofline(dataclasses.replace(facts, config=config, layers=layers)))
    assert list(shown[name]["y"]) == [most, most]


@pytest.mark.parametrize("network", NETWORKS)
def test_axes_of_the_roofline(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = []
    numbers = figures._numbers
    monkeypatch.setattr(figures, "_numbers", lambda points, near: apart.append(near) or numbers(points, near))
    layout = figures.roofline(report_of(network)[1]).layout
    # What a label takes of each axis as it is drawn, in natural logarithms.
    widths = [math.log(10) * (axis.range[1] - axis.range[0]) for axis in (layout.xaxis, layout.yaxis)]
    assert apart
    for near in apart:
        assert near == pytest.approx((0.04 * widths[0], 0.055 * widths[1]))
    # Powers of ten, all up to the band of layers that move nothing, which has no such places.
    least, most = layout.xaxis.range
    band = [shape.x0 for shape in layout.shapes]
    end = math.log10(band[0]) if band else most
    assert list(layout.xaxis.tickvals) == [10.0**power for power in range(-9, 20) if least <= power <= end]


def test_points_that_would_cover_each_other_have_one_label() -> None:
    points = [(1, 10.0, 5.0), (2, 100.0, 5.0), (4, 10.2, 5.1), (7, 10.0, 8.0)]
    assert figures._numbers(points, (0.1, 0.1)) == ["1 +1", "2", "", "7"]
    assert figures._numbers(points, (0.1, 0.5)) == ["1 +2", "2", "", ""]


# The memories' figures show what the plan says, and the tables are the model's functions.


@pytest.mark.parametrize("network", NETWORKS)
def test_every_occupant_is_a_rectangle(network: str) -> None:
    _, facts = report_of(network)
    boxes, level = figures.feature_memory(facts).to_dict()["data"]
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
        (figures.constant_memories(facts), facts.constants),
        (figures.external_memory(facts), (facts.external,)),
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
    drawn = figures.transfer_tables(facts).to_dict()["data"]
    assert [trace["y"] for trace in drawn] == [table.codes.tolist() for table in facts.tables]
    assert all(trace["x"] == list(range(-128, 128)) for trace in drawn)
