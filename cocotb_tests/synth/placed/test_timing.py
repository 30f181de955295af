"""The estimate of paths between placed cells, against sums by hand."""

from __future__ import annotations

import pytest

from cocotb_tests.support.placed_netlists import Sketch
from lutterfly.synth.placed.timing import Timing

#: Of a register, of a wire over so many columns or rows up to 5, and of those beyond, all in ns.
REGISTER, LEAST, NEAR, FAR, TABLE = 0.6, 0.59, 0.129, 0.067, 0.24
M, LSR, CE = 0.1, 0.4, 0.1


def delays(sketch: Sketch) -> dict[tuple[str, str], float]:
    """Of the longest path to each end that is reached from a register."""
    return {(path.start, path.end): path.delay_ns for path in reversed(Timing(sketch.module).paths(0.0))}


def test_a_wire_takes_longer_the_farther_it_leads() -> None:
    sketch = Sketch()
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    sketch.register("b", "X20/Y13/SLICEA.FF0", "a")
    sketch.register("c", "X20/Y13/SLICEB.FF0", "b")
    found = delays(sketch)
    assert found["a", "b"] == pytest.approx(REGISTER + LEAST + 8 * NEAR + 5 * FAR + M)
    assert found["b", "c"] == pytest.approx(REGISTER + LEAST + M)
    assert Timing(sketch.module).paths(2.0)[0][1:] == ("a", "b", sketch.net("a"))
    assert len(Timing(sketch.module).paths(2.0)) == 1


def test_tables_add_up_and_the_longest_path_counts() -> None:
    sketch = Sketch()
    sketch.register("near", "X10/Y10/SLICEB.FF0", "in")
    sketch.register("far", "X10/Y60/SLICEB.FF0", "in")
    sketch.table("t", "X10/Y10/SLICEA.K0", "near", "far")
    sketch.register("end", "X10/Y10/SLICEA.FF0", "t", port="DI", LSR="far", CE="near")
    timing, found = Timing(sketch.module), delays(sketch)
    wire = LEAST + 5 * NEAR + 45 * FAR
    # The wire from a table to the register of its slice is none.
    assert found == {
        ("far", "end"): pytest.approx(REGISTER + wire + LSR),
        ("near", "end"): pytest.approx(REGISTER + LEAST + CE),
    }
    through = max(path for path in timing.paths(0.0) if path.delay_ns < found["far", "end"])
    assert through.start == "far"
    assert through.delay_ns == pytest.approx(REGISTER + wire + TABLE)
    assert timing.left_from(sketch.net("far"), (10, 10)) == pytest.approx(LEAST + LSR)


def test_both_halves_of_a_wider_table_count() -> None:
    sketch = Sketch()
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    sketch.table("upper", "X10/Y10/SLICEB.K1", "a")
    sketch.cell("lower", "TRELLIS_COMB", "X10/Y10/SLICEB.K0", {"A": "in", "F1": "upper", "M": "in"}, {"OFX": "wide"})
    sketch.register("end", "X10/Y10/SLICEC.FF0", "wide")
    assert delays(sketch) == {("a", "end"): pytest.approx(REGISTER + 2 * (LEAST + TABLE) + M)}


def test_the_tables_of_a_path() -> None:
    sketch = Sketch()
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    sketch.register("fast", "X10/Y10/SLICEB.FF0", "in", clock="double_clk")
    sketch.table("first", "X10/Y10/SLICEC.K0", "a", "fast")
    sketch.table("far", "X40/Y10/SLICEC.K0", "first")
    sketch.table("last", "X10/Y10/SLICEC.K1", "first", "far")
    sketch.register("end", "X10/Y10/SLICED.FF0", "last", port="DI")
    timing = Timing(sketch.module)
    (path,) = timing.paths(0.0)
    assert (path.start, timing.tables(path)) == ("fast", ["last", "far", "first"])


def test_a_loop_of_tables_ends_where_it_comes_again() -> None:
    sketch = Sketch()
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    for name, other, column in (("one", "other", 10), ("other", "one", 80)):
        sketch.table(name, f"X{column}/Y10/SLICEC.K0", "a", other)
    sketch.register("end", "X10/Y10/SLICED.FF0", "one")
    timing = Timing(sketch.module)
    (path,) = timing.paths(0.0)
    assert timing.tables(path) == ["one", "other"]


