"""The intake, proved for every line: good is only what has the right length and CRC and no damage, and what is gathered
is what came.

CRC and decoder have tests and proofs of their own; here they say anything.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Proof, ProofError, broken, constant, inside, leave_out, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.link.frames import HEADER_BYTES, LEAST_BYTES, MOST_BYTES
from lutterfly.golden.link.operations import MAX_DATA
from lutterfly.hdl.link import frames

pytestmark = needs_yosys


class IntakeProof(Proof):
    """One byte of the header is watched, whichever."""

    def __init__(self, module=frames) -> None:
        super().__init__()
        self.unit = module.FrameIntake()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        decoder, buffer = found.decoder, found.m.submodules.buffer
        leave_out(decoder, buffer)
        decoded = decoder.output.payload
        for name, signal in {
            "arrives": unit.received.valid,
            "received": unit.received.payload.as_value(),
            "listens": unit.listens,
            "begin": unit.begin,
            "matches": unit.matches,
            "comes": decoder.output.valid,
            "byte": decoded.byte,
            "end": decoded.end,
            "damaged": decoded.damaged,
        }.items():
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        # Bytes since the frame began, up to more than a frame may have; and the watched one.
        count, watched = Signal(range(2 * MOST_BYTES)), constant(m, 4, name="watched")
        byte, seen = Signal(8), Signal()
        comes, ends = decoder.output.valid & ~decoded.end, decoder.output.valid & decoded.end
        with m.If(comes & (count <= MOST_BYTES)):
            m.d.sync += count.eq(count + 1)
        with m.If(comes & (count == watched)):
            m.d.sync += [byte.eq(decoded.byte), seen.eq(1)]
        with m.If(unit.begin):
            m.d.sync += [count.eq(0), seen.eq(0)]
        right = (count >= LEAST_BYTES) & (count <= MOST_BYTES) & ~decoded.damaged & unit.matches
        was_end, was_right = Signal(), Signal()
        m.d.sync += [was_end.eq(ends), was_right.eq(right)]
        place = count - HEADER_BYTES
        shifted = Mux(count < HEADER_BYTES, count, HEADER_BYTES)
        first = Signal(4)
        m.d.comb += first.eq(HEADER_BYTES - shifted + watched)
        held = unit.header.as_value().word_select(first, 8)
        skips, lost = found.skips, unit.received.valid & ~unit.listens
        stop, delimiter = unit.received.payload.error, unit.received.payload.byte == 0
        was_lost_within, was_lost_whole = Signal(), Signal()
        m.d.sync += [was_lost_within.eq(lost & (~delimiter | stop)), was_lost_whole.eq(lost & delimiter & ~stop)]
        m.d.comb += [
            Assume(watched < HEADER_BYTES),
            Assume(~unit.begin | ~decoder.output.valid),
            Assert(unit.frame.valid == was_end),
            Assert(~was_end | (unit.frame.payload == was_right)),
            # What the CRC is of.
            Assert(unit.content.valid == comes),
            Assert(unit.content.payload == decoded.byte),
            # The decoder gets what it may, and the data its place.
            Assert(~decoder.input.valid | unit.listens & unit.received.valid & ~skips),
            Assert(~was_lost_within | skips),
            Assert(~was_lost_whole | ~skips),
            Assert(buffer.write_enable == (comes & (count >= HEADER_BYTES) & (place < MAX_DATA))),
            Assert(~buffer.write_enable | (buffer.write_address == place[: len(buffer.write_address)])),
            Assert(~seen | (held == byte)),
            # Registers.
            Assert(seen == (count > watched)),
            Assert(count <= MOST_BYTES + 1),
            Assert(unit.data_bytes == count.as_signed() - LEAST_BYTES),
            Cover(was_end & unit.frame.payload & (count == 18)),
        ]
        return m


def test_intake(tmp_path: Path) -> None:
    prove(IntakeProof(), tmp_path, depth=3, cover_depth=24)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" & self.matches", ""),
        ("~decoded.damaged & ", ""),
        ("(self.data_bytes >= 0) & ", ""),
        pytest.param("at < MAX_DATA", "at <= MAX_DATA", marks=pytest.mark.regress),
        pytest.param("skips.eq(~is_delimiter)", "skips.eq(0)", marks=pytest.mark.regress),
        pytest.param("self.listens & ~skips", "self.listens", marks=pytest.mark.regress),
    ],
)
def test_a_broken_intake_is_found(old: str, new: str, tmp_path: Path) -> None:
    # A frame that is too long takes more cycles than the solver can look at.
    with pytest.raises(ProofError):
        prove(IntakeProof(broken(frames, old, new)), tmp_path, depth=3)
