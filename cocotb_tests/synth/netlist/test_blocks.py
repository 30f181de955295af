"""The models of block RAM and multiplier do what the vendor's guides say, in every setting that is described."""

from __future__ import annotations

import itertools
import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import Timer

from cocotb_tests.support.benches.block_models import Multiplier, Ram
from lutterfly.synth.netlist.translate import MODELS

#: Widths of both ports, write modes, and whether there is an output register.
RAMS = [
    *(((width, width), (mode, "NORMAL"), (True, True)) for width in (1, 2, 4, 9, 18) for mode in ("NORMAL",)),
    *(((width, 18), (mode, mode), (False, False)) for width in (9, 18) for mode in ("WRITETHROUGH", "READBEFOREWRITE")),
    ((4, 9), ("READBEFOREWRITE", "WRITETHROUGH"), (False, True)),
    ((36, 36), ("NORMAL", "NORMAL"), (False, False)),
    ((36, 36), ("NORMAL", "NORMAL"), (True, True)),
    *(((36, width), ("NORMAL", "NORMAL"), (False, True)) for width in (1, 9, 18)),
]
MULTIPLIERS = list(itertools.product((False, True), repeat=4))
STEPS = 1500
_PORTS = ("address", "data", "enable", "write", "output_enable")
_WORD_BITS = 18


def text(name: str) -> str:
    (found,) = (path.read_text() for path in MODELS if path.stem == name)
    return found


def bits(name: str, count: int, port: str) -> str:
    return ", ".join(f".{port}{index}({name}[{index}])" for index in range(count))


def verilog_of_rams() -> str:
    ports = [
        "input clk",
        *(f"input [13:0] address_{side}" for side in "AB"),
        *(f"input [17:0] data_{side}" for side in "AB"),
        *(f"input {name}_{side}" for name in _PORTS[2:] for side in "AB"),
        *(f"output [17:0] out_{number}_{side}" for number in range(len(RAMS)) for side in "AB"),
    ]
    lines = []
    for number, (widths, modes, outputs) in enumerate(RAMS):
        settings = [
            *(f".DATA_WIDTH_{side}({width})" for side, width in zip("AB", widths, strict=True)),
            *(f'.WRITEMODE_{side}("{mode}")' for side, mode in zip("AB", modes, strict=True)),
            *(f'.REGMODE_{side}("{("NOREG", "OUTREG")[out]}")' for side, out in zip("AB", outputs, strict=True)),
            ".INITVAL_00(320'h12345)",
        ]
        pins = []
        for side in "AB":
            write = "1'b0" if side == "B" and widths[0] == 36 else f"write_{side}"
            pins += [f".CLK{side}(clk)", f".CE{side}(enable_{side})", f".WE{side}({write})"]
            pins += [f".OCE{side}(output_enable_{side})", bits(f"address_{side}", 14, f"AD{side}")]
            pins += [bits(f"data_{side}", 18, f"DI{side}"), bits(f"out_{number}_{side}", 18, f"DO{side}")]
            pins += [f".RST{side}(1'b0)", *(f".CS{side}{index}(1'b0)" for index in range(3))]
        lines.append(f"  DP16KD #({', '.join(settings)}) ram_{number} ({', '.join(pins)});")
    return f"{text('dp16kd')}module dut({', '.join(ports)});\n" + "\n".join(lines) + "\nendmodule\n"


def verilog_of_multipliers() -> str:
    ports = ["input clk, enable, reset, sign_A, sign_B", "input [17:0] factor_A, factor_B"]
    ports += [f"output [35:0] product_{number}" for number in range(len(MULTIPLIERS))]
    lines = []
    for number, found in enumerate(MULTIPLIERS):
        names = ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT")
        settings = [f'.REG_{name}_CLK("{("NONE", "CLK0")[has]}")' for name, has in zip(names, found, strict=True)]
        pins = [bits("factor_A", 18, "A"), bits("factor_B", 18, "B"), bits(f"product_{number}", 36, "P")]
        pins += [".SIGNEDA(sign_A), .SIGNEDB(sign_B), .CLK0(clk), .CE0(enable), .RST0(reset)"]
        pins += [".SOURCEA(1'b0), .SOURCEB(1'b0)", *(f".C{index}(1'b0)" for index in range(18))]
        lines.append(f"  MULT18X18D #({', '.join(settings)}) multiplier_{number} ({', '.join(pins)});")
    return f"{text('mult18x18d')}module dut({', '.join(ports)});\n" + "\n".join(lines) + "\nendmodule\n"


