"""The DMA units in cocotb: drawn transfers, models of the memories around, and what golden makes of commands."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge
from cocotbext.axi import AxiBus, AxiRam

from cocotb_tests.support.benches.axi import AxiMonitor
from cocotb_tests.support.benches.streams import send
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import find_memory
from lutterfly.golden.machine.dma import fill, load, store
from lutterfly.golden.machine.flights import CommandError
from lutterfly.golden.memories import SHARED_MEMORIES, LocalMemory, memories
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.bus.axi import axi4_signature
from lutterfly.hdl.bus.axi_guard import AxiGuard
from lutterfly.hdl.dma.chunks import local_write_layout
from lutterfly.hdl.dma.load import DmaLoad, load_command_layout
from lutterfly.hdl.dma.store import DmaStore, feature_word_layout
from lutterfly.hdl.memories.feature_memory import feature_write_layout
from lutterfly.hdl.parts.isa import ErrorReport, command_shape

# DMA units and guard as one component.


class DmaBench(wiring.Component):
    """DmaLoad and DmaStore, in reset while the guard performs a soft reset, with everything else as ports."""

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "load": In(stream.Signature(load_command_layout())),
                "store": In(stream.Signature(command_shape(isa.STORE))),
                "feature": Out(stream.Signature(feature_write_layout(config))),
                "local": Out(local_write_layout(config)),
                "read": Out(stream.Signature(unsigned(isa.LOCAL_BITS))),
                "word": In(feature_word_layout(config)),
                "load_done": Out(1),
                "store_done": Out(1),
                "load_error": Out(ErrorReport),
                "store_error": Out(ErrorReport),
                "halt": In(1),
                "soft_reset": In(1),
                "resetting": Out(1),
                "base": In(32),
                "memory": Out(axi4_signature(config.axi.data_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.guard = guard = AxiGuard(self.config, reset_cycles=4)
        load_unit, store_unit = DmaLoad(self.config), DmaStore(self.config)
        m.submodules.load_unit = ResetInserter(self.soft_reset | self.resetting)(load_unit)
        m.submodules.store_unit = ResetInserter(self.soft_reset | self.resetting)(store_unit)
        connect(m, load_unit.bus, guard.load)
        connect(m, store_unit.bus, guard.store)
        connect(m, guard.memory, flipped(self.memory))
        connect(m, flipped(self.load), load_unit.command)
        connect(m, flipped(self.store), store_unit.command)
        connect(m, load_unit.feature, flipped(self.feature))
        connect(m, store_unit.read, flipped(self.read))
        m.d.comb += [
            self.local.eq(load_unit.local),
            store_unit.word.eq(self.word),
            self.load_done.eq(load_unit.done),
            self.store_done.eq(store_unit.done),
            self.load_error.eq(load_unit.error),
            self.store_error.eq(store_unit.error),
            load_unit.halt.eq(self.halt),
            store_unit.halt.eq(self.halt),
            guard.soft_reset.eq(self.soft_reset),
            self.resetting.eq(guard.resetting),
            guard.base.eq(self.base),
        ]
        return m


# Transfers for tests: legal ones drawn at random, and what makes a LOAD illegal.

#: Bytes of external memory that they may touch.
ARENA_BYTES = 1 << 15

ONE_RUN = {"row_pieces": 1, "rows": 1, "folds": 1}
GOOD_LOAD = {**ONE_RUN, "piece_bytes": 8}
#: What makes ``GOOD_LOAD`` illegal, in every configuration.
ILLEGAL_LOADS = [
    {"row_pieces": 0},
    {"piece_bytes": 0},
    {"rows": 0},
    {"folds": 0},
    {"memory": len(SHARED_MEMORIES)},
    {"memory": 15},
    {"row_pieces": 1 << 15, "piece_bytes": 1 << 17},
    {"memory": LocalMemory.WEIGHT, "local": 2},
    {"memory": LocalMemory.WEIGHT, "piece_bytes": 6},
    {"memory": LocalMemory.WEIGHT, "piece_bytes": 64, "row_pieces": 2},
    {"memory": LocalMemory.PARAMETER, "local": 4},
    {"memory": LocalMemory.PARAMETER, "piece_bytes": 12},
    {"memory": LocalMemory.LIST, "local": 2},
    {"memory": LocalMemory.LIST, "piece_bytes": 2},
    {"memory": LocalMemory.LIST, "folds": 2},
    {"memory": LocalMemory.TABLE, "rows": 2},
]


def place(rng: np.random.Generator, size_bytes: int, extent: int, steps: list[tuple[int, int]]) -> int:
    """A random start such that an object of ``extent`` bytes, moved by ``pitch`` up to ``count - 1`` times for each
    step, stays inside."""
    low = sum(min(0, pitch * (count - 1)) for pitch, count in steps)
    high = sum(max(0, pitch * (count - 1)) for pitch, count in steps) + extent
    return int(rng.integers(-low, size_bytes - high + 1))


def random_load(rng: np.random.Generator, config: Config) -> dict[str, int]:
    """A legal LOAD of about 500 bytes."""
    feature_bytes = config.memory.feature_bytes
    if rng.random() < 0.25:
        memory = memories(config)[int(rng.integers(1, len(memories(config))))]
        unit = memory.write_bytes(config.array.lanes)
        size = unit * int(rng.integers(1, 1 + min(max(300 // unit, 1), config.size_bytes(memory) // unit)))
        local = unit * int(rng.integers(0, (config.size_bytes(memory) - size) // unit + 1))
        return {
            "memory": memory,
            "row_pieces": 1,
            "rows": 1,
            "folds": 1,
            "piece_bytes": size,
            "local": local,
            "external": place(rng, ARENA_BYTES, size, []),
            "local_row": 999,
            "external_fold": 77,
        }
    size = int(rng.choice([1, 2, 3, 4, 7, 8, 12, 16, 17, 31, 64, 200, 500]))
    budget = max(1, 500 // size)
    pieces = int(rng.integers(1, min(budget, 40) + 1))
    rows = int(rng.integers(1, min(max(1, budget // pieces), 5) + 1))
    folds = int(rng.integers(1, min(max(1, budget // (pieces * rows)), 3) + 1))
    pitch = {
        name: int(rng.integers(-300, 301)) for name in ("external_row", "external_fold", "local_row", "local_fold")
    }
    pitch["local_piece"] = int(rng.choice([size, size + 1, 3 * size, -size, 0]))
    return {
        "memory": LocalMemory.FEATURE,
        "row_pieces": pieces,
        "rows": rows,
        "folds": folds,
        "piece_bytes": size,
        **pitch,
        "external": place(
            rng, ARENA_BYTES, pieces * size, [(pitch["external_row"], rows), (pitch["external_fold"], folds)]
        ),
        "local": place(
            rng,
            feature_bytes,
            size,
            [(pitch["local_row"], rows), (pitch["local_fold"], folds), (pitch["local_piece"], pieces)],
        ),
    }


def random_fill(rng: np.random.Generator, config: Config) -> dict[str, int]:
    """A legal FILL of up to 600 bytes."""
    size, rows, pitch = int(rng.integers(1, 100)), int(rng.integers(1, 7)), int(rng.integers(-200, 201))
    return {
        "piece_bytes": size,
        "rows": rows,
        "local_row": pitch,
        "value": int(rng.integers(0, 256)),
        "local": place(rng, config.memory.feature_bytes, size, [(pitch, rows)]),
    }


def random_store(rng: np.random.Generator, config: Config) -> dict[str, int]:
    """A legal STORE of about 500 bytes."""
    size = int(rng.choice([1, 2, 3, 7, 8, 16, 33, 100, 500]))
    rows = int(rng.integers(1, min(max(1, 500 // size), 12) + 1))
    pitch = {
        "external_row": int(rng.choice([size, size + 5, -size, 3000 // rows])),
        "local_row": int(rng.integers(-300, 301)),
    }
    return {
        "row_bytes": size,
        "rows": rows,
        **pitch,
        "external": place(rng, ARENA_BYTES, size, [(pitch["external_row"], rows)]),
        "local": place(rng, config.memory.feature_bytes, size, [(pitch["local_row"], rows)]),
    }


#: A page, so that the arena ends at one; its offset in the RAM leaves guard bytes on both sides.
BASE = 0x8001_3000
RAM_BYTES = 1 << 17
READ_LATENCY = 5


class _Requests:
    """The read requests of an AxiRam, each handed on after a latency, and none before ``hold_until``."""

    def __init__(self, bench: Bench, sink):
        self._bench = bench
        self._sink = sink
        self._queue: list[tuple] = []
        self.hold_until = 0
        sink.queue_occupancy_limit = 64
        cocotb.start_soon(self._collect())

    async def _collect(self) -> None:
        while True:
            request = await self._sink.recv()
            self._queue.append((request, self._bench.cycle + self._bench.bus_latency))

    async def recv(self):
        while not self._queue or self._bench.cycle < max(self._queue[0][1], self.hold_until):
            await RisingEdge(self._bench.dut.clk)
        return self._queue.pop(0)[0]

    def clear(self) -> None:
        self._queue.clear()


class Bench:
    """What surrounds a :class:`DmaBench` in a cocotb test.

    Attributes
    ----------
    ram : AxiRam
    monitor : AxiMonitor
    external : uint8[ARENA_BYTES]
        What the arena held at the start, and what golden makes of it.
    memories, expected : dict of LocalMemory to uint8
        What the hardware has written, and what golden makes of it.
    done : dict of str to list of int
        Cycles in which "load" and "store" completed a command.
    errors : list
        Reports as (code, unit, index, address).
    cycle : int
    """

    def __init__(self, dut, seed: int, p_stall: float):
        self.dut = dut
        self.config = PRESETS[os.environ["PRESET"]]
        self.rng = np.random.default_rng(seed)
        self.p_stall = p_stall
        self.memories = {
            memory: self.rng.integers(0, 256, self.config.size_bytes(memory), dtype=np.uint8)
            for memory in memories(self.config)
        }
        self.expected = {memory: array.copy() for memory, array in self.memories.items()}
        self.external = self.rng.integers(0, 256, ARENA_BYTES, dtype=np.uint8)
        self.done: dict[str, list[int]] = {"load": [], "store": []}
        self.errors: list[tuple] = []
        self.cycle = 0
        self.indices = {"load": 0, "store": 0}
        self.bus_latency = 0
        self._senders: list = []

    def use_ideal_bus(self) -> None:
        """Before ``start``: answer reads after 40 cycles."""
        self.bus_latency = 40

    def hold_reads(self, cycles: int) -> None:
        """Answer no further burst for so many cycles."""
        self.ram.read_if.ar_channel.hold_until = self.cycle + cycles

    async def start(self) -> None:
        """Reset, start the clock and the models."""
        dut = self.dut
        for name in (
            "load__valid",
            "store__valid",
            "feature__ready",
            "read__ready",
            "word",
            "halt",
            "soft_reset",
            "rst",
        ):
            getattr(dut, name).value = 0
        dut.base.value = BASE
        self.ram = AxiRam(AxiBus.from_prefix(dut, "memory_"), dut.clk, dut.rst, size=RAM_BYTES)
        for side in (self.ram.write_if, self.ram.read_if):
            side.log.setLevel("WARNING")
        self.background = self.rng.integers(0, 256, RAM_BYTES, dtype=np.uint8)
        self.background[self._arena] = self.external
        self.ram.write(0, self.background.tobytes())
        read_requests = self.ram.read_if.ar_channel
        self.ram.read_if.ar_channel = _Requests(self, read_requests)
        if self.p_stall:
            write, read = self.ram.write_if, self.ram.read_if
            for channel in (write.aw_channel, write.w_channel, write.b_channel, read_requests, read.r_channel):
                channel.set_pause_generator(self._pauses())
        Clock(dut.clk, 10, unit="ns").start()
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.monitor = AxiMonitor(dut, "memory__", data_bytes=self.config.axi.data_bytes)
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._serve_feature())

    @property
    def _arena(self) -> slice:
        start = BASE % RAM_BYTES
        return slice(start, start + ARENA_BYTES)

    def _pauses(self):
        while True:
            yield bool(self.rng.random() < self.p_stall)

    async def _serve_feature(self) -> None:
        """Take feature writes and reads with stalls; answer reads after READ_LATENCY cycles."""
        dut, lanes, feature = self.dut, self.config.array.lanes, self.memories[LocalMemory.FEATURE]
        word = feature_word_layout(self.config)
        write = feature_write_layout(self.config)
        answers = [0] * READ_LATENCY
        while True:
            await RisingEdge(dut.clk)
            dut.word.value = answers.pop(0)
            dut.feature__ready.value = int(self.rng.random() >= self.p_stall)
            dut.read__ready.value = int(self.rng.random() >= self.p_stall)
            await FallingEdge(dut.clk)
            await ReadOnly()
            if dut.feature__valid.value == 1 and dut.feature__ready.value == 1:
                chunk = write.from_bits(dut.feature__payload.value.to_unsigned())
                assert 1 <= chunk.count <= lanes
                assert chunk.address + chunk.count <= len(feature)
                feature[chunk.address : chunk.address + chunk.count] = list(
                    chunk.data.to_bytes(lanes, "little")[: chunk.count]
                )
            answer = 0
            if dut.read__valid.value == 1 and dut.read__ready.value == 1:
                at = (dut.read__payload.value.to_unsigned() + np.arange(lanes)) % len(feature)
                answer = int(
                    word.const({"valid": 1, "data": int.from_bytes(feature[at].tobytes(), "little")}).as_bits()
                )
            answers.append(answer)

    async def _watch(self) -> None:
        dut, lanes = self.dut, self.config.array.lanes
        local = local_write_layout(self.config)
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            self.cycle += 1
            bits = dut.local.value.to_unsigned()
            if bits & 1:
                write = local.from_bits(bits)
                memory = find_memory(write.memory)
                unit = memory.write_bytes(lanes)
                at = write.address * unit
                self.memories[memory][at : at + unit] = list(write.data.to_bytes(64, "little")[:unit])
            for name, signal in (("load", dut.load_done), ("store", dut.store_done)):
                if signal.value == 1:
                    self.done[name].append(self.cycle)
            for signal in (dut.load_error, dut.store_error):
                if signal.value.to_unsigned() & 1:
                    report = ErrorReport.from_bits(signal.value.to_unsigned())
                    self.errors.append((ErrorCode(report.code), Unit(report.unit), report.index, report.address))

    async def run(self, commands: list[tuple[isa.Format, dict[str, int]]], *, wait: bool = True) -> None:
        """Send commands to their units, and wait until all are done; golden executes LOADs and FILLs before STOREs."""
        words: dict[str, list] = {"load": [], "store": []}
        for fmt, fields in commands:
            side = "store" if fmt is isa.STORE else "load"
            decoded = fmt.decode(fmt.encode(**fields))
            word = {name: value for name, value in decoded.items() if name in command_shape(fmt).members}
            word["index"] = self.indices[side]
            self.indices[side] += 1
            if fmt is isa.STORE:
                words[side].append(word)
            else:
                # What stands in the other view of the word must not matter.
                words[side].append({"is_fill": int(fmt is isa.FILL), "load" if fmt is isa.LOAD else "fill": word})
            if wait:
                self.execute(fmt, decoded)
        target = {side: len(self.done[side]) + len(words[side]) for side in words}
        shapes = {"load": load_command_layout(), "store": command_shape(isa.STORE)}
        for side, sent in words.items():
            sender = send(self.dut.clk, self.dut, side, sent, self.rng, self.p_stall, shape=shapes[side])
            self._senders.append(cocotb.start_soon(sender))
        while wait and any(len(self.done[side]) < target[side] for side in words):
            await RisingEdge(self.dut.clk)
            assert not self.errors, f"unexpected {self.errors}"

    def execute(self, fmt: isa.Format, fields: dict[str, int]) -> None:
        """Let golden execute a command on the expected memories."""
        if fmt is isa.LOAD:
            load(isa.Load(**fields), self.external, self.expected, lanes=self.config.array.lanes)
        elif fmt is isa.FILL:
            fill(isa.Fill(**fields), self.expected[LocalMemory.FEATURE])
        else:
            store(isa.Store(**fields), self.external, self.expected[LocalMemory.FEATURE])

    async def stop_out_of_range(self, fmt: isa.Format, fields: dict[str, int], after: tuple) -> None:
        """Run a command that golden refuses because of its range, and one after it: what comes before is moved, and
        the report is that of golden. A negative ``local`` counts from the end of its memory."""
        if fields["local"] < 0:
            size = len(self.memories[fields.get("memory", LocalMemory.FEATURE)])
            fields = fields | {"local": fields["local"] + size}
        with pytest.raises(CommandError) as refused:
            self.execute(fmt, fmt.decode(fmt.encode(**fields)))
        await self.run([(fmt, fields), after], wait=False)
        error = refused.value
        assert await self.until_error() == (ErrorCode.ADDRESS_RANGE, error.unit, 0, error.address)
        await self.cycles(600)
        self.compare()

    def compare(self) -> None:
        """All bursts are complete, and all memories and the whole RAM must be as golden says, to the last byte around
        the arena."""
        self.monitor.check_ended()
        for memory in memories(self.config):
            np.testing.assert_array_equal(self.memories[memory], self.expected[memory], err_msg=memory.name)
        self.background[self._arena] = self.external
        np.testing.assert_array_equal(np.frombuffer(self.ram.read(0, RAM_BYTES), np.uint8), self.background)

    def arena(self) -> np.ndarray:
        """What external memory holds now, uint8[ARENA_BYTES]."""
        return np.frombuffer(self.ram.read(0, RAM_BYTES), np.uint8)[self._arena].copy()

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def until_error(self) -> tuple:
        while not self.errors:
            await RisingEdge(self.dut.clk)
        return self.errors[0]

    async def soft_reset(self) -> None:
        """A soft reset, long enough for the words on their way from the feature memory to run out; the guard may still
        have to end write bursts."""
        for sender in self._senders:
            sender.cancel()
        self._senders.clear()
        self.dut.load__valid.value = self.dut.store__valid.value = 0
        self.dut.soft_reset.value = 1
        await self.cycles(READ_LATENCY)
        self.dut.soft_reset.value = 0
        await RisingEdge(self.dut.clk)
        while self.dut.resetting.value == 1:
            await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        self.errors.clear()
        self.indices = {"load": 0, "store": 0}
