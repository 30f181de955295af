# amaranth: UnusedElaboratable=no
"""The whole core through its AXI ports: programs against the golden machine, every kind of error, soft resets."""

from __future__ import annotations

import dataclasses
import itertools
import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from cocotb_tests.support.benches.axi import answer_reads, answer_writes
from cocotb_tests.support.benches.core_bench import BASE, Core, Job, encode, random_job
from cocotb_tests.support.tiers import sweep
from lutterfly.golden import isa, registers
from lutterfly.golden.engines import decode
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import QueueProgram, Queues
from lutterfly.golden.timing.issue import issue_steps
from lutterfly.golden.timing.latencies import reset_cycles
from lutterfly.golden.units import ErrorCode, Queue, Unit
from lutterfly.hdl.bus.axi import Response
from lutterfly.hdl.top_axi import TopAxi

#: Four resident commands: the compute program streams through.
CONFIGS = {
    "tiny": PRESETS["tiny"],
    "streaming": dataclasses.replace(PRESETS["tiny"], resident_commands=4),
    "ecp5-85k": PRESETS["ecp5-85k"],
}
COMMANDS = 6


@pytest.mark.regress
@pytest.mark.verilator
def test_every_property_on_the_smallest(simulate) -> None:
    simulate(TopAxi(CONFIGS["tiny"]), env={"CONFIG": "tiny"})


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize("name", sweep(["streaming", "ecp5-85k"], kept=["streaming"]))
def test_programs(simulate, name: str) -> None:
    simulate(TopAxi(CONFIGS[name]), env={"CONFIG": name}, testcase="matches_the_machine")


async def _core(dut, **options) -> tuple[Core, Job]:
    core = Core(dut, CONFIGS[os.environ["CONFIG"]], **options)
    await core.start()
    return core, random_job(core.config, core.rng, COMMANDS)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def matches_the_machine(dut) -> None:
    """Stalls on every channel; two inferences back to back, with another input."""
    core, job = await _core(dut, p_stall=0.2)
    await core.check(job)
    core.trace = dict.fromkeys(core.trace, 0)
    arena = core.get(len(job.arena))
    arena[job.input] = core.rng.integers(0, 256, job.input.stop - job.input.start)
    core.put(arena)
    requests = len(core.monitor.requests["ar"])
    await core.go()
    assert await core.status() == registers.STATUS_DONE
    np.testing.assert_array_equal(core.get(len(arena)), job.expected(arena))

    programs = {
        queue: range(
            BASE + job.body[queue].address,
            BASE + job.body[queue].address + len(job.body[queue].commands),
        )
        for queue in Queue
    }
    fetched = {
        queue
        for address, _, _ in core.monitor.requests["ar"][requests:]
        for queue, place in programs.items()
        if address in place
    }
    assert fetched == {
        queue for queue, place in programs.items() if len(place) // isa.COMMAND_BYTES > core.config.resident_commands
    }
    assert core.trace == {
        "compute_issue_first": COMMANDS,
        "compute_issue_last": COMMANDS,
        "compute_done": COMMANDS,
        "dma_begin": 4,
        "dma_done": 4,
    }
    core.monitor.check_ended()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def counters_and_interrupt(dut) -> None:
    core, job = await _core(dut)
    core.put(job.arena)
    await core.run(job.prologue)
    await core.write("INTERRUPT_ENABLE", 0)
    await core.select(job.body)
    await core.write("CONTROL", registers.CONTROL_START)
    for _ in range(5):
        # A start while busy is ignored.
        await core.write("CONTROL", registers.CONTROL_START)
        assert await core.status() == registers.STATUS_BUSY
    while await core.status() == registers.STATUS_BUSY:
        assert dut.interrupt.value == 0
    assert await core.status() == registers.STATUS_DONE
    assert dut.interrupt.value == 0
    assert await core.read("INTERRUPT") == 1
    await core.write("INTERRUPT_ENABLE", 1)
    await core.cycles(2)
    assert dut.interrupt.value == 1
    await core.write("INTERRUPT", 0)
    assert await core.read("INTERRUPT") == 1
    await core.write("INTERRUPT", 1)
    assert await core.read("INTERRUPT") == 0
    assert dut.interrupt.value == 0

    counters = {
        name: await core.read(name) for name in ("CYCLES", "DMA_BUSY", "DMA_STALLED", "COMPUTE_BUSY", "COMPUTE_STALLED")
    }
    assert await core.read("DMA_DONE") == len(job.body.dma)
    assert await core.read("COMPUTE_DONE") == len(job.body.compute)
    commands = [decode(job.body.compute.commands[at : at + 64]) for at in range(64, 64 * (COMMANDS + 1), 64)]
    assert counters["COMPUTE_BUSY"] == sum(issue_steps(c) for c in commands)
    beats = (job.input.stop - job.input.start + job.output.stop - job.output.start) // core.config.axi.data_bytes
    assert beats < counters["DMA_BUSY"] < counters["CYCLES"]
    assert counters["DMA_BUSY"] + counters["DMA_STALLED"] < counters["CYCLES"]
    assert counters["COMPUTE_BUSY"] + counters["COMPUTE_STALLED"] < counters["CYCLES"]
    await core.go()
    # Resident now, and on the same bus: a little sooner, and the work is the same.
    assert await core.read("COMPUTE_BUSY") == counters["COMPUTE_BUSY"]
    assert 0 <= counters["CYCLES"] - await core.read("CYCLES") < 400


