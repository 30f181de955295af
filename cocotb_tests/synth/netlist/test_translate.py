# amaranth: UnusedElaboratable=no
"""Mapped components do what they did before they were mapped; tables are expressions, and unknown cells are refused."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module, Shape, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from cocotb_tests.support.tiers import needs_gowin, needs_tools, sweep
from lutterfly.hdl.parts.device import Multiplier, Ram, Rom
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.synth import flow
from lutterfly.synth.families import DEVICES
from lutterfly.synth.netlist import ECP5, GW5A, Library, NetlistError, netlist_verilog
from lutterfly.synth.netlist.translate import HIGH, LOW, check, halves, look_up, setting

STEPS = 2000


class Fabric(wiring.Component):
    """Look-up tables with multiplexers, carries, distributed RAM, registers with enable, reset and a first value."""

    def __init__(self):
        outputs = {"total": Out(12), "count": Out(9), "chosen": Out(1), "found": Out(4), "held": Out(3, init=5)}
        super().__init__({"a": In(12), "b": In(12), "enable": In(1), **outputs})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.storage = storage = memory.Memory(shape=4, depth=16, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        m.d.comb += [write.addr.eq(self.a), write.data.eq(self.b), write.en.eq(self.enable), read.addr.eq(self.b)]
        m.d.sync += [self.total.eq(self.a + self.b), self.found.eq(read.data)]
        m.d.sync += self.chosen.eq((self.a[:8] ^ self.b[:8] & self.a[4:]).bit_select(self.b[8:11], 1))
        with m.If(~self.enable):
            m.d.sync += self.held.eq(self.a)
        with m.If(self.enable):
            m.d.sync += self.count.eq(self.count - 3)
        with m.Elif(self.a == 5):
            m.d.sync += self.count.eq(77)
        return m


class Product(wiring.Component):
    """A product with one register after it, whose reset a multiplier of the device could not tell from none."""

    def __init__(self, *, has_reset: bool):
        self.has_reset = has_reset
        super().__init__({"a": In(16), "b": In(16), "product": Out(32)})

    def elaborate(self, platform) -> Module:
        m = Module()
        a, b = (Signal.like(value, reset_less=True) for value in (self.a, self.b))
        product = Signal(32, reset_less=not self.has_reset)
        m.d.sync += [a.eq(self.a), b.eq(self.b), product.eq(a * b)]
        m.d.comb += self.product.eq(product)
        return m


class ExtendedProduct(wiring.Component):
    """A signed product that is added to more bits than it has."""

    def __init__(self):
        super().__init__({"a": In(signed(8)), "b": In(signed(10)), "total": Out(24)})

    def elaborate(self, platform) -> Module:
        m = Module()
        a, b = (Signal.like(value, reset_less=True) for value in (self.a, self.b))
        product = Signal(signed(24), reset_less=True)
        m.d.sync += [a.eq(self.a), b.eq(self.b), product.eq(a * b), self.total.eq(self.total + product)]
        return m


WORDS = [(number * number * 40503) & 0x3FFFF for number in range(1024)]
COMPONENTS = {
    "bytes": (lambda: Ram(width=32, depth=1024, granularity=8), {"DP16KD": 2}, "OUTREG"),
    "words": (lambda: Ram(width=18, depth=1024), {"DP16KD": 1}, "OUTREG"),
    "narrow": (lambda: Ram(width=4, depth=4096), {"DP16KD": 1}, "OUTREG"),
    "wide": (lambda: Ram(width=36, depth=512), {"DP16KD": 1}, "NOREG"),
    "rom": (lambda: Rom(width=18, words=WORDS, is_block=True), {"DP16KD": 1}, "NOREG"),
    "signed": (lambda: Multiplier(a_width=9, b_width=18), {"MULT18X18D": 1}, "CLK0"),
    "signed bytes": (lambda: Multiplier(a_width=8, b_width=8), {"MULT18X18D": 1}, "CLK0"),
    "extended": (ExtendedProduct, {"MULT18X18D": 1}, "CLK0"),
    "unsigned": (lambda: Multiplier(a_width=18, b_width=18, is_signed=False), {"MULT18X18D": 1}, "CLK0"),
    "short": (lambda: Product(has_reset=False), {"MULT18X18D": 1}, "CLK0"),
    "reset": (lambda: Product(has_reset=True), {"MULT18X18D": 1, "TRELLIS_FF": 32}, None),
    "fabric": (Fabric, {"CCU2C": 6, "TRELLIS_DPR16X4": 1, "TRELLIS_FF": 20}, ""),
}


def ports_of(component: wiring.Component) -> dict[str, tuple[str, int]]:
    return {
        path[0]: ("input" if member.flow is In else "output", Shape.cast(member.shape).width)
        for path, member, _ in component.signature.flatten(component)
    }


def side_by_side(component: wiring.Component, netlist: dict, library: Library) -> str:
    """A module ``dut`` with both, and the outputs of each."""
    ports = ports_of(component)
    inputs = {name: width for name, (direction, width) in ports.items() if direction == "input"}
    outputs = {name: width for name, (direction, width) in ports.items() if direction == "output"}
    declared = ["input clk, rst", *(f"input [{width - 1}:0] {name}" for name, width in inputs.items())]
    declared += [f"output [{width - 1}:0] {name}_{side}" for name, width in outputs.items() for side in ("is", "was")]
    lines = [f"module dut({', '.join(declared)});"]
    texts = {
        "mapped": netlist_verilog(netlist, library, name="mapped"),
        "generic": to_verilog(component, name="generic"),
    }
    for side, (name, text) in zip(("is", "was"), texts.items(), strict=True):
        # Without anything to reset there is no such port.
        given = ["clk", *(["rst"] if re.search(r"^  input rst;", text, re.MULTILINE) else []), *inputs]
        pins = [f".{port}({port})" for port in given] + [f".{port}({port}_{side})" for port in outputs]
        lines.append(f"  {name} {side}_one({', '.join(pins)});")
    return "".join(texts.values()) + "\n".join(lines) + "\nendmodule\n"


@pytest.mark.regress
@needs_tools
@pytest.mark.parametrize("name", sweep(COMPONENTS, kept=("wide", "rom", "reset")))
def test_a_mapped_component(simulate, name: str, tmp_path: Path) -> None:
    make, expected, mode = COMPONENTS[name]
    netlist = flow.map_cells(make(), tmp_path, DEVICES["ecp5-85k"], lambda text: None)
    cells = list(netlist["modules"]["top"]["cells"].values())
    counts = Counter(cell["type"] for cell in cells)
    assert all(counts[kind] >= count for kind, count in expected.items()), counts
    for cell in cells:
        # What is tested is there: registers in the blocks, or left out of them.
        parameters = cell["parameters"]
        assert cell["type"] not in ("DP16KD", "MULT18X18D") or mode in (
            parameters.get("REGMODE_B"),
            parameters.get("REG_OUTPUT_CLK"),
        )
    component = make()
    environment = {"PORTS": json.dumps(ports_of(component)), "IS_RAM": str(int(isinstance(component, Ram)))}
    simulate(side_by_side(component, netlist, ECP5), env=environment)


#: What the components become on a GW5A; their Verilog beside that has the generic bodies.
OF_GW5A = {
    "bytes": {"DPX9B": 2},
    "words": {"DPX9B": 1},
    "narrow": {"DPB": 1},
    "wide": {"SDPX9B": 1},
    "signed": {"MULT27X36": 1},
    "signed bytes": {"MULT12X12": 1},
    "unsigned": {"MULT27X36": 1},
    "fabric": {"ALU": 12, "RAM16SDP4": 1, "DFFRE": 20},
}


@pytest.mark.regress
@needs_gowin
@pytest.mark.parametrize("name", OF_GW5A)
def test_a_component_mapped_for_a_gw5a(simulate, name: str, tmp_path: Path) -> None:
    component, device = COMPONENTS[name][0](), DEVICES["gw5a-138"]
    netlist = flow.map_cells(component, tmp_path, device, lambda text: None)
    counts = Counter(cell["type"] for cell in netlist["modules"]["top"]["cells"].values())
    assert all(counts[kind] >= count for kind, count in OF_GW5A[name].items()), counts
    environment = {"PORTS": json.dumps(ports_of(component)), "IS_RAM": str(int(isinstance(component, Ram)))}
    simulate(side_by_side(component, netlist, GW5A), env=environment)


@cocotb.test
async def both_do_the_same(dut) -> None:
    rng, ports = np.random.default_rng(3), json.loads(os.environ["PORTS"])
    dut.clk.value = 0
    for step in range(STEPS):
        values = {}
        for name, (direction, width) in ports.items():
            if direction == "input":
                most = (1 << width) - 1
                values[name] = int(rng.choice([0, most, most >> 1, int(rng.integers(0, 1 << width)), 5 & most]))
        if os.environ["IS_RAM"] == "1":
            # Few words, so that what is written is read; not the one that is being written, which is undefined.
            for name in ("read_address", "write_address"):
                values[name] = int(rng.integers(8))
            if values["read_address"] == values["write_address"]:
                values["write_enable"] = 0
        dut.rst.value = int(step < 2 or rng.random() < 0.02)
        for name, value in values.items():
            getattr(dut, name).value = value
        await Timer(5, unit="ns")
        dut.clk.value = 1
        await Timer(5, unit="ns")
        dut.clk.value = 0
        for name, (direction, _) in ports.items():
            if direction == "output":
                found, expected = (getattr(dut, f"{name}_{side}").value for side in ("is", "was"))
                assert found == expected, (step, name, values)


# What no model describes is refused, by the cell's name.

RAM_PINS: dict[str, list[int | str]] = {"CLKA": [2], "CLKB": [2], "WEB": ["0"], "RSTA": ["0"], "CSA0": ["0"]}


def cell(kind: str, parameters: dict[str, str], pins: dict[str, list[int | str]] | None = None) -> dict[str, Any]:
    return {"type": kind, "parameters": parameters, "connections": pins or {}}


@pytest.mark.parametrize(
    ("kind", "parameters", "pins", "wrong"),
    [
        ("TRELLIS_FF", {"CLKMUX": "INV"}, {}, "CLKMUX must be CLK, not INV"),
        ("TRELLIS_FF", {"CEMUX": "0 "}, {}, "CEMUX must be 1 or CE or INV, not 0"),
        ("TRELLIS_FF", {"GSR": "ENABLED"}, {}, "GSR must be DISABLED, not ENABLED"),
        ("TRELLIS_FF", {"SRMODE": "CE_OVER_LSR"}, {}, "SRMODE must be ASYNC or LSR_OVER_CE, not CE_OVER_LSR"),
        ("TRELLIS_FF", {"LSRMODE": "PRLD"}, {}, "LSRMODE must be left out, not PRLD"),
        ("CCU2C", {"INJECT1_0": "MAYBE"}, {}, "INJECT1_0 must be NO or YES, not MAYBE"),
        ("MULT18X18D", {"REG_OUTPUT_CLK": "CLK1"}, {}, "REG_OUTPUT_CLK must be CLK0 or NONE, not CLK1"),
        ("MULT18X18D", {"CLK0_DIV": "DISABLED"}, {}, "CLK0_DIV must be ENABLED, not DISABLED"),
        ("MULT18X18D", {"MULT_BYPASS": "ENABLED"}, {}, "MULT_BYPASS must be left out, not ENABLED"),
        ("MULT18X18D", {}, {"SOURCEA": ["1"]}, "SOURCEA must be tied to 0"),
        ("DP16KD", {"DATA_WIDTH_A": f"{12:b}"}, RAM_PINS, "DATA_WIDTH_A must be 1 or 18 or 2 or 36 or 4 or 9, not 12"),
        ("DP16KD", {"CSDECODE_A": "0b001"}, RAM_PINS, "CSDECODE_A must be 0b000, not 0b001"),
        ("DP16KD", {"REGMODE_B": "LATCH"}, RAM_PINS, "REGMODE_B must be NOREG or OUTREG, not LATCH"),
        ("DP16KD", {}, RAM_PINS | {"RSTA": [7]}, "RSTA must be tied to 0"),
        ("DP16KD", {}, RAM_PINS | {"CLKB": [3]}, "CLKB must be CLKA's net"),
        ("DP16KD", {"DATA_WIDTH_A": f"{36:b}"}, RAM_PINS | {"WEB": [9]}, "WEB must be tied to 0 where port A writes"),
        ("DP16KD", {"DATA_WIDTH_B": f"{36:b}"}, RAM_PINS, "DATA_WIDTH_A must be 36 where DATA_WIDTH_B is, not 18"),
        (
            "DP16KD",
            {"DATA_WIDTH_A": f"{36:b}", "DATA_WIDTH_B": f"{36:b}", "REGMODE_B": "OUTREG"},
            RAM_PINS,
            "REGMODE_A must be REGMODE_B where DATA_WIDTH_B is 36, not NOREG",
        ),
        ("EHXPLLL", {"FEEDBK_PATH": "INT_OP"}, {}, "FEEDBK_PATH must be CLKOP, not INT_OP"),
    ],
)
def test_settings_that_are_not_described(kind: str, parameters: dict[str, str], pins: dict, wrong: str) -> None:
    with pytest.raises(NetlistError, match=rf"^one: {wrong}.*: the model of {kind} describes nothing else$"):
        check("one", cell(kind, parameters, pins), ECP5)


@pytest.mark.parametrize("kind", ECP5.cells)
def test_defaults_are_described(kind: str) -> None:
    check("one", cell(kind, {}, RAM_PINS if kind == "DP16KD" else {}), ECP5)


REGISTERED = {f"{name}REG_CLK": "CLK0" for name in "ABPO"}


@pytest.mark.parametrize(
    ("kind", "parameters", "pins", "wrong"),
    [
        ("ALU", {"ALU_MODE": f"{9:032b}"}, {}, "ALU_MODE must be"),
        ("DPX9B", {"BIT_WIDTH_0": f"{8:032b}"}, {}, "BIT_WIDTH_0 must be"),
        ("DPX9B", {"READ_MODE1": "1"}, {}, "READ_MODE1 must be 0, not 1"),
        ("DPX9B", {"WRITE_MODE0": f"{2:032b}"}, {}, "WRITE_MODE0 must be"),
        ("SDPX9B", {"INIT_RAM_3F": "0010"}, {}, "INIT_RAM_3F must be zero"),
        ("SDPX9B", {}, {"CLKA": [2], "CLKB": [3]}, "CLKB must be CLKA's net"),
        ("SDPX9B", {}, {"RESET": [3]}, "RESET must be tied to 0"),
        ("MULT12X12", {}, {}, "AREG_CLK must be CLK0"),
        ("MULT12X12", REGISTERED | {"OREG_CLK": "BYPASS"}, {}, "OREG_CLK must be CLK0, not BYPASS"),
        ("MULT27X36", REGISTERED, {"PSEL": [4]}, "PSEL must be tied to 0"),
    ],
)
def test_settings_of_a_gw5a_that_are_not_described(
    kind: str, parameters: dict[str, str], pins: dict, wrong: str
) -> None:
    with pytest.raises(NetlistError, match=rf"^one: {wrong}.*: the model of {kind} describes nothing else$"):
        check("one", cell(kind, parameters, pins), GW5A)


def test_other_cells_are_refused() -> None:
    netlist = {"modules": {"top": {"ports": {}, "cells": {"sum": cell("ALU54B", {})}}}}
    with pytest.raises(NetlistError, match=r"^sum: type must be one of LUT4, .*, not ALU54B; add a model of it$"):
        netlist_verilog(netlist, ECP5)


def test_words_that_look_like_bits() -> None:
    assert setting(cell("TRELLIS_FF", {"CEMUX": "1 "}), "CEMUX") == "1"


# Look-up tables as expressions, with every input at every level.

NAMES = ("a", "b", "c", "d")


def value_of(expression: str, levels: dict[str, int]) -> int:
    """The lowest bit of Verilog that Python understands once numbers and concatenations are written its way."""
    for name, number in (("8'h", "0x"), ("16'h", "0x"), (HIGH, "1"), (LOW, "0")):
        expression = expression.replace(name, number) if "'" in name else expression
    if "{" in expression:
        table, _, inputs = expression.partition(" >> ")
        bits = [levels[name] for name in inputs.strip("{}").split(", ")]
        expression = f"{table} >> {int(''.join(map(str, bits)), 2)}"
    return eval(expression, {}, levels) & 1


@pytest.mark.parametrize("count", range(5))
def test_every_entry_of_a_table(count: int) -> None:
    entries = 1 << count
    tables = range(1 << entries) if count < 4 else np.random.default_rng(1).integers(0, 1 << 16, 200).tolist()
    for table in (*tables, (1 << entries) - 1, 0):
        expression = look_up(table, NAMES[:count])
        for number in range(entries):
            levels = {name: number >> index & 1 for index, name in enumerate(NAMES[:count])}
            assert value_of(expression, levels) == table >> number & 1, (table, expression, levels)


@pytest.mark.parametrize("table", [0xCA53, 0x8000, 0x6996, 0xFF00])
def test_levels_are_taken_in(table: int) -> None:
    for inputs in itertools.product((LOW, HIGH, "net"), repeat=4):
        names = [f"{NAMES[index]}" if one == "net" else one for index, one in enumerate(inputs)]
        expression = look_up(table, names)
        free = [name for name in names if name in NAMES]
        for levels in itertools.product((0, 1), repeat=len(free)):
            known = dict(zip(free, levels, strict=True))
            number = sum(
                (known[name] if name in known else int(name == HIGH)) << index for index, name in enumerate(names)
            )
            assert value_of(expression, known) == table >> number & 1, (names, expression)


def test_an_input_that_does_not_matter_is_left_out() -> None:
    assert look_up(0b1010_1010_1010_1010, NAMES) == "a"
    assert look_up(0xFFFF, NAMES) == HIGH
    assert halves(0b1000, 1, 2) == (0b00, 0b10)
