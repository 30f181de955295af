"""Shared fixtures: run cocotb on a component, find the models."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import cocotb
import pytest
from amaranth.lib import wiring
from cocotb_tools.runner import get_results, get_runner

from lutterfly.hdl.parts.platforms import ASSERTED, Platform
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.files import progress
from lutterfly.host.simulation import cache, toolchain
from oracles.skips import pytest_addoption as add_known_skips
from oracles.skips import pytest_sessionfinish, pytest_terminal_summary  # noqa: F401  (hooks)

ROOT = Path(__file__).parents[1]
#: Compile time counts here, not speed: the Verilog of a test differs from the next one's. cocotb makes all signals
#: public, which keeps Verilator from simplifying any; a test sees those of the component itself, not of its parts.
VERILATOR_FLAGS = (
    "-O3",
    "--no-public-flat-rw",
    "--public-depth",
    "1",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    *(f"-Wno-{name}" for name in toolchain.WAIVED_WARNINGS),
)
OPTIMISATION = {"OPT_FAST": "-O1", "OPT_SLOW": "-O0", "OPT_GLOBAL": "-O1"}
#: With ``--quick-build``.
NO_OPTIMISATION = dict.fromkeys(OPTIMISATION, "-O0")

#: Headers that every design's code begins with. They take longer to compile than most designs: they are precompiled.
RUNTIME_HEADER = "runtime.h"
RUNTIME_HEADERS = "".join(f"#include <{name}>\n" for name in ("verilated.h", "verilated_vpi.h", "verilated_dpi.h"))

Simulate = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    add_known_skips(parser)
    parser.addoption(
        "--models",
        type=Path,
        default=ROOT / ".." / "shared" / "models",
        help="folder with the MLPerf Tiny models in ONNX form; tests that need it are skipped without it",
    )
    parser.addoption(
        "--simulator-cache", type=Path, default=cache.default_root() / "cocotb", help="where simulator builds are kept"
    )
    parser.addoption(
        "--quick-build", action="store_true", help="compile without optimisation: for what is built once and run once"
    )


@pytest.fixture(autouse=True)
def _whatever_the_machine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that takes long says so in between: what is shown would depend on the machine's speed."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 3600.0)


@pytest.fixture(scope="session")
def models_dir(request: pytest.FixtureRequest) -> Path:
    """The folder of the MLPerf Tiny models."""
    folder = request.config.getoption("--models").resolve()
    if not folder.is_dir():
        pytest.skip(f"the models' folder {folder} does not exist; name another one with --models")
    return folder


@pytest.fixture
def simulate(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    """Run the cocotb tests of the requesting module on one component, or on the Verilog of a module ``dut``.

    ``simulate(dut, env={})`` elaborates ``dut`` for ``platform`` to Verilog, builds it with Verilator unless the same
    text was built before, and runs every ``cocotb.test`` of the module (or the one named ``testcase``) with ``env`` in
    its environment. Several calls in one test are fine.
    """

    # The simulator's Python imports the module by its name.
    monkeypatch.syspath_prepend(request.path.parent)

    def run(
        dut: wiring.Component | str,
        *,
        env: Mapping[str, str] | None = None,
        testcase: str | None = None,
        platform: Platform = ASSERTED,
    ) -> None:
        text = dut if isinstance(dut, str) else to_verilog(dut, platform=platform, name="dut")
        root = request.config.getoption("--simulator-cache")
        optimisation = NO_OPTIMISATION if request.config.getoption("--quick-build") else OPTIMISATION
        flags = (*VERILATOR_FLAGS, *optimisation.values(), cocotb.__version__, cocotb.__file__, *toolchain.versions())
        built = cache.entry(
            root,
            cache.key_of((text, *flags)),
            lambda folder: _build(text, folder, root, cache.key_of(flags), optimisation),
        )
        results = tmp_path / "results.xml"
        log = tmp_path / "cocotb.log"
        try:
            get_runner("verilator").test(
                hdl_toplevel="dut",
                hdl_toplevel_lang="verilog",
                test_module=request.path.stem,
                testcase=testcase,
                build_dir=built,
                test_dir=tmp_path,
                extra_env=env or {},
                results_xml=str(results),
                log_file=log,
                verbose=False,
            )
        except SystemExit:
            output = log.read_text(errors="replace") if log.exists() else "no output"
            pytest.fail(f"cocotb failed:\n{output[-20_000:]}", pytrace=False)
        total, failed = get_results(results)
        assert total, "no cocotb test ran"
        assert not failed

    return run


def _build(text: str, folder: Path, root: Path, runtime_key: str, optimisation: Mapping[str, str]) -> None:
    toolchain.check_programs()
    source = folder / "dut.v"
    source.write_text(text)
    # Verilator's own runtime is the same for every design: take it from the first one.
    runtime = root / f"runtime-{runtime_key}"
    if has_runtime := cache.is_whole(runtime):
        optimisation = {**optimisation, "OPT_FAST": f"{optimisation['OPT_FAST']} -include {runtime / RUNTIME_HEADER}"}
        for path in runtime.glob("*.o"):
            shutil.copyfile(path, folder / path.name)
            # Newer than the makefile to come, or make would compile it again.
            os.utime(folder / path.name, (time.time() + 3600, time.time() + 3600))
    log = folder / "build.log"
    before = dict(os.environ)
    # One file in all, however large: Verilator precompiles headers of their own for several, and one set is the limit.
    env = toolchain.environment(**optimisation, VM_PARALLEL_BUILDS="0")
    try:
        os.environ.update(env)
        get_runner("verilator").build(
            sources=[source],
            hdl_toplevel="dut",
            build_dir=folder,
            timescale=("1ns", "1ps"),
            build_args=VERILATOR_FLAGS,
            log_file=log,
        )
    except RuntimeError as error:
        raise toolchain.ToolError(
            f"Verilator or the compiler failed:\n{log.read_text(errors='replace')[-10_000:]}"
        ) from error
    finally:
        os.environ.clear()
        os.environ.update(before)
    if not has_runtime:
        cache.entry(root, runtime.name, lambda target: _keep_runtime(folder, target, env=env, log=log))
    # Only the executable is needed from here on.
    for path in folder.iterdir():
        if path.name not in ("dut", "dut.v", "build.log"):
            path.unlink()


def _keep_runtime(folder: Path, target: Path, *, env: dict[str, str], log: Path) -> None:
    # Not cocotb's main program, verilator.o: it has the size of this design's model compiled in.
    for path in folder.glob("verilated*.o"):
        shutil.copyfile(path, target / path.name)
    (folder / RUNTIME_HEADER).write_text(RUNTIME_HEADERS)
    precompiled = f"{RUNTIME_HEADER}.fast.gch"
    # By Verilator's own makefile: the compiler takes what was precompiled with the same options alone.
    toolchain.run(["make", "-f", "Vtop.mk", precompiled], cwd=folder, env=env, log=log)
    shutil.copyfile(folder / RUNTIME_HEADER, target / RUNTIME_HEADER)
    shutil.copyfile(folder / precompiled, target / f"{RUNTIME_HEADER}.gch")