def _commands(data: bytes) -> list[bytes]:
    return [data[at : at + isa.COMMAND_BYTES] for at in range(0, len(data), isa.COMMAND_BYTES)]


def _changed(commands: list[bytes], index: int, fmt: isa.Format, **fields: int) -> list[bytes]:
    return [*commands[:index], fmt.encode(**fmt.decode(commands[index]) | fields), *commands[index + 1 :]]


LOAD, FILL, STORE, FIRST = 0, 3, 4, 1


def _broken(job: Job, case: str) -> tuple[Job, tuple[ErrorCode, Unit, int, int]]:
    """A job with one fault in its program, and the error that it ends in."""
    dma, compute = _commands(job.body.dma.commands), _commands(job.body.compute.commands)
    size = job.config.memory.feature_bytes
    missing_engine = max(job.config.engines) + 1
    match case:
        case "opcode":
            return job.with_body(dma=[*dma[:2], bytes(64), *dma[3:]]), (ErrorCode.ILLEGAL_OPCODE, Unit.DMA_QUEUE, 2, 0)
        case "engine":
            changed = _changed(compute, FIRST, isa.COMPUTE, engine=missing_engine)
            return job.with_body(compute=changed), (ErrorCode.ILLEGAL_ENGINE, Unit.COMPUTE_QUEUE, FIRST, 0)
        case "reserved":
            changed = _changed(compute, 0, isa.SYNC, reserved=1)
            return job.with_body(compute=changed), (ErrorCode.ILLEGAL_FIELD, Unit.COMPUTE_QUEUE, 0, 0)
        case "rows":
            return job.with_body(dma=_changed(dma, LOAD, isa.LOAD, rows=0)), (
                ErrorCode.ILLEGAL_FIELD,
                Unit.LOAD,
                LOAD,
                0,
            )
        case "steps":
            changed = _changed(compute, FIRST, isa.COMPUTE, steps=0)
            return job.with_body(compute=changed), (ErrorCode.ILLEGAL_FIELD, Unit.FETCH, FIRST, 0)
        case "load":
            changed = _changed(dma, LOAD, isa.LOAD, local=size)
            return job.with_body(dma=changed), (ErrorCode.ADDRESS_RANGE, Unit.LOAD, LOAD, size)
        case "fill":
            changed = _changed(dma, FILL, isa.FILL, local=size - 4, rows=1)
            return job.with_body(dma=changed), (ErrorCode.ADDRESS_RANGE, Unit.FILL, FILL, size - 4)
        case "store":
            changed = _changed(dma, STORE, isa.STORE, local=size + 64)
            return job.with_body(dma=changed), (ErrorCode.ADDRESS_RANGE, Unit.STORE, STORE, size + 64)
        case "destination":
            changed = _changed(compute, FIRST, isa.COMPUTE, destination=size + 99)
            return job.with_body(compute=changed), (ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK, FIRST, size + 99)
        case "tokens":
            changed = _changed(dma, FILL, isa.FILL, signal=3)
            return job.with_body(dma=changed), (ErrorCode.TOKENS_LEFT, Unit.COMPUTE_QUEUE, len(compute) - 1, 0)
        case "no END":
            return job.with_body(dma=dma[:-1]), (ErrorCode.PROGRAM_END, Unit.DMA_QUEUE, len(dma) - 1, 0)
        case "deadlock":
            changed = _changed(dma, STORE, isa.STORE, wait=2)
            return job.with_body(dma=changed), (ErrorCode.WATCHDOG, Unit.DMA_QUEUE, STORE, 0)
    raise ValueError(f"case must be a known one, not {case}")


