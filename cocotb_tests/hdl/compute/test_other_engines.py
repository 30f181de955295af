# amaranth: UnusedElaboratable=no
"""Other sets of engines: each of them left out in turn, and one that the project does not have."""

from __future__ import annotations

import dataclasses
import os
import re

import cocotb
import numpy as np
import pytest

from benches.compute_bench import ComputeBench, expected
from benches.random_commands import random_scenario
from benches.toy_engine import MINIMUM, add_toy
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, BINARY_MAXIMUM, DEPTHWISE, FPC, MAC, MAXIMUM, XNOR
from lutterfly.golden.engines.engine import Engine, EngineConfig
from lutterfly.golden.engines.fpc.configuration import FpcConfig
from lutterfly.golden.engines.specifications import SPECIFICATIONS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.compute.compute import Compute
from lutterfly.hdl.parts.verilog import to_verilog

#: All engines there are, FPC for as many channels as there are columns.
TINY = dataclasses.replace(PRESETS["tiny"], engines=PRESETS["tiny"].engines.having(FPC, FpcConfig(2)))


#: What stays out of the hardware with an engine: names of modules, ports and signals, as regular expressions.
TRACES = {
    MAXIMUM: ("maximum_binary", "exceeds"),
    DEPTHWISE: ("depthwise", "chain", "line$", r"fields\w*\.depthwise\.rows"),
    XNOR: ("agreement", "uncounted", r"step\w*\.keeps", "mode_binary"),
    FPC: ("butterfly", "is_late", "direct_finish", "direct_values", r"fields\w*\.fpc"),
    ADD: ("add_tables", "operand", "is_add", r"fields\w*\.add\.add_table", "add_table_write"),
    BINARY_MAXIMUM: ("binary_maximum", "by_bit"),
}


def without(*left_out: Engine) -> Config:
    return dataclasses.replace(TINY, engines=TINY.engines.without(*left_out))


CONFIGS = {
    **{f"no {code.name}": without(code) for code in TRACES},
    "MAC alone": without(*TRACES),
    "MINIMUM for ADD": dataclasses.replace(TINY, engines=without(ADD).engines.having(MINIMUM, EngineConfig())),
}
#: The others take half a minute each.
IN_EVERY_RUN = ("no DEPTHWISE", "MINIMUM for ADD")


def names(config: Config) -> set[str]:
    """All names in the Verilog of the compute unit."""
    text = to_verilog(Compute(config), name="dut")
    return set(re.findall(r"[A-Za-z_][\w.]*", text))


def test_an_engine_that_is_left_out_leaves_no_trace() -> None:
    assert set(TRACES) == set(SPECIFICATIONS) - {MAC}
    everything = names(TINY)
    found = {code: names(without(code)) for code in TRACES}
    for code, words in TRACES.items():
        for word in words:
            assert any(re.search(word, name) for name in everything), word
            assert not any(re.search(word, name) for name in found[code]), word


@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.regress) for name in CONFIGS]
)
def test_matches_golden(simulate, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_toy(monkeypatch)
    simulate(Compute(CONFIGS[name]), env={"CONFIG": name})


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def every_engine_of_the_configuration(dut) -> None:
    # The simulator is a process of its own.
    add_toy(pytest.MonkeyPatch())
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(0)
    scenario = random_scenario(config, rng, 40)
    assert {command["engine"] for command in scenario.commands} == set(config.engines)
    bench = ComputeBench(dut, config)
    await bench.start()
    await bench.fill(scenario)
    await bench.run(scenario, rng, 0.0)
    np.testing.assert_array_equal(await bench.image(rng), expected(config, scenario))