def drawn_ports(rng: np.random.Generator, narrow: int) -> list[dict[str, int]]:
    """Near addresses, so that ports meet; ends of the array among them."""
    base = int(rng.choice([0, (1 << 14) - narrow, int(rng.integers(1 << 14)) // narrow * narrow]))
    return [
        {
            "address": base + int(rng.integers(narrow)),
            "data": int(rng.choice([0, (1 << 18) - 1, int(rng.integers(1 << 18))])),
            "enable": int(rng.random() < 0.8),
            "write": int(rng.random() < 0.5),
            "output_enable": int(rng.random() < 0.7),
        }
        for _ in "AB"
    ]


async def edge(dut) -> None:
    await Timer(5, unit="ns")
    dut.clk.value = 1
    await Timer(5, unit="ns")
    dut.clk.value = 0


@cocotb.test(skip=os.environ.get("BLOCK") != "rams")
async def rams_follow_their_description(dut) -> None:
    rng, models = np.random.default_rng(1), [Ram(*one) for one in RAMS]
    for model in models:
        # 18 of each 20 bits of the first words.
        model.bits[0:2] = [[0x12345 >> (9 * byte + bit) & 1 for bit in range(9)] for byte in (0, 1)]
    dut.clk.value = 0
    for step in range(STEPS):
        ports = drawn_ports(rng, 64)
        for side, one in zip("AB", ports, strict=True):
            for name, value in one.items():
                getattr(dut, f"{name}_{side}").value = value
        await edge(dut)
        for number, model in enumerate(models):
            given = [dict(one) for one in ports]
            if model.widths[0] == 36:
                given[0]["data"] |= given[1]["data"] << _WORD_BITS
                given[1]["write"] = 0
            # Two writes to one bit leave it undefined: the description knows of none.
            found = model.step(given)
            out = [int(getattr(dut, f"out_{number}_{side}").value) for side in "AB"]
            if model.widths[1] == 36:
                out, found = [out[0] | out[1] << _WORD_BITS], [found[1]]
            elif model.widths[0] == 36:
                out, found = out[1:], found[1:]
            for value, expected in zip(out, found, strict=True):
                levels = [value >> index & 1 for index in range(len(expected))]
                assert levels == expected, (step, RAMS[number], ports)


@cocotb.test(skip=os.environ.get("BLOCK") != "multipliers")
async def multipliers_follow_their_description(dut) -> None:
    edges = [0, 1, (1 << 17) - 1, 1 << 17, (1 << 18) - 1]
    rng, models = np.random.default_rng(2), [Multiplier(one[:2], one[2], one[3]) for one in MULTIPLIERS]
    cases = [*itertools.product(edges, edges, (0, 1), (0, 1)), *([None] * STEPS)]
    dut.clk.value = 0
    for step, case in enumerate(cases):
        a, b, *signs = case or (*rng.integers(0, 1 << 18, 2).tolist(), *rng.integers(0, 2, 2).tolist())
        enable, reset = (1, 0) if case else (int(rng.random() < 0.8), int(rng.random() < 0.05))
        values = {"factor_A": a, "factor_B": b, "sign_A": signs[0], "sign_B": signs[1]}
        for name, value in (values | {"enable": enable, "reset": reset}).items():
            getattr(dut, name).value = value
        await edge(dut)
        for number, model in enumerate(models):
            expected = model.step((a, b), (signs[0], signs[1]), enable=enable, reset=reset)
            assert int(getattr(dut, f"product_{number}").value) == expected, (step, MULTIPLIERS[number], values)


@pytest.mark.regress
@pytest.mark.parametrize(("block", "made"), [("rams", verilog_of_rams), ("multipliers", verilog_of_multipliers)])
def test_blocks(simulate, block: str, made) -> None:
    simulate("/* verilator lint_off WIDTH */\n/* verilator lint_off UNUSEDPARAM */\n" + made(), env={"BLOCK": block})
