"""Crossings: those that are too slow are routed again, and what was routed otherwise stays."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from lutterfly.hdl.parts.platforms import Platform
from lutterfly.synth import flow, tools
from lutterfly.synth.report import ReportError
from lutterfly.synth.routed.crossings import reroute_crossings, slow_crossings
from toys.toy_pair import Pair

needs_tools = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in tools.TOOLS), reason="the `synth` extra is not installed"
)
CORE, DOUBLE = "posedge clk", "posedge double_clk"
TARGET = flow.find_target("ecp5-85k", 6, 100 / 1.01)


def net(name: str, begins: str, *ends: tuple[str, float]) -> dict:
    return {"net": name, "event": begins, "endpoints": [{"event": event, "delay": [0.0, ns]} for event, ns in ends]}


def test_a_crossing_has_half_a_cycle_or_a_whole_one() -> None:
    report = {
        "detailed_net_timings": [
            net("from fast, in time", DOUBLE, (CORE, 5.0)),
            net("from fast, late", DOUBLE, (CORE, 4.0), (CORE, 5.1)),
            net("into fast, in time", CORE, (DOUBLE, 10.0)),
            net("into fast, late", CORE, (DOUBLE, 10.1)),
            net("no crossing", CORE, (CORE, 20.0)),
            net("no crossing of the fast one", DOUBLE, (DOUBLE, 20.0)),
            net("from a pin", "<async>", (CORE, 20.0)),
            net("to a pin", CORE, ("<async>", 20.0)),
        ]
    }
    assert slow_crossings(report, 100) == ["from fast, late", "into fast, late"]


def test_without_one_nothing_is_routed(tmp_path: Path) -> None:
    (tmp_path / "report-3.json").write_text(json.dumps({"detailed_net_timings": [net("fast", DOUBLE, (CORE, 1.0))]}))
    reroute_crossings(tmp_path, TARGET, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["report-3.json"]


@pytest.mark.parametrize("text", ["", "{}", '{"detailed_net_timings": [{}]}'])
def test_another_report_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "report-3.json").write_text(text)
    with pytest.raises(ReportError, match=rf"^{tmp_path}/report-3\.json must be a report of nextpnr: "):
        reroute_crossings(tmp_path, TARGET, 3)


@needs_tools
def test_slow_crossings_are_routed_again(tmp_path: Path) -> None:
    def routed() -> tuple[dict[str, set], dict[str, str]]:
        """Of each net its wires, each with the switch into it; of each cell its place."""
        top = json.loads((tmp_path / "routed-1.json").read_text())["modules"]["top"]
        texts = {name: one["attributes"]["ROUTING"].split(";") for name, one in top["netnames"].items()}
        routes = {name: set(zip(text[0::3], text[1::3], strict=False)) for name, text in texts.items()}
        return routes, {name: cell["attributes"]["NEXTPNR_BEL"] for name, cell in top["cells"].items()}

    flow.synthesise_component(
        Pair(), name="pair", folder=tmp_path, mhz=60, seeds=(1,), platform=Platform(is_pumped=True)
    )
    assert not (tmp_path / "nextpnr-1-again.log").exists()
    before, places = routed()
    report = json.loads((tmp_path / "report-1.json").read_text())
    slow = slow_crossings(report, 400 * 1.01)
    assert 0 < len(slow) < 40
    reroute_crossings(tmp_path, flow.find_target("ecp5-85k", 6, 400), 1)
    assert "Routing.." in (tmp_path / "nextpnr-1-again.log").read_text()
    after, places_after = routed()
    assert places_after == places
    assert after.keys() == before.keys()
    # A net may give way, but none is left out, and nothing is led through a wire twice.
    assert all(after[name] for name in before if before[name])
    wires = [wire for ways in after.values() for wire, _ in ways if wire]
    assert len(wires) == len(set(wires))
    assert json.loads((tmp_path / "report-1.json").read_text())["utilization"] == report["utilization"]
