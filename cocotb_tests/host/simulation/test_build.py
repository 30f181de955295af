"""The simulator's build: found again, refused with a reason."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from cocotb_tests.support.tiers import sweep
from lutterfly.golden import registers
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.registers import REGISTERS
from lutterfly.hdl import top_ip
from lutterfly.host.simulation import build, toolchain
from lutterfly.host.simulation.build import AXI
from lutterfly.host.simulation.simulator import SimulationError, Simulator
from lutterfly.host.simulation.toolchain import ToolError

CONFIG = PRESETS["tiny"]
EMPTY = "module lutterfly(aclk);\n  input aclk;\nendmodule\n"


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "g++" else f"/bin/{name}")
    with pytest.raises(ToolError, match=r"^building the simulator needs g\+\+, .* for example `apt install g\+\+`$"):
        build.library_of(EMPTY, CONFIG, root=tmp_path)


def test_a_failure_shows_the_end_of_a_log_that_stays(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"^verilator failed with exit code 1; see .*failed-build\.log\n") as caught:
        build.library_of(EMPTY.replace("endmodule", "nonsense\nendmodule"), CONFIG, root=tmp_path)
    log = tmp_path / "failed-build.log"
    assert str(log) in str(caught.value)
    assert "syntax error" in log.read_text()
    assert "syntax error" in str(caught.value)


def test_a_command_that_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"^sleep must end within 0 s, and does not; see .*log$"):
        toolchain.run(["sleep", "600"], cwd=tmp_path, env=toolchain.environment(), log=tmp_path / "log", time_limit_s=0)


def test_a_variable_of_make_may_have_options_in_it(tmp_path: Path) -> None:
    """Which are not those of make: with -i it would go on after an error."""
    (tmp_path / "Makefile").write_text("all:\n\t@printf '%s' '$(OPT_FAST)'; false\n")
    env, log = toolchain.environment(OPT_FAST="-O0 -include some.h"), tmp_path / "log"
    with pytest.raises(ToolError, match=r"^make failed with exit code 2"):
        toolchain.run(["make", "-s"], cwd=tmp_path, env=env, log=log)
    assert log.read_text().startswith("-O0 -include some.h")


@pytest.mark.regress
def test_verilog_is_that_of_the_sources_even_if_this_process_has_old_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(top_ip, "generate", lambda config, **_: "what the sources said before they were edited")
    assert f"configuration hash {CONFIG.hash:#010x}" in build.verilog(CONFIG, root=tmp_path)


def test_sources_that_are_edited_meanwhile_leave_no_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(command: list[str], *, cwd: Path, **_: object) -> None:
        (cwd / "core.v").touch()
        monkeypatch.setattr(build, "_verilog_key", lambda config, top: "another")

    monkeypatch.setattr(toolchain, "run", run)
    with pytest.raises(ToolError, match=r"^the sources in hdl and golden must stay the same .*; try again$"):
        build.verilog(CONFIG, root=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_a_failure_of_the_generator_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_GENERATE", "raise ValueError('no such thing')")
    with pytest.raises(ToolError, match=r"(?s)failed with exit code 1; see .*failed-build\.log\n.*no such thing"):
        build.verilog(CONFIG, root=tmp_path)
    assert "no such thing" in (tmp_path / "failed-build.log").read_text()


@pytest.mark.regress
@pytest.mark.parametrize("name", ["core.so", "core.v"])
@pytest.mark.parametrize("size_bytes", sweep([None, 0, 5000], kept=[5000]), ids=["missing", "empty", "truncated"])
def test_a_damaged_simulator_is_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, size_bytes: int | None
) -> None:
    good, text = build.library(CONFIG).parent, build.verilog(CONFIG)
    # Building takes no time so, and is the same otherwise.
    monkeypatch.setattr(toolchain, "run", lambda *_, cwd, **__: (cwd / "core.v").write_text(text))
    monkeypatch.setattr(build, "_build", lambda *given: shutil.copytree(good, given[3], dirs_exist_ok=True))
    build.library(CONFIG, root=tmp_path)
    damaged = list(tmp_path.glob(f"*/{name}"))
    for path in damaged:
        path.unlink() if size_bytes is None else os.truncate(path, size_bytes)
    assert damaged
    simulator = Simulator(build.library(CONFIG, root=tmp_path), base=0, size=4096)
    assert simulator.read_register(REGISTERS["ID"].address) == registers.ID
    assert build.verilog(CONFIG, root=tmp_path) == text


def test_what_takes_long_is_said_before_it_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events: list[str] = []

    def run(command: list[str], *, cwd: Path, **_: object) -> None:
        events.append(command[0])
        if command[0] == "verilator":
            (cwd / "model").mkdir()
            (cwd / "model" / "Vcore___024root.h").touch()

    monkeypatch.setattr(toolchain, "run", run)
    monkeypatch.setattr(build, "_runtime", lambda root: events.append("runtime") or [])
    top = dataclasses.replace(AXI, header=lambda header, config: header)
    build.library_of(EMPTY, CONFIG, top=top, root=tmp_path, progress=lambda text, *_: events.append(text))
    compiling = "compiling the simulator (once for each configuration)"
    assert events == ["translating Verilog to C++", "verilator", compiling, "runtime", "make", "g++"]


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    path = tmp_path / "core.so"
    path.write_bytes(b"no library")
    with pytest.raises(SimulationError, match=rf"^{path}: cannot be loaded: .*; remove its folder, and it is built"):
        Simulator(path, base=0, size=4096)


def test_extensions_that_the_processor_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = tmp_path / "cpuinfo"
    monkeypatch.setattr(toolchain, "_PROCESSORS", listed)
    options = toolchain.processor_options.__wrapped__
    assert options() == ()
    listed.write_text("processor\t: 0\nflags\t\t: fpu avx2x avx bmi2 sse\n\nprocessor\t: 1\nflags\t\t: avx2\n")
    assert options() == ("-mbmi2",)
    listed.write_text("Features\t: fp asimd\n")
    assert options() == ()