def test_a_path_of_the_faster_clock_counts_twice() -> None:
    sketch = Sketch()
    sketch.register("slow", "X10/Y10/SLICEA.FF0", "in")
    sketch.register("fast", "X20/Y10/SLICEA.FF0", "slow", clock="double_clk")
    sketch.register("held", "X30/Y10/SLICEA.FF0", "fast", clock="double_clk", CE="enable")
    sketch.register("back", "X40/Y10/SLICEA.FF0", "held")
    found, wire = delays(sketch), LEAST + 5 * NEAR + 5 * FAR
    assert found["slow", "fast"] == pytest.approx(REGISTER + wire + M)
    assert found["fast", "held"] == pytest.approx(2 * (REGISTER + wire + M))
    # With an enable it changes with edges of the slower one.
    assert found["held", "back"] == pytest.approx(REGISTER + wire + M)
    assert Timing(sketch.module).clocks == {sketch.net("clk"), sketch.net("double_clk")}


@pytest.mark.parametrize(
    ("kind", "parameters", "port", "start"),
    [
        ("DP16KD", {"REGMODE_A": "OUTREG"}, "DOA0", 0.6),
        ("DP16KD", {"REGMODE_A": "NOREG", "REGMODE_B": "NOREG"}, "DOA0", 5.7),
        ("MULT18X18D", {"REG_OUTPUT_CLK": "CLK0"}, "P0", 0.6),
        ("MULT18X18D", {}, "P0", 3.5),
    ],
)
def test_blocks_are_slow_without_their_registers(kind: str, parameters: dict, port: str, start: float) -> None:
    sketch = Sketch()
    clock = "CLKA" if kind == "DP16KD" else "CLK0"
    sketch.cell("block", kind, "X10/Y10/EBR0", {clock: "clk", "A0": "end"}, {port: "block"}, **parameters)
    sketch.register("end", "X10/Y10/SLICEA.FF0", "block")
    assert delays(sketch) == {
        ("block", "end"): pytest.approx(start + LEAST + M),
        ("end", "block"): pytest.approx(REGISTER + LEAST + 0.3),
    }


def test_carries_are_fast_and_sums_are_not() -> None:
    sketch = Sketch()
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    sketch.cell("low", "TRELLIS_COMB", "X11/Y10/SLICEA.K0", {"A": "a"}, {"FCO": "carry"}, MODE="CCU2")
    sketch.cell("mid", "TRELLIS_COMB", "X11/Y10/SLICEA.K1", {"FCI": "carry"}, {"FCO": "more"}, MODE="CCU2")
    sketch.cell("high", "TRELLIS_COMB", "X12/Y10/SLICEA.K0", {"FCI": "more"}, {"F": "sum"}, MODE="CCU2")
    sketch.register("end", "X12/Y10/SLICEA.FF0", "sum", port="DI")
    assert delays(sketch) == {("a", "end"): pytest.approx(REGISTER + LEAST + NEAR + 0.45 + 0.07 + 0.44)}


def test_what_a_table_keeps_is_an_end_and_loops_are_none() -> None:
    sketch = Sketch()
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    sketch.cell(
        "memory", "TRELLIS_COMB", "X10/Y10/SLICEB.K0", {"WD": "a", "A": "a", "WCK": "clk"}, {"F": "word"}, MODE="DPRAM"
    )
    sketch.table("one", "X10/Y10/SLICEC.K0", "other", "word")
    sketch.table("other", "X10/Y10/SLICEC.K1", "one")
    sketch.register("end", "X10/Y10/SLICED.FF0", "other")
    assert delays(sketch) == {("a", "memory"): pytest.approx(REGISTER + LEAST)}


def test_a_table_that_nothing_reads_is_no_end_and_a_net_that_nothing_drives_no_loop() -> None:
    sketch = Sketch()
    sketch.register("a", "X10/Y10/SLICEA.FF0", "in")
    sketch.table("dead", "X80/Y10/SLICEA.K0", "in", "a")
    sketch.register("end", "X10/Y10/SLICEB.FF0", "a")
    timing = Timing(sketch.module)
    assert timing.left_from(sketch.net("a"), (10, 10)) == pytest.approx(LEAST + M)
    assert timing.through(sketch.net("a"), ("dead", "B"), (10, 10)) == 0
