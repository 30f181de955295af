# amaranth: UnusedElaboratable=no
"""Device layer: what its parameters may be, and that a RAM gives what was written, two cycles after its address."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.hdl.parts.device import RAM_LATENCY, Ram

#: Two parts in the fabric, of which one has a bit more.
WIDTH, DEPTH = 129, 32


@pytest.mark.parametrize("granularity", [-1, 0, 3, 16])
def test_granularity_divides_the_width(granularity: int) -> None:
    message = rf"^granularity must be a divisor of width \(8 bits\), not {granularity}$"
    with pytest.raises(ValueError, match=message):
        Ram(width=8, depth=4, granularity=granularity)


def test_words_in_the_fabric_are_written_as_a_whole() -> None:
    with pytest.raises(ValueError, match=r"^granularity must be 8 in the fabric, not 4$"):
        Ram(width=8, depth=4, granularity=4, is_block=False)


@pytest.mark.parametrize(("granularity", "enables"), [(1, 8), (4, 2), (8, 1), (None, 1)])
def test_a_write_enable_for_each_part(granularity: int | None, enables: int) -> None:
    assert len(Ram(width=8, depth=4, granularity=granularity).write_enable) == enables


@pytest.mark.parametrize("is_block", [True, False])
def test_rams(simulate, is_block: bool) -> None:
    simulate(Ram(width=WIDTH, depth=DEPTH, is_block=is_block))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def words_that_were_written(dut) -> None:
    rng = np.random.default_rng(5)
    await start(dut, {"read_address": 0, "write_address": 0, "write_data": 0, "write_enable": 0})
    words: dict[int, int] = {}
    due: list[int | None] = [None] * RAM_LATENCY
    for _ in range(2000):
        write, read = rng.integers(DEPTH, size=2).tolist()
        word, enable = int.from_bytes(rng.bytes(17), "little") >> 7, int(rng.integers(2))
        # What is read while it is written is undefined.
        due.append(None if enable and read == write else words.get(read))
        ports = {"read_address": read, "write_address": write, "write_data": word, "write_enable": enable}
        (found,) = await cycle(dut, ports, "read_data")
        wanted = due.pop(0)
        assert wanted is None or found == wanted
        if enable:
            words[write] = word
    assert len(words) == DEPTH
