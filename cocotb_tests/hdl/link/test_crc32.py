"""CRC-32 against zlib."""

from __future__ import annotations

import zlib

import cocotb
import numpy as np

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.hdl.link.cobs import RESIDUE, Crc32


def test_crc(simulate) -> None:
    simulate(Crc32())


async def summed(dut, data: bytes, *, pause: int) -> int:
    await cycle(dut, {"clear": 1, "valid": 1, "byte": 0x55})
    for place, byte in enumerate(data):
        await cycle(dut, {"clear": 0, "valid": 1, "byte": byte})
        for _ in range(pause * (place % 3)):
            await cycle(dut, {"valid": 0, "byte": 0xAA})
    (value,) = await cycle(dut, {"clear": 0, "valid": 0}, "value")
    return value


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pause=[0, 1])
async def sums_are_those_of_zlib(dut, pause: int) -> None:
    await start(dut, {"clear": 0, "valid": 0, "byte": 0})
    rng = np.random.default_rng(0)
    assert await summed(dut, b"", pause=pause) == 0
    for data in (b"123456789", b"\0", b"\xff" * 5, *(rng.bytes(int(rng.integers(1, 60))) for _ in range(30))):
        crc = zlib.crc32(data)
        assert await summed(dut, data, pause=pause) == crc
        assert await summed(dut, data + crc.to_bytes(4, "little"), pause=pause) == RESIDUE
