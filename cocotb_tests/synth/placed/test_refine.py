"""Registers and tables that stand far off come near what they connect; everything else stays."""

from __future__ import annotations

import copy
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.oracles.exactness import PATIENT
from cocotb_tests.support.placed_netlists import Sketch, check_sites, designs, longest
from lutterfly.synth.placed import refine as module
from lutterfly.synth.placed.refine import refine
from lutterfly.synth.placed.runs import Run
from lutterfly.synth.placed.slices import Mover, Slices, SliceSite
from lutterfly.synth.placed.timing import Timing


def line(**far: str) -> Sketch:
    """Three registers, of which the one in the middle stands far off, and tiles with room between the others, which
    take sums."""
    sketch = Sketch()
    sketch.sum("a", "X10/Y10/SLICEA", "in")
    sketch.sum("c", "X20/Y10/SLICEA", "b")
    sketch.register("b", "X90/Y80/SLICEA.FF0", "a", **far)
    for column in range(11, 20):
        sketch.table(f"t{column}", f"X{column}/Y10/SLICEA.K0", "in")
    return sketch


def sites(sketch: Sketch) -> dict[str, str]:
    return {name: sketch.site(name) for name in sketch.cells}


def test_a_register_comes_between_what_it_connects() -> None:
    sketch = line()
    before = sites(sketch)
    assert refine(Timing(sketch.module), mhz=200) == 1
    assert longest(sketch) < 2.2
    assert sketch.site("b") in [f"X{column}/Y10/SLICEA.FF0" for column in range(13, 18)]
    assert {name for name, site in sites(sketch).items() if site != before[name]} == {"b"}


def test_a_path_of_a_cell_that_has_moved_waits_for_its_new_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = Timing(line().module)
    first, second = timing.paths(5.0)
    assert {first.start, first.end} & {second.start, second.end} == {"b"}
    asked, best_move = [], module._best_move

    def recorded(timing: Timing, slices: Slices, name: str, limit_ns: float) -> object:
        asked.append(name)
        return best_move(timing, slices, name, limit_ns)

    monkeypatch.setattr(module, "_best_move", recorded)
    assert len(module._moves(timing, Slices(timing.cells), [first, second], set(), 5.0, 2)) == 1
    assert {*asked} == {first.start, first.end}


def test_what_meets_the_clock_stays() -> None:
    sketch = line()
    before = sites(sketch)
    assert refine(Timing(sketch.module), mhz=0.99 * 1000 / longest(sketch)) == 0
    assert sites(sketch) == before


def test_a_register_comes_to_its_enable_as_well() -> None:
    sketch = line(CE="enable")
    sketch.sum("enable", "X15/Y60/SLICEA", "in")
    for row in (20, 30, 40, 50):
        sketch.table(f"between_{row}", f"X15/Y{row}/SLICEA.K0", "in")
    refine(Timing(sketch.module), mhz=250)
    assert longest(sketch) < 4.5


def test_what_makes_a_path_longer_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = line()
    before, asked = sites(sketch), []

    def worst_move(timing: Timing, slices: Slices, name: str, limit_ns: float) -> object:
        asked.append(name)
        away, back = SliceSite((99, 90), "D", "FF1"), slices.site("b")
        return module._Move(1.0, {"b": away}, {"b": back}) if name == "b" else None

    monkeypatch.setattr(module, "_best_move", worst_move)
    assert refine(Timing(sketch.module), mhz=200) == 0
    assert sites(sketch) == before
    assert "b" in asked


def test_a_run_that_makes_a_path_longer_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = Sketch()
    for name, place in (("first", "X10/Y40"), ("second", "X11/Y40")):
        sketch.table(name, f"{place}/SLICEA.K0", "a" if name == "first" else "first")
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    sketch.register("b", "X12/Y10/SLICEA.FF0", "second")
    before, asked = sites(sketch), []

    def worst_place(timing: Timing, slices: Slices, run: Run, *limits: float) -> tuple[float, dict[str, SliceSite]]:
        asked.append(run)
        assert len(asked) < 9
        return 1.0, {"first": SliceSite((99, 90), "A", "K0"), "second": SliceSite((99, 90), "A", "K1")}

    monkeypatch.setattr(module, "_best_move", lambda *_: None)
    monkeypatch.setattr(module, "best_place", worst_place)
    assert refine(Timing(sketch.module), mhz=200) == 0
    assert sites(sketch) == before
    assert asked == [(Mover(None, "first"), Mover(None, "second"))]


