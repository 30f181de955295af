# amaranth: UnusedElaboratable=no
"""The weight memory: written in units of one column, read column after column."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.engines.floorplan import Floorplan
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.memories.weight_memory import WeightMemory
from lutterfly.hdl.parts.device import RAM_LATENCY


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_weight_memory(simulate, preset: str) -> None:
    simulate(WeightMemory(PRESETS[preset]), env={"PRESET": preset})


class Image:
    """What the memory holds, and random writes to it."""

    def __init__(self, seed: int):
        self.config = PRESETS[os.environ["PRESET"]]
        self.hops = Floorplan.of(self.config).hops
        self.lanes, self.columns = self.config.array.lanes, self.config.array.columns
        self.rng = np.random.default_rng(seed)
        self.words = [0, 1, 2, 3, self.config.weight_words // 2, self.config.weight_words - 1]
        self.bytes = np.zeros((self.config.weight_words, self.columns, self.lanes), np.uint8)

    async def write(self, dut, word: int) -> None:
        self.bytes[word] = self.rng.integers(0, 256, (self.columns, self.lanes), dtype=np.uint8)
        for column, written in enumerate(self.bytes[word]):
            address = word * self.columns + column
            data = int.from_bytes(written.tobytes(), "little")
            await cycle(dut, {"write__en": 1, "write__addr": address, "write__data": data})
        dut.write__en.value = 0

    def check(self, outputs: list[int], addresses: list[int]) -> None:
        """What the columns gave from the first address on."""
        for column, hops in enumerate(self.hops):
            late = RAM_LATENCY + hops
            got = [
                output.to_bytes(self.columns * self.lanes, "little")[column * self.lanes :][: self.lanes]
                for output in outputs[late : late + len(addresses)]
            ]
            assert got == [self.bytes[address, column].tobytes() for address in addresses]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def each_column_after_its_hops(dut) -> None:
    image = Image(1)
    await start(dut, {"write__en": 0})
    for word in image.words:
        await image.write(dut, word)
    addresses = image.rng.choice(image.words, 200).tolist()
    outputs = []
    for address in [*addresses, *[0] * (RAM_LATENCY + max(image.hops))]:
        outputs += await cycle(dut, {"address": address}, "weights")
    image.check(outputs, addresses)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def what_is_written_is_read_by_all_addresses_that_come_later(dut) -> None:
    image = Image(2)
    await start(dut, {"write__en": 0, "address": 0})
    for word in image.words:
        await image.write(dut, word)
        # The last write is a cycle behind, and farther where writes go on when addresses are there.
        for _ in range(1 + max(column - hops for column, hops in enumerate(image.hops))):
            await cycle(dut, {"address": word})
        outputs = []
        for address in [word, *[0] * (RAM_LATENCY + max(image.hops))]:
            outputs += await cycle(dut, {"address": address}, "weights")
        image.check(outputs, [word])
