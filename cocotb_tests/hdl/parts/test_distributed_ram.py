# amaranth: UnusedElaboratable=no
"""Words in distributed RAM: what was written last is read, in the cycle of its address."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import unsigned

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.hdl.parts.device import DistributedRam


# Part of a bank, a bank, two of them and four; both copies.
@pytest.mark.parametrize(("depth", "copy"), [(2, 0), (8, 1), (16, 0), (32, 0), (64, 1)])
def test_distributed_ram(simulate, depth: int, copy: int) -> None:
    simulate(DistributedRam(unsigned(9), depth=depth, copy=copy), env={"DEPTH": str(depth)})


@pytest.mark.parametrize("depth", [0, 1, 24])
def test_a_depth_that_is_no_power_of_two_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=f"depth must be a power of two, at least 2, not {depth}"):
        DistributedRam(unsigned(9), depth=depth)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_last_word_is_read(dut) -> None:
    depth, rng = int(os.environ["DEPTH"]), np.random.default_rng(4)
    await start(dut, {"write_valid": 0})
    kept: dict[int, int] = {}
    coming = None
    for number in range(12 * depth):
        # Every word once, and then any.
        valid, address = number < depth or rng.random() < 0.5, number if number < depth else int(rng.integers(depth))
        data, wanted = int(rng.integers(512)), int(rng.integers(depth))
        inputs = {"write_valid": int(valid), "write_address": address, "write_data": data, "read_address": wanted}
        (read,) = await cycle(dut, inputs, "read_data")
        if wanted in kept:
            assert read == kept[wanted]
        if coming is not None:
            kept[coming] = data
        coming = address if valid else None
