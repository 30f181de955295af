"""The walk over the arena, proved for every range and pace: only bytes of the range are asked for, each once and in
order, and its end is said with the last one."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Proof, ProofError, broken, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.hdl.link import bridge

pytestmark = needs_yosys
BITS = 4


class WalkProof(Proof):
    """A user that asks for no more than a range has."""

    def __init__(self, module=bridge) -> None:
        super().__init__()
        self.unit = module.ArenaWalk(BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        request, answer = unit.host.request, unit.host.answer
        for name, signal in {
            "load": unit.load,
            "address": unit.address,
            "length": unit.length,
            "ask": unit.ask,
            "write": unit.write,
            "buffered": unit.buffered,
            "ready": request.ready,
            "answer_comes": answer.valid,
            "answer": answer.payload,
        }.items():
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        rests, reads, fetches, writes = (found.fsm.ongoing(name) for name in ("REST", "READ", "FETCH", "WRITE"))
        # The range, and its bytes that are done; a read that has been taken is answered later.
        base, length, done = Signal(BITS), Signal(BITS + 1), Signal(BITS + 1)
        owes = Signal()
        takes = request.valid & request.ready
        moves = unit.byte.valid | writes & takes
        m.d.sync += [done.eq(done + moves), owes.eq(owes & ~answer.valid | takes & ~request.payload.write)]
        with m.If(unit.load):
            m.d.sync += [base.eq(unit.address), length.eq(unit.length), done.eq(0)]
        waits, was_waiting, before = Signal(3), Signal(), Signal.like(request.payload)
        m.d.sync += [
            waits.eq(Mux(fetches, waits + 1, 0)),
            was_waiting.eq(request.valid & ~request.ready),
            before.eq(request.payload),
        ]
        m.d.comb += [
            Assume(~unit.load | rests & ~unit.ask & ~unit.write),
            Assume(~unit.load | (unit.length != 0) & (unit.address + unit.length <= 1 << BITS)),
            Assume(~(unit.ask | unit.write) | (done < length)),
            Assume(~(unit.ask & unit.write)),
            Assume(~answer.valid | owes),
            # Only the range, in order; what is offered stays.
            Assert(~request.valid | (request.payload.address == base + done) & (done < length)),
            Assert(~was_waiting | request.valid & (request.payload == before)),
            Assert(~moves | (unit.last == (done + 1 == length))),
            Assert(unit.byte.valid == answer.valid),
            Assert(unit.written == (writes & takes & (done + 1 == length))),
            # It is soon done where the arena is, and asks for nothing of its own accord.
            Assert(~rests | ~request.valid & ~owes),
            Assert(~reads | request.valid ^ owes),
            Assert(~writes | request.valid & ~owes),
            Assert(~fetches | ~request.valid & ~owes & (waits <= 2) & (waits + found.wait == 2)),
            Assert(~(reads | fetches | writes) | (done < length)),
            Assert(~reads | ~request.payload.write),
            Assert(~(fetches | writes) | request.payload.write),
            # Registers.
            Assert((length == 0) | (done == length) | (found.left == (length - done - 1)[:BITS])),
            Assert((length == 0) | (base + length <= 1 << BITS)),
            Assert((length == 0) | (request.payload.address == (base + done)[:BITS])),
            Assert((length == 0) | (unit.place == Cat(done)[: len(unit.place)])),
            Assert(done <= length),
            Cover(unit.written & (length == 2)),
            Cover(unit.byte.valid & unit.last & (length == 2)),
        ]
        return m


def test_walk(tmp_path: Path) -> None:
    prove(WalkProof(), tmp_path, depth=5, cover_depth=20)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left.eq(left - 1)", "left.eq(left)"),
        ("self.last.eq(left == 0)", "self.last.eq(left == 1)"),
        pytest.param("request.payload.address + 1", "request.payload.address + 2", marks=pytest.mark.regress),
        pytest.param("[wait.eq(wait - 1), request", "[request", marks=pytest.mark.regress),
    ],
)
def test_a_broken_walk_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(WalkProof(broken(bridge, old, new)), tmp_path, depth=16, mode="bounded")
