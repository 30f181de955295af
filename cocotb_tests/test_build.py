"""The simulator's build: found again, refused with a reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lutterfly.golden.config import PRESETS
from lutterfly.host import build, toolchain
from lutterfly.host.toolchain import ToolError

CONFIG = PRESETS["tiny"]
EMPTY = "module lutterfly(clk);\n  input clk;\nendmodule\n"


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
    with pytest.raises(ToolError, match=r"^sleep must end within 0\.1 s, and does not; see .*log$"):
        toolchain.run(["sleep", "5"], cwd=tmp_path, env=toolchain.environment(), log=tmp_path / "log", time_limit_s=0.1)


def test_extensions_that_the_processor_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = tmp_path / "cpuinfo"
    monkeypatch.setattr(toolchain, "_PROCESSORS", listed)
    options = toolchain.processor_options.__wrapped__
    assert options() == ()
    listed.write_text("processor\t: 0\nflags\t\t: fpu avx2x avx bmi2 sse\n\nprocessor\t: 1\nflags\t\t: avx2\n")
    assert options() == ("-mbmi2",)
    listed.write_text("Features\t: fp asimd\n")
    assert options() == ()
