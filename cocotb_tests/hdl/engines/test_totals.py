# amaranth: UnusedElaboratable=no
"""One total or both of windows of Winograd steps, and one of all others, in the cycle in which they are due."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Value
from amaranth.lib import data

from cocotb_tests.support.benches.array_bench import CONFIG, PHASED, WAITS, phased_steps, windows
from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from lutterfly.golden.engines import MAC, WINOGRAD
from lutterfly.golden.numerics.winograd import GROUP, outputs
from lutterfly.hdl.engines.engine import ACCUMULATOR_BITS, step_layout
from lutterfly.hdl.engines.winograd import WinogradTotals, phased

#: With the bits of a sum: as a column's are, and so many that accumulators overflow.
KINDS = {
    "chains": (PHASED, 21),
    "no chains": (phased(step_layout(CONFIG, (MAC, WINOGRAD), ("winograd",))), 21),
    "overflow": (PHASED, 31),
}
#: From a step that fires to its total: that of an accumulator, and what WINOGRAD adds.
LATENCY = 1 + WAITS.totals


@pytest.mark.parametrize("kind", KINDS)
def test_totals(simulate, kind: str) -> None:
    layout, sum_bits = KINDS[kind]
    own = {"fires": _no_chain} if "chain" in layout.members else {}
    simulate(WinogradTotals(step=layout, sum_bits=sum_bits, total_bits=ACCUMULATOR_BITS, **own), env={"KIND": kind})


def _no_chain(step: data.View) -> Value:
    """The results of chains are not those of columns."""
    return step.valid & step.fire & ~step.chain


def totals_of(window: list, sums: np.ndarray) -> list[int]:
    """What a window gives: as its engine's twin, or a sum modulo 2**32."""
    last, own = window[-1], sums[[bool(step["valid"]) for step in window]]
    if last["winograd"]:
        both = outputs(own.reshape(-1, GROUP, 1).sum(axis=0))
        return both[: 1 + last["fields"]["winograd"]["further"], 0].tolist()
    return own.sum(keepdims=True).astype(np.int32).tolist()


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_gap=[0.0, 0.4])
async def every_total(dut, p_gap: float) -> None:
    rng = np.random.default_rng(13)
    layout, sum_bits = KINDS[os.environ["KIND"]]
    limit = 1 << sum_bits - 1
    inputs, expected = [], []
    for window in windows(rng, 150, p_gap):
        sums = rng.integers(-limit, limit, len(window))
        if rng.random() < 0.3:
            sums = rng.choice(np.array([-limit, limit - 1]), len(window))
        steps = [{name: step[name] for name in layout.members} for step in phased_steps(rng, window)]
        inputs += zip(steps, sums, strict=True)
        if not steps[-1].get("chain"):
            totals = totals_of(window, sums)
            expected += [(len(inputs) - 1 + LATENCY + number, total) for number, total in enumerate(totals)]
    await start(dut, {"step": 0, "sum": 0})
    found = []
    for now, (step, value) in enumerate([*inputs, *[({"valid": 0}, 0)] * (LATENCY + 1)]):
        given = {"step": pack(step, layout), "sum": int(value) & (1 << sum_bits) - 1}
        fired, total = await cycle(dut, given, "fired", "total")
        if fired:
            found.append((now, total - (total >> ACCUMULATOR_BITS - 1 << ACCUMULATOR_BITS)))
    assert found == expected
