"""Which slices a register may move to."""

from __future__ import annotations

import pytest

from cocotb_tests.support.placed_netlists import Sketch
from lutterfly.synth.placed.slices import Mover, Slices, SliceSite, movers_of
from lutterfly.synth.placed.timing import Timing

HERE = (5, 5)


def free(sketch: Sketch, *, needs_table: bool = False, **more: str) -> str | None:
    """The slice at ``HERE`` for a register of the clock without a reset; ``more`` is its enable."""
    sketch.register("mover", "X1/Y1/SLICEA.FF0", "in", **more)
    found = Slices(sketch.cells).free(HERE, Mover("mover", "table" if needs_table else None))
    if found is None:
        return None
    position = found["mover"].position[-1]
    letter = found["mover"].slice
    wanted = {"mover": f"FF{position}"} | ({"table": f"K{position}"} if needs_table else {})
    assert found == {name: SliceSite(HERE, letter, site) for name, site in wanted.items()}
    return letter + position


def test_the_first_slice_with_room() -> None:
    sketch = Sketch()
    sketch.register("a", "X5/Y5/SLICEA.FF0", "in")
    assert free(sketch) == "A1"
    assert free(sketch, needs_table=True) == "A1"
    sketch.register("a1", "X5/Y5/SLICEA.FF1", "in")
    sketch.register("b", "X5/Y5/SLICEB.FF1", "in", CE="enable")
    sketch.table("t", "X5/Y5/SLICEC.K0", "a")
    assert free(sketch) == "C0"
    assert free(sketch, needs_table=True) == "C1"
    sketch.table("t1", "X5/Y5/SLICEC.K1", "a")
    sketch.table("u", "X5/Y5/SLICED.K1", "a")
    assert free(sketch, needs_table=True) == "D0"
    sketch.table("v", "X5/Y5/SLICED.K0", "a")
    assert free(sketch, needs_table=True) is None


def test_registers_of_a_slice_share_their_enable() -> None:
    sketch = Sketch()
    sketch.register("a", "X5/Y5/SLICEA.FF1", "in", CE="enable")
    assert free(sketch) == "B0"
    assert free(sketch, CE="other") == "B0"
    assert free(sketch, CE="enable") == "A0"
    sketch.cells["a"]["parameters"]["CEMUX"] = "INV"
    assert free(sketch, CE="enable") == "B0"


def test_a_table_for_itself_goes_to_any_free_table() -> None:
    sketch = Sketch()
    table = Mover(None, "t")
    sketch.register("a", "X5/Y5/SLICEA.FF0", "in", clock="double_clk", LSR="reset")
    assert Slices(sketch.cells).free(HERE, table) == {"t": SliceSite(HERE, "A", "K0")}
    for number, letter in enumerate("ABCD"):
        sketch.table(f"k{number}", f"X5/Y5/SLICE{letter}.K0", "a")
    assert Slices(sketch.cells).free(HERE, table) == {"t": SliceSite(HERE, "A", "K1")}
    for number, letter in enumerate("ABC"):
        sketch.table(f"l{number}", f"X5/Y5/SLICE{letter}.K1", "a")
    sketch.table("k3", "X5/Y5/SLICED.K0", "a", M="b")
    assert Slices(sketch.cells).free(HERE, table) is None


@pytest.mark.parametrize("more", [{"clock": "double_clk"}, {"LSR": "reset"}])
def test_registers_of_a_tile_share_clock_and_reset(more: dict[str, str]) -> None:
    sketch = Sketch()
    sketch.register("a", "X5/Y5/SLICEA.FF0", "in", **more)
    assert free(sketch) is None


@pytest.mark.parametrize("port", ["M", "FXA", "FXB", "FCI"])
def test_a_table_that_is_part_of_a_wider_one_needs_its_slice(port: str) -> None:
    sketch = Sketch()
    for letter in "ACD":
        sketch.register(letter, f"X5/Y5/SLICE{letter}.FF0", "in", CE="enable")
    sketch.table("t", "X5/Y5/SLICEB.K1", "a")
    assert free(sketch, needs_table=True) == "B0"
    sketch.table("t", "X5/Y5/SLICEB.K1", "a", **{port: "b"})
    assert free(sketch, needs_table=True) is None
    # A register without a table has an input of its own in each half.
    assert free(sketch) == "B0"
    sketch.register("b", "X5/Y5/SLICEB.FF0", "in")
    assert free(sketch) == (None if port == "M" else "B1")


