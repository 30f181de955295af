"""Registers that go into block RAMs and multipliers, and those that must stay."""

from __future__ import annotations

from typing import Any

import pytest

from lutterfly.synth.mapped.absorb import absorb_registers

CLOCK, OTHER_CLOCK, ENABLE, RESET = 2, 3, 4, 5


class Netlist:
    """A netlist in the form of Yosys, cell by cell."""

    def __init__(self) -> None:
        self.cells: dict[str, Any] = {}
        self.next_bit = 100
        self.outputs: list[int] = []

    def bit(self) -> int:
        self.next_bit += 1
        return self.next_bit

    def register(
        self, name: str, source: int | str, *, clock: int = CLOCK, enable: int | None = None, reset: int | str = "0"
    ) -> int:
        output = self.bit()
        pins = {"DI": source, "CLK": clock, "LSR": reset, "Q": output}
        self.cells[name] = {
            "type": "TRELLIS_FF",
            "parameters": {"CEMUX": "1 " if enable is None else "CE"},
            "port_directions": {port: "output" if port == "Q" else "input" for port in (*pins, "CE")},
            "connections": {port: [bit] for port, bit in pins.items()} | ({"CE": [enable]} if enable else {}),
        }
        return output

    def block(
        self,
        name: str,
        kind: str,
        inputs: dict[str, int | str],
        outputs: list[str],
        parameters: dict[str, str] | None = None,
    ) -> dict[str, int]:
        driven = {port: self.bit() for port in outputs}
        self.cells[name] = {
            "type": kind,
            "parameters": dict(parameters or {}),
            "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
            "connections": {port: [bit] for port, bit in (inputs | driven).items()},
        }
        return driven

    def absorb(self) -> dict[str, int]:
        module = {"cells": self.cells, "ports": {"out": {"direction": "output", "bits": self.outputs}}}
        return absorb_registers({"modules": {"top": module}})

    def pin(self, cell: str, port: str) -> int | str:
        return self.cells[cell]["connections"][port][0]


def multiplier(netlist: Netlist, factors: dict[str, int | str], stages: int, **register: Any) -> tuple[int, int]:
    """A product of one bit after ``stages`` registers: the product's bit and the last register's."""
    product = netlist.block("mult", "MULT18X18D", factors, ["P0", "P1"])["P0"]
    bit = product
    for stage in range(stages):
        bit = netlist.register(f"after_{stage}", bit, **register)
    netlist.outputs.append(bit)
    return product, bit


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_multiplier(stages: int) -> None:
    netlist = Netlist()
    a, b = netlist.bit(), netlist.bit()
    factor = netlist.register("a", a)
    _, last = multiplier(netlist, {"A0": factor, "A1": factor, "A2": "0", "B0": netlist.register("b", b)}, stages)
    assert netlist.absorb() == {"rams": 0, "multipliers": 1, "flip_flops": 2 + min(stages, 2)}
    assert [netlist.pin("mult", port) for port in ("A0", "A1", "A2", "B0")] == [a, a, "0", b]
    assert [netlist.pin("mult", port) for port in ("CLK0", "CE0", "RST0")] == [CLOCK, "1", "0"]
    parameters = netlist.cells["mult"]["parameters"]
    assert {name: parameters.get(f"REG_{name}_CLK") for name in ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT")} == {
        "INPUTA": "CLK0",
        "INPUTB": "CLK0",
        "PIPELINE": "CLK0" if stages > 1 else None,
        "OUTPUT": "CLK0",
    }
    assert netlist.pin("mult", "P0") == (last if stages < 3 else netlist.pin("after_2", "DI"))


def test_a_second_register_of_another_clock_stays() -> None:
    netlist = Netlist()
    factors = {f"{side}0": netlist.register(side, netlist.bit()) for side in "AB"}
    _, first = multiplier(netlist, factors, 1)
    netlist.outputs = [netlist.register("second", first, clock=OTHER_CLOCK)]
    assert netlist.absorb() == {"rams": 0, "multipliers": 1, "flip_flops": 3}
    assert (netlist.pin("mult", "P0"), netlist.pin("second", "DI")) == (first, first)
    assert "REG_PIPELINE_CLK" not in netlist.cells["mult"]["parameters"]


def test_a_factor_that_others_use_stays_for_them() -> None:
    netlist = Netlist()
    a = netlist.bit()
    factor = netlist.register("a", a)
    netlist.outputs.append(factor)
    multiplier(netlist, {"A0": factor, "B0": netlist.register("b", netlist.bit())}, 1)
    assert netlist.absorb()["multipliers"] == 1
    assert netlist.pin("mult", "A0") == a
    assert netlist.pin("a", "Q") == factor


@pytest.mark.parametrize("breach", ["enable", "reset", "clock", "user", "no register", "port"])
def test_what_is_in_the_way_keeps_the_registers_outside(breach: str) -> None:
    netlist = Netlist()
    options = {"enable": {"enable": ENABLE}, "reset": {"reset": RESET}, "clock": {"clock": OTHER_CLOCK}}.get(breach, {})
    factor = netlist.bit() if breach == "no register" else netlist.register("a", netlist.bit())
    product, _ = multiplier(netlist, {"A0": factor, "B0": netlist.register("b", netlist.bit())}, 1, **options)
    if breach == "user":
        netlist.register("other", product)
    if breach == "port":
        netlist.outputs.append(product)
    before = {name: dict(cell["connections"]) for name, cell in netlist.cells.items() if name != "other"}
    found = netlist.absorb()
    assert found["multipliers"] == 0
    assert {name: netlist.cells[name]["connections"] for name in before} == before


def ram(netlist: Netlist, width: str, **register: Any) -> int:
    sides = {"DATA_WIDTH_A": width, "DATA_WIDTH_B": width, "REGMODE_A": "NOREG", "REGMODE_B": "NOREG"}
    read = netlist.block(
        "ram", "DP16KD", {"CLKA": CLOCK, "CLKB": CLOCK, "OCEA": "0", "OCEB": "0"}, ["DOA0", "DOB0", "DOB1"], sides
    )
    last = netlist.register("after", read["DOB0"], **register)
    netlist.outputs.append(last)
    return last


def test_block_ram() -> None:
    netlist = Netlist()
    last = ram(netlist, "1001")
    assert netlist.absorb() == {"rams": 1, "multipliers": 0, "flip_flops": 1}
    parameters = netlist.cells["ram"]["parameters"]
    assert (parameters["REGMODE_A"], parameters["REGMODE_B"]) == ("NOREG", "OUTREG")
    assert (netlist.pin("ram", "DOB0"), netlist.pin("ram", "OCEB")) == (last, "1")


@pytest.mark.parametrize(
    ("width", "options"), [("1001", {"clock": OTHER_CLOCK}), ("1001", {"enable": ENABLE}), ("100100", {})]
)
def test_block_ram_that_keeps_its_register(width: str, options: dict[str, Any]) -> None:
    netlist = Netlist()
    ram(netlist, width, **options)
    assert netlist.absorb() == {"rams": 0, "multipliers": 0, "flip_flops": 0}
    assert netlist.cells["ram"]["parameters"]["REGMODE_B"] == "NOREG"
