"""Runs into bursts, proved for every address and length: each byte belongs to one burst, in order, and the rules of
AXI hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Proof, ProofError, broken, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.config_parts import AxiConfig
from lutterfly.hdl.bus import axi as burst_module

pytestmark = needs_yosys
PAGE_BYTES = 4096


class BurstProof(Proof):
    """Beside the splitter a cursor goes through the run's bytes: what the next burst must be follows from it alone.

    Bursts are looked at where they enter the buffer at the output, which has a proof of its own.
    """

    def __init__(self, module=burst_module, *, data_bytes: int) -> None:
        super().__init__()
        self.data_bytes = data_bytes
        self.unit = module.BurstSplitter(data_bytes=data_bytes, context=2)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        bursts, burst, run = found.found.input, found.found.input.payload, unit.runs.payload
        m.d.comb += [
            unit.runs.valid.eq(self.free(name="offers")),
            run.address.eq(self.free(AxiConfig.ADDRESS_BITS, name="address")),
            run.last_byte.eq(self.free(AxiConfig.ADDRESS_BITS, name="last_byte")),
            run.context.eq(self.free(2, name="context")),
            unit.bursts.ready.eq(self.free(name="takes")),
        ]

        # Of the run at hand: its next byte and its last one. Beyond the last address both go on, and addresses wrap.
        running, begins = Signal(), Signal()
        cursor, end = Signal(AxiConfig.ADDRESS_BITS + 1), Signal(AxiConfig.ADDRESS_BITS + 1)
        context = Signal(2)
        size, block = self.data_bytes, self.data_bytes * AxiConfig.BURST_BEATS
        block_end, burst_end = Signal.like(cursor), Signal.like(cursor)
        m.d.comb += [
            block_end.eq(cursor | (block - 1)),
            burst_end.eq(Mux(end < block_end, end, block_end)),
        ]
        with m.If(bursts.valid & bursts.ready):
            m.d.sync += [cursor.eq(burst_end + 1), begins.eq(0), running.eq(end != burst_end)]
        with m.If(unit.runs.valid & unit.runs.ready):
            m.d.sync += [
                running.eq(1),
                begins.eq(1),
                cursor.eq(run.address),
                end.eq(run.address + run.last_byte),
                context.eq(run.context),
            ]
        m.d.comb += [
            Assert(bursts.valid == running),
            Assert(unit.runs.ready == ~running),
            Assert(~running | (cursor <= end)),
        ]
        with m.If(bursts.valid):
            m.d.comb += [
                Assert(burst.address == (cursor & ~(size - 1))[: AxiConfig.ADDRESS_BITS]),
                Assert(burst.first_byte == cursor % size),
                Assert(burst.beats_minus_one == (burst_end // size) - (cursor // size)),
                Assert(burst.last_byte == burst_end % size),
                Assert(burst.first == begins),
                Assert(burst.last == (burst_end == end)),
                Assert(burst.context == context),
                Assert(burst.address % PAGE_BYTES + (burst.beats_minus_one + 1) * size <= PAGE_BYTES),
                # The registers, in terms of the cursor.
                Assert(found.block == (cursor // block)[: len(found.block)]),
                Assert(found.span == end - (cursor & ~(block - 1))),
                Assert(found.last == (found.blocks_left == 0)),
                Assert(found.first_start == cursor % block),
                Assert(found.first | (cursor % block == 0)),
                Assert(found.first == begins),
                Cover(~burst.first & ~burst.last & (cursor > 1 << 20)),
                Cover(burst.last & ~burst.first & (burst.beats_minus_one == 3)),
            ]
        return m


@pytest.mark.parametrize("data_bytes", [8, *(pytest.param(size, marks=pytest.mark.regress) for size in (4, 16))])
def test_burst_splitter(data_bytes: int, tmp_path: Path) -> None:
    prove(BurstProof(data_bytes=data_bytes), tmp_path, depth=2, cover_depth=6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("last.eq(blocks_left == 1)", "last.eq(blocks_left == 2)"),
        (" & ~end_in_block[-1]", ""),
        ("burst.last_byte.eq(Mux(last, span, self.data_bytes - 1))", "burst.last_byte.eq(span)"),
        ("span.eq(run.address[:block_bits] + run.last_byte)", "span.eq(run.address[:byte_bits] + run.last_byte)"),
        pytest.param("block.eq(block + 1)", "block.eq(block + first)", marks=pytest.mark.regress),
    ],
)
def test_a_broken_burst_splitter_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(BurstProof(broken(burst_module, old, new), data_bytes=8), tmp_path, depth=6, mode="bounded")
