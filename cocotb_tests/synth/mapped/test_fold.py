"""Logic in front of sums: what a carry cell can take, what has to stay, and that the sums are the same."""

from __future__ import annotations

import copy
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.oracles.exactness import PATIENT
from cocotb_tests.support.tiers import needs_tools
from lutterfly.hdl.parts.pipeline import Platform
from lutterfly.synth import flow
from lutterfly.synth.families import DEVICES
from lutterfly.synth.mapped.fold import fold_terms

AND, NAND, XOR = 0b1000, 0b0111, 0b0110
SUM = f"{0x96AA:016b}"
INPUTS = 6


class Accumulator(wiring.Component):
    """Adds up, from nothing where it is told."""

    BITS = 12

    def __init__(self) -> None:
        super().__init__({"keep": In(1), "term": In(self.BITS), "total": Out(self.BITS)})

    def elaborate(self, platform) -> Module:
        m = Module()
        total = Signal(self.BITS, reset_less=True)
        m.d.sync += total.eq(Mux(self.keep, total, 0) + self.term)
        m.d.comb += self.total.eq(total)
        return m


class Sums:
    """A chain of carry cells with look-up tables in front, in the form of Yosys; inputs are bits 2 to 7."""

    def __init__(self) -> None:
        self.cells: dict[str, Any] = {}
        self.next_bit = 100
        self.outputs: list[int] = []
        self.carry: int | str = "0"

    def cell(self, name: str, kind: str, parameters: dict[str, str], inputs: dict[str, Any], outputs: str) -> list[int]:
        names = outputs.split()
        driven = list(range(self.next_bit, self.next_bit + len(names)))
        self.next_bit += len(names)
        pins = inputs | dict(zip(names, driven, strict=True))
        self.cells[name] = {
            "type": kind,
            "parameters": parameters,
            "port_directions": {port: "output" if port in names else "input" for port in pins},
            "connections": {port: [bit] for port, bit in pins.items()},
        }
        return driven

    def table(self, init: int, *pins: int | str) -> int:
        """A table of a few pins; the others are low."""
        padded = dict(zip("ABCD", [*pins, "0", "0", "0", "0"], strict=False))
        return self.cell(f"lut{self.next_bit}", "LUT4", {"INIT": f"{init:016b}"}, padded, "Z")[0]

    def add(self, halves: list[tuple[int | str, int | str]], *, inverts: bool = False) -> None:
        """A carry cell that adds (or subtracts) two pairs of bits."""
        pins: dict[str, Any] = {"CIN": self.carry}
        for half, (a, b) in zip("01", halves, strict=True):
            pins |= {f"A{half}": a, f"B{half}": b, f"C{half}": "01"[inverts], f"D{half}": "1"}
        parameters = {f"INIT{half}": SUM for half in "01"} | {f"INJECT1_{half}": "NO" for half in "01"}
        *sums, self.carry = self.cell(f"sum{self.next_bit}", "CCU2C", parameters, pins, "S0 S1 COUT")
        self.outputs += sums

    def netlist(self) -> dict[str, Any]:
        ports = {"out": {"direction": "output", "bits": [*self.outputs, self.carry]}}
        return copy.deepcopy({"modules": {"top": {"cells": self.cells, "ports": ports}}})


def values(netlist: dict[str, Any], state: int) -> list[int]:
    """The module's outputs, by the description of both cells in Lattice's FPGA-TN-02203, for a state of its inputs."""
    module = netlist["modules"]["top"]
    drivers = {
        bits[0]: (cell, port)
        for cell in module["cells"].values()
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "output"
    }

    @cache
    def value(bit: int | str) -> int:
        if isinstance(bit, str):
            return int(bit)
        if bit not in drivers:
            return state >> (bit - 2) & 1
        cell, port = drivers[bit]

        def pin(name: str) -> int:
            return value(cell["connections"][name][0])

        def looked_up(name: str, pins: str, half: str = "") -> int:
            table = int(cell["parameters"][name], 2)
            return table >> sum(pin(one + half) << index for index, one in enumerate(pins)) & 1

        if cell["type"] == "LUT4":
            return looked_up("INIT", "ABCD")
        carry = pin("CIN")
        for half in "01":
            passes, begins = looked_up(f"INIT{half}", "ABCD", half), looked_up(f"INIT{half}", "AB", half)
            if port == f"S{half}":
                return passes ^ carry
            carry = carry if passes else begins
        return carry

    return [value(bit) for bit in module["ports"]["out"]["bits"]]


def folded(sums: Sums, expected: int) -> dict[str, Any]:
    """The netlist after folding so many tables, which computes what it did before."""
    before, after = sums.netlist(), sums.netlist()
    assert fold_terms(after) == expected
    assert len(before["modules"]["top"]["cells"]) - len(after["modules"]["top"]["cells"]) == expected
    for state in range(1 << INPUTS):
        assert values(after, state) == values(before, state)
    return after


