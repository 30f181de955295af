"""Shared fixtures: run cocotb on a component, find the models."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from amaranth.lib import wiring
from cocotb_tools.runner import get_results
from hypothesis import HealthCheck, settings

from cocotb_tests.support import amaranth_simulator, components
from lutterfly.hdl.parts.pipeline import ASSERTED, Platform
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.files import terminal
from lutterfly.host.simulation import cache

pytest_plugins = ("cocotb_tests.support.tiers", "pytester")
ROOT = Path(__file__).parents[1]
Simulate = Callable[..., None]
#: New objects after which the garbage collector looks for some to free: a component that is elaborated makes a million,
#: nearly all of which stay.
GARBAGE = 100_000

# A slow machine is no failure: no test of hypothesis fails by its time, nor by that of drawing what it tries.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
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
        help="what components run in; tests marked `verilator` always run in Verilator",
    )
    parser.addoption(
        "--quick-build", action="store_true", help="compile without optimisation: for what is built once and run once"
    )


@pytest.fixture(autouse=True)
def _whatever_the_machine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that takes long says so in between: what is shown would depend on the machine's speed."""
    monkeypatch.setattr(terminal, "LINE_SECONDS", 3600.0)


@pytest.fixture(scope="session")
def models_dir(request: pytest.FixtureRequest) -> Path:
    """The folder of the MLPerf Tiny models."""
    folder = request.config.getoption("--models").resolve()
    if not folder.is_dir():
        pytest.skip(f"the models' folder {folder} does not exist; name another one with --models")
    return folder


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through everything that was collected, again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make cocotb` runs."""
    for item in items:
        if "simulate" in getattr(item, "fixturenames", ()):
            item.add_marker("cocotb")


@pytest.fixture
def simulate(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    """Run the cocotb tests of the requesting module on one component, or on the Verilog of a module ``dut``.

    ``simulate(dut, env={})`` elaborates ``dut`` for ``platform`` and runs every ``cocotb.test`` of the module (or the
    one named ``testcase``) with ``env`` in its environment. Several calls in one test are fine.

    It runs in Amaranth's simulator (:mod:`cocotb_tests.support.amaranth_simulator`). With ``--simulator verilator``,
    in a test that is marked `verilator`, and with Verilog it runs in Verilator, which is built unless the same text
    was built before.
    """
    option, is_marked = request.config.getoption, request.node.get_closest_marker("verilator") is not None

    # Either simulator's Python imports the module by its name in the checkout.
    monkeypatch.syspath_prepend(ROOT)
    module = ".".join(request.path.relative_to(ROOT).with_suffix("").parts)

    def run(
        dut: wiring.Component | str,
        *,
        env: Mapping[str, str] | None = None,
        testcase: str | None = None,
        platform: Platform = ASSERTED,
    ) -> None:
        options = {"folder": tmp_path, "env": env or {}, "testcase": testcase}
        if option("--simulator") == "amaranth" and not is_marked and not isinstance(dut, str):
            results, output = amaranth_simulator.run_tests(dut, module, platform=platform, **options)
        else:
            text = dut if isinstance(dut, str) else to_verilog(dut, platform=platform, name="dut")
            options |= {"root": option("--simulator-cache"), "quick": option("--quick-build")}
            results, output = components.run_tests(text, module, **options)
        total, failed = get_results(results) if results.exists() else (0, 0)
        if failed or output:
            pytest.fail(f"cocotb failed:\n{output[-20_000:]}", pytrace=False)
        assert total, "no cocotb test ran"

    return run
