"""Tables that follow one another and stand together far off come together."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.oracles.exactness import PATIENT
from cocotb_tests.support.placed_netlists import Sketch, check_sites, designs, longest
from lutterfly.synth.placed import runs as module
from lutterfly.synth.placed.refine import refine
from lutterfly.synth.placed.runs import best_place, runs_of
from lutterfly.synth.placed.slices import Mover, Slices
from lutterfly.synth.placed.timing import Timing


def detour() -> Sketch:
    """Two tables that stand beside each other, thirty rows off the way from one sum to another; tiles on the way have
    room."""
    sketch = Sketch()
    sketch.sum("a", "X10/Y10/SLICEA", "in")
    sketch.table("first", "X10/Y40/SLICEA.K0", "a")
    sketch.table("second", "X11/Y40/SLICEA.K0", "first")
    sketch.sum("b", "X12/Y10/SLICEA", "second")
    for row in (10, 20, 30):
        sketch.table(f"t{row}", f"X11/Y{row}/SLICEA.K0", "in")
    return sketch


def test_two_tables_come_where_neither_gains_alone() -> None:
    sketch = detour()
    before = longest(sketch)
    assert refine(Timing(sketch.module), mhz=250) == 1
    assert [sketch.site(name) for name in ("first", "second")] == ["X12/Y10/SLICEB.K0", "X12/Y10/SLICEB.K1"]
    assert longest(sketch) < before - 4
    check_sites(sketch)


def test_a_register_of_one_of_them_comes_along() -> None:
    sketch = detour()
    sketch.register("beside", "X11/Y40/SLICEA.FF0", "second", port="DI", CE="a")
    sketch.sum("c", "X13/Y12/SLICEA", "beside")
    assert refine(Timing(sketch.module), mhz=250) == 1
    assert sketch.site("beside") == sketch.site("second").replace("K", "FF")
    assert sketch.site("second").startswith("X12/Y10")
    check_sites(sketch)


@pytest.mark.parametrize("port", ["CE", "LSR", "Q"])
def test_what_else_its_register_connects_holds_them(port: str) -> None:
    """As far on the other side."""
    sketch = detour()
    sketch.sum("far", "X11/Y70/SLICEA", "beside" if port == "Q" else "in")
    sketch.register("beside", "X11/Y40/SLICEA.FF0", "second", port="DI", **({} if port == "Q" else {port: "far"}))
    timing = Timing(sketch.module)
    (run,) = runs_of(timing.paths(0.0)[0], timing)
    assert [mover.register for mover in run] == [None, "beside"]
    gain, sites = best_place(timing, Slices(timing.cells), run, 4.0, 0.15)
    assert {site.place for site in sites.values()} == {(11, 20)}
    assert gain > 2


def test_tables_that_stand_apart_are_no_run() -> None:
    sketch = detour()
    sketch.cells["second"]["attributes"]["NEXTPNR_BEL"] = "X13/Y41/SLICEA.K0"
    timing = Timing(sketch.module)
    assert list(runs_of(timing.paths(0.0)[0], timing)) == []
    sketch.cells["second"]["attributes"]["NEXTPNR_BEL"] = "X12/Y41/SLICEA.K0"
    timing = Timing(sketch.module)
    assert list(runs_of(timing.paths(0.0)[0], timing)) == [(Mover(None, "first"), Mover(None, "second"))]


def test_what_cannot_move_ends_a_run() -> None:
    sketch = detour()
    del sketch.cells["second"]
    sketch.wide("second", "X11/Y40/SLICEA", ("first", "a"), "a")
    timing = Timing(sketch.module)
    assert list(runs_of(timing.paths(0.0)[0], timing)) == []


def test_a_tile_needs_room_for_all() -> None:
    sketch = detour()
    for place in ("X10/Y10", "X12/Y10", "X11/Y10", "X11/Y20", "X11/Y30"):
        # The first one is taken, and the last one stays free.
        for number in range(1, 7):
            sketch.table(f"{place}_{number}", f"{place}/SLICE{'ABCD'[number // 2]}.K{number % 2}", "in")
    before = {name: sketch.site(name) for name in sketch.cells}
    timing = Timing(sketch.module)
    slices = Slices(timing.cells)
    (run,) = runs_of(timing.paths(0.0)[0], timing)
    assert best_place(timing, slices, run, 4.0, 1.0) is None
    assert {name: sketch.site(name) for name in sketch.cells} == before
    assert slices.tiles == Slices(timing.cells).tiles


def test_one_may_go_where_another_one_comes_from() -> None:
    sketch = Sketch()
    sketch.table("first", "X10/Y40/SLICEA.K0", "in")
    sketch.table("second", "X11/Y40/SLICEA.K0", "first")
    sketch.table("third", "X12/Y40/SLICEA.K0", "second")
    slices = Slices(sketch.cells)
    run = tuple(Mover(None, name) for name in ("first", "second", "third"))
    sites = module._free(slices, (11, 40), run)
    assert [(site.slice, site.position) for site in sites.values()] == [("A", "K1"), ("B", "K0"), ("A", "K0")]
    # Nothing has moved yet.
    assert [sketch.site(name)[:7] for name in sites] == ["X10/Y40", "X11/Y40", "X12/Y40"]
    assert slices.tiles == Slices(sketch.cells).tiles


def test_what_meets_its_limit_or_gains_little_stays() -> None:
    timing = Timing(detour().module)
    slices, path = Slices(timing.cells), timing.paths(0.0)[0]
    (run,) = runs_of(path, timing)
    gain, sites = best_place(timing, slices, run, path.delay_ns - 0.01, 0.15)
    assert module._longest(timing, run, {}) == pytest.approx(path.delay_ns)
    assert best_place(timing, slices, run, path.delay_ns + 0.01, 0.15) is None
    assert best_place(timing, slices, run, path.delay_ns - 0.01, gain + 0.01) is None
    timing.places.update({name: site.place for name, site in sites.items()})
    timing.update()
    assert timing.paths(0.0)[0].delay_ns == pytest.approx(path.delay_ns - gain)


def leads_back(timing: Timing, cells: set[str]) -> bool:
    """Whether a path leaves some tables and comes back to one of them through others: their delays are not known."""
    tables = {name for name, cell in timing.cells.items() if cell["type"] == "TRELLIS_COMB"}

    def behind(names: set[str]) -> set[str]:
        nets = [bit for name in names for bit in timing.cells[name]["connections"].get("F", [])]
        nets += [bit for name in names for bit in timing.cells[name]["connections"].get("OFX", [])]
        return {sink for net in nets for sink, _ in timing.sinks[net]} & tables

    reached = behind(cells & tables) - cells
    while True:
        more = behind(reached)
        if more & cells or more <= reached:
            return bool(more & cells)
        reached |= more


@pytest.mark.regress
@settings(PATIENT, max_examples=150)
@given(designs(), st.data())
def test_what_is_foretold_is_what_happens(sketch: Sketch, data: st.DataObject) -> None:
    timing = Timing(sketch.module)
    with mock.patch.object(module, "_TOGETHER", 100):
        found = [run for path in timing.paths(0.0) for run in runs_of(path, timing)]
    for run in found:
        cells = [name for mover in run for name in mover if name is not None]
        place = data.draw(st.tuples(st.integers(0, 30), st.integers(0, 30)))
        if leads_back(timing, set(cells)):
            continue
        arrivals, places = dict(timing.arrivals), dict(timing.places)
        foretold = module._longest(timing, run, dict.fromkeys(cells, place))
        assert (timing.arrivals, timing.places) == (arrivals, places)
        timing.places.update(dict.fromkeys(cells, place))
        timing.update()
        assert module._longest(timing, run, {}) == pytest.approx(foretold)
        timing.places.update(places)
        timing.update()
