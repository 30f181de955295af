# amaranth: UnusedElaboratable=no
"""The runs of nextpnr: what each is told, and that it takes a placement that was refined."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cocotb_tests.support.placed_netlists import Sketch
from cocotb_tests.support.tiers import needs_tools
from cocotb_tests.support.toys.toy_components import Pair
from lutterfly.hdl.parts.pipeline import Platform
from lutterfly.synth import flow, tools
from lutterfly.synth.families import DEVICES
from lutterfly.synth.families.ecp5 import DELAYS
from lutterfly.synth.placed import place
from lutterfly.synth.placed import replicate as replicate_module
from lutterfly.synth.placed.delays import net_of
from lutterfly.synth.placed.refine import refine
from lutterfly.synth.placed.replicate import replicate
from lutterfly.synth.placed.slices import REGISTER, Slices, SliceSite
from lutterfly.synth.placed.timing import Timing

TWO_CLOCKS = Platform(is_pumped=True)


class Routed(NamedTuple):
    """What stands for a run that is read: the file, the seed, and a clock."""

    report: str
    seed: int
    fmax_mhz: float = 400.0


def far_off() -> Sketch:
    """A register far from what it connects, to which there is a place near that, and two clocks."""
    sketch = Sketch()
    sketch.sum("a", "X10/Y10/SLICEA", "in")
    sketch.register("b", "X90/Y80/SLICEA.FF0", "a")
    sketch.sum("c", "X60/Y10/SLICEA", "b")
    sketch.register("fast", "X20/Y12/SLICEA.FF0", "in", clock="double_clk")
    sketch.table("room", "X35/Y10/SLICEA.K0", "in")
    return sketch


def reach_of_far_off() -> float:
    """The clock in MHz that is within reach of it, refined for a fifth more than 400."""
    refined = far_off()
    refine(Timing(refined.module), mhz=480)
    return 1000 / Timing(refined.module).paths(0.0)[0].delay_ns


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[list[str], dict]]:
    """What nextpnr is told, which is not run: options, and the netlist, in which the floorplan leaves its seed."""
    runs = []

    def run_tool(tool: str, options: list[str], *, folder: Path, log: str, should_stop: Callable[[], bool]) -> None:
        # Nothing of an earlier run's.
        assert not should_stop()
        (folder / log).write_text("")
        runs.append((options, json.loads((folder / options[options.index("--json") + 1]).read_text())))
        if "--write" in options:
            (folder / options[options.index("--write") + 1]).write_text(json.dumps(far_off().netlist))

    monkeypatch.setattr(place, "floorplan", lambda netlist, sites, *, tiles, seed: netlist.update(seed=seed))
    monkeypatch.setattr(place, "run_tool", run_tool)
    monkeypatch.setattr(place, "read_placement", lambda path, *, seed, cells: Routed(path.name, seed))
    (tmp_path / "top.json").write_text('{"modules": {}}')
    return runs


def value(options: list[str], name: str) -> str:
    return options[options.index(name) + 1]


def test_one_clock_is_placed_and_routed_at_once(told: list[tuple[list[str], dict]], tmp_path: Path) -> None:
    """Each seed has a floorplan of its own; wires that are too slow are ripped up, whatever the clock."""
    for seed in (3, 7):
        found = place.place_design(
            tmp_path, DEVICES["ecp5-85k"], seed, ["--lpf", "top.lpf"], placing=["--p"], outputs=["--textcfg", "t"]
        )
        assert found == Routed(f"report-{seed}.json", seed)
    assert [netlist for _, netlist in told] == [{"modules": {}, "seed": 3}, {"modules": {}, "seed": 7}]
    for options, _ in told:
        assert {"--tmg-ripup", "--timing-allow-fail", "--p"} <= set(options)
        assert {"--no-route", "--no-place", "--no-pack", "--write"}.isdisjoint(options)
        assert (value(options, "--lpf"), value(options, "--textcfg")) == ("top.lpf", "t")
        assert value(options, "--freq") == "101.0"


def test_two_clocks_are_placed_refined_and_routed(told: list[tuple[list[str], dict]], tmp_path: Path) -> None:
    target = DEVICES["ecp5-85k"].to_reach(400)
    found = place.place_design(
        tmp_path, target, 5, ["--lpf", "top.lpf"], placing=["--p"], outputs=["--textcfg", "t"], platform=TWO_CLOCKS
    )
    assert found == Routed("report-5.json", 5)
    (placing, planned), (routing, placed) = told
    assert planned == {"modules": {}, "seed": 5}
    assert "--no-route" in placing
    assert {"--report", "--textcfg", "--no-place"}.isdisjoint(placing)
    assert {"--p", "--placer-heap-timingweight"} <= set(placing)
    assert {"--p", "--placer-heap-timingweight"}.isdisjoint(routing)
    assert float(value(placing, "--freq")) == pytest.approx(404)
    assert {"--no-pack", "--no-place", "--tmg-ripup"} <= set(routing)
    assert "--no-route" not in routing
    assert (value(routing, "--report"), value(routing, "--textcfg")) == ("report-5.json", "t")
    assert [routing[at + 1] for at, option in enumerate(routing) if option == "--lpf"] == ["clocks-5.lpf", "top.lpf"]
    # What is routed is refined, and for clocks within its reach.
    cells = placed["modules"]["top"]["cells"]
    assert cells["b"]["attributes"]["NEXTPNR_BEL"] == "X35/Y10/SLICEA.FF0"
    reach = reach_of_far_off()
    assert reach < 404
    assert float(value(routing, "--freq")) == pytest.approx(reach)
    clocks = re.findall(r'FREQUENCY NET "(\w+)" ([\d.]+) MHZ;\n', (tmp_path / "clocks-5.lpf").read_text())
    assert [(name, float(mhz)) for name, mhz in clocks] == [
        ("clk", pytest.approx(reach, 1e-4)),
        ("double_clk", pytest.approx(2 * reach, 1e-4)),
    ]


@pytest.mark.parametrize(("copies", "then"), [(0, []), (3, ["refine"])])
def test_what_leads_to_several_sides_is_copied(
    monkeypatch: pytest.MonkeyPatch,
    told: list[tuple[list[str], dict]],
    tmp_path: Path,
    copies: int,
    then: list[str],
) -> None:
    """And what is left of it moves then."""
    steps: list[tuple[str, float]] = []

    def step(name: str, result: int) -> None:
        monkeypatch.setattr(place, name, lambda timing, *, mhz: steps.append((name, mhz)) or result)

    step("refine", 0)
    step("replicate", copies)
    place.place_design(tmp_path, DEVICES["ecp5-85k"].to_reach(400), 1, platform=TWO_CLOCKS)
    assert [name for name, _ in steps] == ["refine", "replicate", *then]
    # Above the clock to reach.
    assert [mhz for _, mhz in steps] == pytest.approx([480] * len(steps))


def test_a_clock_within_reach_is_aimed_at_in_all_grades(told: list[tuple[list[str], dict]], tmp_path: Path) -> None:
    for speed in DELAYS:
        target = DEVICES["ecp5-85k"].to_reach(50).of_speed(speed)
        place.place_design(tmp_path, target, 1, platform=TWO_CLOCKS)
        assert float(value(told[-1][0], "--freq")) == pytest.approx(50 / DELAYS[speed] + 1.2)


@pytest.mark.parametrize(
    ("clocks", "best"),
    [
        ((39.9, 30.0, 40.0), "report-8-2.json"),
        ((39.9, 30.0, 39.0, 38.0), "report-8.json"),
        ((30.0, 38.0, 39.9, 31.0), "report-8-2.json"),
    ],
)
def test_the_router_goes_on_with_other_seeds_while_the_clock_is_missed(
    monkeypatch: pytest.MonkeyPatch,
    told: list[tuple[list[str], dict]],
    tmp_path: Path,
    clocks: tuple[float, ...],
    best: str,
) -> None:
    """The same placement, and no more than four times; the fastest is returned."""
    found = iter(clocks)
    monkeypatch.setattr(place, "read_placement", lambda path, *, seed, cells: Routed(path.name, seed, next(found)))
    routed = place.place_design(tmp_path, DEVICES["ecp5-85k"].to_reach(40), 8, platform=TWO_CLOCKS)
    assert (routed.report, routed.seed) == (best, 8)
    runs = told[1:]
    assert [value(options, "--seed") for options, _ in runs] == ["8", "9", "10", "11"][: len(clocks)]
    assert [value(options, "--log") for options, _ in runs] == [
        f"nextpnr-8{again}.log" for again in ("", "-1", "-2", "-3")
    ][: len(clocks)]
    assert all(placed == runs[0][1] for _, placed in runs)


def test_no_more_is_asked_of_the_router_than_is_within_reach(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[list[str], dict]], tmp_path: Path
) -> None:
    """400 MHz are not: a run that is just below what it was told to aim at is the last."""
    reach = reach_of_far_off()
    found = iter((reach - 0.8, reach - 0.6))
    monkeypatch.setattr(place, "read_placement", lambda path, *, seed, cells: Routed(path.name, seed, next(found)))
    place.place_design(tmp_path, DEVICES["ecp5-85k"].to_reach(400), 1, platform=TWO_CLOCKS)
    assert len(told) == 3


def test_multipliers_of_two_clocks_in_a_group_are_an_error(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[list[str], dict]], tmp_path: Path
) -> None:
    run = place.run_tool

    def warned(tool: str, options: list[str], *, folder: Path, log: str, should_stop: Callable[[], bool]) -> None:
        run(tool, options, folder=folder, log=log, should_stop=should_stop)
        (folder / log).write_text("Warning: Connection to CLK0 remapped\n")

    monkeypatch.setattr(place, "run_tool", warned)
    with pytest.raises(tools.FlowError, match=r"nextpnr-1\.log: multipliers of a group must have one clock"):
        place.place_design(tmp_path, DEVICES["ecp5-85k"], 1)


def never_end(monkeypatch: pytest.MonkeyPatch, *, from_run: int) -> list[bool]:
    """From this run of nextpnr on, counted from 1, the router does not end while it rips up; whether each run would be
    ended for that."""
    run, ended = place.run_tool, list[bool]()

    def endless(tool: str, options: list[str], *, folder: Path, log: str, should_stop: Callable[[], bool]) -> None:
        run(tool, options, folder=folder, log=log, should_stop=should_stop)
        iterations = [f"Info:     iter={number} wires=1083427 tmgfail=6 archfail=NA\n" for number in range(1, 252)]
        (folder / log).write_text("".join(iterations[:250]))
        assert not should_stop()
        (folder / log).write_text("".join(iterations))
        ended.append(should_stop())
        if "--tmg-ripup" in options and len(ended) >= from_run:
            raise tools.TooLongError("nextpnr must end")

    monkeypatch.setattr(place, "run_tool", endless)
    return ended


def test_a_router_that_does_not_end_rips_nothing_up(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[list[str], dict]], tmp_path: Path
) -> None:
    """After another seed, and a lower aim. Where it is placed stays the same; with one clock there is no second run."""
    ended = never_end(monkeypatch, from_run=1)
    place.place_design(tmp_path, DEVICES["ecp5-85k"].to_reach(40), 2, platform=TWO_CLOCKS)
    _, (_, placed), *_, (before, _), (last, _) = told
    assert last == [option for option in before if option != "--tmg-ripup"]
    assert all(netlist == placed for _, netlist in told[2:])
    aims = [float(value(options, "--freq")) for options, _ in told[1:]]
    assert aims == pytest.approx([41.2, 41.2, 40.7, 40.7])
    assert ended == [False, True, True, True, False]
    # What these runs have logged is not the next ones'.
    place.place_design(tmp_path, DEVICES["ecp5-85k"].to_reach(40), 2, platform=TWO_CLOCKS)
    with pytest.raises(tools.TooLongError):
        place.place_design(tmp_path, DEVICES["ecp5-85k"], 2)


def test_nothing_more_is_tried_when_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[list[str], dict]], tmp_path: Path
) -> None:
    run, over = place.run_tool, []

    def interrupted(tool: str, options: list[str], *, should_stop: Callable[[], bool], **more: Any) -> None:
        run(tool, options, should_stop=should_stop, **more)
        if "--no-place" in options:
            over.append("Ctrl-C")
            assert should_stop()
            raise tools.TooLongError("nextpnr must end")

    monkeypatch.setattr(place, "run_tool", interrupted)
    target = DEVICES["ecp5-85k"].to_reach(40)
    with pytest.raises(tools.TooLongError):
        place.place_design(tmp_path, target, 2, platform=TWO_CLOCKS, is_cancelled=lambda: bool(over))
    assert len(told) == 2


def test_a_run_that_ended_may_be_faster_than_one_that_rips_nothing_up(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[list[str], dict]], tmp_path: Path
) -> None:
    """Which is the last run, however slow it is."""
    never_end(monkeypatch, from_run=3)
    found = iter((30.0, 20.0))
    monkeypatch.setattr(place, "read_placement", lambda path, *, seed, cells: Routed(path.name, seed, next(found)))
    routed = place.place_design(tmp_path, DEVICES["ecp5-85k"].to_reach(40), 2, platform=TWO_CLOCKS)
    assert (routed.report, len(told)) == ("report-2.json", 6)


def test_clocks_are_those_that_a_run_aims_at(monkeypatch: pytest.MonkeyPatch, told: list, tmp_path: Path) -> None:
    never_end(monkeypatch, from_run=2)
    run, clocks = place.run_tool, []

    def read(tool: str, options: list[str], **more: Any) -> None:
        if "--no-place" in options:
            clocks.append((tmp_path / value(options, "--lpf")).read_text())
        run(tool, options, **more)

    monkeypatch.setattr(place, "run_tool", read)
    place.place_design(tmp_path, DEVICES["ecp5-85k"].to_reach(40), 2, platform=TWO_CLOCKS)
    assert clocks == [
        f'FREQUENCY NET "clk" {mhz:.3f} MHZ;\nFREQUENCY NET "double_clk" {2 * mhz:.3f} MHZ;\n'
        for mhz in (41.2, 41.2, 40.7, 40.7)
    ]


def write_routed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nextpnr write what it has routed, ``routed.json``."""
    run = place.run_tool

    def written(tool: str, options: list[str], **more: Any) -> None:
        run(tool, [*options, *(["--write", "routed.json"] if "--no-place" in options else [])], **more)

    monkeypatch.setattr(place, "run_tool", written)


