"""The GW5A: its cells, its sites, its files; a small design through all of its tools."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cocotb_tests.support.tiers import needs_gowin
from lutterfly.boards import BOARDS
from lutterfly.hdl.parts.device import Multiplier
from lutterfly.hdl.parts.pipeline import Platform
from lutterfly.hdl.parts.pll import Pll
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.synth import bitstream, flow
from lutterfly.synth.families import DEVICES, FAMILIES

FAMILY, DEVICE, BOARD = FAMILIES["gowin"], DEVICES["gw5a-138"], BOARDS["tang-mega-138k"]
PLATFORM = Platform(primitives=FAMILY.primitives(DEVICE))


@pytest.mark.parametrize(
    ("a_width", "b_width", "is_signed", "kind"),
    [
        (8, 8, True, "MULT12X12"),
        (12, 12, True, "MULT12X12"),
        (12, 13, True, "MULT27X36"),
        (11, 11, False, "MULT12X12"),
        (12, 12, False, "MULT27X36"),
        (24, 24, False, "MULT27X36"),
        (27, 36, True, "MULT27X36"),
        (27, 37, True, None),
        (27, 36, False, None),
    ],
)
def test_the_smallest_multiplier_that_holds_the_factors_is_taken(
    a_width: int, b_width: int, is_signed: bool, kind: str | None
) -> None:
    text = to_verilog(
        Multiplier(a_width=a_width, b_width=b_width, is_signed=is_signed), name="multiplier", platform=PLATFORM
    )
    assert re.findall(r"MULT\d+X\d+", text) == ([kind] if kind else [])
    # Registers for factors, products and outputs; without a primitive they are Verilog's.
    assert text.count('_CLK("CLK0")') == (4 if kind else 0)


def test_a_clock_that_is_not_the_oscillators_is_refused() -> None:
    assert "assign clock_out = clock_in" in to_verilog(Pll(50_000_000, 50_000_000), name="pll", platform=PLATFORM)
    message = (
        r"^output_hz must be the oscillator's 50000000 Hz, not 100000000: Project Apicula has no PLL of the GW5AST"
    )
    with pytest.raises(ValueError, match=message):
        to_verilog(Pll(50_000_000, 100_000_000), name="pll", platform=PLATFORM)


def test_another_speed_grade_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^speed must be 1, not 2$"):
        DEVICE.of_speed(2)


def test_constraints_of_the_tang_mega() -> None:
    text = FAMILY.board_constraints(BOARD)
    assert text.splitlines()[:4] == [
        'IO_LOC "clock" V22; // clk50',
        'IO_PORT "clock" IO_TYPE=LVCMOS33 PULL_MODE=NONE;',
        'IO_LOC "rx" V14; // serial rx',
        'IO_PORT "rx" IO_TYPE=LVCMOS33 PULL_MODE=UP;',
    ]


def test_cells_are_counted_with_what_they_block() -> None:
    kinds = Counter(LUT4=5, LUT1=2, ALU=3, RAM16SDP4=2, DFFRE=7, DFFSE=1, MULT12X12=4, MULT27X36=2, SDPB=1, DPX9B=2)
    cells = {f"{kind}_{number}": {"type": kind} for kind, many in kinds.items() for number in range(many)}
    assert FAMILY.area({"modules": {"top": {"cells": cells}}}) == (5 + 2 + 3 + 16, 8, 12, 3)


HEAD = b"1" * 32 + b"\n1010010111000011\n"
COMPARED = f"{0x06000000:032b}{0x0001081B:032b}\n".encode()


def test_a_bitstream_says_which_fpga_it_is_for() -> None:
    assert FAMILY.part_of(b"//Tool Version: 1\n" + HEAD + COMPARED) == BOARD.part.idcode == 0x0001081B


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must begin as a bitstream of a GW5A does"),
        (b"\xff\x00 Part", "must begin as a bitstream of a GW5A does"),
        (b"hello\n", "must begin as a bitstream of a GW5A does"),
        (HEAD, "must say which FPGA it is for"),
        (HEAD + COMPARED[:-10] + b"\n", "must say which FPGA it is for"),
    ],
)
def test_what_is_no_bitstream_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FAMILY.part_of(data)


@pytest.mark.regress
@needs_gowin
def test_sites_are_those_of_project_apicula() -> None:
    from apycula.chipdb import load_chipdb  # noqa: PLC0415

    spec = importlib.util.find_spec("apycula")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    die = load_chipdb(str(Path(spec.submodule_search_locations[0]) / "GW5AST-138C.msgpack.xz"))
    assert (die.cols, die.rows) == DEVICE.tiles
    found = {
        f"X{column}Y{row}/{kind}"
        for row in range(die.rows)
        for column in range(die.cols)
        for kind in die[row, column].bels
        if kind in ("BSRAM", "MULT12X1200", "MULT12X1201")
    }
    sites = [site for of_kind in DEVICE.sites.values() for site in of_kind]
    assert {site.bel for site in sites} == found
    assert len(sites) == DEVICE.bram + DEVICE.dsp


class Products(wiring.Component):
    """Products of both sizes in memories, with registers that have enables and resets of their own."""

    def __init__(self):
        super().__init__({"rx": In(1), "tx": Out(1), "busy": Out(1), "error": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        shifted = Signal(48)
        m.d.sync += shifted.eq(shifted << 1 | self.rx)
        m.submodules.small = small = Multiplier(a_width=8, b_width=8)
        m.submodules.next = after = Multiplier(a_width=8, b_width=8)
        m.submodules.large = large = Multiplier(a_width=24, b_width=24, is_signed=False)
        held, kept = Signal(24), Signal(20)
        with m.If(~shifted[3]):
            m.d.sync += held.eq(small.product ^ after.product)
        with m.If(~shifted[5]):
            m.d.sync += kept.eq(0)
        with m.Else():
            m.d.sync += kept.eq(large.product)
        m.d.comb += [
            small.a.eq(shifted[:8]),
            small.b.eq(shifted[8:16]),
            after.a.eq(shifted[16:24]),
            after.b.eq(shifted[24:32]),
            large.a.eq(shifted[:24]),
            large.b.eq(shifted[24:]),
            self.busy.eq(held.xor()),
            self.error.eq(kept.xor()),
            self.tx.eq(shifted[-1]),
        ]
        return m


@pytest.mark.regress
@needs_gowin
def test_registers_share_inverted_enables_and_resets(tmp_path: Path) -> None:
    """ABC alone gives each its own inverter, and place and route a pair of flip-flops to each."""
    netlist = flow.map_cells(bitstream.top_of(BOARD, Products()), tmp_path, DEVICE, lambda text: None)
    cells = netlist["modules"]["top"]["cells"].values()
    controls = {
        tuple(cell["connections"].get(port, [""])[0] for port in ("CE", "SET", "RESET"))
        for cell in cells
        if cell["type"] in ("DFFSE", "DFFRE")
    }
    # Neither, the enable, the reset of one, and the reset of the whole design.
    assert len(controls) <= 5
    assert FAMILY.area(netlist).dsp == 6


@pytest.mark.regress
@needs_gowin
def test_a_component_is_measured_with_the_devices_multipliers(tmp_path: Path) -> None:
    component = Multiplier(a_width=24, b_width=24, is_signed=False)
    measured = flow.synthesise_component(component, name="product", folder=tmp_path, device="gw5a-138", seeds=(1,))
    assert measured.typical.dsp == 4
    assert measured.as_text().startswith("product on gw5a-138, speed grade 1\n")


@pytest.mark.regress
@needs_gowin
def test_a_bitstream_for_the_tang_mega(tmp_path: Path) -> None:
    built = bitstream.build(Products(), BOARD, folder=tmp_path, seeds=(1,))
    assert built.is_met
    assert FAMILY.part_of(built.data) == BOARD.part.idcode
    assert built.best.dsp == 6
    # A third of margin to the model.
    assert built.device.fmax_mhz == pytest.approx(BOARD.core_mhz * 4 / 3)
    assert built.best.fmax_mhz >= built.device.fmax_mhz
    planned = json.loads((tmp_path / "top-1.json").read_text())["modules"]["top"]["cells"].values()
    sites = {site.bel for site in DEVICE.sites["MULT12X12"]}
    found = [cell["attributes"]["BEL"] for cell in planned if cell["type"] == "MULT12X12"]
    assert len(found) == len(sites & set(found)) == 2
