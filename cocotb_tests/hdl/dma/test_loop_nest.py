# amaranth: UnusedElaboratable=no
"""The nest of loops of a transfer against Python's own loops: pointers that wrap, ends, context, both sides stalled."""

from __future__ import annotations

import itertools
from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import unsigned

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import receive, send
from lutterfly.hdl.dma.loop_nest import LoopNest, Nest

NEST = Nest(counts={"outer": 4, "middle": 3, "inner": 3}, pointers={"at": 9, "to": 6}, context=unsigned(4))


def test_walks(simulate) -> None:
    simulate(LoopNest(NEST))


def expected(nest: dict[str, Any]) -> list[dict[str, Any]]:
    """Every iteration, the innermost loop first."""
    counts = nest["count"]
    return [
        {
            "pointer": {
                name: (
                    nest["start"][name]
                    + sum(index * nest["pitch"][name][loop] for loop, index in zip(counts, indices, strict=True))
                )
                % (1 << width)
                for name, width in NEST.pointers.items()
            },
            "end": {loop: int(index == counts[loop] - 1) for loop, index in zip(counts, indices, strict=True)},
            "context": nest["context"],
        }
        for indices in itertools.product(*(range(count) for count in counts.values()))
    ]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4])
async def every_iteration(dut, p_stall: float) -> None:
    rng = np.random.default_rng(4)

    def drawn(number: int) -> dict[str, Any]:
        """Counts of 1 in every combination first, then any."""
        counts = {
            loop: 1 if number >> position & 1 else int(rng.integers(2, 1 << width))
            for position, (loop, width) in enumerate(NEST.counts.items())
        }
        return {
            "count": counts,
            "start": {name: int(rng.integers(1 << width)) for name, width in NEST.pointers.items()},
            "pitch": {
                name: {loop: int(rng.integers(1 << width)) for loop in NEST.counts}
                for name, width in NEST.pointers.items()
            },
            "context": number % 16,
        }

    nests = [drawn(number) for number in range(16)]
    iterations = [iteration for nest in nests for iteration in expected(nest)]
    await start(dut, {"nests__valid": 0, "iterations__ready": 0})
    cocotb.start_soon(send(dut.clk, dut, "nests", nests, rng, p_stall, shape=NEST.nest_layout))
    found = await receive(dut.clk, dut, "iterations", len(iterations), rng, p_stall, shape=NEST.iteration_layout)
    assert found == iterations