def test_a_table_of_five_inputs_needs_a_whole_slice() -> None:
    sketch = Sketch()
    sketch.register("a", "X5/Y5/SLICEA.FF1", "in")
    sketch.table("b", "X5/Y5/SLICEB.K0", "in")
    sketch.table("c", "X5/Y5/SLICEC.K1", "in")
    mover = Mover(None, "lower", "upper")
    halves = {"lower": SliceSite(HERE, "D", "K0"), "upper": SliceSite(HERE, "D", "K1")}
    assert Slices(sketch.cells).free(HERE, mover) == halves
    # Its register comes in by the input that the select leaves.
    sketch.register("e", "X1/Y1/SLICEA.FF0", "lower")
    assert Slices(sketch.cells).free(HERE, mover._replace(register="e")) == halves | {"e": SliceSite(HERE, "D", "FF1")}
    sketch.register("d", "X5/Y5/SLICED.FF0", "in", clock="double_clk")
    assert Slices(sketch.cells).free(HERE, mover) is None


def test_a_tile_with_a_memory_is_left_alone() -> None:
    sketch = Sketch()
    sketch.cell("memory", "TRELLIS_COMB", "X5/Y5/SLICEA.K0", {"A": "a"}, {"F": "word"}, MODE="DPRAM")
    assert free(sketch) is None
    sketch.cell("memory", "TRELLIS_RAMW", "X5/Y5/SLICEC.RAMW", {"A0": "a"}, {"WADO0": "word"})
    assert free(sketch) is None


def test_a_site_is_taken_and_left() -> None:
    sketch = Sketch()
    sketch.register("other", "X5/Y5/SLICEB.FF0", "in")
    sketch.register("mover", "X1/Y1/SLICEA.FF0", "in")
    slices = Slices(sketch.cells)
    assert slices.site("mover") == ((1, 1), "A", "FF0")
    slices.move("mover", SliceSite(HERE, "A", "FF0"))
    assert sketch.site("mover") == "X5/Y5/SLICEA.FF0"
    assert slices.tiles[HERE] == {("B", "FF0"): "other", ("A", "FF0"): "mover"}
    assert slices.tiles[1, 1] == {}


def test_what_moves_together() -> None:
    sketch = Sketch()
    sketch.table("own", "X1/Y1/SLICEA.K0", "in")
    sketch.register("a", "X1/Y1/SLICEA.FF0", "own", port="DI")
    sketch.table("shared", "X1/Y1/SLICEB.K0", "in")
    sketch.register("b", "X1/Y1/SLICEB.FF0", "shared", port="DI")
    sketch.register("c", "X1/Y1/SLICEC.FF0", "shared")
    sketch.table("wide", "X1/Y1/SLICED.K0", "in", M="in")
    sketch.register("d", "X1/Y1/SLICED.FF0", "wide", port="DI")
    sketch.register("e", "X1/Y2/SLICEA.FF0", "in")
    sketch.table("plain", "X1/Y2/SLICEB.K0", "a", "b")
    sketch.wide("lower", "X1/Y2/SLICEC", ("plain", "upper"), "b")
    sketch.wide("wider", "X1/Y2/SLICED", ("other", "more"), "b")
    sketch.register("f", "X1/Y5/SLICEA.FF0", "lower")
    sketch.register("g", "X1/Y5/SLICEB.FF0", "twice")
    sketch.wide("twice", "X1/Y5/SLICEC", ("plain", "upper"), "b")
    sketch.table("again", "X1/Y5/SLICED.K0", "twice")
    # Of which something else needs a half.
    sketch.wide("open", "X1/Y6/SLICEA", ("plain", "upper"), "b")
    sketch.table("beside", "X1/Y6/SLICEB.K0", "open_upper")
    sketch.cell("widest", "TRELLIS_COMB", "X1/Y4/SLICED.K1", {"FXA": "wider"}, {"OFX": "wide_output"}, MODE="LOGIC")
    sketch.cell("memory", "TRELLIS_COMB", "X1/Y3/SLICEA.K0", {"A": "a"}, {"F": "word"}, MODE="DPRAM")
    sketch.cell("block", "DP16KD", "X2/Y4", {"CLKA": "clk"}, {"DOA0": "data"})
    timing = Timing(sketch.module)
    movers = {name: movers_of(name, timing) for name in sketch.cells}
    lower, lower_register = Mover(None, "lower", "lower_upper"), Mover("f", "lower", "lower_upper")
    twice = Mover(None, "twice", "twice_upper")
    assert {name: found for name, found in movers.items() if found} == {
        # A table moves with the register in its slice, whoever else needs it.
        "own": [Mover("a", "own")],
        "a": [Mover("a", "own")],
        "shared": [Mover("b", "shared")],
        "b": [Mover("b", "shared")],
        "c": [Mover("c", None)],
        "e": [Mover("e", None)],
        "plain": [Mover(None, "plain")],
        # A table of five inputs may bring the register that it leads to, if it leads to nothing else.
        "lower": [lower, lower_register],
        "lower_upper": [lower, lower_register],
        "f": [Mover("f", None), lower_register],
        "twice": [twice],
        "twice_upper": [twice],
        "g": [Mover("g", None)],
        "again": [Mover(None, "again")],
        "beside": [Mover(None, "beside")],
    }
