# amaranth: UnusedElaboratable=no
"""Bitstreams: of the board's FPGA, met at its clock or not at all, and whole."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from cocotb_tests.support.tiers import needs_tools
from cocotb_tests.support.toys.toy_components import Echo
from lutterfly.boards import BOARDS, Board
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.memories.sdram import LEAD_NS, HostMaster, Sdram
from lutterfly.synth import bitstream, flow, tools
from lutterfly.synth.families import DEVICES, FAMILIES, ecp5
from lutterfly.synth.flow import check_fit

QUICK = "ulx3s-25f"
#: The command of a bitstream that says which FPGA it is for, and its operands before the IDCODE.
VERIFY_ID = b"\xe2\0\0\0"


@pytest.mark.regress
@needs_tools
@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=pytest.mark.regress) for name in BOARDS if name != QUICK)]
)
def test_a_design_becomes_the_bitstream_of_a_board(name: str, tmp_path: Path) -> None:
    """It is also unpacked and packed again, to the same bytes."""
    board, steps = BOARDS[name], []
    built = bitstream.build(Echo(), board, folder=tmp_path, seeds=(7, 8), progress=steps.append)
    assert steps == [
        *("elaborate", "synthesise", "floorplan, place and route, seed 7, 1 of at most 2 runs"),
        *("pack", "unpack, and pack again"),
    ]
    assert built.is_met
    assert [run.seed for run in built.placements] == [7]
    assert built.best.fmax_mhz >= board.core_mhz
    assert VERIFY_ID + board.part.idcode.to_bytes(4, "big") in built.data[:100]
    assert f"Part: {board.part.name}-{board.speed}".encode() in built.data[:100]
    assert (tmp_path / "again.bit").read_bytes() == built.data
    # Every pin is where the board has it, and the clock is the board's.
    log = (tmp_path / "nextpnr-7.log").read_text()
    assert all(f"pin '{port}$tr_io' constrained to Bel" in log for port in board.pins)
    assert f"Derived frequency constraint of {board.core_mhz * bitstream.MARGIN:.1f} MHz" in log


@needs_tools
@pytest.mark.regress
def test_a_clock_that_is_missed_leaves_nothing(tmp_path: Path) -> None:
    board = dataclasses.replace(BOARDS[QUICK], core_mhz=400.0)
    built = bitstream.build(Echo(), board, folder=tmp_path, seeds=(1, 2))
    assert (built.is_met, built.data) == (False, b"")
    assert [run.seed for run in built.placements] == [1, 2]
    assert built.best.fmax_mhz == max(run.fmax_mhz for run in built.placements) < 400
    assert list(tmp_path.glob("*.bit")) == []


@pytest.mark.parametrize("name", BOARDS)
def test_the_top_has_a_port_for_every_pin(name: str) -> None:
    board = BOARDS[name]
    top = bitstream.top_of(board, Echo())
    assert top.signature.members.keys() == board.pins.keys()
    assert sorted(top.inverted) == [name for name, pin in sorted(board.pins.items()) if pin.is_inverted]
    assert list(top.held) == [held.level for held in board.held]
    assert top.pll.output_hz == board.core_hz


class Remembering(wiring.Component):
    """A board's core that has nothing but its SDRAM, and says how a walk through it goes."""

    def __init__(self, board: Board) -> None:
        config = PRESETS[board.preset]
        self.memory = Sdram(
            bitstream.chip_of(board, config), clock_hz=board.core_hz, data_bits=config.axi.data_bits, id_bits=4
        )
        self.sources = (self.memory.controller.verilog,)
        pins = {f"sdram_{name}": member for name, member in self.memory.signature.members.items() if name != "bus"}
        super().__init__({"rx": In(1), "tx": Out(1), "busy": Out(1), "error": Out(1), **pins})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory = memory = self.memory
        bits = (memory.controller.size_bytes - 1).bit_length()
        m.submodules.host = host = HostMaster(address_bits=bits, data_bits=len(memory.bus.rdata))
        request = host.host.request
        connect(m, host.memory, memory.bus)
        with m.If(request.ready):
            m.d.sync += request.payload.eq(request.payload.as_value() + 1)
        m.d.comb += [request.valid.eq(1), self.busy.eq(host.host.answer.payload.xor())]
        for name, member in memory.signature.members.items():
            if name != "bus":
                inside, outside = getattr(memory, name), getattr(self, f"sdram_{name}")
                m.d.comb += outside.eq(inside) if member.flow is Out else inside.eq(outside)
        return m


WITH_SDRAM = [variant for board in BOARDS.values() for variant in board.variants if variant is not board]


