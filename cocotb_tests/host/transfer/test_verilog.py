# amaranth: UnusedElaboratable=no
"""The Verilog of `lutterfly table`: its header, what Verilator says of it, and every entry in simulation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.table_bench import check_every_entry, environment, facts, look_up
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.transfer.schemes import parse
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.command.main import main
from lutterfly.host.simulation import toolchain
from lutterfly.host.transfer.operators import PointwiseFunction, chain_of
from lutterfly.host.transfer.table import module_name, table_verilog, tabulate_chain

WAIVERS = Path(__file__).parents[2] / "hdl" / "lint.vlt"
CASES = {
    "half": ("Tanh", "q3.4", "q0.7"),
    "symmetric": ("LeakyRelu:alpha=0.1", "q3.4:symmetric", "int16:scale=0.001,zero_point=-9"),
}


def written(case: str, folder: Path) -> str:
    operator, source, target = CASES[case]
    words = ["table", "--operator", operator, "--from", source, "--to", target, "-o", str(folder / "dut.v")]
    assert main(words) == 0
    return (folder / "dut.v").read_text()


@pytest.mark.regress
@pytest.mark.parametrize("case", sweep(CASES, kept=["half"]))
def test_every_entry_of_the_file(simulate, case: str, tmp_path: Path) -> None:
    operator, source, target = CASES[case]
    expected = tabulate_chain(operator, PointwiseFunction(chain_of([operator]), operator), parse(source), parse(target))
    text = written(case, tmp_path).replace("dut_table", "dut")
    simulate(text, env=environment(expected.rom, tmp_path))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES)
def test_verilators_lint_is_content(case: str, tmp_path: Path) -> None:
    written(case, tmp_path)
    command = [toolchain.verilator_folder() / "bin" / "verilator", "--lint-only", "-Wall", WAIVERS, tmp_path / "dut.v"]
    found = subprocess.run(command, env=toolchain.environment(), capture_output=True, text=True, check=False)
    # The file is named after its table, the module after both.
    assert [line for line in found.stderr.splitlines() if "%Warning" in line and "DECLFILENAME" not in line] == []


def test_the_header_says_what_the_module_computes(tmp_path: Path) -> None:
    header = [line for line in written("symmetric", tmp_path).splitlines() if line.startswith("//")]
    assert header[0].startswith("// dut_table: a transfer table, made by Lutterfly ")
    assert header[1:6] == [
        "// operator  LeakyRelu:alpha=0.1",
        "// codes     q3.4:symmetric: int8, which stands for code * 0.0625, -7.9375 to 7.9375",
        "// results   int16:scale=0.001,zero_point=-9: int16, which stands for (code - -9) * 0.001, -32.759 to 32.776",
        "// rounding  to the nearest code, halves to the even one, before the zero point is added; saturates",
        "// entries   256, all of them stored, in fabric",
    ]
    assert "// latency   2 cycles, one look-up a cycle; while a result waits, nothing moves" in header
    assert header[-1] == "// unused    the code -128 gives the result of -127"


def test_a_name_cannot_end_the_comment() -> None:
    found = tabulate_chain("a\nmodule b; /*", np.tanh, parse("q3.4"), parse("q0.7"))
    assert "// operator  a?module b; /*" in table_verilog(found, "t").splitlines()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("function", "source", "target", "stored"),
    [
        (np.exp, "q3.4", "uq4.4", 256),
        (np.tanh, "q3.4", "int16:scale=0.00005,zero_point=-9", 128),
        (np.tanh, "q3.12", "q0.7", 1 << 15),
    ],
)
def test_words_stand_in_short_blocks(function, source: str, target: str, stored: int) -> None:
    """All of them, in order, as many as Yosys reads quickly in each block: 64."""
    rom = tabulate_chain("f", function, parse(source), parse(target)).rom
    blocks = re.findall(r"initial begin\n(.*?)  end\n", to_verilog(rom, name="t"), re.DOTALL)
    words = [re.findall(rf"\w+\[(\d+)\] = {rom.result.width}'h([0-9a-f]+);", block) for block in blocks]
    assert [len(found) for found in words if found] == [64] * (stored // 64)
    entries = rom.half.stored if rom.half else np.roll(rom.table, len(rom.table) // 2)
    expected = [(place, int(entry) % (1 << rom.result.width)) for place, entry in enumerate(entries)]
    assert [(int(place), int(word, 16)) for found in words for place, word in found] == expected


@pytest.mark.parametrize(
    ("path", "name"),
    [("out/tanh.v", "tanh_table"), ("module.v", "module_table"), ("8 bit-é.v", "t8_bit___table"), ("x", "x_table")],
)
def test_module_names(path: str, name: str) -> None:
    assert module_name(Path(path)) == name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_entry_comes_after_the_latency(dut) -> None:
    table, least, _, _, latency = facts()
    codes = np.arange(len(table)) + least
    found, cycles = await look_up(dut, codes, (0, 0))
    np.testing.assert_array_equal(found, table)
    assert cycles[0] == latency


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_entry_with_stalls(dut) -> None:
    await check_every_entry(dut, (0.3, 0.3), 6)
