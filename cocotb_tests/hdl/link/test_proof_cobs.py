"""Encoder and decoder, proved for every frame and every pace: neither sticks or overflows, and what is encoded is
decoded again. Blocks are shorter here than COBS has them: their length is a parameter."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Marked, Proof, ProofError, broken, inside, leave_out, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.hdl.link import cobs

pytestmark = needs_yosys
BLOCK = 2
#: Bytes that are between both.
CAPACITY = 8


class EncoderProof(Proof):
    """Whatever the RAM holds: it takes or offers a byte within three cycles, and counts no further than a block."""

    def __init__(self, module=cobs) -> None:
        super().__init__()
        self.unit = module.CobsEncoder(block_bytes=BLOCK)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        leave_out(found.block)
        for name, signal in {
            "asks": unit.input.valid,
            "byte": unit.input.payload.as_value(),
            "takes": unit.output.ready,
            "held": found.block.read_data,
        }.items():
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        waits = Signal(4)
        m.d.sync += waits.eq(Mux(unit.input.ready | unit.output.valid, 0, waits + 1))
        gathers, sends, fetches, ends = (found.fsm.ongoing(name) for name in ("GATHER", "SEND", "FETCH", "END"))
        taken = unit.input.valid & unit.input.ready
        before = Signal.like(unit.output.payload)
        waited = Signal()
        m.d.sync += [before.eq(unit.output.payload), waited.eq(unit.output.valid & ~unit.output.ready)]
        m.d.comb += [
            Assert(waits <= 3),
            Assert(~waited | unit.output.valid & (unit.output.payload == before)),
            Assert((sends | ends) == unit.output.valid),
            Assert(gathers == unit.input.ready),
            Assert(~fetches | (found.wait <= 2)),
            Assert(~fetches | (waits + found.wait == 2)),
            Assert(fetches | (waits == 0) | (waits == 3)),
            Assert(found.count <= BLOCK),
            Assert(~gathers | (found.count < BLOCK)),
            Assert(~ends | (found.count == 0)),
            Assert(gathers | ends | (found.sent <= found.count)),
            Assert(~taken | (found.block.write_address == found.count)),
            Cover(ends & (found.count == 0) & ~unit.output.ready),
        ]
        return m


class PairProof(Proof):
    """One byte is watched, whichever, from the encoder's input to the decoder's output; the RAM is in between."""

    def __init__(self, encoder=cobs, decoder=cobs) -> None:
        super().__init__()
        self.encoder = encoder.CobsEncoder(block_bytes=BLOCK)
        self.decoder = decoder.CobsDecoder(block_bytes=BLOCK)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.encoder, m.submodules.decoder = encoder, decoder = self.encoder, self.decoder
        m.submodules.marked = marked = Marked(9, CAPACITY)
        given, plain, line = encoder.input, encoder.input.payload, encoder.output
        m.d.comb += [
            given.valid.eq(self.free(name="asks")),
            plain.eq(self.free(plain.shape(), name="byte")),
            # The line is as fast as it can be: its pace is the encoder's proof.
            line.ready.eq(1),
            decoder.input.valid.eq(line.valid),
            decoder.input.payload.byte.eq(line.payload),
        ]
        decoded = decoder.output.payload
        comes, ends = decoder.output.valid & ~decoded.end, decoder.output.valid & decoded.end
        # The last byte of a frame has left when its end comes.
        was_last, within = Signal(), Signal()
        m.d.comb += [
            marked.mark.eq(self.free(name="mark")),
            marked.push.eq(given.valid & given.ready),
            marked.pushed.eq(Cat(plain.byte, plain.last)),
            marked.pop.eq(comes),
            Assume(marked.level < CAPACITY),
            Assert(~comes | (marked.level != 0)),
            Assert(~marked.leaves | (marked.word[:8] == decoded.byte)),
            Assert(~ends | ~decoded.damaged),
            # After the last byte of a frame its end comes, and after no other one.
            Assert(~(was_last & comes)),
            Assert(~ends | ~within | was_last),
            Cover(ends & was_last),
        ]
        with m.If(marked.leaves):
            m.d.sync += [was_last.eq(marked.word[8]), within.eq(1)]
        with m.Elif(comes | ends):
            m.d.sync += [was_last.eq(0), within.eq(0)]
        return m


def test_encoder(tmp_path: Path) -> None:
    prove(EncoderProof(), tmp_path, depth=6, cover_depth=20)


@pytest.mark.parametrize("depth", [16, pytest.param(26, marks=pytest.mark.regress)])
def test_what_is_encoded_is_decoded(depth: int, tmp_path: Path) -> None:
    """In the first cycles: frames of a few bytes, of one block and of several."""
    prove(PairProof(), tmp_path, depth=depth, mode="bounded")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("is_full.eq(count == self.block_bytes - 1)", "is_full.eq(count == self.block_bytes)"),
        ("wait.eq(wait - 1)", "wait.eq(wait)"),
    ],
)
def test_a_broken_encoder_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError):
        prove(EncoderProof(broken(cobs, old, new)), tmp_path, depth=12, mode="bounded")


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (cobs, "with m.Elif(last_is_zero):", "with m.Elif(0):"),
        (cobs, "owes_zero.eq(received.byte != self.block_bytes + 1)", "owes_zero.eq(1)"),
    ],
)
def test_a_broken_pair_is_found(module, old: str, new: str, tmp_path: Path) -> None:
    units = {"encoder": cobs, "decoder": cobs}
    units[module.__name__.rpartition("_")[2]] = broken(module, old, new)
    with pytest.raises(ProofError, match="fails after reset"):
        prove(PairProof(**units), tmp_path, depth=22, mode="bounded")
