# amaranth: UnusedElaboratable=no
"""Which commands are refused: every opcode and engine, and every bit that must be zero."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.golden import isa
from lutterfly.golden.engines import find_engine, format_of
from lutterfly.golden.isa import COMMAND_BITS, Opcode
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Queue
from lutterfly.hdl.control.queue import Legality


@pytest.mark.parametrize(
    ("preset", "queue", "cores"),
    [
        pytest.param("tiny", Queue.DMA, 1, marks=pytest.mark.regress),
        ("tiny", Queue.DMA, 2),
        ("ecp5-85k", Queue.COMPUTE, 1),
    ],
)
def test_legality(simulate, preset: str, queue: Queue, cores: int) -> None:
    dut = Legality(PRESETS[preset], isa.opcodes(queue, cores))
    simulate(dut, env={"PRESET": preset, "QUEUE": queue.name, "CORES": str(cores)})


def expected(command: int) -> ErrorCode:
    """Why the queue refuses it; NONE if it does not."""
    config, queue = PRESETS[os.environ["PRESET"]], Queue[os.environ["QUEUE"]]
    words = command.to_bytes(isa.COMMAND_BYTES, "little")
    if command & 15 not in isa.opcodes(queue, int(os.environ["CORES"])):
        return ErrorCode.ILLEGAL_OPCODE
    opcode, engine = Opcode(command & 15), isa.COMPUTE.decode(words)["engine"]
    if opcode is Opcode.COMPUTE and engine not in config.engines:
        return ErrorCode.ILLEGAL_ENGINE
    fmt = format_of(opcode, engine)
    absent = config.engines[find_engine(engine)].absent_fields() if opcode is Opcode.COMPUTE else ()
    same = fmt.encode(**{**fmt.decode(words), "reserved": 0, **dict.fromkeys(absent, 0)}) == words
    return ErrorCode.NONE if same else ErrorCode.ILLEGAL_FIELD


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_bit(dut) -> None:
    rng, queue = np.random.default_rng(7), Queue[os.environ["QUEUE"]]
    await start(dut, {"command": 0})
    commands = [code | int(rng.integers(1 << 30)) << 8 for code in range(16)]
    for opcode in isa.opcodes(queue, int(os.environ["CORES"])):
        engines = range(16) if opcode is Opcode.COMPUTE else (0,)
        for engine in engines:
            plain = opcode | (engine << isa.COMPUTE.field("engine").lsb if opcode is Opcode.COMPUTE else 0)
            commands += [plain, *(plain | 1 << bit for bit in range(4, COMMAND_BITS))]
    found = set()
    for command in commands:
        dut.command.value = command
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        legal, error = await cycle(dut, {}, "legal", "error")
        wanted = expected(command)
        assert (legal, wanted is ErrorCode.NONE or error) == (
            wanted is ErrorCode.NONE,
            wanted is ErrorCode.NONE or wanted,
        )
        found.add(wanted)
    engines = {ErrorCode.ILLEGAL_ENGINE} if queue is Queue.COMPUTE else set()
    assert found == {ErrorCode.NONE, ErrorCode.ILLEGAL_OPCODE, ErrorCode.ILLEGAL_FIELD} | engines