CASES = [
    "opcode",
    "engine",
    "reserved",
    "rows",
    "steps",
    "load",
    "fill",
    "store",
    "destination",
    "tokens",
    "no END",
    "deadlock",
]


async def _expect(core: Core, job: Job, error: tuple[ErrorCode, Unit, int, int]) -> None:
    """Run into the error; nothing but a soft reset helps; after it the core is as new."""
    core.put(job.arena)
    await core.run(job.prologue)
    await core.select(job.body)
    await core.go()
    assert await core.status() == registers.STATUS_ERROR
    assert await core.error() == error
    await core.write("CONTROL", registers.CONTROL_START)
    await core.cycles(20)
    assert await core.status() == registers.STATUS_ERROR
    await core.reset()
    assert await core.status() == 0
    assert await core.error() == (ErrorCode.NONE, Unit.NONE, 0, 0)


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(case=CASES)
async def faults_in_the_program(dut, case: str) -> None:
    core, job = await _core(dut)
    await _expect(core, *_broken(job, case))
    await core.check(job)
    core.monitor.check_ended()


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(response=[Response.SLVERR, Response.DECERR], where=["load", "program", "store"])
async def faults_on_the_bus(dut, response: Response, where: str) -> None:
    core, job = await _core(dut)
    broken = True
    if where == "store":
        answer_writes(core.ram, lambda _: response if broken else Response.OKAY)
        error = (Unit.STORE, STORE, job.output.start)
    else:
        # A page: every burst lies in one.
        bad, error = (
            (job.input.start + 4096, (Unit.LOAD, LOAD, job.input.start + 4096))
            if where == "load"
            else (job.body.dma.address, (Unit.PREFETCH, 0, job.body.dma.address))
        )
        answer_reads(
            core.ram,
            lambda at: response if broken and (at - BASE) // 4096 == bad // 4096 else Response.OKAY,
        )
        if where == "load":
            job = _without_second_load(job)
    code = ErrorCode.AXI_SLAVE if response is Response.SLVERR else ErrorCode.AXI_DECODE
    core.put(job.arena)
    await core.run(job.prologue)
    await core.select(job.body)
    await core.go()
    assert await core.status() == registers.STATUS_ERROR
    # Which of the two queues asks first is nobody's business.
    first = (code, *error), (code, Unit.PREFETCH, 0, job.body.compute.address)
    assert await core.error() in (first if where == "program" else first[:1])
    await core.reset()
    broken = False
    await core.check(job)
    core.monitor.check_ended()


