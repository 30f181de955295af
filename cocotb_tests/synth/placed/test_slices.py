"""Which slices a register may move to."""

from __future__ import annotations

import pytest
from placed_netlists import Sketch

from lutterfly.synth.placed.slices import Site, Slices, table_of
from lutterfly.synth.placed.timing import Timing

HERE = (5, 5)


def free(sketch: Sketch, *, needs_table: bool = False) -> str | None:
    """The slice at ``HERE`` for a register of the clock without a reset."""
    sketch.register("mover", "X1/Y1/SLICEA.FF0", "in")
    return Slices(sketch.cells).free(HERE, "mover", needs_table=needs_table)


def test_the_first_slice_without_a_register() -> None:
    sketch = Sketch()
    sketch.register("a", "X5/Y5/SLICEA.FF0", "in")
    sketch.register("b", "X5/Y5/SLICEB.FF1", "in")
    sketch.table("t", "X5/Y5/SLICEC.K0", "a")
    assert free(sketch) == "C"
    assert free(sketch, needs_table=True) == "D"
    sketch.table("u", "X5/Y5/SLICED.K1", "a")
    assert free(sketch, needs_table=True) == "D"
    sketch.table("v", "X5/Y5/SLICED.K0", "a")
    assert free(sketch, needs_table=True) is None


@pytest.mark.parametrize("more", [{"clock": "double_clk"}, {"LSR": "reset"}])
def test_registers_of_a_tile_share_clock_and_reset(more: dict[str, str]) -> None:
    sketch = Sketch()
    sketch.register("a", "X5/Y5/SLICEA.FF0", "in", **more)
    assert free(sketch) is None


@pytest.mark.parametrize("port", ["M", "FXA", "FXB", "FCI"])
def test_a_table_that_is_part_of_a_wider_one_needs_its_slice(port: str) -> None:
    sketch = Sketch()
    for letter in "ACD":
        sketch.register(letter, f"X5/Y5/SLICE{letter}.FF0", "in")
    sketch.table("t", "X5/Y5/SLICEB.K1", "a")
    assert free(sketch) == "B"
    sketch.table("t", "X5/Y5/SLICEB.K1", "a", **{port: "b"})
    assert free(sketch) is None


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
    slices.move("mover", Site(HERE, "A", "FF0"))
    assert sketch.site("mover") == "X5/Y5/SLICEA.FF0"
    assert slices.tiles[HERE] == {("B", "FF0"): "other", ("A", "FF0"): "mover"}
    assert slices.tiles[1, 1] == {}


def test_a_table_moves_with_its_register_if_it_serves_nothing_else() -> None:
    sketch = Sketch()
    sketch.table("own", "X1/Y1/SLICEA.K0", "in")
    sketch.register("a", "X1/Y1/SLICEA.FF0", "own", port="DI")
    sketch.table("shared", "X1/Y1/SLICEB.K0", "in")
    sketch.register("b", "X1/Y1/SLICEB.FF0", "shared", port="DI")
    sketch.register("c", "X1/Y1/SLICEC.FF0", "shared")
    sketch.table("wide", "X1/Y1/SLICED.K0", "in", M="in")
    sketch.register("d", "X1/Y1/SLICED.FF0", "wide", port="DI")
    timing = Timing(sketch.module)
    tables = {name: table_of(name, timing.cells, timing.drivers, timing.sinks) for name in "abcd"}
    assert tables == {"a": "own", "b": None, "c": None, "d": None}
