"""The queue between walker and gate, proved for all inputs: what is reserved has a place, and words stay in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Signal
from amaranth.lib import data

from cocotb_tests.support.proofs import Marked, Proof, ProofError, broken, entry, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.hdl.parts import fifo

WORD = data.StructLayout({"gated": 1, "rest": 2})
pytestmark = needs_yosys


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
