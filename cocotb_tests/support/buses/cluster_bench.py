"""Several cores behind their pins, with small programs made by hand: what each stores, others load behind a barrier."""

from __future__ import annotations

from collections.abc import Iterator

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from cocotb_tests.support.benches.axi_monitor import AxiMonitor
from cocotb_tests.support.buses.register_bench import Error, RegisterBench
from lutterfly.golden import isa, registers
from lutterfly.golden.config import Config
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.units import ErrorCode, Unit

BASE = 0x4000
PAGE = 0x1000
#: Bytes that a core passes on.
BLOCK = 256
END, SYNC = isa.END.encode(), isa.SYNC.encode()

STOPPED: Error = (ErrorCode.STOPPED, Unit.NONE, 0, 0)


def place(core: int, step: int) -> int:
    """Where a core's block is in the arena after so many steps, behind all programs."""
    return (16 + core) * PAGE + step * BLOCK


def load(external: int, local: int = 0, size: int = BLOCK) -> bytes:
    """A LOAD into the feature memory."""
    fields = {"rows": 1, "folds": 1, "row_pieces": 1, "piece_bytes": size, "memory": LocalMemory.FEATURE}
    return isa.LOAD.encode(external=external, local=local, **fields)


def store(external: int, local: int = 0, size: int = BLOCK) -> bytes:
    """A STORE from there."""
    return isa.STORE.encode(external=external, local=local, rows=1, row_bytes=size)


def barrier(*cores: int, **fields: int) -> bytes:
    """A BARRIER of these cores."""
    return isa.BARRIER.encode(group=sum(1 << core for core in cores), **fields)


class ClusterBench(RegisterBench):
    """Registers, memory and pins of several cores in a cocotb test.

    Attributes
    ----------
    rams : list of AxiRam
        One for each port, all of the same memory.
    monitors : list of AxiMonitor
    trace : list of dict of str to list of int
        For each core, the cycles of each kind of event.
    interrupts : list of int
        The cycles in which the line rose.
    """

    def __init__(self, dut: HierarchyObject, config: Config, *, seed: int = 0, p_stall: float = 0.0):
        super().__init__(dut, config)
        self.cores = range(config.cores)
        self.rng = np.random.default_rng(seed)
        self.p_stall = p_stall
        self.cycle = 0
        self.trace = [{"dma_begin": [], "dma_done": []} for _ in self.cores]
        self.interrupts: list[int] = []

    async def start(self) -> None:
        """Reset, start the clock and the models."""
        dut, ports = self.dut, self.config.cluster.ports
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "control_"), dut.clk, dut.rst)
        names = ["memory_"] if ports == 1 else [f"memory_{number}_" for number in range(ports)]
        self.rams = []
        for name in names:
            memory = {"mem": self.rams[0].mem} if self.rams else {"size": 1 << 20}
            self.rams.append(AxiRam(AxiBus.from_prefix(dut, name), dut.clk, dut.rst, **memory))
        for side in (self.master.write_if, self.master.read_if):
            side.log.setLevel("WARNING")
        for ram in self.rams:
            ram.write_if.log.setLevel("WARNING")
            ram.read_if.log.setLevel("WARNING")
            ram.read_if.ar_channel.queue_occupancy_limit = ram.write_if.b_channel.queue_occupancy_limit = 64
            self.stall(ram, self.p_stall)
        Clock(dut.clk, 10, unit="ns").start()
        dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.monitors = [AxiMonitor(dut, name + "_", data_bytes=self.config.axi.data_bytes) for name in names]
        cocotb.start_soon(self._watch())
        await self.reset_is_over()
        for name, value in (("EXTERNAL_BASE", BASE), ("INTERRUPT_ENABLE", 1), ("WATCHDOG", 1000)):
            await self.write(name, value)
        self.arena = self.rng.integers(0, 256, 40 * PAGE, dtype=np.uint8)
        self.rams[0].write(BASE, self.arena.tobytes())

    def stall(self, ram: AxiRam, probability: float) -> None:
        """Pause every channel of a port with this probability in each cycle; 1 for ever."""
        write, read = ram.write_if, ram.read_if

        def pauses() -> Iterator[bool]:
            while True:
                yield bool(self.rng.random() < probability)

        for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            channel.clear_pause_generator()
            channel.pause = False
            if probability:
                channel.set_pause_generator(pauses())

    async def _watch(self) -> None:
        before = 0
        while True:
            await FallingEdge(self.dut.clk)
            self.cycle += 1
            for core, events in enumerate(self.trace):
                for name, cycles in events.items():
                    if getattr(self.dut, f"trace_{core}__{name}").value:
                        cycles.append(self.cycle)
            now = int(self.dut.interrupt.value)
            if now and not before:
                self.interrupts.append(self.cycle)
            before = now

    async def select(self, programs: list[list[bytes]]) -> None:
        """Place the DMA commands of each core, and write the registers that name them; END is added."""
        for core, commands in enumerate(programs):
            dma, compute = b"".join([*commands, END]), END
            at = core * PAGE
            for name, data, offset in (("DMA", dma, 0), ("COMPUTE", compute, PAGE - isa.COMMAND_BYTES)):
                assert len(data) < PAGE
                self.rams[0].write(BASE + at + offset, data)
                await self.write(f"{name}_PROGRAM", at + offset, core)
                await self.write(f"{name}_COMMANDS", len(data) // isa.COMMAND_BYTES, core)

    async def begin(self) -> None:
        await self.write("CONTROL", registers.CONTROL_START)

    async def ends(self, limit: int = 20_000) -> int:
        """Wait for the interrupt, which comes once; how many cycles that took."""
        begun, count = self.cycle, len(self.interrupts)
        while not self.dut.interrupt.value:
            await RisingEdge(self.dut.clk)
            assert self.cycle - begun < limit, "the run must end"
        taken = self.cycle - begun
        await self.write("INTERRUPT", 1)
        await self.cycles(50)
        assert len(self.interrupts) == count + 1
        assert self.dut.interrupt.value == 0
        return taken

    async def errors(self) -> list[Error]:
        """(code, unit, index, address) of each core."""
        return [await self.error(core) for core in self.cores]

    def block(self, core: int, step: int) -> bytes:
        """What is in a core's block."""
        return self.rams[0].read(BASE + place(core, step), BLOCK)

    def ring(self, steps: int, held_back: int | None = None) -> list[list[bytes]]:
        """Programs in which each core passes on, in every step, what the next one has stored in the step before; one
        of them is late with each."""
        count, programs = len(self.cores), []
        for core in self.cores:
            commands = [load(place(core, 0)), store(place(core, 1))]
            for step in range(1, steps):
                late = [load(place(core, 0), 1024)] * 4 if core == held_back else []
                commands += [
                    *late,
                    barrier(*self.cores),
                    load(place((core + 1) % count, step)),
                    store(place(core, step + 1)),
                ]
            programs.append(commands)
        return programs

    async def check_ring(self, steps: int = 4, held_back: int | None = None) -> None:
        """Run it on fresh memory; every block must have come round."""
        self.arena[:] = self.rng.integers(0, 256, len(self.arena))
        self.rams[0].write(BASE, self.arena.tobytes())
        await self.select(self.ring(steps, held_back))
        await self.begin()
        await self.ends()
        assert await self.status() == registers.STATUS_DONE, await self.errors()
        for core in self.cores:
            for step in range(1, steps + 1):
                assert self.block(core, step) == self.block((core + step - 1) % len(self.cores), 0), (core, step)
        for monitor in self.monitors:
            monitor.check_ended()
