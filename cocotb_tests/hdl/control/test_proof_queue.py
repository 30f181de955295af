"""A command queue, proved for every program, every pace of the units and all tokens that the other queue may give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Module, Mux, Signal, Value
from amaranth.lib import data

from cocotb_tests.support.proofs import Marked, Proof, ProofError, broken, entry, inside, prove
from cocotb_tests.support.tiers import needs_yosys, sweep
from lutterfly.golden import isa
from lutterfly.golden.config_parts import ArrayConfig, AxiConfig, ClusterConfig
from lutterfly.golden.isa import Opcode, fields_end
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import Queue, Unit
from lutterfly.hdl.control import queue

pytestmark = needs_yosys
#: With few words in a command, so that a run is short.
CONFIG = replace(
    PRESETS["tiny"],
    axi=AxiConfig(data_bits=128),
    array=ArrayConfig(lanes=16, columns=4, requant_lanes=2),
)
#: Commands in flight after their FIFO.
BUFFER = 2


MUTATIONS = (
    # What is behind a BARRIER overtakes it.
    (queue, "may_overlap &= ~is_barrier & ~last_was_barrier", "may_overlap &= ~is_barrier"),
    (queue, "may_overlap &= ~is_barrier & ~last_was_barrier", "may_overlap &= ~last_was_barrier"),
    (queue, "idle.eq(~head.valid & ~fifo.output.valid)", "idle.eq(~head.valid)"),
    (queue, "head.valid & (by_itself | self.finished | has_finished)", "head.valid"),
    (queue, "finished + self.finished - (self.completed & ~by_itself)", "finished + self.finished - self.completed"),
    (queue, 'with m.State("DRAIN"), m.If(parts.flight.idle):', 'with m.State("DRAIN"):'),
    (queue, "enough.eq(count >= self.needed)", "enough.eq((count >= self.needed) | (self.needed == 1))"),
    (queue, "(count - self.needed) + self.granted", "count - self.needed"),
    (queue, "m.d.sync += [port.valid.eq(0) for port in ports]", "m.d.sync += ports[0].valid.eq(0)"),
    (queue, "unused.eq(compute.argument[end:].any())", "unused.eq(compute.argument[end + 1 :].any())"),
    (
        queue,
        '("SETTLE", "GATHER"), ("GATHER", "CHECK"), ("CHECK", "BEGIN")',
        '("SETTLE", "GATHER"), ("GATHER", "BEGIN")',
    ),
)


class QueueProof(Proof):
    """The queue with units that complete what they have accepted, in order, at any time.

    Stated bound: the tokens that are there at a time fit into their counter.
    """

    def __init__(self, which: Queue, cores: int = 1) -> None:
        super().__init__()
        self.unit = queue.CommandQueue(replace(CONFIG, cluster=ClusterConfig(cores=cores)), which)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        parts = found.parts
        self.flight, self.tokens = inside(parts.flight), inside(parts.tokens)
        self.legality, self.dispatch = inside(parts.legality), inside(parts.dispatch)
        kinds = tuple(queue.offers(unit.queue, unit.config.cores))
        granted_most = (1 << len(self.tokens.count)) - 1
        m.d.comb += [
            unit.start.eq(self.free(name="start")),
            unit.halt.eq(self.free(name="halt")),
            unit.words.valid.eq(self.free(name="offers")),
            unit.words.payload.eq(self.free(CONFIG.axi.data_bits, name="offered")),
            unit.exhausted.eq(self.free(name="exhausted")),
            unit.granted.eq(self.free(8, name="granted")),
            Assume(~unit.start | found.fsm.ongoing("IDLE")),
            Assume(self.tokens.count + unit.granted <= granted_most),
        ]
        # Commands that their unit has accepted and not completed.
        accepted = {kind: Signal(8, name=f"accepted_{kind}") for kind in kinds}
        done = {kind: self.free(name=f"{kind}_done") for kind in kinds}
        for kind in kinds:
            port = getattr(unit, kind)
            m.d.comb += [
                port.ready.eq(self.free(name=f"{kind}_takes")),
                Assume(~done[kind] | (accepted[kind] != 0)),
            ]
            m.d.sync += accepted[kind].eq(accepted[kind] + (port.valid & port.ready) - done[kind])
        m.d.comb += unit.finished.eq(Value.cast(sum(done.values())) != 0)
        offers = sum(getattr(unit, kind).valid for kind in kinds)
        outstanding = Signal(10)
        m.d.comb += outstanding.eq(sum(accepted.values()) + offers)
        self.check_flight(m, found, outstanding)
        self.check_states(m, found, outstanding)
        self.check_beginning(m, found)

        busy = {kind: (accepted[kind] != 0) | getattr(unit, kind).valid for kind in kinds}
        if unit.queue is Queue.DMA:
            m.d.comb += [
                Assert(~(busy["load"] & busy["store"])),
                Assert(~busy["load"] | ~found.last_was_store),
                Assert(~busy["store"] | found.last_was_store),
                Cover(busy["store"] & found.fsm.ongoing("GATHER")),
            ]
        if "barrier" in kinds:
            # One at a time, and nothing beside it.
            m.d.comb += [
                Assert(~busy["barrier"] | ~busy["load"] & ~busy["store"]),
                Assert(~busy["barrier"] | (outstanding == 1)),
                Assert(~busy["barrier"] | found.last_was_barrier),
                Assert(~busy["load"] & ~busy["store"] | ~found.last_was_barrier),
                Cover(busy["barrier"] & found.fsm.ongoing("GATHER")),
            ]
        return m

    def check_states(self, m: Module, found: SimpleNamespace, outstanding: Value) -> None:
        unit, at = self.unit, found.fsm.ongoing
        offers = Cat(port.valid for port in self.dispatch.ports)
        m.d.comb += [
            Assert(sum(at(state) for state in found.fsm.encoding) == 1),
            Assert((offers.any()) == at("OFFER")),
            # A run ends with everything done, and nothing begins before the next one.
            Assert(~at("IDLE") | (outstanding == 0) & found.parts.flight.idle),
            Assert(~unit.done | at("IDLE")),
            Cover(unit.done),
        ]

    def check_flight(self, m: Module, found: SimpleNamespace, outstanding: Value) -> None:
        """Commands complete in order, each one after its unit and those before it."""
        unit = self.unit
        flight, begun = self.flight, found.parts.flight.begun
        size = flight.fifo.depth
        fifo, buffer = inside(flight.fifo), inside(flight.buffer)
        in_fifo, first, second = flight.fifo.output, flight.buffer.output, buffer.has_spare
        buffered = first.valid + second
        m.d.comb += [
            Assert(fifo.level <= size),
            Assert(in_fifo.valid == (fifo.level != 0)),
            Assert(~begun.ready | (fifo.level < size)),
            Assert(fifo.write.addr == (fifo.read.addr + fifo.level)[: len(fifo.read.addr)]),
            Assert(~second | first.valid),
            Assert(~flight.buffer.input.ready | ~second),
        ]
        m.submodules.marked = marked = Marked(len(first.payload.as_value()), size + BUFFER)
        # Completions of units that the marked command and those before it wait for.
        needed, was_completed, left = Signal(8), Signal(), Signal()
        with m.If(marked.mark & marked.push & ~marked.was_marked):
            m.d.sync += needed.eq(outstanding + (begun.payload.unit != Unit.NONE) - unit.finished)
        with m.Elif((needed != 0) & unit.finished):
            m.d.sync += needed.eq(needed - 1)
        m.d.sync += [was_completed.eq(unit.completed), left.eq(marked.leaves)]
        m.d.comb += [
            marked.mark.eq(self.free(name="mark")),
            marked.push.eq(unit.began),
            marked.pushed.eq(begun.payload),
            marked.pop.eq(unit.completed),
            Assert(marked.level == fifo.level + buffered),
            Assert(~marked.leaves | (needed == unit.finished) | (needed == 0)),
            Assert(~left | (unit.grant == data.View(first.payload.shape(), marked.word).signal)),
            Assert(was_completed | (unit.grant == 0)),
        ]

        # Where each entry of the FIFO stands in the order of completion.
        words = [Value.cast(first.payload), buffer.spare, *(entry(m, fifo.storage, number) for number in range(size))]
        valid, place = [first.valid, second], [Const(0, 5), Const(1, 5)]
        for number in range(size):
            after = (number - fifo.read.addr)[: len(fifo.read.addr)]
            valid.append(after < fifo.level)
            place.append((after + buffered)[:5])
        waits = [data.View(first.payload.shape(), word).unit != Unit.NONE for word in words]
        needs = sum(v & w & (p <= marked.ahead) for v, w, p in zip(valid, waits, place, strict=True))
        m.d.comb += [
            Assert(sum(v & w for v, w in zip(valid, waits, strict=True)) == outstanding + flight.finished),
            Assert(flight.has_finished == (flight.finished != 0)),
            Assert(flight.finished <= size + BUFFER),
        ]
        with m.If(marked.inside):
            m.d.comb += [
                Assert((needs == flight.finished + needed) | (needed == 0) & (needs <= flight.finished)),
                *(
                    Assert(~v | (p != marked.ahead) | (word == marked.word))
                    for v, p, word in zip(valid, place, words, strict=True)
                ),
            ]

    def check_beginning(self, m: Module, found: SimpleNamespace) -> None:
        """What begins is legal, is the program's next command, has its tokens, and comes in its turn."""
        unit, header, at = self.unit, found.header, found.fsm.ongoing
        count, flight, dispatch = self.tokens.count, found.parts.flight, self.dispatch
        given, taken, took = Signal.like(count), Signal.like(count), Signal()
        m.d.sync += [
            took.eq(unit.began),
            given.eq(given + unit.granted),
            taken.eq(taken + Mux(unit.began, header.wait, 0)),
        ]
        m.d.comb += [
            Assert(count == (given - taken)[: len(count)]),
            Assert(~unit.began | (count >= header.wait)),
            Assert(~unit.began | flight.begun.ready),
            # It is looked at a cycle after the queue is done.
            Assert(took | (unit.tokens_left == (count != 0))),
            Assert(unit.tokens_left | (count == 0)),
            Assert(~unit.done | ~unit.began),
        ]
        # COMPUTE obeys `after` in its unit.
        turn = Const(1)
        if unit.queue is Queue.DMA:
            turn = flight.idle | ~header.after & (~found.is_transfer | found.may_overlap)
            m.d.comb += Assert(~unit.began | ~header.after | flight.idle)
        with m.If(at("BEGIN") & found.may_begin):
            m.d.comb += Assert((count >= header.wait) & turn & flight.begun.ready)

        # The command as its words have come, whatever way they take.
        text, position = Signal(isa.COMMAND_BITS), Signal.like(found.position)
        begun = Signal.like(found.index)
        with m.If(unit.words.valid & unit.words.ready):
            m.d.sync += text.word_select(position, CONFIG.axi.data_bits).eq(unit.words.payload)
            m.d.sync += position.eq(position + 1)
        with m.If(unit.start):
            m.d.sync += begun.eq(0)
        with m.Elif(unit.began):
            m.d.sync += begun.eq(begun + 1)
        m.d.comb += Assert(found.position == position)
        m.d.comb += Assert((found.takes == 0) | at("READ") | at("SETTLE"))
        for number, take in enumerate(found.takes):
            part = found.command.word_select(number, CONFIG.axi.data_bits)
            m.d.comb += Assert(Mux(take, found.word, part) == text.word_select(number, CONFIG.axi.data_bits))
        settled = [at(state) for state in ("READ", "SETTLE", "GATHER", "CHECK", "BEGIN")]
        with m.If(Cat(settled).any()):
            m.d.comb += Assert(found.index == begun)
        with m.If(at("OFFER")):
            m.d.comb += [Assert(dispatch.index == (begun - 1)[: len(begun)]), Assert(found.index == begun)]
        for port, fmt in self.formats():
            for field in fmt.fields:
                if field.lsb >= 32:
                    value = Value.cast(port[field.name]).as_unsigned()
                    m.d.comb += Assert(~at("OFFER") | (value == text[field.lsb :][: field.width]))
            m.d.comb += Assert(~at("OFFER") | (port.index == dispatch.index))
        with m.If(at("CHECK") | at("BEGIN")):
            for (end, used), stop in zip(
                self.legality.stretches.items(), [*self.legality.ends[1:], isa.COMMAND_BITS], strict=True
            ):
                m.d.comb += Assert(used == text[end:stop].any())
        with m.If(at("BEGIN")):
            m.d.comb += Assert(found.parts.legality.legal == self.is_legal(text))

    def formats(self) -> list:
        unit = self.unit
        if unit.queue is Queue.DMA:
            load = unit.load.payload
            several = [(unit.barrier.payload, isa.BARRIER)] if Opcode.BARRIER in unit.opcodes else []
            return [(load.load, isa.LOAD), (load.fill, isa.FILL), (unit.store.payload, isa.STORE), *several]
        return [(unit.compute.payload, isa.COMPUTE)]

    def is_legal(self, text: Value) -> Value:
        """Whether the command is one of this queue's, and every bit that it has no field for is zero."""
        legal = Const(0)
        for opcode in self.unit.opcodes:
            fmt = isa.FORMATS[opcode]
            used = sum((1 << field.width) - 1 << field.lsb for field in fmt.fields if field.name != "reserved") | 0xF
            clean = (text & (((1 << isa.COMMAND_BITS) - 1) ^ used)) == 0
            if opcode is Opcode.COMPUTE:
                engine = fmt.field("engine")
                argument = text[fmt.field("argument").lsb :][: isa.ARGUMENT_BITS]
                clean &= Cat(
                    (text[engine.lsb :][: engine.width] == own)
                    & ~argument[fields_end(CONFIG.engines.fields(own)) :].any()
                    for own in CONFIG.engines
                ).any()
            legal |= (text[:4] == opcode) & clean
        return legal


