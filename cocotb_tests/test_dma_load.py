# amaranth: UnusedElaboratable=no
"""DmaLoad behind the guard, on AXI memory, against golden.dma."""
from __future__ import annotations

import os

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from dma_bench import BASE, READ_LATENCY, Bench, DmaBench, random_fill, random_load

from lutterfly.golden import isa
from lutterfly.golden.config import PRESETS
from lutterfly.golden.isa import ErrorCode, LocalMemory, Unit


@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_load_and_fill(simulate, preset: str) -> None:
    simulate(DmaBench(PRESETS[preset]), env={"PRESET": preset})


ONE_RUN = {"row_pieces": 1, "rows": 1, "folds": 1}


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4], seed=[0, 1])
async def random_commands_match_golden(dut, p_stall: float, seed: int) -> None:
    bench = Bench(dut, seed, p_stall)
    await bench.start()
    for _ in range(2):
        await bench.run([(isa.LOAD, random_load(bench.rng, bench.config)) if bench.rng.random() < 0.75 else
                         (isa.FILL, random_fill(bench.rng, bench.config)) for _ in range(30)])
        bench.compare()
