# amaranth: UnusedElaboratable=no
"""Several cores through their pins: barriers order what one stores and another loads, and a fault of one stops all."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from cocotb_tests.support.benches.axi import AxiMonitor, Error, RegisterBench, answer_reads
from cocotb_tests.support.tiers import sweep
from lutterfly.golden import isa, registers
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.engines import MAC, MAXIMUM, EngineConfigs
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.bus.axi import Response
from lutterfly.hdl.top_axi import TopAxi

# Several cores behind their pins, with small programs made by hand: what each stores, others load behind a barrier.

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


#: Cycles from the fault of one core to the interrupt, its report and the others' included.
BOUND = 200


def config_of(cores: int, shared_port: bool) -> Config:
    """As little as a core can be: what counts here is DMA."""
    tiny = PRESETS["tiny"]
    return dataclasses.replace(
        tiny,
        memory=dataclasses.replace(tiny.memory, feature_bytes=2048),
        engines=EngineConfigs.of(MAC, MAXIMUM),
        cluster=ClusterConfig(cores=cores, shared_port=shared_port),
    )


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize(
    ("cores", "shared_port"), sweep([(2, True), (2, False), (4, True), (4, False)], kept=[(2, True)])
)
def test_cores(simulate, cores: int, shared_port: bool) -> None:
    simulate(TopAxi(config_of(cores, shared_port)), env={"CORES": str(cores), "SHARED": str(int(shared_port))})


async def _bench(dut, **options) -> ClusterBench:
    bench = ClusterBench(dut, config_of(int(os.environ["CORES"]), os.environ["SHARED"] == "1"), **options)
    await bench.start()
    return bench


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4], seed=[0, 1])
async def what_one_stores_another_loads_behind_a_barrier(dut, p_stall: float, seed: int) -> None:
    bench = await _bench(dut, p_stall=p_stall, seed=seed)
    assert await bench.read("CORES") == len(bench.cores)
    for held_back in (None, *bench.cores):
        await bench.check_ring(held_back=held_back)
        if held_back is not None and not p_stall:
            waited = [await bench.read("BARRIER_STALLED", core) for core in bench.cores]
            # It is the last one, three times.
            assert min(waited) == waited[held_back]
            assert all(wait > waited[held_back] + 500 for core, wait in enumerate(waited) if core != held_back)
            assert await bench.read("DMA_DONE", held_back) == 2 + 3 * 7 + 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def latency_of_a_barrier(dut) -> None:
    """From the command of the last core at its unit to the completion of all."""
    bench = await _bench(dut)
    await bench.select(bench.ring(2, held_back=0))
    await bench.begin()
    await bench.ends()
    # The last core's is its seventh command, the others' their third.
    ends = {events["dma_done"][6 if core == 0 else 2] for core, events in enumerate(bench.trace)}
    assert ends == {bench.trace[0]["dma_begin"][6] + 4}
    counts = [(len(events["dma_begin"]), len(events["dma_done"])) for events in bench.trace]
    assert counts == [(9, 9)] + [(5, 5)] * (len(bench.cores) - 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def groups_do_not_wait_for_others(dut) -> None:
    """Pairs meet, then others, while one of the first pair is late."""
    bench = await _bench(dut, p_stall=0.2)
    if len(bench.cores) < 4:
        return
    late = [load(place(0, 0), 1024)] * 10
    programs = [
        [*late, barrier(0, 1), barrier(0)],
        [barrier(0, 1), barrier(1, 2)],
        [store(place(2, 1)), barrier(2, 3), barrier(1, 2), barrier(2, 3)],
        [barrier(2, 3), load(place(2, 1)), store(place(3, 1)), barrier(2, 3)],
    ]
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    assert await bench.status() == registers.STATUS_DONE
    assert bench.block(3, 1) == bench.block(2, 1)
    ends = [events["dma_done"] for events in bench.trace]
    assert ends[2][1] == ends[3][0] < ends[0][9] < ends[0][10] == ends[1][0] < ends[1][1] == ends[2][2]
    assert ends[2][3] == ends[3][3]


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(missing=[0, 1])
async def a_soft_reset_while_cores_wait(dut, missing: int) -> None:
    bench = await _bench(dut)
    programs = bench.ring(4)
    programs[missing] = [load(place(missing, 0), 1024, BLOCK)] * 50
    for wait in (0, 1, 7, 50):
        await bench.select(programs)
        await bench.begin()
        while not await bench.read("BARRIER_STALLED", 1 - missing):
            pass
        await bench.cycles(wait)
        assert await bench.status() == registers.STATUS_BUSY
        await bench.reset()
        assert await bench.status() == 0
        assert await bench.errors() == [(ErrorCode.NONE, Unit.NONE, 0, 0)] * len(bench.cores)
        assert not bench.interrupts
    await bench.check_ring()


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4])
async def a_soft_reset_at_any_time(dut, p_stall: float) -> None:
    """With bursts of all cores on their way; what they have begun to write is brought to an end."""
    bench = await _bench(dut, p_stall=p_stall, seed=3)
    await bench.check_ring()
    length = await bench.read("CYCLES")
    for _ in range(8):
        await bench.select(bench.ring(4))
        await bench.begin()
        await bench.cycles(int(bench.rng.integers(length)))
        await bench.reset()
        assert await bench.status() == 0
        assert await bench.read("ERROR_CORE") == 0
        if bench.rng.random() < 0.3:
            await bench.check_ring()
    await bench.check_ring()


async def _stopped(bench: ClusterBench, core: int, error: tuple, *, others: tuple = STOPPED) -> None:
    """The error of one core has ended the run; nothing but a soft reset helps, and then all is well."""
    assert await bench.status() == registers.STATUS_ERROR
    assert await bench.read("ERROR_CORE") == core
    assert await bench.errors() == [error if number == core else others for number in bench.cores]
    await bench.begin()
    await bench.cycles(50)
    assert await bench.status() == registers.STATUS_ERROR
    await bench.reset()
    assert await bench.status() == 0
    await bench.check_ring()


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(core=[0, 1], when=["early", "late"])
async def a_bus_error_of_one_stops_all(dut, core: int, when: str) -> None:
    """Whether the others wait at a barrier or are done."""
    bench = await _bench(dut)
    at, broken = BASE + place(core, 8) & ~0xFFF, True
    for ram in bench.rams:
        answer_reads(
            ram, lambda address: Response.SLVERR if broken and address & ~0xFFF == at + PAGE * 8 else Response.OKAY
        )
    bad = load(place(core, 0) + PAGE * 8)
    programs = bench.ring(3)
    if when == "early":
        index = 2
        programs[core].insert(index, bad)
    else:
        programs[core] += [load(place(core, 0), 1024)] * 10 + [bad]
        index = len(programs[core]) - 1
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    broken = False
    await _stopped(bench, core, (ErrorCode.AXI_SLAVE, Unit.LOAD, index, place(core, 0) + PAGE * 8))


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(ends_first=[True, False])
async def a_barrier_that_one_program_lacks(dut, ends_first: bool) -> None:
    bench = await _bench(dut)
    lacking = bench.cores[-1]
    delay = [load(place(0, 0), 1024)] * 10
    programs = [[*(delay if ends_first else []), barrier(*bench.cores)] for _ in bench.cores]
    programs[lacking] = [] if ends_first else delay
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    errors, first = await bench.errors(), await bench.read("ERROR_CORE")
    assert errors[first] == (ErrorCode.BARRIER, Unit.BARRIER, len(programs[0]) - 1, 0)
    assert errors[lacking] == STOPPED
    # Others that are here by then are told the same.
    assert set(errors) == {errors[first], STOPPED}
    last = max(cycle for events in bench.trace for cycles in events.values() for cycle in cycles)
    assert bench.interrupts[0] - last < BOUND
    await bench.reset()
    await bench.check_ring()


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(group=[[], [0], [0, 7]])
async def groups_that_cannot_be(dut, group: list[int]) -> None:
    bench = await _bench(dut)
    programs = [[barrier(*bench.cores)] for _ in bench.cores]
    programs[1] = [load(place(1, 0)), barrier(*group)]
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    await _stopped(bench, 1, (ErrorCode.ILLEGAL_FIELD, Unit.BARRIER, 1, 0))


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def a_core_that_waits_for_tokens_is_the_one_that_is_named(dut) -> None:
    """Nobody gives them; the others wait at a barrier, longer than it does."""
    bench = await _bench(dut)
    programs = bench.ring(2)
    programs[1] = [*[load(place(1, 0), 1024)] * 6, barrier(*bench.cores, wait=1)]
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    await _stopped(bench, 1, (ErrorCode.WATCHDOG, Unit.DMA_QUEUE, 6, 0))


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(before=[0, 3])
async def a_core_whose_memory_does_not_answer(dut, before: int) -> None:
    """With a port of its own; the others wait for it at a barrier."""
    bench = await _bench(dut)
    if len(bench.rams) == 1:
        return
    programs = bench.ring(2)
    programs[1] = [*[load(place(1, 0), 1024)] * 4, *bench.ring(2)[1]]
    await bench.select(programs)
    await bench.begin()
    while len(bench.trace[1]["dma_done"]) < before or not bench.trace[1]["dma_begin"]:
        await bench.cycles(1)
    bench.stall(bench.rams[1], 1.0)
    await bench.ends()
    bench.stall(bench.rams[1], 0.0)
    errors = await bench.errors()
    code, unit, index, _ = errors[1]
    assert (code, unit) == (ErrorCode.WATCHDOG, Unit.LOAD)
    assert index >= before
    await _stopped(bench, 1, errors[1])


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def cores_that_wait_for_each_other_are_an_error(dut) -> None:
    """Each at a barrier of another group: nothing moves anywhere."""
    bench = await _bench(dut)
    if len(bench.cores) < 4:
        return
    programs = [[barrier(0, 1)], [barrier(0, 1, 2)], [barrier(1, 2)], [load(place(3, 0), 1024)] * 20]
    await bench.select(programs)
    await bench.begin()
    await bench.ends()
    assert (await bench.errors())[await bench.read("ERROR_CORE")][:3] == (ErrorCode.WATCHDOG, Unit.BARRIER, 0)
    await bench.reset()
    await bench.check_ring()
