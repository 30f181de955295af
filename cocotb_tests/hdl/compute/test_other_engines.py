# amaranth: UnusedElaboratable=no
"""Other sets of engines: each of them left out in turn, and two that the project does not have."""

from __future__ import annotations

import dataclasses
import functools
import os
import re

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.compute_bench import ComputeBench, expected, random_scenario
from cocotb_tests.support.tiers import sweep
from cocotb_tests.support.toys.toy_borrower import WEIGHTED, add_borrower
from cocotb_tests.support.toys.toy_engine import MINIMUM, add_toy
from lutterfly.golden.config import Config
from lutterfly.golden.engines import (
    ADD,
    BINARY_MAXIMUM,
    DEPTHWISE,
    FPC,
    MAC,
    MAXIMUM,
    MULTIPLY,
    SPECIFICATIONS,
    WINOGRAD,
    XNOR,
)
from lutterfly.golden.engines.engine import Engine, EngineConfig
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.engines.winograd import WinogradConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.compute.compute import ComputeUnit
from lutterfly.hdl.parts.verilog import to_verilog

#: All engines there are, FPC for as many channels as there are columns.
TINY = dataclasses.replace(
    PRESETS["tiny"], engines=PRESETS["tiny"].engines.having(FPC, FpcConfig(2)).having(WINOGRAD, WinogradConfig())
)


#: What stays out of the hardware with an engine: names of modules, ports and signals, as regular expressions.
TRACES = {
    MAXIMUM: ("maximum_binary", "exceeds"),
    DEPTHWISE: ("depthwise", "chain", r"line_\d", r"fields\w*\.depthwise\.rows"),
    XNOR: ("agreement", "uncounted", r"step\w*\.keeps", "selected_xnor"),
    FPC: ("butterfly", "fpc_shift", "whole_codes", "selected_fpc", r"fields\w*\.fpc"),
    ADD: ("add_sum", "operand", "is_add_sum", r"fields\w*\.add\.add_table", "add_table_write"),
    BINARY_MAXIMUM: ("binary_maximum", "by_bit"),
    MULTIPLY: ("multiply", "weighs", r"fields\w*\.multiply"),
    WINOGRAD: ("winograd", "^taps", "^control", "phase"),
}


def without(*left_out: Engine) -> Config:
    return dataclasses.replace(TINY, engines=TINY.engines.without(*left_out))


CONFIGS = {
    **{f"no {code.name}": without(code) for code in TRACES},
    "MAC alone": without(*TRACES),
    "two from outside": dataclasses.replace(
        TINY, engines=TINY.engines.having(MINIMUM, EngineConfig()).having(WEIGHTED, EngineConfig())
    ),
}


@functools.cache
def names(config: Config) -> set[str]:
    """All names in the Verilog of the compute unit."""
    text = to_verilog(ComputeUnit(config), name="dut")
    return set(re.findall(r"[A-Za-z_][\w.]*", text))


def test_each_engine_has_traces() -> None:
    assert set(TRACES) == set(SPECIFICATIONS) - {MAC}


@pytest.mark.regress
@pytest.mark.parametrize("engine", sweep(TRACES, kept=(DEPTHWISE, WINOGRAD)), ids=lambda engine: engine.name)
def test_an_engine_that_is_left_out_leaves_no_trace(engine: Engine) -> None:
    for word in TRACES[engine]:
        assert any(re.search(word, name) for name in names(TINY)), word
        assert not any(re.search(word, name) for name in names(without(engine))), word


@pytest.mark.regress
@pytest.mark.parametrize("name", CONFIGS)
def test_matches_golden(simulate, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_toy(monkeypatch)
    add_borrower(monkeypatch)
    simulate(ComputeUnit(CONFIGS[name]), env={"CONFIG": name})


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def every_engine_of_the_configuration(dut) -> None:
    # The simulator is a process of its own.
    add_toy(pytest.MonkeyPatch())
    add_borrower(pytest.MonkeyPatch())
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(1)
    scenario = random_scenario(config, rng, 80)
    assert {command["engine"] for command in scenario.commands} == set(config.engines)
    # Epilogues that are chosen: all that there are.
    chosen = {
        (command["engine"], SPECIFICATIONS[command["engine"]].epilogue_of(command).name)
        for command in scenario.commands
    }
    assert chosen == {(code, epilogue.name) for code in config.engines for epilogue in SPECIFICATIONS[code].epilogues}
    bench = ComputeBench(dut, config)
    await bench.start()
    await bench.fill(scenario)
    await bench.run(scenario, rng, 0.0)
    np.testing.assert_array_equal(await bench.image(rng), expected(config, scenario))
