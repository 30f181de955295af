# amaranth: UnusedElaboratable=no
"""The gate of the issue, cycle by cycle against what stands after it: a requantiser, and results that land."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.engines import ADD, BINARY_MAXIMUM, DEPTHWISE, FPC, MAC, MAXIMUM, MULTIPLY, XNOR
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import backlog_limit, window_results
from lutterfly.hdl.compute.issue_gate import IssueGate, foreseen_layout

LANDING = {
    MAC: 21,
    MAXIMUM: 9,
    DEPTHWISE: 14,
    XNOR: 21,
    FPC: 70,
    ADD: 6,
    BINARY_MAXIMUM: 9,
    MULTIPLY: 13,
}


#: Of these so many come after the engine.
FINISH = 5
CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "ecp5-85k")},
    "hands over": dataclasses.replace(PRESETS["tiny"], hands_over=True),
}


@pytest.mark.parametrize("name", sweep(CONFIGS, kept=("tiny", "hands over")))
def test_issue_gate(simulate, name: str) -> None:
    gate = IssueGate(CONFIGS[name], landing_latency=LANDING, epilogue_latency=FINISH)
    simulate(gate, env={"CONFIG": name})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_waits=[0.0, 0.1], p_valid=[1.0, 0.7])
async def passes_what_cannot_overflow_or_read_too_early(dut, p_waits: float, p_valid: float) -> None:
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(4)
    layout = foreseen_layout(config)
    limits = {code: backlog_limit(config, code) for code in config.engines}
    own = sorted(set(limits.values()) - {limits[MAC]})
    result_groups = config.array.lanes // config.array.requant_lanes
    most_groups = {code: result_groups * window_results(config, code) for code in config.engines}
    await start(dut, {"steps__valid": 0, "halt": 0})
    for _ in range(5):
        await cycle(dut, {})
    backlog, landed, held_back, waited = 0, 0, 0, 0
    step = None
    for now in range(3000):
        if step is None and rng.random() < p_valid:
            engine = int(rng.choice([*config.engines]))
            step = {
                "counts": int(rng.random() < 0.5),
                "waits": int(rng.random() < p_waits),
                **({"changes": int(rng.random() < p_waits)} if config.hands_over else {}),
                "engine": engine,
                "work": int(rng.integers(1, most_groups[engine] + 2)),
                **({"limit": 1 << own.index(limits[engine]) if limits[engine] in own else 0} if own else {}),
            }
        payload = {} if step is None else {"steps__payload": pack(step, layout)}
        (ready,) = await cycle(dut, payload | {"steps__valid": int(step is not None)}, "steps__ready")
        passes = False
        if step is not None:
            overflows = step["counts"] and backlog > limits[step["engine"]]
            too_early = (step["waits"] and now < landed) or (step.get("changes") and now < landed - FINISH)
            passes = not overflows and not too_early
            held_back += bool(overflows)
            waited += bool(too_early)
            assert ready == passes, now
        working = max(backlog - 1, 0)
        backlog = working
        if passes:
            if step["counts"]:
                backlog = working + step["work"]
                landed = now + 2 + LANDING[step["engine"]] + backlog
            step = None
    assert held_back if result_groups > 2 else True
    assert waited if p_waits else not waited


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def halts(dut) -> None:
    layout = foreseen_layout(CONFIGS[os.environ["CONFIG"]])
    step = pack({"counts": 0, "waits": 0, "engine": int(MAC), "work": 1}, layout)
    await start(dut, {"steps__valid": 1, "steps__payload": step, "halt": 0})
    assert await cycle(dut, {}, "steps__ready") == [1]
    assert await cycle(dut, {"halt": 1}, "steps__ready") == [0]
