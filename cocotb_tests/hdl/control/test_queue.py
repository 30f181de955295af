# amaranth: UnusedElaboratable=no
"""Queue: order, tokens and checks of random commands, with units that stall and finish late."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.streams import StreamMonitor, receive, send
from cocotb_tests.support.tiers import sweep
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.engines import DEPTHWISE, find_engine
from lutterfly.golden.isa import Opcode, fields_end
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Queue, Unit
from lutterfly.hdl.control.queue import CommandQueue
from lutterfly.hdl.control.supervisor import QueueStatus
from lutterfly.hdl.dma.load import load_command_layout
from lutterfly.hdl.parts.isa import ErrorReport, command_shape

HEADER = ("after", "reserved", "signal", "wait")
COUNT = 60


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize(
    ("preset", "queue", "cores"),
    sweep(
        [("tiny", Queue.DMA, 1), ("tiny", Queue.DMA, 2), ("ecp5-85k", Queue.COMPUTE, 1), ("large", Queue.DMA, 1)],
        kept=[("tiny", Queue.DMA, 2)],
    ),
    ids=lambda value: getattr(value, "name", value),
)
def test_queue(simulate, preset: str, queue: Queue, cores: int) -> None:
    config = config_of(preset, cores)
    simulate(CommandQueue(config, queue), env={"PRESET": preset, "QUEUE": queue.name, "CORES": str(cores)})


def config_of(preset: str, cores: int) -> Config:
    return dataclasses.replace(PRESETS[preset], cluster=ClusterConfig(cores=cores))


class Bench:
    """The queue between a stand-in for the program memory and stand-ins for its units."""

    def __init__(self, dut, seed: int, p_stall: float):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.p_stall = p_stall
        self.config = config_of(os.environ["PRESET"], int(os.environ["CORES"]))
        self.queue = Queue[os.environ["QUEUE"]]
        self.is_dma = self.queue is Queue.DMA
        self.shapes = (
            {"load": load_command_layout(), "store": command_shape(isa.STORE)}
            if self.is_dma
            else {"compute": command_shape(isa.COMPUTE)}
        )
        if self.is_dma and self.config.cores > 1:
            self.shapes["barrier"] = command_shape(isa.BARRIER)
        self.streams = ("words", *self.shapes)
        #: (port, command, cycle) as they reach the units; tokens given with their cycle; cycles of completions.
        self.handed: list[tuple[str, dict, int]] = []
        self.grants: list[tuple[int, int]] = []
        self.finished: list[int] = []
        self.cycle = 0
        self.errors: list[dict[str, int]] = []
        self.in_flight = 0
        self.work: list[int] = []
        self.delay = (1, 2) if p_stall == 0 else (1, 60)
        self.not_before = 0

    async def reset(self) -> None:
        dut = self.dut
        Clock(dut.clk, 10, unit="ns").start()
        for name in ("start", "halt", "exhausted", "finished", "granted", "words__valid"):
            getattr(dut, name).value = 0
        for name in self.shapes:
            getattr(dut, f"{name}__ready").value = 0
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.monitors = [StreamMonitor(dut.clk, dut, name) for name in self.shapes]
        for name, shape in self.shapes.items():
            cocotb.start_soon(self._unit(name, shape))
        cocotb.start_soon(self._watch())

    async def _unit(self, name: str, shape) -> None:
        while True:
            (word,) = await receive(self.dut.clk, self.dut, name, 1, self.rng, self.p_stall, shape=shape)
            self.handed.append((name, word, self.cycle))
            # One unit works at a time, so that one list of what is to be finished is enough.
            self.work.append(max(self.cycle + int(self.rng.integers(*self.delay)), self.not_before))

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            finishes = bool(self.work) and self.work[0] <= self.cycle
            dut.finished.value = finishes
            if finishes:
                self.work.pop(0)
                self.finished.append(self.cycle)
            await FallingEdge(dut.clk)
            # What the watchdog may rely on.
            streams = [(getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")) for name in self.streams]
            moved = any(valid.value and ready.value for valid, ready in streams)
            assert dut.progress.value == (moved or dut.began.value or dut.completed.value)
            if int(dut.grant.value):
                self.grants.append((int(dut.grant.value), self.cycle))
            error = ErrorReport.from_bits(int(dut.error.value))
            if error.valid:
                self.errors.append({name: int(error[name]) for name in ("code", "unit", "index", "address")})

    def words_of(self, commands: list[bytes]) -> list[int]:
        """The words that the program memory hands out for these commands."""
        blob, size = b"".join(commands), self.config.axi.data_bytes
        return [int.from_bytes(blob[at : at + size], "little") for at in range(0, len(blob), size)]

    async def run(self, commands: list[bytes], tokens: int) -> None:
        """Run these commands, with that many tokens in random portions, until it is done or fails."""
        dut = self.dut
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = dut.exhausted.value = 0
        feeder = cocotb.start_soon(send(dut.clk, dut, "words", self.words_of(commands), self.rng, self.p_stall))
        giver = cocotb.start_soon(self._give(tokens))
        await FallingEdge(dut.clk)
        while not self.errors and not dut.done.value:
            if feeder.done():
                dut.exhausted.value = 1
            await RisingEdge(dut.clk)
            await FallingEdge(dut.clk)
        await RisingEdge(dut.clk)
        for task in (feeder, giver):
            task.cancel()
        dut.granted.value = dut.words__valid.value = 0

    async def _give(self, tokens: int) -> None:
        self.given: list[tuple[int, int]] = []
        while tokens:
            for _ in range(int(self.rng.integers(1, 40))):
                await RisingEdge(self.dut.clk)
            portion = min(tokens, int(self.rng.integers(1, 256)))
            tokens -= portion
            self.dut.granted.value = portion
            await RisingEdge(self.dut.clk)
            self.dut.granted.value = 0
            self.given.append((portion, self.cycle))


def _random_commands(bench: Bench, count: int) -> list[tuple[Opcode, dict[str, int]]]:
    rng = bench.rng
    opcodes = [code for code in isa.opcodes(bench.queue, bench.config.cores) if code is not Opcode.END]
    commands = []
    for position in range(count + 1):
        opcode = opcodes[rng.integers(len(opcodes))] if position < count else Opcode.END
        values = {
            field.name: int(rng.integers(field.limits[0], field.limits[1], endpoint=True))
            for field in isa.FORMATS[opcode].fields
        }
        values |= {"reserved": 0, "wait": int(rng.choice([0, 0, 1, 300])), "signal": int(rng.choice([0, 1, 255]))}
        if opcode is Opcode.COMPUTE:
            engine = find_engine(int(rng.choice([*bench.config.engines])))
            values |= {
                "engine": engine,
                "argument": values["argument"] & (1 << fields_end(bench.config.engines.fields(engine))) - 1,
            }
        commands.append((opcode, values))
    return commands


def _expected(index: int, opcode: Opcode, values: dict[str, int]) -> tuple[str, dict[str, int]]:
    fields = {"index": index, "after": values["after"]} | {
        name: value for name, value in values.items() if name not in HEADER
    }
    ports = {Opcode.STORE: "store", Opcode.BARRIER: "barrier", Opcode.COMPUTE: "compute"}
    return ports.get(opcode, "load"), fields


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5], seed=[1, 2])
async def random_programs(dut, p_stall: float, seed: int) -> None:
    bench = Bench(dut, seed, p_stall)
    await bench.reset()
    for _ in range(2):
        bench.handed, bench.grants, bench.finished = [], [], []
        commands = _random_commands(bench, COUNT)
        tokens = sum(values["wait"] for _, values in commands)
        await bench.run([isa.FORMATS[opcode].encode(**values) for opcode, values in commands], tokens)
        assert not bench.errors
        _check(bench, commands)
        assert dut.tokens_left.value == 0


def _check(bench: Bench, commands: list[tuple[Opcode, dict[str, int]]]) -> None:
    """Everything arrived in order, nothing before its time; tokens are given in order, after their commands."""
    handed, finished = iter(bench.handed), iter(bench.finished)
    waited = 0
    earlier: list[tuple[str, int]] = []
    signals = []
    for index, (opcode, values) in enumerate(commands):
        waited += values["wait"]
        if opcode in (Opcode.SYNC, Opcode.END):
            signals.append((values["signal"], signals[-1][1] if signals else 0))
            continue
        port, command, cycle = next(handed)
        expected_port, fields = _expected(index, opcode, values)
        assert port == expected_port
        if port == "load":
            assert command["is_fill"] == (opcode is Opcode.FILL)
            command = command["fill" if opcode is Opcode.FILL else "load"]
        assert command == fields
        assert sum(portion for portion, when in bench.given if when <= cycle) >= waited
        if bench.is_dma:
            # What another unit does, or what `after` waits for, is over.
            alone = values["after"] or port == "barrier"
            assert all(end < cycle for other, end in earlier if other != port or alone)
        end = next(finished)
        earlier.append((port, end))
        signals.append((values["signal"], end))
    given = [(signal, end) for signal, end in signals if signal]
    assert [signal for signal, _ in bench.grants] == [signal for signal, _ in given]
    assert all(cycle > end for (_, cycle), (_, end) in zip(bench.grants, given, strict=True))
    assert next(handed, None) is None
    assert next(finished, None) is None


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def commands_follow_without_bubbles(dut) -> None:
    bench = Bench(dut, 1, 0.0)
    await bench.reset()
    fmt = isa.LOAD if bench.is_dma else isa.COMPUTE
    await bench.run([fmt.encode()] * 20 + [isa.END.encode()], 0)
    words = isa.COMMAND_BITS // bench.config.axi.data_bits
    assert len(bench.handed) == 20
    assert {b[2] - a[2] for a, b in zip(bench.handed, bench.handed[1:], strict=False)} == {words + 5}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def next_command_is_offered_while_the_unit_works(dut) -> None:
    bench = Bench(dut, 1, 0.0)
    await bench.reset()
    bench.delay = (200, 201)
    fmt = isa.LOAD if bench.is_dma else isa.COMPUTE
    await bench.run([fmt.encode(signal=1)] * 3 + [isa.SYNC.encode(after=1, signal=2), isa.END.encode()], 0)
    assert bench.handed[-1][2] < bench.finished[0]
    assert [signal for signal, _ in bench.grants] == [1, 1, 1, 2]
    assert bench.grants[-1][1] - bench.finished[-1] <= 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(
    (("first", "second"), [("STORE", "LOAD"), ("STORE", "FILL"), ("LOAD", "STORE"), ("FILL", "STORE")]),
    between=[0, 1, 3],
)
async def no_transfer_overtakes_the_other_unit(dut, first: str, second: str, between: int) -> None:
    """Not after SYNCs either, which begin at once and say nothing of what the units do."""
    bench = Bench(dut, 1, 0.0)
    if not bench.is_dma:
        return
    await bench.reset()
    bench.delay = (300, 301)
    one, other = (isa.FORMATS[Opcode[name]].encode() for name in (first, second))
    await bench.run([one, *[isa.SYNC.encode()] * between, other, isa.END.encode()], 0)
    assert len(bench.handed) == 2
    assert bench.finished[0] < bench.handed[1][2]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def commands_that_finish_in_consecutive_cycles(dut) -> None:
    """The SYNCs between them take a cycle each to complete, in which the next one finishes."""
    bench = Bench(dut, 1, 0.0)
    await bench.reset()
    bench.not_before = 500
    fmt = isa.LOAD if bench.is_dma else isa.COMPUTE
    pairs = [fmt.encode(signal=3), isa.SYNC.encode(signal=4)]
    await bench.run(pairs * 5 + [isa.END.encode(signal=5)], 0)
    assert not bench.errors
    assert bench.finished == [500, 501, 502, 503, 504]
    assert [signal for signal, _ in bench.grants] == [3, 4] * 5 + [5]


def _with_bit(command: bytes, bit: int) -> bytes:
    return (int.from_bytes(command, "little") | 1 << bit).to_bytes(isa.COMMAND_BYTES, "little")


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(
    case=[
        "opcode 0",
        "opcode 15",
        "a barrier of one core",
        "other queue's",
        "reserved",
        "beyond the header",
        "beyond the fields",
        "last bit",
        "argument",
        "engine",
    ]
)
async def illegal_commands(dut, case: str) -> None:
    bench = Bench(dut, 1, 0.2)
    await bench.reset()
    work = isa.LOAD if bench.is_dma else isa.COMPUTE
    size = max(field.lsb + field.width for field in work.fields)
    command, code = {
        "opcode 0": (bytes(64), ErrorCode.ILLEGAL_OPCODE),
        "opcode 15": (b"\xff" * 64, ErrorCode.ILLEGAL_OPCODE),
        "a barrier of one core": (
            isa.BARRIER.encode(group=1),
            None if bench.is_dma and bench.config.cores > 1 else ErrorCode.ILLEGAL_OPCODE,
        ),
        "other queue's": ((isa.COMPUTE if bench.is_dma else isa.FILL).encode(), ErrorCode.ILLEGAL_OPCODE),
        "reserved": (isa.SYNC.encode(reserved=4), ErrorCode.ILLEGAL_FIELD),
        "beyond the header": (_with_bit(isa.END.encode(), 32), ErrorCode.ILLEGAL_FIELD),
        "beyond the fields": (_with_bit(work.encode(), size), ErrorCode.ILLEGAL_FIELD),
        "last bit": (_with_bit(work.encode(), 511), ErrorCode.ILLEGAL_FIELD),
        "argument": (isa.SYNC.encode(), None)
        if bench.is_dma
        else (
            isa.COMPUTE.encode(engine=DEPTHWISE, argument=1 << fields_end(DEPTHWISE.fields)),
            ErrorCode.ILLEGAL_FIELD,
        ),
        "engine": (
            (isa.FILL.encode(), None) if bench.is_dma else (isa.COMPUTE.encode(engine=15), ErrorCode.ILLEGAL_ENGINE)
        ),
    }[case]
    await bench.run([isa.SYNC.encode(), work.encode(), command, work.encode(), isa.END.encode()], 0)
    if code is None:
        assert not bench.errors
        return
    assert bench.errors == [{"code": code, "unit": bench.queue.unit, "index": 2, "address": 0}]
    for _ in range(100):
        await RisingEdge(dut.clk)
    assert len(bench.handed) <= 1
    assert dut.done.value == 0
    assert len(bench.errors) == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(count=[0, 3])
async def program_without_end(dut, count: int) -> None:
    bench = Bench(dut, 1, 0.0)
    await bench.reset()
    await bench.run([isa.SYNC.encode()] * count, 0)
    assert bench.errors == [{"code": ErrorCode.PROGRAM_END, "unit": bench.queue.unit, "index": count, "address": 0}]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def halt_begins_nothing(dut) -> None:
    bench = Bench(dut, 1, 0.0)
    await bench.reset()
    dut.halt.value = 1
    fmt = isa.LOAD if bench.is_dma else isa.COMPUTE
    run = cocotb.start_soon(bench.run([fmt.encode(), isa.END.encode()], 0))
    for _ in range(100):
        await RisingEdge(dut.clk)
    assert not bench.handed
    assert not run.done()
    dut.halt.value = 0
    await run
    assert len(bench.handed) == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(case=["unit", "words", "tokens"])
async def standing_says_what_the_queue_waits_for(dut, case: str) -> None:
    bench = Bench(dut, 1, 0.0)
    await bench.reset()
    sync, work = isa.SYNC.encode(), (isa.STORE if bench.is_dma else isa.COMPUTE).encode()
    unit = Unit.STORE if bench.is_dma else Unit.FETCH
    bench.delay = (5000, 5001) if case == "unit" else (1, 2)
    commands, expected = {
        "unit": ([sync, work, isa.SYNC.encode(after=1, wait=1)], {"in_flight": 1, "unit": unit, "oldest": 1}),
        "words": ([sync, work, sync], {"missing": 1, "index": 3}),
        "tokens": ([sync, work, isa.SYNC.encode(wait=1)], {"waiting": 1, "index": 2}),
    }[case]
    dut.start.value = 1
    await RisingEdge(dut.clk)
    dut.start.value = 0
    await send(dut.clk, dut, "words", bench.words_of(commands), bench.rng, 0.0)
    for _ in range(50):
        await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    standing = QueueStatus.from_bits(int(dut.standing.value))
    assert {name: int(standing[name]) for name in expected} == expected
    flags = {name: int(standing[name]) for name in ("in_flight", "missing", "waiting")}
    assert flags == {name: int(name in expected or (case == "unit" and name == "waiting")) for name in flags}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def tokens_that_nobody_takes_are_seen(dut) -> None:
    bench = Bench(dut, 1, 0.0)
    await bench.reset()
    await bench.run([isa.SYNC.encode(wait=70), isa.END.encode()], 71)
    for _ in range(3):
        await RisingEdge(dut.clk)
    assert dut.done.value == 1
    assert dut.tokens_left.value == 1
