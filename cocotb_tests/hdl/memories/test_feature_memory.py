# amaranth: UnusedElaboratable=no
"""The feature memory: any bytes at any address, results before transfers, results readable after WRITE_LATENCY."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack, send
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.memories.feature_memory import FETCH_LATENCY, WRITE_LATENCY, FeatureMemory, feature_write_layout

IDLE = {"result_valid": 0, "no_result": 1, "transfer_write__valid": 0, "read_address": 0}


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_feature_memory(simulate, preset: str) -> None:
    simulate(FeatureMemory(PRESETS[preset]), env={"PRESET": preset})


def result(valid: int) -> dict[str, int]:
    return {"result_valid": valid, "no_result": 1 - valid}


class Image:
    """What the memory holds, and random writes to it."""

    def __init__(self, seed: int):
        self.config = PRESETS[os.environ["PRESET"]]
        self.lanes = self.config.array.lanes
        self.layout = feature_write_layout(self.config)
        self.rng = np.random.default_rng(seed)
        self.bytes = np.zeros(self.config.memory.feature_bytes, np.uint8)

    def random_write(self, low: int, high: int) -> dict[str, int]:
        count = int(self.rng.integers(1, self.lanes + 1))
        data = self.rng.integers(0, 256, self.lanes, dtype=np.uint8)
        return {
            "address": int(self.rng.integers(low, high - count + 1)),
            "count": count,
            "data": int.from_bytes(data.tobytes(), "little"),
        }

    def apply(self, write: dict[str, int]) -> None:
        data = np.frombuffer(write["data"].to_bytes(self.lanes, "little"), np.uint8)
        self.bytes[write["address"] : write["address"] + write["count"]] = data[: write["count"]]

    def word(self, address: int) -> int:
        wrapped = np.take(self.bytes, range(address, address + self.lanes), mode="wrap")
        return int.from_bytes(wrapped.tobytes(), "little")


async def clear(dut, image: Image, size: int) -> None:
    for address in range(0, size, image.lanes):
        await cycle(
            dut,
            {
                **result(1),
                "result_write": pack({"address": address, "count": image.lanes, "data": 0}, image.layout),
            },
        )
    await cycle(dut, result(0))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def both_writers_and_the_reader(dut) -> None:
    image = Image(1)
    # Results go to the lower, transfers to the upper half of a region around the end of the memory's words; nothing is
    # read before it has landed.
    size = 64 * image.lanes
    await start(dut, IDLE)
    await clear(dut, image, size)
    transfers = [image.random_write(size // 2, size) for _ in range(300)]
    sender = cocotb.start_soon(
        send(dut.clk, dut, "transfer_write", transfers, np.random.default_rng(2), 0.3, shape=image.layout)
    )
    while not sender.done():
        write = image.random_write(0, size // 2)
        valid = int(image.rng.integers(2))
        await cycle(dut, {**result(valid), "result_write": pack(write, image.layout)})
        if valid:
            image.apply(write)
    for write in transfers:
        image.apply(write)
    await cycle(dut, result(0))
    for _ in range(4):
        await cycle(dut, {})

    addresses = [*range(size - image.lanes), *image.rng.integers(0, size - image.lanes, 200)]
    words = []
    for address in [*addresses, *[0] * FETCH_LATENCY]:
        words += await cycle(dut, {"read_address": int(address)}, "read_word")
    assert words[FETCH_LATENCY:] == [image.word(int(address)) for address in addresses]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_result_is_readable_after_its_latency(dut) -> None:
    image = Image(3)
    size = 8 * image.lanes
    await start(dut, IDLE)
    await clear(dut, image, size)
    for _ in range(100):
        write = image.random_write(image.lanes, size - image.lanes)
        image.apply(write)
        words = []
        for late in range(WRITE_LATENCY + FETCH_LATENCY + 1):
            inputs = {
                **result(int(late == 0)),
                "result_write": pack(write, image.layout),
                "read_address": write["address"] if late == WRITE_LATENCY else 0,
            }
            words += await cycle(dut, inputs, "read_word")
        assert words[WRITE_LATENCY + FETCH_LATENCY] == image.word(write["address"])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def addresses_wrap(dut) -> None:
    image = Image(4)
    await start(dut, IDLE)
    await clear(dut, image, image.config.memory.feature_bytes)
    for write in (
        {"address": 0, "count": image.lanes, "data": 0x11223344},
        {"address": len(image.bytes) - 2, "count": 2, "data": 0x5566},
    ):
        await cycle(dut, {**result(1), "result_write": pack(write, image.layout)})
        image.apply(write)
    await cycle(dut, result(0))
    for _ in range(4):
        await cycle(dut, {})
    words = []
    for _ in range(FETCH_LATENCY + 1):
        words += await cycle(dut, {"read_address": len(image.bytes) - 2}, "read_word")
    assert words[-1] == image.word(len(image.bytes) - 2)
