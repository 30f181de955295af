"""Queues, proved for all inputs: words come out in order, once, as they went in; what is reserved has a place."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Signal
from amaranth.lib import data

from cocotb_tests.support.proofs import Marked, Proof, ProofError, broken, entry, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.hdl.parts import fifo

WIDTH = 3
pytestmark = needs_yosys


class Streams(Proof):
    """A queue between two streams."""

    is_ready_at_once = False

    def __init__(self, unit, *, depth: int) -> None:
        super().__init__()
        self.unit, self.depth = unit, depth

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        m.submodules.marked = marked = Marked(WIDTH, self.depth)
        source, sink = unit.input, unit.output
        runs = Signal()
        m.d.sync += runs.eq(1)
        m.d.comb += [
            source.valid.eq(self.free(name="offers")),
            source.payload.eq(self.free(WIDTH, name="offered")),
            sink.ready.eq(self.free(name="takes")),
            marked.mark.eq(self.free(name="mark")),
            marked.push.eq(source.valid & source.ready),
            marked.pushed.eq(source.payload),
            marked.pop.eq(sink.valid & sink.ready),
            Assert(marked.level <= self.depth),
            Assert(~marked.leaves | (sink.payload == marked.word)),
            Assert(sink.valid == (marked.level != 0)),
            # In the first cycle after a reset nothing is taken from registers that tell it.
            Assert(source.ready == ((runs | self.is_ready_at_once) & (marked.level < self.depth))),
            Cover(marked.leaves & (marked.level == self.depth)),
        ]
        self.check(m, marked, inside(unit))
        return m

    def check(self, m: Module, marked: Marked, unit: SimpleNamespace) -> None:
        """What is known of the registers."""
        raise NotImplementedError


class SlotProof(Streams):
    is_ready_at_once = True

    def __init__(self, module=fifo) -> None:
        super().__init__(module.Slot(WIDTH), depth=1)

    def check(self, m: Module, marked: Marked, unit: SimpleNamespace) -> None:
        m.d.comb += Assert(~marked.inside | (unit.payload == marked.word))


class BufferProof(Streams):
    def __init__(self, module=fifo) -> None:
        super().__init__(module.Buffer(WIDTH), depth=2)

    def check(self, m: Module, marked: Marked, unit: SimpleNamespace) -> None:
        m.d.comb += [
            Assert(unit.has_spare == (marked.level == 2)),
            Assert(~marked.inside | (Mux(marked.ahead == 0, unit.payload, unit.spare) == marked.word)),
        ]


class FifoProof(Streams):
    def __init__(self, module=fifo, *, depth: int) -> None:
        super().__init__(module.Fifo(WIDTH, depth=depth), depth=depth)

    def check(self, m: Module, marked: Marked, unit: SimpleNamespace) -> None:
        m.d.comb += [
            Assert(unit.level == marked.level),
            Assert(unit.write.addr == (unit.read.addr + marked.level)[: len(unit.read.addr)]),
            Assert(~marked.inside | (entry(m, unit.storage, unit.read.addr + marked.ahead) == marked.word)),
        ]


class BlockFifoProof(Proof):
    """Whoever writes keeps count of the room: no more words are inside than ``depth``."""

    def __init__(self, module=fifo, *, depth: int) -> None:
        super().__init__()
        self.unit, self.depth = module.BlockFifo(WIDTH, depth=depth), depth

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        m.submodules.marked = marked = Marked(WIDTH, self.depth)
        source, sink = unit.input, unit.output
        waits = Signal(range(8))
        m.d.comb += [
            source.valid.eq(self.free(name="offers")),
            source.payload.eq(self.free(WIDTH, name="offered")),
            sink.ready.eq(self.free(name="takes")),
            marked.mark.eq(self.free(name="mark")),
            marked.push.eq(source.valid),
            marked.pushed.eq(source.payload),
            marked.pop.eq(sink.valid & sink.ready),
            Assume(~source.valid | (marked.level < self.depth)),
            Assert(~marked.leaves | (sink.payload == marked.word)),
            Cover(marked.leaves & (marked.level == self.depth)),
        ]
        m.d.sync += waits.eq(Mux((marked.level != 0) & ~sink.valid, waits + 1, 0))
        found = inside(unit)
        oldest = sink.valid + found.fetched
        write, read = found.write, found.read
        held = entry(m, found.storage, read.addr + marked.ahead - oldest)
        m.d.comb += [
            Assert(sink.valid | (marked.level == 0) | (waits <= 2)),
            Assert(marked.level == found.stored + found.came + oldest),
            Assert(write.addr == (read.addr + found.stored + found.came)[: len(read.addr)]),
            Assert(~found.waits | (found.stored != 0)),
            # An entry that is read is not written in the same cycle: what that would read, no memory promises.
            Assert(~(found.fetch & write.en & (write.addr == read.addr))),
            Assert(
                ~marked.inside
                | Mux(
                    marked.ahead >= oldest,
                    held == marked.word,
                    Mux(sink.valid & (marked.ahead == 0), sink.payload, read.data) == marked.word,
                )
            ),
        ]
        return m


def test_slot(tmp_path: Path) -> None:
    prove(SlotProof(), tmp_path, depth=2, cover_depth=5)


def test_buffer(tmp_path: Path) -> None:
    prove(BufferProof(), tmp_path, depth=2, cover_depth=5)


@pytest.mark.parametrize("depth", [2, 3, 16])
def test_fifo(depth: int, tmp_path: Path) -> None:
    prove(FifoProof(depth=depth), tmp_path, depth=2, cover_depth=depth + 3)


@pytest.mark.parametrize("depth", [2, 8])
def test_block_fifo(depth: int, tmp_path: Path) -> None:
    prove(BlockFifoProof(depth=depth), tmp_path, depth=5, cover_depth=depth + 6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.output.valid.eq(~self.output.ready)", "self.output.valid.eq(0)"),
        ("self.input.ready.eq(~self.output.valid)", "self.input.ready.eq(1)"),
    ],
)
def test_a_broken_slot_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(SlotProof(broken(fifo, old, new)), tmp_path, depth=8, mode="bounded")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("with m.If(~has_spare):", "with m.If(self.output.ready):"),
        ("Mux(has_spare, spare, self.input.payload)", "Mux(has_spare, self.input.payload, spare)"),
        ("keeps_spare.eq(has_spare | self.input.valid & self.input.ready)", "keeps_spare.eq(has_spare)"),
    ],
)
def test_a_broken_buffer_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(BufferProof(broken(fifo, old, new)), tmp_path, depth=8, mode="bounded")


@pytest.mark.parametrize(
    ("depth", "old", "new"),
    [
        (3, "level < self.depth - 1)", "level < self.depth)"),
        (3, "remains(level, leaves=pop, comes=push)", "remains(level, leaves=pop, comes=self.input.valid)"),
        (3, "with m.If(pop):", "with m.If(self.output.ready):"),
        (3, "with m.If(push):", "with m.If(self.input.valid):"),
        # With three places of four in use, the fourth may be written.
        (2, "write.en.eq(is_free)", "write.en.eq(1)"),
    ],
)
def test_a_broken_fifo_is_found(depth: int, old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(FifoProof(broken(fifo, old, new), depth=depth), tmp_path, depth=8, mode="bounded")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("waits.eq(remains(stored, leaves=fetch, comes=came))", "waits.eq(remains(stored, leaves=0, comes=came))"),
        ("waits.eq(remains(stored, leaves=fetch, comes=came))", "waits.eq(remains(stored, leaves=fetch))"),
        ("read.en.eq(move_fetched)", "read.en.eq(1)"),
        ("move_fetched.eq(~fetched | move_output)", "move_fetched.eq(~fetched | self.output.ready)"),
    ],
)
def test_a_broken_block_fifo_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(BlockFifoProof(broken(fifo, old, new), depth=2), tmp_path, depth=10, mode="bounded")


def test_a_failure_names_the_assertion_and_shows_what_leads_to_it(tmp_path: Path) -> None:
    with pytest.raises(ProofError) as caught:
        prove(FifoProof(broken(fifo, "write.en.eq(is_free)", "write.en.eq(pop)"), depth=2), tmp_path, depth=8)
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("test_proof_fifo.py:")
    assert any(line.startswith("marked.level ") for line in lines)


def test_what_cannot_be_covered_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ProofError, match=r"cannot be covered; .*\n.*Cover\(marked.leaves"):
        prove(FifoProof(depth=16), tmp_path, depth=2)


# The queue between walker and gate, proved for all inputs: what is reserved has a place, and words stay in order.

WORD = data.StructLayout({"gated": 1, "rest": 2})


class LookaheadProof(Proof):
    """A walker that pushes a word at any time after it has reserved the place."""

    def __init__(self, module=fifo, *, depth: int) -> None:
        super().__init__()
        self.unit, self.depth = module.Lookahead(WORD, gated=["gated"], depth=depth), depth

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        # One word is at the output.
        m.submodules.marked = marked = Marked(WORD.size, self.depth + 1)
        owed = Signal(range(self.depth + 1))
        runs, late = Signal(), Signal()
        m.d.sync += [
            owed.eq(owed + unit.reserve - unit.input.valid),
            runs.eq(1),
            late.eq((marked.level != 0) & ~unit.output.valid),
        ]
        m.d.comb += [
            unit.reserve.eq(self.free(name="reserves")),
            unit.input.valid.eq(self.free(name="pushes")),
            unit.input.payload.eq(self.free(WORD.size, name="pushed")),
            unit.output.ready.eq(self.free(name="takes")),
            marked.mark.eq(self.free(name="mark")),
            marked.push.eq(unit.input.valid),
            marked.pushed.eq(unit.input.payload.as_value()),
            marked.pop.eq(unit.output.valid & unit.output.ready),
            Assume(~unit.reserve | unit.room),
            Assume(~unit.input.valid | (owed != 0)),
        ]
        found = inside(unit)
        out = unit.output
        word = out.payload.as_value()
        held = entry(m, found.storage, found.read.addr + marked.ahead - out.valid)
        m.d.comb += [
            Assert(owed + found.stored + found.moved <= self.depth),
            # A place that a word leaves is free a cycle later; in the first cycle after a reset nothing is reserved.
            Assert(unit.room == (runs & (owed + found.stored + found.moved < self.depth))),
            Assert(~marked.leaves | (word == marked.word)),
            # A word is there two cycles after its push if nothing is ahead of it.
            Assert(~late | out.valid),
            Assert(marked.level == found.stored + out.valid),
            Assert(found.free == self.depth - owed - found.stored - found.moved),
            Assert(found.waits == (found.stored != 0)),
            Assert(found.write.addr == (found.read.addr + found.stored)[: len(found.read.addr)]),
            # The word at the output stays in its place.
            Assert(~out.valid | (found.held.addr == (found.read.addr - 1)[: len(found.held.addr)])),
            Assert(~marked.inside | (Mux(out.valid & (marked.ahead == 0), word, held) == marked.word)),
            Cover(marked.leaves & (marked.level == self.depth + 1)),
        ]
        return m


@pytest.mark.parametrize("depth", [2, 9])
def test_lookahead(depth: int, tmp_path: Path) -> None:
    prove(LookaheadProof(depth=depth), tmp_path, depth=3, cover_depth=depth + 8)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("free.eq(free - self.reserve + moved)", "free.eq(free - self.input.valid + moved)"),
        ("self.next_room.eq(remains(free, leaves=self.reserve, comes=moved))", "self.next_room.eq(free != 0)"),
        ("self.next_room.eq(remains(free, leaves=self.reserve, comes=moved))", "self.next_room.eq((free > 1) | moved)"),
        ("free.eq(free - self.reserve + moved)", "free.eq(free - self.reserve + (move | moved))"),
        ("1 << self.depth.bit_length()", "self.depth"),
        ("waits.eq(remains(stored, leaves=move, comes=self.input.valid))", "waits.eq(stored != 0)"),
    ],
)
def test_a_broken_lookahead_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(LookaheadProof(broken(fifo, old, new), depth=2), tmp_path, depth=10, mode="bounded")