@pytest.mark.parametrize(
    ("which", "count", "cores"),
    sweep([(Queue.DMA, 2, 1), (Queue.DMA, 2, 2), (Queue.COMPUTE, 2, 1), (Queue.DMA, 4, 2)], kept=[(Queue.DMA, 2, 2)]),
)
def test_queue(which: Queue, count: int, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_IN_FLIGHT", count)
    prove(QueueProof(which, cores), tmp_path, depth=2, cover_depth=24, time_limit_s=3600)


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        # A LOAD after a SYNC after a STORE overtakes the STORE.
        (queue, "with m.If(self.began & is_transfer):", "with m.If(self.began):"),
        *(pytest.param(*change, marks=pytest.mark.regress) for change in MUTATIONS),
    ],
)
def test_a_broken_queue_is_found(
    part: ModuleType, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_IN_FLIGHT", 2)
    changed = broken(part, old, new)
    for name in part.__all__:
        # The queue has its parts by their names.
        monkeypatch.setattr(queue, name, getattr(changed, name), raising=False)
    which = Queue.COMPUTE if part is queue else Queue.DMA
    # What goes wrong takes several commands: more cycles than the solver can look at from reset on.
    with pytest.raises(ProofError, match="does not follow"):
        prove(QueueProof(which, cores=2), tmp_path, depth=2)
