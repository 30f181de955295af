# amaranth: UnusedElaboratable=no
"""An engine that the project does not have, with a stage of its own in the array: alone beside MAC, and among all."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.compute_bench import ComputeBench, expected, random_scenario
from cocotb_tests.support.toys.toy_stage import PEAK, PeakConfig, add_stage, greatest_sums
from lutterfly.golden.config_parts import ArrayConfig
from lutterfly.golden.engines import DEPTHWISE, FPC, MAC, SPECIFICATIONS, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.floorplan import ArrayWaits
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.engines.winograd import WinogradConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.compute.compute import ComputeUnit
from lutterfly.hdl.engines.mac_array import MacArray

TINY = PRESETS["tiny"]
CONFIGS = {
    "beside MAC": dataclasses.replace(TINY, engines=EngineConfigs.of(MAC).having(PEAK, PeakConfig())),
    # Behind the words and weights of WINOGRAD, beside chains, the counter of bits and both loans.
    "among all": dataclasses.replace(
        TINY,
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=2),
        engines=TINY.engines.having(WINOGRAD, WinogradConfig())
        .having(FPC, FpcConfig(4))
        .having(DEPTHWISE, DepthwiseConfig(taps=2, chains=2))
        .having(PEAK, PeakConfig()),
        hands_over=True,
    ),
}


def test_twin_by_hand() -> None:
    words, weights = np.array([[3, -4], [-1, 0]], np.int8), np.array([[[2, 5]], [[7, 7]]], np.int8)
    # 3 * 2 + 4 * 5 and one negative byte; 1 * 7 and one.
    assert greatest_sums(words, weights, 0).tolist() == [27]
    # Flipped, x is -1 - x: 4 * 2 + 3 * 5 and one negative byte; 0 * 7 + 1 * 7 and one.
    assert greatest_sums(words, weights, 0xFF).tolist() == [24]


@pytest.mark.parametrize("name", CONFIGS)
def test_all_engines_of_the_array_wait_for_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_stage(monkeypatch)
    config = CONFIGS[name]
    array, alone = MacArray(config), MacArray(dataclasses.replace(config, engines=config.engines.without(PEAK)))
    assert array.latencies == {code: SPECIFICATIONS[code].latency(config, {}) for code in array.latencies}
    assert array.latencies[MAC] == array.latencies[PEAK] == alone.latencies[MAC] + 2


def test_a_wait_that_the_configuration_does_not_know_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    add_stage(monkeypatch)
    monkeypatch.setattr(PeakConfig, "array_waits", lambda self: ArrayWaits(words=1))
    with pytest.raises(ValueError, match=r"PEAK\.array_waits must be .*totals=1.*, not .*totals=0"):
        MacArray(CONFIGS["beside MAC"])


@pytest.mark.regress
@pytest.mark.parametrize("name", CONFIGS)
def test_matches_golden(simulate, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_stage(monkeypatch)
    simulate(ComputeUnit(CONFIGS[name]), env={"CONFIG": name})


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def commands_of_every_engine(dut) -> None:
    # The simulator is a process of its own.
    add_stage(pytest.MonkeyPatch())
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(2)
    scenario = random_scenario(config, rng, 30)
    assert {command["engine"] for command in scenario.commands} == set(config.engines)
    bench = ComputeBench(dut, config)
    await bench.start()
    await bench.fill(scenario)
    await bench.run(scenario, rng, 0.0)
    np.testing.assert_array_equal(await bench.image(rng), expected(config, scenario))
