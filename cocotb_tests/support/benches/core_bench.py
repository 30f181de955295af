"""The whole core behind AXI, with small programs made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from cocotb_tests.support.benches.axi import AxiMonitor, RegisterBench
from cocotb_tests.support.benches.compute_bench import random_scenario
from cocotb_tests.support.programs import place, with_commands
from lutterfly.golden import isa, registers
from lutterfly.golden.config import Config
from lutterfly.golden.engines import find_engine
from lutterfly.golden.machine.machine import Machine
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.program.program import QueueProgram, Queues
from lutterfly.golden.units import Queue

BASE = 0x9000_4000
PAGE = 0x1000


def encode(fmt: isa.Format, **fields: int) -> bytes:
    return fmt.encode(**fields)


END = encode(isa.END)


@dataclass
class Job:
    """A prologue and a body in an arena, and what to expect of them.

    Attributes
    ----------
    arena : uint8[arena_bytes]
        As it is before the first run.
    prologue, body : Queues
    input, output : slice
        Of the arena.
    """

    config: Config
    arena: np.ndarray
    prologue: Queues
    body: Queues
    input: slice
    output: slice

    def expected(self, arena: np.ndarray, runs: int = 1) -> np.ndarray:
        """The arena after the prologue and ``runs`` bodies."""
        machine, arena = Machine(self.config), arena.copy()
        for queues in (self.prologue, *[self.body] * runs):
            machine.run([queues], arena, order="random")
        return arena

    def with_body(self, *, dma: list[bytes] | None = None, compute: list[bytes] | None = None) -> Job:
        """The same with other commands in the body; they must not be longer."""
        body, arena = self.body, self.arena.copy()
        for queue, commands in ((Queue.DMA, dma), (Queue.COMPUTE, compute)):
            if commands is not None:
                body = with_commands(body, queue, b"".join(commands))
        place(arena, body)
        return replace(self, arena=arena, body=body)


def random_job(config: Config, rng: np.random.Generator, count: int) -> Job:
    """Load the features, fill some of them, compute ``count`` commands, store the upper half of the feature memory."""
    scenario = random_scenario(config, rng, count)
    size, half = config.memory.feature_bytes, config.memory.feature_bytes // 2
    at = 4 * PAGE
    images, prologue_dma = {}, []
    for memory, filled in scenario.filled.items():
        images[memory] = at
        if memory is not LocalMemory.FEATURE:
            prologue_dma.append(
                encode(isa.LOAD, external=at, memory=memory, rows=1, folds=1, row_pieces=1, piece_bytes=filled)
            )
        at += -(-filled // PAGE) * PAGE
    features, output = images[LocalMemory.FEATURE], at + PAGE
    prologue = Queues(QueueProgram(b"".join([*prologue_dma, END]), 0), QueueProgram(END, PAGE // 2))

    row = {"rows": 1, "folds": 1, "row_pieces": 1}
    dma = [
        encode(isa.LOAD, external=features, memory=LocalMemory.FEATURE, piece_bytes=half, **row),
        encode(isa.SYNC),
        encode(isa.LOAD, external=features + half, local=half, memory=LocalMemory.FEATURE, piece_bytes=half, **row),
        encode(isa.FILL, after=1, local=17, piece_bytes=5, rows=9, local_row=11, value=0x93, signal=2),
        encode(
            isa.STORE,
            external=output,
            local=half,
            row_bytes=half // 8,
            rows=8,
            external_row=half // 8,
            local_row=half // 8,
            wait=1,
        ),
        END,
    ]
    compute = [encode(isa.SYNC, wait=1)]
    for number, fields in enumerate(scenario.commands):
        fmt = find_engine(fields["engine"]).format
        compute.append(encode(fmt, **fields, wait=int(number == 0), signal=int(number == count - 1)))
    body = Queues(QueueProgram(b"".join(dma), 2 * PAGE), QueueProgram(b"".join([*compute, END]), 2 * PAGE + 64 * 11))

    arena = rng.integers(0, 256, output + half + PAGE, dtype=np.uint8)
    for queues in (prologue, body):
        place(arena, queues)
    for memory, address in images.items():
        arena[address : address + scenario.filled[memory]] = scenario.memories[memory][: scenario.filled[memory]]
    return Job(config, arena, prologue, body, slice(features, features + size), slice(output, output + half))


class Core(RegisterBench):
    """Registers, memory and pins of a core in a cocotb test."""

    def __init__(self, dut: HierarchyObject, config: Config, *, seed: int = 0, p_stall: float = 0.0):
        super().__init__(dut, config)
        self.rng = np.random.default_rng(seed)
        self.p_stall = p_stall
        self.trace = dict.fromkeys(
            ("compute_issue_first", "compute_issue_last", "compute_done", "dma_begin", "dma_done"), 0
        )

    async def start(self) -> None:
        """Reset, start the clock and the models."""
        dut = self.dut
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "control_"), dut.clk, dut.rst)
        self.ram = AxiRam(AxiBus.from_prefix(dut, "memory_"), dut.clk, dut.rst, size=1 << 20)
        for side in (self.master.write_if, self.master.read_if, self.ram.write_if, self.ram.read_if):
            side.log.setLevel("WARNING")
        write, read = self.ram.write_if, self.ram.read_if
        # A memory that takes addresses and data whether or not it can answer.
        read.ar_channel.queue_occupancy_limit = write.b_channel.queue_occupancy_limit = 64
        if self.p_stall:
            for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
                channel.set_pause_generator(self._pauses())
        Clock(dut.clk, 10, unit="ns").start()
        dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.monitor = AxiMonitor(dut, "memory__", data_bytes=self.config.axi.data_bytes)
        cocotb.start_soon(self._watch())
        # The reset of the pins is one like a soft reset, and takes as long.
        await self.reset_is_over()
        await self.write("EXTERNAL_BASE", BASE)
        await self.write("INTERRUPT_ENABLE", 1)
        await self.write("WATCHDOG", 3000)

    def _pauses(self) -> Iterator[bool]:
        while True:
            yield bool(self.rng.random() < self.p_stall)

    async def _watch(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            for name in self.trace:
                self.trace[name] += int(getattr(self.dut, f"trace__{name}").value)

    def put(self, arena: np.ndarray) -> None:
        self.ram.write(BASE % self.ram.size, arena.tobytes())

    def get(self, size: int) -> np.ndarray:
        return np.frombuffer(self.ram.read(BASE % self.ram.size, size), np.uint8).copy()

    async def select(self, queues: Queues) -> None:
        """Write the registers that name a program."""
        for queue in Queue:
            await self.write(f"{queue.name}_PROGRAM", queues[queue].address)
            await self.write(f"{queue.name}_COMMANDS", len(queues[queue]))

    async def go(self) -> None:
        """Start what is selected, and wait for the interrupt."""
        await self.write("CONTROL", registers.CONTROL_START)
        while not self.dut.interrupt.value:
            await RisingEdge(self.dut.clk)
        await self.write("INTERRUPT", 1)

    async def run(self, queues: Queues) -> None:
        """Run to the end without an error."""
        await self.select(queues)
        await self.go()
        assert await self.status() == registers.STATUS_DONE, await self.error()

    async def check(self, job: Job) -> None:
        """Prologue and body from a fresh arena; everything must be as the golden machine says."""
        self.put(job.arena)
        await self.run(job.prologue)
        await self.run(job.body)
        np.testing.assert_array_equal(self.get(len(job.arena)), job.expected(job.arena))