@needs_tools
@pytest.mark.regress
def test_nextpnr_takes_what_was_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A register of a real placement is put at the other end of the device, and comes back; then it is routed."""
    seen: dict[str, Any] = {}

    def displace_and_refine(timing: Timing, *, mhz: float) -> int:
        slices = Slices(timing.cells)
        name = next(
            name
            for name, cell in timing.cells.items()
            if cell["type"] == REGISTER and net_of(cell, "M") is not None and net_of(cell, "CE") is None
        )
        column, row = timing.places[name]
        place = (100 if column < 63 else 20, 90 if row < 48 else 6)
        slices.move(name, SliceSite(place, "A", "FF0"))
        timing.places[name] = place
        timing.update()
        longest = timing.paths(0.0)[0].delay_ns
        moved = refine(timing, mhz=400)
        seen.update(
            name=name, place=place, last=slices.site(name), longest=longest, refined=timing.paths(0.0)[0].delay_ns
        )
        return moved

    monkeypatch.setattr(place, "refine", displace_and_refine)
    write_routed(monkeypatch)
    found = flow.synthesise_component(Pair(), name="pair", folder=tmp_path, mhz=60, seeds=(1,), platform=TWO_CLOCKS)
    assert seen["last"].place != seen["place"]
    assert seen["refined"] < seen["longest"]
    assert found.fmax_mhz > 60
    cell = json.loads((tmp_path / "routed.json").read_text())["modules"]["top"]["cells"][seen["name"]]
    column, row = seen["last"].place
    site = f"X{column}/Y{row}/SLICE{seen['last'].slice}.{seen['last'].position}"
    assert cell["attributes"]["NEXTPNR_BEL"] == site


@pytest.mark.regress
@needs_tools
def test_nextpnr_takes_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Registers of a real placement are copied as if all were late; the copies stand where they were put, and lead to
    what they were given."""
    seen: dict[str, Any] = {}

    def copy_all(timing: Timing, *, mhz: float) -> int:
        before = set(timing.cells)
        copies = replicate(timing, mhz=5000)
        names = set(timing.cells) - before
        seen.update({name: timing.cells[name]["attributes"]["NEXTPNR_BEL"] for name in names})
        assert copies == len(names) > 0
        return 0

    monkeypatch.setattr(place, "replicate", copy_all)
    # All stand near what they lead to.
    monkeypatch.setattr(replicate_module, "_LEAST_GAIN", 0.01)
    write_routed(monkeypatch)
    found = flow.synthesise_component(Pair(), name="pair", folder=tmp_path, mhz=60, seeds=(1,), platform=TWO_CLOCKS)
    assert found.fmax_mhz > 60
    module = json.loads((tmp_path / "routed.json").read_text())["modules"]["top"]
    placed = json.loads((tmp_path / "placed-1.json").read_text())["modules"]["top"]["cells"]

    def sinks(cells: dict[str, Any], name: str) -> set[tuple[str, str]]:
        bits = cells[name]["connections"]["Q"]
        return {
            (other, port)
            for other, cell in cells.items()
            for port, connected in cell["connections"].items()
            if connected == bits and cell["port_directions"][port] == "input"
        }

    for name, site in seen.items():
        assert module["cells"][name]["attributes"]["NEXTPNR_BEL"] == site
        assert sinks(module["cells"], name) == sinks(placed, name) != set()
