# amaranth: UnusedElaboratable=no
"""Mapped components do what they did before they were mapped, with registers moved into blocks."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module, Shape, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from cocotb_tests.support.tiers import needs_tools, sweep
from lutterfly.hdl.parts.device import Multiplier, Ram, Rom
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.synth import flow
from lutterfly.synth.device import DEVICES
from lutterfly.synth.netlist import netlist_verilog

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


def side_by_side(component: wiring.Component, netlist: dict) -> str:
    """A module ``dut`` with both, and the outputs of each."""
    ports = ports_of(component)
    inputs = {name: width for name, (direction, width) in ports.items() if direction == "input"}
    outputs = {name: width for name, (direction, width) in ports.items() if direction == "output"}
    declared = ["input clk, rst", *(f"input [{width - 1}:0] {name}" for name, width in inputs.items())]
    declared += [f"output [{width - 1}:0] {name}_{side}" for name, width in outputs.items() for side in ("is", "was")]
    lines = [f"module dut({', '.join(declared)});"]
    texts = {"mapped": netlist_verilog(netlist, name="mapped"), "generic": to_verilog(component, name="generic")}
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
    simulate(side_by_side(component, netlist), env=environment)


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
