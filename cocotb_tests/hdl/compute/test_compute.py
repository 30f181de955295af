# amaranth: UnusedElaboratable=no
"""The compute unit against the golden machine: random commands of every shape, dependent or not, with DMA traffic."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.compute_bench import ComputeBench, all_pairs, expected, limit_shapes, random_scenario
from cocotb_tests.support.benches.streams import send
from cocotb_tests.support.networks.butterflies import FPC_CONFIGS
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.config_parts import ArrayConfig
from lutterfly.golden.engines import DEPTHWISE, ENGINES, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.winograd import WinogradConfig
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.compute.compute import ComputeUnit
from lutterfly.hdl.memories.feature_memory import feature_write_layout
from lutterfly.hdl.parts.pipeline import SIMULATED

COMMANDS = 40
#: Pairs of commands whose lists every configuration's memory holds.
RUN = 40


CONFIGS = {name: PRESETS[name] for name in ("tiny", "ecp5-85k")} | {
    # Two chains of two columns, a result of which takes two groups; and commands that begin early.
    "rows": dataclasses.replace(
        PRESETS["tiny"],
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=2),
        engines=PRESETS["tiny"].engines.having(DEPTHWISE, DepthwiseConfig(taps=2, chains=2)),
        hands_over=True,
    ),
    "tiny, hands over": dataclasses.replace(PRESETS["tiny"], hands_over=True),
    # Neighbouring results, beside all that the array does else.
    "pairs": dataclasses.replace(
        PRESETS["tiny"],
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=2),
        engines=PRESETS["tiny"].engines.having(WINOGRAD, WinogradConfig()),
        hands_over=True,
    ),
    # Bursts with an epilogue of their own between all other engines.
    "bursts, hand over": dataclasses.replace(FPC_CONFIGS["bottom-up"], hands_over=True),
}
CONFIGS |= FPC_CONFIGS | {
    "all engines": dataclasses.replace(PRESETS["ecp5-85k"], engines=EngineConfigs.of(*ENGINES.values()))
}
#: The rest takes minutes. Of it `ecp5-85k`, chains, pairs and a butterfly run networks on the core in every run; all
#: engines of a small core are in test_other_engines.py, for `make regress` as well.
IN_EVERY_RUN = ("tiny",)


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize("name", sweep(CONFIGS, kept=IN_EVERY_RUN))
def test_matches_golden(simulate, name: str) -> None:
    simulate(ComputeUnit(CONFIGS[name]), env={"CONFIG": name})


@pytest.mark.verilator
@pytest.mark.regress
def test_matches_golden_where_parts_sleep(simulate) -> None:
    """As in every network that is simulated."""
    name = "bursts, hand over"
    simulate(ComputeUnit(CONFIGS[name]), env={"CONFIG": name}, platform=SIMULATED)


@cocotb.test(timeout_time=10, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.9], seed=[0, 1])
async def all_commands(dut, p_stall: float, seed: int) -> None:
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(seed)
    scenario = random_scenario(config, rng, COMMANDS)
    bench = ComputeBench(dut, config)
    await bench.start()
    await bench.fill(scenario)

    # Beside the commands: writes of what already stands in the lower half, and reads of anything.
    lanes = config.array.lanes
    quarter = scenario.memories[LocalMemory.FEATURE][-2 * lanes :]
    same = [
        {
            "address": config.memory.feature_bytes - lanes,
            "count": lanes,
            "data": int.from_bytes(quarter[lanes:].tobytes(), "little"),
        }
    ] * 300
    cocotb.start_soon(
        send(
            dut.clk,
            dut,
            "feature_write",
            same,
            np.random.default_rng(seed + 1),
            0.5,
            shape=feature_write_layout(config),
        )
    )
    reads = cocotb.start_soon(bench.read(range(0, 64 * lanes, lanes), np.random.default_rng(seed + 2), 0.5))
    await bench.run(scenario, rng, p_stall)
    low = await reads
    assert low == scenario.memories[LocalMemory.FEATURE][: 64 * lanes].tobytes(), "reads beside commands"

    np.testing.assert_array_equal(await bench.image(rng), expected(config, scenario))
    assert bench.issued == sum(
        c["outer"] * c["middle"] * (c["inner"] * (c["steps"] - c["skip"]) + c["skip"]) for c in scenario.commands
    )


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(run_length=[20, 90], seed=[0, 1])
async def long_runs_bound_by_results(dut, run_length: int, seed: int) -> None:
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(seed)
    scenario = random_scenario(config, rng, 2 * run_length, run_length=run_length)
    bench = ComputeBench(dut, config)
    await bench.start()
    await bench.fill(scenario)
    await bench.run(scenario, rng, 0.0)
    np.testing.assert_array_equal(await bench.image(rng), expected(config, scenario))


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def every_pair_of_commands_at_their_limits(dut) -> None:
    """One directly behind the other: what a command leaves under way meets whatever may come next."""
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(5)
    shapes = limit_shapes(config, rng)
    sequence = [shapes[place] for place in all_pairs(len(shapes))]
    bench, done, memories = ComputeBench(dut, config), 0, {}
    await bench.start()
    for first in range(0, len(sequence) - 1, RUN):
        part = sequence[first : first + RUN + 1]
        scenario = random_scenario(config, rng, len(part), shapes=part)
        if memories:
            # All but the lists stays as it is.
            scenario.memories = memories | {LocalMemory.LIST: scenario.memories[LocalMemory.LIST]}
            scenario.filled = {LocalMemory.LIST: scenario.filled[LocalMemory.LIST]}
        await bench.fill(scenario)
        bench.done = 0
        await bench.run(scenario, rng, 0.0)
        features = expected(config, scenario)
        np.testing.assert_array_equal(await bench.image(rng), features, err_msg=f"from pair {first}")
        memories = scenario.memories | {LocalMemory.FEATURE: features}
        done += len(part) - 1
    assert done == len(shapes) ** 2
