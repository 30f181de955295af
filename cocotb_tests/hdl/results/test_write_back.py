# amaranth: UnusedElaboratable=no
"""Write back: groups are collected to pieces, one write a piece, and nothing is written outside."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack, unpack
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.engines import DEPTHWISE, ENGINES, EngineConfigs
from lutterfly.golden.machine.write_back import packs
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.memories.feature_memory import feature_write_layout
from lutterfly.hdl.parts.isa import ErrorReport
from lutterfly.hdl.results.group_walk import GroupTarget
from lutterfly.hdl.results.write_back import WRITE_BACK_LATENCY, WriteBack

#: Pieces of one and four bytes of bits, and of a quarter of a byte.
CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "ecp5-85k")},
    **{
        f"{name}, packing": dataclasses.replace(
            PRESETS[name], engines=EngineConfigs.of(*ENGINES.values(), DEPTHWISE=PRESETS[name].engines[DEPTHWISE])
        )
        for name in ("tiny", "ecp5-85k", "large")
    },
}


@pytest.mark.parametrize("name", sweep(CONFIGS, kept=("tiny", "ecp5-85k, packing")))
def test_write_back(simulate, name: str) -> None:
    simulate(WriteBack(CONFIGS[name]), env={"CONFIG": name})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def every_piece(dut, p_stall: float) -> None:
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(1)
    width, columns, size = config.array.requant_lanes, config.array.columns, config.memory.feature_bytes
    layout = feature_write_layout(config)
    await start(dut, {"place": 0, "halt": 0})
    inputs, expected = [], []
    bit, byte, was_packed, index = 0, 0, False, 0
    for number in range(400):
        count = int(rng.integers(1, columns + 1))
        packed = packs(config) and rng.random() < 0.5
        length = -(-count // 8) if packed else count
        # The last place and the first that is none, or any.
        address = {
            0: size - length,
            1: size - length + 1,
            2: int(rng.integers(size - length + 1, 1 << 24)),
            3: (1 << 24) - 1,
        }.get(number % 20, int(rng.integers(0, size - length + 1)))
        data = rng.integers(0, 256, columns, dtype=np.uint8)
        groups = -(-count // width)
        outside = address + length > size
        written = data[:count].tobytes()
        if packed:
            written = np.packbits(data[:count] < 128, bitorder="little").tobytes()
            if columns < 8:
                # After what pieces before have left of the byte, or in a new one.
                bit = int(rng.choice([0, bit + columns])) % 8 if was_packed else 0
                byte = (byte if bit else 0) | written[0] << bit
                written = bytes([byte])
        was_packed = packed
        # A byte has bits of one command.
        index = index if packed and bit else number
        for group in range(groups):
            while rng.random() < p_stall:
                inputs.append(({"place": pack({"slot": group}, GroupTarget)}, (0, None, 0, None)))
            last = group == groups - 1
            place = {
                "valid": 1,
                "write": int(last),
                "finish": int(last and number % 3 == 0),
                "slot": group,
                "address": address,
                "count": count,
                "index": index,
                "packed": int(packed),
                "bit": bit,
            }
            values = int.from_bytes(data[group * width :][:width].tobytes(), "little")
            write = (address, length, written) if last and not outside else None
            error = {
                "valid": 1,
                "code": int(ErrorCode.ADDRESS_RANGE),
                "unit": int(Unit.WRITE_BACK),
                "index": index,
                "address": address,
            }
            inputs.append(
                (
                    {"place": pack(place, GroupTarget), "values": values},
                    (
                        int(write is not None),
                        write,
                        int(place["finish"] and not outside),
                        error if last and outside else None,
                    ),
                )
            )
    for driven, _ in [*inputs, *[({"place": 0}, None)] * WRITE_BACK_LATENCY]:
        names = ("write_valid", "no_write", "write", "done", "error")
        valid, none, write, done, error = await cycle(dut, driven, *names)
        assert none == 1 - valid
        fields = unpack(write, layout) if valid else None
        piece = (
            (
                fields["address"],
                fields["count"],
                fields["data"].to_bytes(config.array.lanes, "little")[: fields["count"]],
            )
            if valid
            else None
        )
        expected.append((valid, piece, done, unpack(error, ErrorReport) if error & 1 else None))
    assert expected[WRITE_BACK_LATENCY:] == [outputs for _, outputs in inputs]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_halt_suppresses_writes(dut) -> None:
    await start(dut, {"halt": 1})
    place = pack({"valid": 1, "write": 1, "finish": 1, "slot": 0, "address": 0, "count": 1, "index": 0}, GroupTarget)
    for _ in range(5):
        valid, none, done = await cycle(dut, {"place": place}, "write_valid", "no_write", "done")
        assert not valid
        assert none
        assert not done
