"""Shared fixtures: run cocotb on a component, find the models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from amaranth.lib import wiring
from cocotb_tools.runner import get_results, get_runner

import amaranth_simulator
import components
from lutterfly.hdl.parts.platforms import ASSERTED, Platform
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.files import progress
from lutterfly.host.simulation import cache
from oracles.skips import pytest_addoption as add_known_skips
from oracles.skips import pytest_sessionfinish, pytest_terminal_summary  # noqa: F401  (hooks)

ROOT = Path(__file__).parents[1]
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
        "--simulator",
        choices=("amaranth", "verilator"),
        default="amaranth",
        help="what components run in, but for tests marked `verilator`",
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

    in_amaranth = request.config.getoption("--simulator") == "amaranth" and not request.node.get_closest_marker("verilator")

    def check(results: Path, output: str) -> None:
        total, failed = get_results(results)
        assert total, "no cocotb test ran"
        if failed:
            pytest.fail(f"cocotb failed:\n{output}", pytrace=False)

    def run(
        dut: wiring.Component | str,
        *,
        env: Mapping[str, str] | None = None,
        testcase: str | None = None,
        platform: Platform = ASSERTED,
    ) -> None:
        results, log = tmp_path / "results.xml", tmp_path / "cocotb.log"
        if in_amaranth and not isinstance(dut, str):
            output = amaranth_simulator.run_tests(
                dut, request.path.stem, platform=platform, env=env or {}, testcase=testcase, results=results
            )
            check(results, output)
            return
        text = dut if isinstance(dut, str) else to_verilog(dut, platform=platform, name="dut")
        root = request.config.getoption("--simulator-cache")
        built = components.built(text, root, quick=request.config.getoption("--quick-build"))
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
