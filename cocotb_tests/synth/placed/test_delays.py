"""Delays of cells and wires, and what is read of a cell."""

from __future__ import annotations

import pytest

from cocotb_tests.support.placed_netlists import Sketch
from lutterfly.synth.placed.delays import arcs, net_of, place_of, wire


@pytest.mark.parametrize(
    ("start", "end", "delay"),
    [
        ((10, 10), (10, 10), 0.59),
        # Up to five tiles of each direction count more.
        ((10, 10), (12, 10), 0.59 + 2 * 0.129),
        ((10, 60), (10, 10), 0.59 + 5 * 0.129 + 45 * 0.067),
        ((20, 13), (10, 10), 0.59 + 5 * 0.129 + 5 * 0.067 + 3 * 0.129),
    ],
)
def test_a_wire_takes_longer_the_farther_it_leads(start: tuple[int, int], end: tuple[int, int], delay: float) -> None:
    assert wire(start, "Q", end, "A") == wire(end, "Q", start, "A") == pytest.approx(delay)


@pytest.mark.parametrize(("output", "port"), [("F", "DI"), ("F", "F1"), ("FCO", "FCI"), ("OFX", "FXA")])
def test_a_wire_within_a_tile_takes_no_time(output: str, port: str) -> None:
    assert wire((1, 1), output, (99, 90), port) == 0


def test_a_cell_without_a_site_has_no_place_and_its_wires_no_delay() -> None:
    sketch = Sketch()
    sketch.register("a", "X12/Y7/SLICEB.FF1", "in")
    sketch.register("pad", "", "in")
    assert place_of(sketch.cells["a"]) == (12, 7)
    assert place_of(sketch.cells["pad"]) is None
    assert wire(None, "Q", (99, 90), "A") == wire((99, 90), "Q", None, "A") == 0


def test_a_table_leads_from_each_input_to_its_output() -> None:
    sketch = Sketch()
    sketch.table("t", "X1/Y1/SLICEA.K0", "a", "b")
    assert [(net, *arc) for net, arc in arcs("t", sketch.cells["t"])] == [
        (sketch.net(name), sketch.net("t"), 0.24, "t", port) for name, port in (("a", "A"), ("b", "B"))
    ]
    sketch.register("r", "X1/Y1/SLICEA.FF0", "t")
    assert list(arcs("r", sketch.cells["r"])) == []
    assert (net_of(sketch.cells["r"], "M"), net_of(sketch.cells["r"], "CE")) == (sketch.net("t"), None)


def test_a_carry_takes_less_than_the_way_into_it() -> None:
    sketch = Sketch()
    inputs, outputs = {"A": "a", "M": "m", "FCI": "below"}, {"F": "sum", "FCO": "above"}
    sketch.cell("s", "TRELLIS_COMB", "X1/Y1/SLICEA.K0", inputs, outputs, MODE="CCU2")
    names = {number: name for name, number in sketch.nets.items()}
    # What selects a wider table is no input of a sum.
    assert {(names[net], names[arc.net]): arc.delay for net, arc in arcs("s", sketch.cells["s"])} == {
        ("a", "sum"): 0.24,
        ("a", "above"): 0.45,
        ("below", "sum"): 0.44,
        ("below", "above"): 0.07,
    }
