# amaranth: UnusedElaboratable=no
"""The decoder against a package that nobody here wrote."""

from __future__ import annotations

import cocotb
import numpy as np
from cobs import cobs as judge

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.hdl.link.cobs import CobsDecoder


def test_decoder(simulate) -> None:
    simulate(CobsDecoder())


def expected(encoded: bytes) -> bytes | None:
    try:
        return judge.decode(encoded)
    except judge.DecodeError:
        return None


async def decoded(dut, line: bytes, errors: frozenset[int] = frozenset()) -> list[tuple[bytes, bool]]:
    """Each frame's bytes, and whether it is damaged."""
    frames, frame = [], bytearray()
    for place in range(len(line) + 1):
        byte = line[place] if place < len(line) else 0xAA
        word = byte | (place in errors) << 8
        valid, payload = await cycle(
            dut,
            {"input__valid": place < len(line), "input__payload": word},
            "output__valid",
            "output__payload",
        )
        if not valid:
            continue
        if payload >> 8 & 1:
            frames.append((bytes(frame), bool(payload >> 9)))
            frame.clear()
        else:
            frame.append(payload & 255)
    assert not frame
    return frames


def random_line(rng: np.random.Generator) -> bytes:
    kind = rng.random()
    data = rng.bytes(int(rng.integers(1, 600)))
    if kind < 0.3:
        data = data.replace(b"\0", b"\1")
    encoded = bytearray(judge.encode(data))
    if kind > 0.7:
        encoded[int(rng.integers(len(encoded)))] = int(rng.integers(1, 256))
    if kind > 0.9:
        encoded = bytearray(bytes(rng.integers(1, 5, size=30, dtype=np.uint8)))
    return bytes(encoded)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def frames_are_decoded_as_the_judge_does(dut) -> None:
    await start(dut, {"input__valid": 0, "input__payload": 0})
    rng = np.random.default_rng(2)
    edges = [judge.encode(data) for data in (b"", b"\0", b"\1" * 254, b"\1" * 255, b"\1" * 254 + b"\0")]
    lines = [*edges, b"\xff" + b"\1" * 253, b"\2", *(random_line(rng) for _ in range(60))]
    for line in lines:
        ((data, damaged),) = await decoded(dut, line + b"\0")
        assert damaged == (expected(line) is None)
        if not damaged:
            assert data == expected(line)
    frames = await decoded(dut, b"\0".join(lines) + b"\0")
    assert [None if damaged else data for data, damaged in frames] == [expected(line) for line in lines]


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def a_byte_with_an_error_damages_its_frame_alone(dut) -> None:
    await start(dut, {"input__valid": 0, "input__payload": 0})
    encoded = judge.encode(b"ab\0cd") + b"\0"
    for place in range(len(encoded) - 1):
        first, second = await decoded(dut, encoded * 2, frozenset([place]))
        assert first[1]
        assert second == (b"ab\0cd", False)
    # A delimiter with an error is none.
    assert [damaged for _, damaged in await decoded(dut, encoded + b"\0" + encoded, frozenset([len(encoded)]))] == [
        False,
        True,
    ]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def empty_frames_have_no_end(dut) -> None:
    await start(dut, {"input__valid": 0, "input__payload": 0})
    assert await decoded(dut, bytes(20)) == []
