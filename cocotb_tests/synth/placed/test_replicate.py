"""Copies of registers that lead to several sides: the same values for all, on shorter ways."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.oracles.exactness import PATIENT
from cocotb_tests.support.placed_netlists import Sketch, check_sites, designs
from lutterfly.hdl.parts.device import HALF_CYCLE
from lutterfly.synth.placed.replicate import replicate
from lutterfly.synth.placed.timing import Timing


def fork(name: str = "b", **more: str) -> Sketch:
    """A register that leads to two ends of the device, beside one of them."""
    sketch = Sketch()
    sketch.sum("a", "X50/Y10/SLICEA", "in")
    sketch.register(name, "X20/Y10/SLICEA.FF0", "a", **more)
    sketch.sum("left", "X10/Y10/SLICEA", name)
    sketch.sum("right", "X90/Y10/SLICEA", name)
    for column in (40, 60, 70):
        sketch.table(f"t{column}", f"X{column}/Y10/SLICEA.K0", "in")
    return sketch


def copies_in(sketch: Sketch) -> dict[str, str]:
    """Each copy, and what it is a copy of."""
    return {name: name.split("$copy")[0] for name in sketch.cells if "$copy" in name}


def longest(sketch: Sketch) -> float:
    return max((path.delay_ns for path in Timing(sketch.module).paths(0.0)), default=0.0)


def test_a_copy_stands_where_it_is_late() -> None:
    sketch = fork()
    before = longest(sketch)
    assert replicate(Timing(sketch.module), mhz=200) == 1
    assert longest(sketch) < before - 1
    ((name, original),) = copies_in(sketch).items()
    assert (original, sketch.site(name)[:7]) == ("b", "X70/Y10")
    nets = {cell: sketch.cells[cell]["connections"] for cell in sketch.cells}
    assert nets[name]["M"] == nets["b"]["M"]
    assert nets["right_sum"]["A"] == nets[name]["Q"] != nets["left_sum"]["A"] == nets["b"]["Q"]
    # What is not a copy stays where it was.
    assert sketch.site("b") == fork().site("b")


def test_what_meets_the_clock_has_no_copy() -> None:
    sketch = fork()
    assert replicate(Timing(sketch.module), mhz=0.99 * 1000 / longest(sketch)) == 0
    assert copies_in(sketch) == {}


def test_a_register_with_one_sink_has_no_copy() -> None:
    sketch = Sketch()
    sketch.sum("a", "X50/Y10/SLICEA", "in")
    sketch.register("b", "X20/Y10/SLICEA.FF0", "a")
    sketch.sum("right", "X90/Y10/SLICEA", "b")
    sketch.table("t", "X60/Y10/SLICEA.K0", "in")
    assert replicate(Timing(sketch.module), mhz=200) == 0


@pytest.mark.parametrize("port", ["CE", "LSR"])
def test_what_a_tile_or_a_slice_shares_comes_from_no_copy(port: str) -> None:
    sketch = Sketch()
    sketch.sum("a", "X50/Y10/SLICEA", "in")
    sketch.register("b", "X20/Y10/SLICEA.FF0", "a")
    sketch.sum("left", "X10/Y10/SLICEA", "b")
    for number in "01":
        sketch.register(f"right_{number}", f"X90/Y10/SLICEA.FF{number}", "in", **{port: "b"})
    sketch.table("t", "X60/Y10/SLICEA.K0", "in")
    assert longest(sketch) > 1000 / 200
    assert replicate(Timing(sketch.module), mhz=200) == 0


def test_a_copy_takes_the_value_of_a_table_from_outside() -> None:
    sketch = fork()
    sketch.sum("enable", "X21/Y10/SLICEA", "in")
    sketch.table("logic", "X20/Y10/SLICEA.K0", "a")
    sketch.register("b", "X20/Y10/SLICEA.FF0", "logic", port="DI", CE="enable")
    replicate(Timing(sketch.module), mhz=200)
    name = next(name for name, original in copies_in(sketch).items() if original == "b")
    cell = sketch.cells[name]
    assert "DI" not in cell["connections"]
    assert cell["connections"]["M"] == [sketch.nets["logic"]]
    assert cell["connections"]["CE"] == [sketch.nets["enable"]]
    assert cell["parameters"]["SD"].strip() == "0"


def test_a_copy_counts_the_way_from_one_made_just_before() -> None:
    """Else the second one stands far from the first one, whose clock is the faster."""
    sketch = Sketch()
    sketch.register("fast", "X0/Y0/SLICEA.FF0", "in", clock="double_clk")
    sketch.register("b", "X0/Y4/SLICEA.FF0", "fast")
    sketch.register("near", "X0/Y3/SLICEA.FF0", "b")
    sketch.register("beside", "X0/Y1/SLICEA.FF0", "fast")
    sketch.register("far", "X19/Y0/SLICEA.FF0", "b")
    sketch.table("t", "X0/Y2/SLICEA.K0", "in")
    before = longest(sketch)
    assert replicate(Timing(sketch.module), mhz=300) >= 1
    assert "fast" in copies_in(sketch).values()
    assert longest(sketch) <= before


def test_what_tells_whose_turn_it_is_has_no_copy() -> None:
    sketch = fork(f"turn.{HALF_CYCLE}")
    assert replicate(Timing(sketch.module), mhz=200) == 0


@pytest.mark.regress
@settings(PATIENT, max_examples=150)
@given(designs(), st.sampled_from([150, 300, 600]))
def test_all_see_what_they_saw_and_no_path_is_longer(sketch: Sketch, mhz: int) -> None:
    before = copy.deepcopy(sketch)
    count = replicate(Timing(sketch.module), mhz=mhz)
    copies = copies_in(sketch)
    assert (len(copies), len(sketch.cells)) == (count, len(before.cells) + count)
    assert longest(sketch) <= max(longest(before), 1000 / mhz) + 1e-9
    # Each copy's net stands for that of what it is a copy of.
    stands_for = {
        sketch.cells[name]["connections"]["Q"][0]: before.cells[original.split("$copy")[0]]["connections"]["Q"][0]
        for name, original in copies.items()
    }
    assert len(stands_for) == count
    for name, cell in sketch.cells.items():
        original = before.cells[copies.get(name, name)]
        seen = {port: [stands_for.get(bit, bit) for bit in bits] for port, bits in cell["connections"].items()}
        if name in copies:
            expected = original["connections"] | {
                "M": original["connections"].get("DI", original["connections"].get("M"))
            }
            expected.pop("DI", None)
            assert seen == expected
        else:
            assert seen == original["connections"]
            assert sketch.site(name) == before.site(name)
    check_sites(sketch)


@pytest.mark.parametrize("mhz", [50, 200])
def test_the_clock_decides(mhz: int) -> None:
    assert replicate(Timing(fork().module), mhz=mhz) == (mhz == 200)
