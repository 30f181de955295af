"""The ring of commands, proved for every program, pace and sequence of runs: words come out in order, none is lost or
written over before it is used, and none of an earlier program is handed out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Proof, ProofError, broken, constant, entry, inside, leave_out, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.config_parts import ArrayConfig, AxiConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.control import program as ring
from lutterfly.hdl.control.program import program_layout
from lutterfly.hdl.core import Core

pytestmark = needs_yosys
#: A command has 4 words; the ring holds 4 commands.
CONFIG = replace(
    PRESETS["tiny"],
    axi=AxiConfig(data_bits=128),
    array=ArrayConfig(lanes=16, columns=4, requant_lanes=2),
    resident_commands=4,
)
#: All bits of a word go the same way; the last ones, which are in the last part of what keeps words in parts.
BITS = 2
#: Programs that fit into the ring, and such that go through it several times.
COMMANDS_MOST = 15
POSITION_BITS = 7


class RingProof(Proof):
    """Of each program one word is watched, whichever, on its way from memory to the queue.

    The parent starts a run when the ring is not busy and the queue has stopped the run before, and tells when the
    program changes. Memory gives the words that were asked for, in order, at any pace.
    """

    def __init__(self, module=ring) -> None:
        super().__init__()
        self.unit = module.Ring(CONFIG)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        words = found.command_words
        position = constant(m, POSITION_BITS, name="position")
        value, next_value = Signal(BITS), self.free(BITS, name="next_value")
        # No run begins in the first cycle after a reset.
        started = Signal(init=1)
        ran, stopped, stale = Signal(), Signal(), Signal()
        program, loaded = Signal(program_layout()), Signal(program_layout())
        # Commands that were asked for; words that came, that were read, and that have left the ring.
        asked = Signal(POSITION_BITS)
        came, read, left = Signal(POSITION_BITS), Signal(POSITION_BITS), Signal(POSITION_BITS)
        m.d.comb += [
            unit.start.eq(self.free(name="start")),
            unit.stop.eq(self.free(name="stop")),
            unit.halt.eq(self.free(name="halt")),
            unit.changed.eq(self.free(name="changed")),
            unit.program.eq(self.free(program_layout(), name="offered_program")),
            unit.burst.ready.eq(self.free(name="takes_burst")),
            unit.word_valid.eq(self.free(name="word_comes")),
            unit.word.eq(self.free(CONFIG.axi.data_bits, name="word")),
            unit.words.ready.eq(self.free(name="takes_word")),
            Assume(unit.program.commands <= COMMANDS_MOST),
            Assert((program.commands <= COMMANDS_MOST) & (loaded.commands <= COMMANDS_MOST)),
            Assume(unit.changed | ~ran | (unit.program == program)),
            Assume(~unit.start | ~unit.busy & ~started & (unit.stop | ~ran)),
            Assume(~(started & unit.stop)),
            Assume(~stopped | unit.stop | started),
            Assume(~unit.word_valid | (came < asked * words)),
            Assume(~unit.word_valid | (came != position) | (unit.word[-BITS:] == value)),
        ]
        burst = unit.burst.payload
        takes_burst, leaves = unit.burst.valid & unit.burst.ready, unit.words.valid & (unit.words.ready | unit.stop)
        m.d.sync += [
            started.eq(unit.start),
            stopped.eq((stopped | unit.stop) & ~unit.start),
            program.eq(unit.program),
            stale.eq((stale | unit.changed) & ~unit.start),
            came.eq(came + unit.word_valid),
            read.eq(read + found.issue),
            left.eq(left + leaves),
        ]
        with m.If(takes_burst):
            m.d.sync += asked.eq(asked + Mux(burst.two, 2, 1))
        with m.If(unit.start):
            m.d.sync += [ran.eq(1), read.eq(0), left.eq(0)]
            with m.If(~found.resident):
                m.d.sync += [asked.eq(0), came.eq(0), value.eq(next_value), loaded.eq(unit.program)]

        m.d.comb += [
            Assert(~(unit.start & found.resident & (stale | unit.changed))),
            Assert(~found.whole | ~stale),
            Assert(~ran | stale | (program == loaded)),
            Assert(~unit.start | (came == asked * words) & (read == left)),
            Assert(~unit.words.valid | (left != position) | (unit.words.payload[-BITS:] == value)),
            # Nothing is written over that is yet to be read, or that another run may begin with.
            Assert(~unit.word_valid | (came - read < found.depth)),
            Assert(~unit.word_valid | ~found.whole | (came < found.depth)),
            # Everything has been handed out, unless the queue wants no more.
            Assert(~unit.exhausted | ~ran | started | unit.stop | (left == loaded.commands * words)),
            Cover(unit.start & found.resident & (loaded.commands == 1)),
            Cover(unit.start & ran & ~found.resident & unit.exhausted),
        ]
        with m.If(takes_burst):
            m.d.comb += [
                Assert(burst.address == (loaded.address + (asked << 6))[:32]),
                Assert(burst.index == asked),
                Assert(asked + Mux(burst.two, 2, 1) <= loaded.commands),
                Assert((asked + Mux(burst.two, 2, 1)) * words - read <= found.depth),
                Assert(~burst.two | ~burst.address[6]),
            ]
        self.check_asking(m, found, asked, came, read, loaded, stopped)
        self.check_reading(
            m,
            found,
            SimpleNamespace(
                came=came,
                read=read,
                left=left,
                position=position,
                value=value,
                loaded=loaded,
                ran=ran,
                started=started,
                stopped=stopped,
            ),
        )
        return m

    def check_asking(self, m: Module, found: SimpleNamespace, asked, came, read, loaded, stopped) -> None:
        unit, at, words = self.unit, found.fsm.ongoing, found.command_words
        size = Mux(unit.burst.payload.two, 2, 1)
        counted = Signal.like(asked)
        m.d.comb += [
            counted.eq(asked - Mux(at("COUNT"), size, 0)),
            Assert(sum(at(state) for state in found.fsm.encoding) == 1),
            Assert(unit.burst.valid == at("ASK")),
            Assert(found.requested == (counted * words)[: len(found.requested)]),
            Assert(found.written == came[: len(found.written)]),
            Assert(found.read == read[: len(found.read)]),
            Assert(came <= asked * words),
            Assert(asked * words - read <= found.depth),
            Assert(asked <= loaded.commands),
            Assert(read <= came),
            Assert((found.to_fetch == loaded.commands - counted) | (found.to_fetch == 0) & (stopped | unit.stop)),
            Assert(unit.burst.payload.address == (loaded.address + (counted << 6))[:32]),
            Assert(unit.burst.payload.index == counted),
            Assert(~found.whole | (loaded.commands <= CONFIG.resident_commands)),
            Assert(~found.whole | (found.to_fetch == loaded.commands - counted)),
        ]
        with m.If(at("DECIDE")):
            m.d.comb += Assert((found.used >= counted * words - read) & (found.used <= found.depth))
        with m.If(at("ASK") | at("COUNT")):
            m.d.comb += [
                Assert((counted + size) * words - read <= found.depth),
                Assert(counted + size <= loaded.commands),
                Assert(~unit.burst.payload.two | ~unit.burst.payload.address[6]),
            ]

    def check_reading(self, m: Module, found: SimpleNamespace, ghost: SimpleNamespace) -> None:
        unit, words = self.unit, found.command_words
        storage = found.storage
        ram, fifo = inside(storage), inside(found.m.submodules.output)
        queue = found.m.submodules.output
        arrives = found.arrives
        in_queue = ghost.left + fifo.level
        position, value = ghost.position, ghost.value
        credits_most = queue.depth
        m.d.comb += [
            Assert(ghost.read == in_queue + arrives[0] + arrives[1]),
            Assert(fifo.level <= queue.depth),
            Assert(queue.output.valid == (fifo.level != 0)),
            Assert(fifo.write.addr == (fifo.read.addr + fifo.level)[: len(fifo.read.addr)]),
            Assert(~queue.input.valid | queue.input.ready),
            Assert(found.credits == credits_most - fifo.level - arrives[0] - arrives[1]),
            Assert(~found.has_credit | (found.credits != 0)),
            Assert(found.stored == ghost.came - ghost.read),
            Assert(~found.waits | (found.stored != 0)),
            Assert(~found.emptied | (found.credits == credits_most)),
            Assert(ghost.ran | (ghost.loaded.commands == 0) & ~found.reading & ~found.whole),
            Assert(~found.reading | (found.to_read == ghost.loaded.commands - ghost.read // words)),
            Assert(~found.reading | (found.to_read != 0)),
            Assert(found.reading | ~ghost.ran | ghost.stopped | (ghost.read == ghost.loaded.commands * words)),
            # A queue that wants no more lets the ring come to rest.
            Assert(~ghost.stopped | (found.to_fetch == 0) & ~found.reading),
            # Nothing is under way when a run may begin.
            Assert(unit.busy | ghost.started | (found.to_fetch == 0) & ~found.asking & ~found.reading),
            Assert(unit.busy | ghost.started | (found.written == found.requested) & found.emptied),
            # What the RAM gives in this cycle.
            Assert(~arrives[0] | (ram.address == (found.read - 1)[: len(ram.address)])),
        ]
        held = entry(m, ram.storage, position[: len(ram.read.addr)])
        queued = entry(m, fifo.storage, fifo.read.addr + (position - ghost.left))
        with m.If((position >= ghost.left) & (position < in_queue)):
            m.d.comb += Assert(queued[-BITS:] == value)
        with m.Elif(arrives[1] & (position == in_queue)):
            m.d.comb += Assert(storage.read_data[-BITS:] == value)
        with m.Elif(arrives[0] & (position == in_queue + arrives[1])):
            m.d.comb += Assert(ram.read.data[-BITS:] == value)
        with m.If((position < ghost.came) & ((position + arrives[0] >= ghost.read) | found.whole)):
            m.d.comb += Assert(held[-BITS:] == value)


class ChangedProof(Proof):
    """What the registers say reaches the rings: whatever a program's words depend on has changed."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = core = Core(CONFIG)
        units = inside(core).self._units
        # Only the wires between the units are looked at.
        leave_out(*units.values())
        written, program = core.written, units["program"]
        m.d.comb += written.eq(self.free(written.shape(), name="written"))
        m.d.comb += [
            Assert(program.dma_changed == (written.EXTERNAL_BASE | written.DMA_PROGRAM | written.DMA_COMMANDS)),
            Assert(
                program.compute_changed == (written.EXTERNAL_BASE | written.COMPUTE_PROGRAM | written.COMPUTE_COMMANDS)
            ),
            Cover(program.dma_changed & ~program.compute_changed),
        ]
        return m