def test_of_equal_moves_that_of_the_last_name_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every process, though a set of names has another order in each."""
    sketch = Sketch()
    sketch.register("b", "X10/Y10/SLICEA.FF0", "in")
    for number, column in enumerate(range(11, 20)):
        sketch.table(f"t{number}", f"X{column}/Y10/SLICEA.K0", f"t{number - 1}" if number else "b")
    sketch.register("a", "X20/Y10/SLICEA.FF0", "t8")
    monkeypatch.setattr(
        module, "_best_move", lambda timing, slices, name, limit_ns: module._Move(1.0, {name: slices.site(name)}, {})
    )
    timing = Timing(sketch.module)
    (move,) = module._moves(timing, Slices(timing.cells), timing.paths(1.0), set(), 1.0, 1)
    assert list(move.sites) == ["t8"]


def test_a_table_between_registers_comes() -> None:
    sketch = Sketch()
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    sketch.table("first", "X12/Y10/SLICEA.K0", "a")
    sketch.table("far", "X90/Y80/SLICEA.K0", "first")
    sketch.table("second", "X18/Y10/SLICEA.K0", "far")
    sketch.register("b", "X20/Y10/SLICEA.FF0", "second")
    for column in range(13, 17):
        sketch.table(f"t{column}", f"X{column}/Y10/SLICEA.K0", "in")
    before = sites(sketch)
    assert refine(Timing(sketch.module), mhz=150) == 1
    assert {name for name, site in sites(sketch).items() if site != before[name]} == {"far"}
    assert longest(sketch) < 5.1


def test_a_table_on_the_way_to_two_sides_counts_both() -> None:
    sketch = Sketch()
    sketch.sum("a", "X10/Y10/SLICEA", "in")
    sketch.table("off", "X15/Y60/SLICEA.K0", "a")
    sketch.table("last", "X20/Y10/SLICEB.K0", "off")
    sketch.register("b", "X20/Y10/SLICEA.FF0", "last")
    # Neither of its wires is too long by itself.
    assert 5 < longest(sketch) / 2 < 6
    assert refine(Timing(sketch.module), mhz=110) == 1
    assert longest(sketch) < 4


def test_a_register_does_not_go_where_its_clock_is_not() -> None:
    sketch = line()
    for column in range(11, 20):
        sketch.register(f"r{column}", f"X{column}/Y10/SLICED.FF0", "in", clock="double_clk")
    refine(Timing(sketch.module), mhz=200)
    assert sketch.site("b")[:7] in ("X10/Y10", "X20/Y10")


def test_a_path_of_the_faster_clock_is_the_longer_one() -> None:
    sketch = line(clock="double_clk")
    refine(Timing(sketch.module), mhz=200)
    # As near to its end as there is a tile without another clock.
    assert sketch.site("b") == "X19/Y10/SLICEA.FF0"


def test_a_table_goes_with_its_register() -> None:
    sketch = line()
    sketch.table("logic", "X90/Y80/SLICEA.K0", "a", "b")
    sketch.register("b", "X90/Y80/SLICEA.FF0", "logic", port="DI")
    assert refine(Timing(sketch.module), mhz=200) == 1
    assert sketch.site("logic").split(".")[0] == sketch.site("b").split(".")[0]
    assert longest(sketch) < 2.5
    # Also if others need it.
    shared = line()
    shared.table("logic", "X90/Y80/SLICEA.K0", "a", "b")
    shared.register("b", "X90/Y80/SLICEA.FF0", "logic", port="DI")
    shared.register("d", "X20/Y20/SLICEB.FF0", "logic")
    before = longest(shared)
    assert refine(Timing(shared.module), mhz=200) >= 1
    assert shared.site("logic").split(".")[0] == shared.site("b").split(".")[0]
    assert longest(shared) < before / 2


def test_both_halves_of_a_wide_table_come() -> None:
    sketch = Sketch()
    for name, column in (("a", 10), ("b", 12)):
        sketch.sum(name, f"X{column}/Y10/SLICEA", "in")
    sketch.wide("wide", "X90/Y80/SLICEA", ("a", "b"), "a")
    sketch.register("c", "X20/Y10/SLICEA.FF0", "wide")
    assert refine(Timing(sketch.module), mhz=150) == 1
    assert (sketch.site("wide"), sketch.site("wide_upper")) == ("X20/Y10/SLICEB.K0", "X20/Y10/SLICEB.K1")
    assert longest(sketch) < 3.5


def test_a_wide_table_and_its_register_come_together() -> None:
    """Each alone would only take away from one wire what the other one gets."""
    sketch = Sketch()
    sketch.sum("a", "X10/Y10/SLICEA", "in")
    sketch.wide("wide", "X90/Y10/SLICEA", ("a", "a"), "a")
    sketch.register("b", "X90/Y10/SLICEC.FF0", "wide")
    sketch.sum("c", "X90/Y10/SLICEB", "b")
    for column in range(20, 90, 10):
        sketch.table(f"t{column}", f"X{column}/Y10/SLICEA.K0", "in")
    before = longest(sketch)
    assert refine(Timing(sketch.module), mhz=250) == 1
    assert [sketch.site(name) for name in ("wide", "wide_upper", "b")] == [
        f"X40/Y10/SLICEB.{position}" for position in ("K0", "K1", "FF1")
    ]
    assert longest(sketch) < before - 2.9


def test_registers_behind_one_another_all_come() -> None:
    sketch = Sketch()
    places = [(10, 10), (90, 20), (15, 90), (90, 80), (20, 10)]
    for number, (column, row) in enumerate(places):
        source = f"r{number - 1}" if number else "in"
        sketch.register(f"r{number}", f"X{column}/Y{row}/SLICEA.FF0", source)
    for column in range(11, 20):
        sketch.table(f"t{column}", f"X{column}/Y10/SLICEA.K0", "in")
    before = longest(sketch)
    assert refine(Timing(sketch.module), mhz=400) >= 3
    assert longest(sketch) < before / 2


def test_what_had_no_room_is_asked_again_when_others_have_moved() -> None:
    """The only tile for `late` is one that `early`, of the other clock, has to leave first; its own path is shorter."""
    sketch = Sketch()
    for column, name, source in ((10, "a", "in"), (60, "c", "late")):
        sketch.sum(name, f"X{column}/Y10/SLICEA", source)
        for letter, number in itertools.product("BCD", "01"):
            sketch.register(f"{name}_{letter}{number}", f"X{column}/Y10/SLICE{letter}.FF{number}", "in")
        sketch.register(f"{name}_A", f"X{column}/Y10/SLICEA.FF1", "in")
    sketch.register("late", "X90/Y80/SLICEA.FF0", "a")
    sketch.register("early", "X35/Y10/SLICEA.FF0", "p", clock="double_clk")
    sketch.sum("p", "X30/Y40/SLICEA", "in")
    sketch.sum("q", "X40/Y40/SLICEA", "early")
    sketch.table("room", "X35/Y40/SLICEA.K0", "in")
    assert refine(Timing(sketch.module), mhz=200) == 2
    assert (sketch.site("early"), sketch.site("late")) == ("X35/Y40/SLICEA.FF0", "X35/Y10/SLICEA.FF0")


@pytest.mark.regress
@settings(PATIENT, max_examples=150)
@given(designs(), st.sampled_from([150, 300, 600]))
def test_no_path_gets_longer_than_the_longest_and_all_sites_are_legal(sketch: Sketch, mhz: int) -> None:
    before = copy.deepcopy(sketch)
    moved = refine(Timing(sketch.module), mhz=mhz)
    paths = Timing(sketch.module).paths(0.0), Timing(before.module).paths(0.0)
    if paths[1]:
        assert paths[0][0].delay_ns <= max(paths[1][0].delay_ns, 1000 / mhz) + 1e-9
    assert (moved == 0) == (sites(sketch) == sites(before))
    check_sites(sketch)


def test_a_netlist_without_paths_is_left_alone() -> None:
    sketch = Sketch()
    sketch.table("t", "X1/Y1/SLICEA.K0", "in")
    assert refine(Timing(sketch.module), mhz=100) == 0
    assert refine(Timing(Sketch().module), mhz=100) == 0


@pytest.mark.parametrize("mhz", [50, 150])
def test_the_clock_decides(mhz: int) -> None:
    sketch = line()
    assert bool(refine(Timing(sketch.module), mhz=mhz)) == (mhz == 150)