@pytest.mark.parametrize("board", WITH_SDRAM, ids=lambda board: board.name)
def test_the_top_has_a_port_for_every_pin_of_its_sdram(board: Board) -> None:
    top = bitstream.top_of(board, Remembering(board))
    ports = [f"{name}[{bit}]" if len(value) > 1 else name for name, value in _outputs(top) for bit in range(len(value))]
    ports += [f"sdram_data[{bit}]" for bit in range(len(top.sdram_data))]
    assert sorted(ports) == sorted([*board.pins, *board.sdram.pins])
    family = FAMILIES[DEVICES[board.part.device].family]
    text = family.board_constraints(board, has_sdram=True)
    for port, pin in board.sdram.pins.items():
        assert f'LOCATE COMP "{port}" SITE "{pin.site}";' in text
    assert "sdram" not in family.board_constraints(board)
    # The chip's clock is before the core's.
    assert (top.pll.output_hz, top.pll.lead_ns) == (board.core_hz, LEAD_NS)
    dividers = ecp5.Dividers.find(board.oscillator_hz, board.core_hz)
    late_ns = dividers.late_eighths(LEAD_NS) / 8 / dividers.vco_hz * 10**9
    assert abs(late_ns + LEAD_NS - Fraction(10**9, board.core_hz)) < Fraction(10**9, 16) / dividers.vco_hz * 2


def _outputs(top: wiring.Component) -> Iterator[tuple[str, Value]]:
    for (name,), _, value in top.signature.flatten(top):
        yield name, Value.cast(value)


@pytest.mark.regress
@needs_tools
@pytest.mark.parametrize("board", WITH_SDRAM[:1], ids=lambda board: board.name)
def test_nothing_is_between_the_registers_and_pins_of_an_sdram(board: Board, tmp_path: Path) -> None:
    """Otherwise place and route would not put them into the pins' cells."""
    device = bitstream.board_device(board)
    netlist = flow.map_cells(bitstream.top_of(board, Remembering(board)), tmp_path, device, lambda text: None)
    cells = netlist["modules"]["top"]["cells"]
    users: dict[object, list[str]] = {}
    for cell in cells.values():
        for port, bits in cell["connections"].items():
            for bit in bits:
                users.setdefault(bit, []).append(f"{cell['type']}.{port}")
    registers = [cell for cell in cells.values() if "syn_useioff" in cell["attributes"]]
    width, outputs = board.sdram.data_bits, len(board.sdram.pins) - 1 - board.sdram.data_bits
    assert len(registers) == outputs + 3 * width
    assert Counter(cell["type"] for cell in cells.values())["ODDRX1F"] == 1
    for cell in registers:
        (net,) = cell["connections"]["DI" if cell["attributes"]["ioff_dir"] == "input" else "Q"]
        assert {user.partition(".")[0] for user in users[net]} <= {"TRELLIS_IO", "TRELLIS_FF"}, users[net]


@needs_tools
def test_bytes_that_change_when_packed_again_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def packed(tool: str, options: list[str], *, folder: Path, function: str) -> None:
        if function == "run_ecppack":
            target = options[options.index("--bit") + 1]
            (folder / target).write_bytes(target.encode())

    monkeypatch.setattr(ecp5, "run_tool", packed)
    message = rf"^{tmp_path}/top\.bit must give the same bytes when it is unpacked and packed again, and does not; "
    with pytest.raises(tools.FlowError, match=message):
        FAMILIES["ecp5"].pack(tmp_path, DEVICES["ecp5-25k"])


def test_no_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^seeds must be at least one number, not none$"):
        bitstream.build(Echo(), BOARDS[QUICK], folder=tmp_path, seeds=())


def cells_of(**counts: int) -> dict:
    cells = {f"{kind}_{number}": {"type": kind} for kind, count in counts.items() for number in range(count)}
    return {"modules": {"top": {"cells": cells}}}


def test_what_just_fits_is_built() -> None:
    device = DEVICES["ecp5-25k"]
    full = {"LUT4": device.lut - 8, "CCU2C": 1, "TRELLIS_DPR16X4": 1, "TRELLIS_FF": device.ff}
    check_fit(cells_of(**full, MULT18X18D=device.dsp, DP16KD=device.bram, IO=1000), device)


def test_what_does_not_fit_is_told_before_place_and_route() -> None:
    device = bitstream.board_device(BOARDS[QUICK])
    more = {"LUT4": device.lut - 7, "CCU2C": 1, "TRELLIS_DPR16X4": 1, "TRELLIS_FF": device.ff + 1}
    message = (
        "LFE5U-25F: look-up tables must be at most 24,288, not 24,289; flip-flops must be at most 24,288, not 24,289; "
        "multipliers must be at most 28, not 29; block RAMs must be at most 56, not 57; "
        "choose a smaller configuration, or a larger device"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        check_fit(cells_of(**more, MULT18X18D=device.dsp + 1, DP16KD=device.bram + 1), device)


@pytest.mark.regress
@needs_tools
def test_a_design_that_does_not_fit_is_not_placed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = dataclasses.replace(DEVICES["ecp5-25k"], ff=3)
    monkeypatch.setitem(DEVICES, "ecp5-25k", small)
    steps: list[str] = []
    with pytest.raises(ValueError, match=r"^LFE5U-25F: flip-flops must be at most 3, not \d+; choose a smaller"):
        bitstream.build(Echo(), BOARDS[QUICK], folder=tmp_path, seeds=(1,), progress=steps.append)
    assert steps == ["elaborate", "synthesise"]
    assert json.loads((tmp_path / "top.json").read_text())["modules"]