def _without_second_load(job: Job) -> Job:
    """One LOAD of all features, so that the page that fails is of the first command."""
    commands = _commands(job.body.dma.commands)
    commands = _changed(commands, LOAD, isa.LOAD, piece_bytes=job.input.stop - job.input.start)
    commands[2] = encode(isa.SYNC)
    return job.with_body(dma=commands)


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(
    (
        ("where", "channel"),
        [
            *itertools.product(("load", "program"), ("ar", "r")),
            *(("store", channel) for channel in ("aw", "w", "b")),
        ],
    )
)
async def memory_that_hangs(dut, where: str, channel: str) -> None:
    """The watchdog ends it, and a soft reset does not wait; what is late comes in the middle of the next run."""
    core, job = await _core(dut)
    core.put(job.arena)
    await core.run(job.prologue)
    await core.select(job.body)
    await core.write("WATCHDOG", 500)
    if where == "load":
        # The program is resident, so that the first read is of a LOAD.
        await core.go()
    side = core.ram.write_if if where == "store" else core.ram.read_if
    hanging = getattr(side, f"{channel}_channel")
    hanging.pause = True
    started = await _now(core)
    await core.go()
    assert await core.status() == registers.STATUS_ERROR
    code, unit, index, _ = await core.error()
    expected = {"load": (Unit.LOAD, LOAD), "program": (Unit.PREFETCH, 0), "store": (Unit.STORE, STORE)}
    assert (code, unit, index) == (ErrorCode.WATCHDOG, *expected[where])
    assert await _now(core) - started < 700 + (12_000 if where == "store" else 0)
    before = await _now(core)
    await core.reset()
    assert await _now(core) - before < 2 * reset_cycles(core.config)

    core.put(job.arena)
    await core.write("WATCHDOG", 0)
    await core.select(job.prologue)
    await core.write("CONTROL", registers.CONTROL_START)
    await core.cycles(700)
    # The prologue reads only.
    assert where == "store" or await core.status() == registers.STATUS_BUSY
    hanging.pause = False
    while await core.status() == registers.STATUS_BUSY:
        pass
    await core.write("INTERRUPT", 1)
    await core.write("WATCHDOG", 3000)
    await core.check(job)
    core.monitor.check_ended()


async def _now(core: Core) -> int:
    await RisingEdge(core.dut.clk)
    return int(get_sim_time("ns")) // 10


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def soft_reset_at_any_time(dut) -> None:
    """With reads and writes on the bus, and stalls; registers keep their values, and the next inference is right."""
    core, job = await _core(dut, p_stall=0.3, seed=3)
    core.put(job.arena)
    await core.run(job.prologue)
    await core.run(job.body)
    length = 2 * await core.read("CYCLES")
    settings = {
        name: await core.read(name)
        for name in ("EXTERNAL_BASE", "DMA_PROGRAM", "DMA_COMMANDS", "WATCHDOG", "INTERRUPT_ENABLE")
    }
    for _ in range(8):
        await core.write("CONTROL", registers.CONTROL_START)
        await core.cycles(int(core.rng.integers(length // 2)))
        begin = await _now(core)
        await core.reset()
        assert await _now(core) - begin >= reset_cycles(core.config)
        assert await core.status() == 0
        assert dut.interrupt.value == 0
        assert {name: await core.read(name) for name in settings} == settings
        assert await core.read("CYCLES") == 0
        if core.rng.random() < 0.3:
            await core.check(job)
    await core.check(job)
    core.monitor.check_ended()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def only_the_bit_for_it_starts_a_run(dut) -> None:
    core, job = await _core(dut)
    core.put(job.arena)
    await core.select(job.prologue)
    await core.write("CONTROL", 0)
    await core.cycles(20)
    assert await core.status() == 0
    await core.reset()
    await core.cycles(20)
    assert await core.status() == 0
    assert not core.monitor.requests["ar"]
    await core.check(job)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_program_elsewhere_is_another_one(dut) -> None:
    """EXTERNAL_BASE alone changes between two runs, and the commands of the first are resident."""
    core, job = await _core(dut)
    await core.check(job)
    commands = _commands(job.body.dma.commands)
    other = job.with_body(dma=_changed(commands, STORE, isa.STORE, external=job.output.start + 16))
    shift = 1 << 19
    core.ram.write((BASE + shift) % core.ram.size, other.arena.tobytes())
    await core.write("EXTERNAL_BASE", BASE + shift)
    await core.go()
    assert await core.status() == registers.STATUS_DONE
    arena = np.frombuffer(core.ram.read((BASE + shift) % core.ram.size, len(other.arena)), np.uint8)
    expected = other.expected(other.arena)
    assert (expected[job.output] != job.expected(job.arena)[job.output]).any()
    np.testing.assert_array_equal(arena, expected)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def empty_program(dut) -> None:
    core, job = await _core(dut)
    core.put(job.arena)
    await core.select(Queues(QueueProgram(b"", job.body.dma.address), QueueProgram(b"", job.body.compute.address)))
    await core.go()
    assert await core.status() == registers.STATUS_ERROR
    assert (await core.error())[:2] == (ErrorCode.PROGRAM_END, Unit.DMA_QUEUE)
    await core.reset()
    alone = dataclasses.replace(job.prologue, dma=job.prologue.compute)
    await core.run(alone)
    await core.check(job)