def test_ring(tmp_path: Path) -> None:
    prove(RingProof(), tmp_path, depth=3, cover_depth=30)


def test_what_changes_a_program_reaches_its_ring(tmp_path: Path) -> None:
    prove(ChangedProof(), tmp_path, depth=1)


@pytest.mark.regress
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("used <= depth - command_words)", "used <= depth)"),
        ("used <= depth - 2 * command_words", "used <= depth - command_words"),
        ("whole & ~self.busy & ~self.changed", "whole & ~self.busy"),
        ("with m.If(self.changed):", "with m.If(self.changed & self.busy):"),
        ("to_fetch != 0):\n                m.d.sync += whole", "0):\n                m.d.sync += whole"),
        ("m.d.sync += to_fetch.eq(0)", "m.d.sync += to_fetch.eq(to_fetch)"),
        ("remains(credits, leaves=issue, comes=taken)", "credits != 0"),
        ("commands <= self.config.resident_commands", "commands <= self.config.resident_commands + 1"),
        ("output.output.ready.eq(self.words.ready | self.stop)", "output.output.ready.eq(self.words.ready)"),
        ("waits.eq(remains(stored, leaves=issue))", "waits.eq(stored != 0)"),
    ],
)
def test_a_broken_ring_is_found(old: str, new: str, tmp_path: Path) -> None:
    # What goes wrong takes several commands: more cycles than the solver can look at from reset on.
    with pytest.raises(ProofError, match="does not follow"):
        prove(RingProof(broken(ring, old, new)), tmp_path, depth=3)
