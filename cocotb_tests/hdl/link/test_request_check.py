"""What is clear of a request before it is carried out, against the golden twin."""

from __future__ import annotations

import cocotb
import numpy as np

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from lutterfly.golden.link.bridge import BridgeModel
from lutterfly.golden.link.frames import LEAST_BIT_TIME, MOST_BIT_TIME, Frame, pack_word
from lutterfly.golden.link.operations import AFTER, MAX_DATA, RULES, Operation
from lutterfly.hdl.link.frames import CHECK_LATENCY, RequestCheck, header_layout

ARENA_BYTES, REGISTER_BITS = 8192, 7
IDLE = {"remember": 0, "forget": 0, "status": 0}


def test_check(simulate) -> None:
    simulate(RequestCheck(arena_bytes=ARENA_BYTES, register_bits=REGISTER_BITS))


def twin() -> BridgeModel:
    return BridgeModel(
        25_000_000,
        bytearray(ARENA_BYTES),
        lambda address: (0, True),
        lambda address, value: True,
        register_bytes=1 << REGISTER_BITS,
        interrupt=lambda cycles: True,
    )


async def judged(dut, frame: Frame) -> tuple[int, int, int]:
    """(verdict, other, repeated)"""
    header = {name: getattr(frame, name) for name in ("sequence", "operation", "status", "address", "length")}
    inputs = {
        "header": pack(header, header_layout()),
        "data_bytes": len(frame.data),
        "crc": frame.crc,
        "word": int.from_bytes(frame.data[-4:], "little"),
    }
    for _ in range(CHECK_LATENCY):
        await cycle(dut, inputs | IDLE)
    return tuple(await cycle(dut, inputs | IDLE, "verdict", "other", "repeated"))


def edges() -> list[Frame]:
    """Every operation at the edges of its lengths, addresses and rates."""
    lengths = (
        0,
        1,
        3,
        4,
        5,
        8,
        60,
        64,
        68,
        132,
        MAX_DATA - 1,
        MAX_DATA,
        MAX_DATA + 1,
        2 * MAX_DATA,
        ARENA_BYTES,
        ARENA_BYTES + 1,
        (1 << 24) - 1,
        1 << 24,
        1 << 31,
    )
    addresses = (0, 2, 4, 64, 68, 124, 127, 128, ARENA_BYTES - 4, ARENA_BYTES - 1, ARENA_BYTES, 1 << 31, (1 << 32) - 1)
    frames = [
        Frame(1, operation, 0, address, length, bytes(min(length, MAX_DATA)) if has_data else b"")
        for operation in range(11)
        for address in addresses
        for length in lengths
        for has_data in {bool(operation in RULES and RULES[operation].has_data), length == 4}
    ]
    frames += [
        Frame(1, Operation.SET_RATE, 0, 0, 4, pack_word(parts))
        for limit in (LEAST_BIT_TIME, MOST_BIT_TIME, 1 << 31, 1 << 16)
        for parts in (limit - 1, limit, limit + 1)
    ]
    return [*frames, *(Frame(1, operation, 2, 0, 4) for operation in range(10)), Frame(1, 0xFF), Frame(1, 0x81)]


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def verdicts_are_those_of_the_twin(dut) -> None:
    await start(dut, IDLE)
    for frame in edges():
        status, _ = twin()._result(frame)
        assert await judged(dut, frame) == (status, 0, 0), frame


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def the_last_request_is_known_again(dut) -> None:
    await start(dut, IDLE)
    rng = np.random.default_rng(0)
    last: Frame | None = None
    # The wrap of numbers is among them.
    status, first = 0, 0xFFFF
    found = set()
    for _ in range(600):
        once, comes_after = rng.random() < 0.7, int(rng.random() < 0.4)
        operation = Operation.WRITE if once else Operation.READ
        number = (last.sequence + int(rng.integers(-1, 3))) % (1 << 16) if last else first
        frame = Frame(number, operation, comes_after, 0, 1, rng.bytes(1) if once else b"")
        if last is not None and rng.random() < 0.3:
            frame = last
        same = last is not None and frame.sequence == last.sequence
        follows = last is not None and frame.sequence == (last.sequence + 1) % (1 << 16) and not status
        misses = frame.status == AFTER and not same and not follows
        _, other, repeated = await judged(dut, frame)
        assert other == ((same and frame != last) or misses)
        assert repeated == (same and frame == last and frame.operation == Operation.WRITE)
        found.add((same, follows, misses))
        match int(rng.integers(3)):
            case 0:
                status = int(rng.choice([0, 3]))
                await cycle(dut, {"remember": 1, "forget": 0, "status": status})
                last = frame
                assert await cycle(dut, IDLE, "last_status") == [status]
            case 1 if rng.random() < 0.3:
                await cycle(dut, {"remember": 0, "forget": 1})
                last, first = None, 0xFFFF
    assert len(found) == 4
