# amaranth: UnusedElaboratable=no
"""The walk over the groups of commands of every kind: a group each cycle, in order, with both sides stalled."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.compute_bench import payload, random_scenario
from cocotb_tests.support.benches.groups import groups_of, has_wide_results
from cocotb_tests.support.benches.streams import StreamMonitor, receive, send
from cocotb_tests.support.networks.butterflies import BURST_CONFIGS, CHAIN_CONFIGS
from cocotb_tests.support.tiers import sweep
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.isa import command_shape
from lutterfly.hdl.results.group_walk import GroupWalk, group_layout

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "ecp5-85k")},
    "four groups a piece": dataclasses.replace(PRESETS["tiny"], array=ArrayConfig(4, 4, 1)),
    "bursts": BURST_CONFIGS["two"],
    "chains": CHAIN_CONFIGS["chains"],
}


@pytest.mark.parametrize("name", sweep(CONFIGS, kept=("four groups a piece",)))
def test_walks(simulate, name: str) -> None:
    simulate(GroupWalk(CONFIGS[name]), env={"CONFIG": name})


def expected(number: int, command: dict[str, int], config: Config) -> Iterator[dict[str, Any]]:
    """The groups of a command, as they come to the result FIFO."""
    for group in groups_of(number, command, config):
        ends_result = (group.lane + group.lanes) % config.array.lanes == 0
        place = {name: value for name, value in group.place.items() if name != "valid"}
        yield {
            "number": group.lane // group.lanes,
            "pops": int(group.is_last or ends_result),
            "is_wide": int(has_wide_results(command)),
            "word": group.word,
            "settings": group.settings,
            "place": place | {"bit": place["bit"] * place["packed"]},
        }


def of_hardware(group: dict[str, Any]) -> dict[str, Any]:
    """The same: ``valid`` is its user's, and ``bit`` counts only where results are packed."""
    place = {name: value for name, value in group["place"].items() if name != "valid"}
    return group | {"place": place | {"bit": place["bit"] * place["packed"]}}


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(p_context=[0.0, 0.9], p_stall=[0.0, 0.5])
async def every_group(dut, p_context: float, p_stall: float) -> None:
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(8)
    commands = random_scenario(config, rng, 25).commands
    wanted = [group for number, command in enumerate(commands) for group in expected(number, command, config)]
    contexts = [payload({"index": number, **command}) for number, command in enumerate(commands)]
    await start(dut, {"context__valid": 0, "groups__ready": 0})
    layout = group_layout(config)
    monitor = StreamMonitor(dut.clk, dut, "groups", shape=layout)
    cocotb.start_soon(send(dut.clk, dut, "context", contexts, rng, p_context, shape=command_shape(isa.COMPUTE)))
    found = await receive(dut.clk, dut, "groups", len(wanted), np.random.default_rng(9), p_stall, shape=layout)
    for number, (group, one) in enumerate(zip(found, wanted, strict=True)):
        assert of_hardware(group) == one, f"group {number}"
    if not p_context and not p_stall:
        # But for the pauses between commands.
        assert monitor.cycles[-1] - monitor.cycles[0] == len(wanted) - 1 + len(commands) - 1
