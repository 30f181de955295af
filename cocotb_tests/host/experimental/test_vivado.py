"""The script for Vivado, in an interpreter of Tcl that has notes of Vivado's commands in place of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.top_axi import TopAxi
from lutterfly.hdl.top_ip import TopIp
from lutterfly.host.command import main
from lutterfly.host.experimental import cores

tkinter = pytest.importorskip("tkinter", reason="Python here has no interpreter of Tcl")

CONFIG = PRESETS["tiny"]
SEVERAL = replace(CONFIG, cluster=ClusterConfig(cores=4, shared_port=False))
SERIES_7, ULTRASCALE = "xc7z020clg400-1", "xck26-sfvc784-2LV-c"
#: Each notes its words; those whose answers the script uses give some.
STUBS = """
proc note {args} { lappend ::notes $args; return "" }
foreach name {
    create_project set_property add_files update_compile_order create_bd_design create_bd_cell apply_bd_automation
    connect_bd_intf_net connect_bd_net assign_bd_address validate_bd_design save_bd_design launch_runs wait_on_run
    write_hw_platform puts
} { catch {rename $name {}}; proc $name {args} "note $name {*}\\$args" }
proc get_ipdefs {args} {
    set name [lindex [lindex $args end] end]
    if {$name in $::absent} { return {} }
    return [list xilinx.com:ip:$name:9.0 xilinx.com:ip:$name:10.1]
}
foreach name {get_bd_cells get_bd_intf_pins get_bd_pins get_files get_bd_addr_spaces} {
    proc $name {args} { return [lindex $args end] }
}
foreach name {current_project current_fileset get_runs} { proc $name {args} "return $name" }
proc make_wrapper {args} { return wrapper }
proc get_bd_addr_segs {args} { return {} }
proc get_property {args} { return $::progress }
"""


def run(config: Config, *arguments: str, absent: str = "", progress: str = "100%") -> list[tuple[str, ...]]:
    """The words of each command that was called."""
    tcl = tkinter.Tcl()
    tcl.eval(STUBS)
    for name, value in (("argv", arguments), ("notes", ()), ("absent", absent), ("progress", progress)):
        tcl.setvar(name, value)
    tcl.eval("info script /designs/lutterfly.tcl")
    tcl.eval(cores.script("lutterfly.v", config))
    # As text: the interpreter's own objects compare with nothing.
    text = tcl.eval('join [lmap note $notes {join $note "\t"}] "\f"')
    return [tuple(note.split("\t")) for note in text.split("\f")]


def joined(notes: list[tuple[str, ...]], command: str) -> list[tuple[str, ...]]:
    return [words for name, *words in map(list, notes) if name == command]


@pytest.mark.parametrize("config", [CONFIG, SEVERAL], ids=["one", "several"])
@pytest.mark.parametrize("part", [SERIES_7, ULTRASCALE])
def test_every_port_of_the_verilog_is_connected_once(config: Config, part: str) -> None:
    notes = run(config, part)
    buses = [pin for pair in joined(notes, "connect_bd_intf_net") for pin in pair]
    pins = [pair[1] for pair in joined(notes, "connect_bd_net")]
    sources = [pair[0] for pair in joined(notes, "connect_bd_net")]
    found = sorted(pin.removeprefix("core/") for pin in (*buses, *pins, *sources) if pin.startswith("core/"))
    # By the names in the head of the Verilog: buses by their prefixes.
    names = re.findall(r"^// (\w+) +(?:input|output) ", TopIp(TopAxi(config)).describe(), re.MULTILINE)
    assert found == sorted({re.sub(r"^(._axi(?:_\d+)?)_.*", r"\1", name) for name in names})
    assert len(buses) == len(set(buses))
    assert len(pins) == len(set(pins))
    # Every pin that is connected belongs to a cell that was made.
    cells = {words[-1] for words in joined(notes, "create_bd_cell")}
    assert {pin.partition("/")[0] for pin in (*buses, *pins, *sources)} == cells
    assert ("-type", "module", "-reference", "lutterfly", "core") in [tuple(w) for w in joined(notes, "create_bd_cell")]


@pytest.mark.parametrize(
    ("part", "processor", "clock"),
    [(SERIES_7, "processing_system7", "FCLK_CLK0"), (ULTRASCALE, "zynq_ultra_ps_e", "pl_clk0")],
)
def test_one_clock_reaches_everything(part: str, processor: str, clock: str) -> None:
    notes = run(CONFIG, part, "-", "125")
    assert ["-type", "ip", "-vlnv", f"xilinx.com:ip:{processor}:10.1", "processor"] in joined(notes, "create_bd_cell")
    driven = {pin for source, pin in joined(notes, "connect_bd_net") if source == f"processor/{clock}"}
    aclks = {"core/aclk", "registers/aclk", "memory/aclk", "resets/slowest_sync_clk"}
    assert aclks < driven
    assert len([pin for pin in driven if pin.startswith("processor/")]) == 2
    resets = {pin for source, pin in joined(notes, "connect_bd_net") if source == "resets/peripheral_aresetn"}
    assert resets == {"core/aresetn", "registers/aresetn", "memory/aresetn"}
    (settings,) = [words[1].split() for words in joined(notes, "set_property") if words[-1] == "processor"]
    (frequency,) = [name for name in settings if name.endswith("FREQMHZ")]
    assert settings[settings.index(frequency) + 1] == "125"


def test_a_board_brings_its_own_settings() -> None:
    notes = run(CONFIG, SERIES_7, "tul.com.tw:pynq-z2:part0:1.0")
    assert ["board_part", "tul.com.tw:pynq-z2:part0:1.0", "current_project"] in joined(notes, "set_property")
    (automation,) = joined(notes, "apply_bd_automation")
    assert automation[3].split()[-2:] == ["apply_board_preset", "1"]
    names = [words[0] for words in notes]
    assert names.index("apply_bd_automation") < len(names) - 1 - names[::-1].index("set_property")
    assert not joined(run(CONFIG, ULTRASCALE), "apply_bd_automation")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, r"^usage: vivado -mode batch "),
        ((SERIES_7, "-", "100", "more"), {}, r"^usage: vivado -mode batch "),
        (("xc7a100t",), {}, r"^PART must be of a Zynq-7000 .* or a Zynq UltraScale\+ .*, not xc7a100t$"),
        ((SERIES_7, "-", "fast"), {}, r"^MHZ must be a positive number, not fast$"),
        ((SERIES_7, "-", "0"), {}, r"^MHZ must be a positive number, not 0$"),
        ((SERIES_7,), {"absent": "smartconnect"}, r"^this Vivado must have the IP smartconnect, and has not; install"),
        ((SERIES_7,), {"progress": "60%"}, r"^the bitstream must be built, and is not; see the log of the run impl_1$"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], options: dict[str, str], message: str) -> None:
    with pytest.raises(tkinter.TclError, match=message):
        run(CONFIG, *arguments, **options)


@pytest.mark.regress
def test_it_is_written_beside_the_verilog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "accelerator.v"
    assert main.main(["verilog", "-o", str(path), "--vivado", "--core", "--config", "tiny"]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["accelerator.core", "accelerator.tcl", "accelerator.v"]
    assert "set verilog {accelerator.v}" in (tmp_path / "accelerator.tcl").read_text().splitlines()
    assert "the script for Vivado" in capsys.readouterr().out
    assert main.main(["verilog", "-o", str(tmp_path / "a.tcl"), "--vivado", "--config", "tiny"]) == 2
    assert "must not end with .tcl" in capsys.readouterr().err
    assert main.main(["verilog", "-o", str(tmp_path / "a$b.v"), "--vivado", "--config", "tiny"]) == 2
    assert "for Tcl; name another file" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 3