@pytest.mark.parametrize("inverts", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "gone"),
    [
        ((AND, 2, 3), None, (1, 1)),
        ((AND, 2, 3), (AND, 4, 5), (2, 2)),
        # The second term has to be low where its inputs are: one of them can be, or neither.
        ((NAND, 2, 3), (AND, 4, 5), (2, 1)),
        ((XOR, 2, 3), (XOR, 4, 5), (2, 2)),
        ((NAND, 2, 3), (NAND, 4, 5), (1, 2)),
        ((AND, 2, 3), (NAND, 4, 5), (2, 2)),
        ((AND, 2, 3), (AND, 2, 3), (2, 2)),
        ((0b0001, 2), (AND, 4, 5), (2, 1)),
        ((0x80, 2, 3, 4), (AND, 4, 5), (1, 1)),
        ((0x80, 2, 3, 4), None, (0, 0)),
    ],
)
def test_two_terms_of_two_inputs(first: Any, second: Any, gone: tuple[int, int], *, inverts: bool) -> None:
    sums = Sums()
    pairs = []
    for _ in "01":
        pairs.append((sums.table(*first), sums.table(*second) if second else 7))
    sums.add(pairs, inverts=inverts)
    folded(sums, 2 * gone[inverts])


def test_a_table_that_something_else_needs_stays() -> None:
    sums = Sums()
    table = sums.table(AND, 2, 3)
    sums.add([(table, 4), (table, 5)])
    folded(sums, 1)
    sums.outputs.append(table)
    after = folded(sums, 0)
    assert after == sums.netlist()


def test_both_terms_may_be_of_one_table() -> None:
    sums = Sums()
    table = sums.table(AND, 2, 3)
    sums.add([(table, table), (4, 5)])
    folded(sums, 1)


@pytest.mark.parametrize(
    ("place", "value"), [("INIT0", f"{0x6666:016b}"), ("INJECT1_0", "YES"), ("C0", 4), ("D0", "0")]
)
def test_another_cell_is_left_alone(place: str, value: Any) -> None:
    sums = Sums()
    sums.add([(sums.table(AND, 2, 3), 5), ("0", "0")])
    (carry,) = (cell for cell in sums.cells.values() if cell["type"] == "CCU2C")
    if place in carry["parameters"]:
        carry["parameters"][place] = value
    else:
        carry["connections"][place] = [value]
    netlist = sums.netlist()
    assert fold_terms(netlist) == 0
    assert netlist == sums.netlist()


BITS = st.one_of(st.sampled_from(["0", "1"]), st.integers(2, 1 + INPUTS))
TABLES = st.tuples(st.integers(0, 0xFFFF), st.lists(BITS, min_size=4, max_size=4))


@pytest.mark.regress
@settings(PATIENT, max_examples=300)
@given(data=st.data())
def test_drawn_sums_stay_as_they_are(data: st.DataObject) -> None:
    sums = Sums()
    tables = [sums.table(init, *pins) for init, pins in data.draw(st.lists(TABLES, min_size=1, max_size=6))]
    terms = st.one_of(BITS, st.sampled_from(tables), st.sampled_from(tables))
    for _ in range(data.draw(st.integers(1, 3))):
        pairs = [(data.draw(terms), data.draw(terms)) for _ in "01"]
        sums.add(pairs, inverts=data.draw(st.booleans()))
    sums.outputs += data.draw(st.lists(st.sampled_from(tables), max_size=2))
    before, after = sums.netlist(), sums.netlist()
    gone = fold_terms(after)
    assert gone == len(before["modules"]["top"]["cells"]) - len(after["modules"]["top"]["cells"])
    for state in range(1 << INPUTS):
        assert values(after, state) == values(before, state)


@pytest.mark.regress
@needs_tools
@pytest.mark.parametrize("pumped", [False, True])
def test_an_accumulator_takes_its_mask_along(tmp_path: Path, pumped: bool) -> None:
    """As one does of which multipliers work twice a cycle: it fills its device. Else Yosys' table of each bit stays."""
    platform = Platform(is_pumped=pumped)
    netlist = flow.map_cells(Accumulator(), tmp_path, DEVICES["ecp5-85k"], lambda text: None, platform=platform)
    cells = Counter(cell["type"] for cell in netlist["modules"]["top"]["cells"].values())
    masks = 0 if pumped else Accumulator.BITS
    assert (cells["LUT4"], cells["CCU2C"], cells["TRELLIS_FF"]) == (masks, Accumulator.BITS // 2, Accumulator.BITS)
