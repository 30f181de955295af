"""The arena on the chip, proved for every pace of master and host: each burst's beats are those of its words, once and
in order, nobody's answer finds its queue full, and nobody waits for ever.

Requests and answers pass through queues that have a proof of their own; they are left out here, so that what stands at
their ends is free, and what goes into them is checked.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal, Value

from cocotb_tests.support.proofs import Proof, ProofError, broken, inside, leave_out, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.hdl.memories import arena

pytestmark = needs_yosys
SIZE, DATA_BITS, ID_BITS = 64, 32, 2
BEATS, ANSWERS = 8, 4
PARTS = ("ram", "ar_queue", "aw_queue", "beats", "answers")
#: Cycles in which a burst that is here, and has room for its answer, gets no beat: it begins, and waits for the host.
MOST_WAITS = 3


def later(m: Module, value: Value, cycles: int = 1) -> Value:
    """``value`` so many cycles ago."""
    for _ in range(cycles):
        before, value = value, Signal(len(value))
        m.d.sync += value.eq(before)
    return value


class ArenaProof(Proof):
    """The RAM holds in each word the word's own address."""

    def __init__(self, module=arena) -> None:
        super().__init__()
        self.unit = module.Arena(size_bytes=SIZE, data_bits=DATA_BITS, id_bits=ID_BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        self.inner = inside(unit)
        found = SimpleNamespace(**{name: getattr(self.inner.m.submodules, name) for name in PARTS})
        leave_out(found.ram, found.ar_queue, found.aw_queue, found.beats, found.answers)
        m.d.comb += found.ram.read_data.eq(later(m, found.ram.read_address, 2))
        bus, request = unit.bus, unit.host.request
        for name in ("wvalid", "wlast", "wdata", "wstrb", "rready", "bready"):
            signal = getattr(bus, name)
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        m.d.comb += [
            request.valid.eq(self.free(name="host_asks")),
            request.payload.eq(self.free(request.payload.shape(), name="host_request")),
        ]
        taken = request.valid & request.ready
        reads, writes = taken & ~request.payload.write, taken & request.payload.write
        self.check_reads(m, found, later(m, reads))
        self.check_host(m, reads)
        self.check_writes(m, found, later(m, writes))
        return m

    def free_queue(self, m: Module, queue, name: str) -> Value:
        """A queue at whose end anything stands, until it is taken; returns whether it is."""
        output, burst = queue.output, queue.output.payload
        waits = later(m, output.valid & ~output.ready)
        m.d.comb += [
            output.valid.eq(self.free(name=f"{name}_valid")),
            burst.eq(self.free(burst.shape(), name=f"{name}_burst")),
            Assume(~waits | output.valid & (burst.as_value() == later(m, burst.as_value()))),
        ]
        return output.valid & output.ready

    def queue_level(self, m: Module, queue, name: str, depth: int) -> Value:
        """Words in a queue of answers, which come out at any pace and never find it full."""
        level = Signal(range(2 * depth), name=f"{name}_level")
        output = queue.output
        m.d.comb += [
            output.valid.eq(self.free(name=f"{name}_ready")),
            Assume(~output.valid | (level != 0)),
            Assert(~queue.input.valid | (level < depth)),
        ]
        m.d.sync += level.eq(level + queue.input.valid - (output.valid & output.ready))
        return level

    def follow(self, m: Module, begins: Value, ends: Value, moves: Value, queue) -> SimpleNamespace:
        """The burst at hand, as it came, and how many of its beats have gone."""
        burst, runs, count = Signal(queue.output.payload.shape()), Signal(), Signal(8)
        with m.If(begins):
            m.d.sync += [burst.eq(queue.output.payload), runs.eq(1), count.eq(0)]
        with m.Else():
            m.d.sync += [runs.eq(runs & ~ends), count.eq(count + moves)]
        return SimpleNamespace(burst=burst, runs=runs, count=count)

    def check_waits(self, m: Module, asks: Value, moves: Value) -> None:
        waits = Signal(4)
        m.d.sync += waits.eq(Mux(asks & ~moves, waits + 1, 0))
        m.d.comb += Assert(waits <= MOST_WAITS)

    def check_reads(self, m: Module, found: SimpleNamespace, host: Value) -> None:
        beats, bus = found.beats, self.unit.bus
        inner = self.inner._elaborate_read
        begins = self.free_queue(m, found.ar_queue, "ar")
        level = self.queue_level(m, beats, "r", BEATS)
        at = self.follow(m, begins, inner.asks & inner.last, inner.asks, found.ar_queue)
        burst = at.burst
        last = at.count == burst.left
        word = (burst.word + at.count)[: len(burst.word)]
        expected = later(m, Cat(inner.asks, word, burst.id, burst.outside, last), 3)
        payload = beats.input.payload
        come, word_then = expected[0], expected[1 : 1 + len(burst.word)]
        m.d.comb += [
            # What is asked for is the burst's, and comes three cycles later, once.
            Assert(~inner.asks | at.runs),
            Assert(~begins | ~at.runs | inner.asks & last),
            Assert(beats.input.valid == come),
            Assert(~come | (payload.data == word_then)),
            Assert(~come | (Cat(payload.id, payload.outside, payload.last) == expected[1 + len(burst.word) :])),
            Assert(bus.rresp == Mux(beats.output.payload.outside, 3, 0)),
            # The host goes first; nothing else holds up a burst for which there is room.
            Assert(~(inner.asks & host)),
            # Registers.
            Assert(inner.busy == at.runs),
            Assert(~at.runs | (inner.burst.word == word)),
            Assert(~at.runs | (inner.burst.left == (burst.left - at.count)[:8])),
            Assert(~at.runs | (at.count <= burst.left)),
            Assert(~at.runs | (inner.burst.id == burst.id) & (inner.burst.outside == burst.outside)),
            Assert(~at.runs | (inner.last == last)),
            Assert(inner.room + sum(inner.comes[1:]) + level == BEATS),
            Assert(inner.has_room == (inner.room != 0)),
            Cover((level == BEATS) & at.runs),
            Cover(come & payload.last & (later(m, burst.left, 3) == 3)),
        ]
        self.check_waits(m, (at.runs | found.ar_queue.output.valid) & (inner.room != 0), inner.asks)

    def check_host(self, m: Module, reads: Value) -> None:
        unit = self.unit
        address = later(m, unit.host.request.payload.address, 5)
        word, byte = address[unit.byte_bits :], address[: unit.byte_bits]
        answer = unit.host.answer
        m.d.comb += [
            Assert(answer.valid == later(m, reads, 5)),
            # Words hold their addresses, in their lowest bytes.
            Assert(~answer.valid | (answer.payload == Mux(byte == 0, word, 0))),
            Cover(answer.valid & (answer.payload == 5)),
        ]
        asks = unit.host.request.valid & ~unit.host.request.ready
        m.d.comb += Assert(~(asks & later(m, asks)))

    def check_writes(self, m: Module, found: SimpleNamespace, host: Value) -> None:
        unit, bus, ram, answers = self.unit, self.unit.bus, found.ram, found.answers
        inner = self.inner._elaborate_write
        begins = self.free_queue(m, found.aw_queue, "aw")
        level = self.queue_level(m, answers, "b", ANSWERS)
        taken = bus.wvalid & bus.wready
        ends = taken & bus.wlast
        at = self.follow(m, begins, ends, taken, found.aw_queue)
        burst = at.burst
        word = (burst.word + at.count)[: len(burst.word)]
        strobes = Mux(taken & ~burst.outside, bus.wstrb, 0)
        payload = later(m, unit.host.request.payload.as_value())
        address, value = payload[: unit.address_bits], payload[unit.address_bits + 1 :]
        m.d.comb += [
            # A beat belongs to a burst that has begun, and is written in the next cycle, or the host's byte is.
            Assert(~bus.wready | at.runs & ~host),
            Assert(ram.write_enable == later(m, Mux(host, 1 << address[: unit.byte_bits], strobes)[:4])),
            Assert(
                ~ram.write_enable.any()
                | (
                    Cat(ram.write_address, ram.write_data)
                    == later(m, Mux(host, Cat(address[unit.byte_bits :], value.replicate(4)), Cat(word, bus.wdata)))
                )
            ),
            # An answer for each burst.
            Assert(answers.input.valid == ends),
            Assert(~ends | (answers.input.payload.id == burst.id) & (answers.input.payload.outside == burst.outside)),
            Assert(bus.bresp == Mux(answers.output.payload.outside, 3, 0)),
            Assert(~begins | ~at.runs | ends),
            # Registers.
            Assert(inner.busy == at.runs),
            Assert(~at.runs | (inner.burst.word == word)),
            Assert(~at.runs | (inner.burst.id == burst.id) & (inner.burst.outside == burst.outside)),
            Assert(inner.room + at.runs + level == ANSWERS),
            Assert(inner.has_room == (inner.room != 0)),
            Cover((level == ANSWERS - 1) & ends),
            Cover(ends & (at.count == 3)),
        ]
        # A burst gets its beats as fast as they come.
        self.check_waits(m, at.runs | found.aw_queue.output.valid & (inner.room != 0), bus.wready)


def test_arena(tmp_path: Path) -> None:
    prove(ArenaProof(), tmp_path, depth=7, cover_depth=24)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # A beat more than there are places.
        ("asks.eq(busy & has_room & ~host_reads)", "asks.eq(busy & ~host_reads)"),
        # The host's write and a beat in one cycle.
        ("bus.wready.eq(stays & ~next_writes)", "bus.wready.eq(stays)"),
        # The last word of a burst is another burst's.
        ("m.d.sync += last.eq(burst.left == 1)", "m.d.sync += last.eq(burst.left == 2)"),
        *(
            pytest.param(*change, marks=pytest.mark.regress)
            for change in (
                ("writes & ~burst.outside", "writes"),
                ("asks.eq(busy & has_room & ~host_reads)", "asks.eq(busy & has_room)"),
                ("begins.eq(waiting.valid & has_room & (~busy | ends))", "begins.eq(waiting.valid & (~busy | ends))"),
                ("busy.eq(~last), burst.word.eq(burst.word + 1)", "busy.eq(~last), burst.word.eq(burst.word)"),
                ("comes, comes_to_host, note = [asks],", "comes, comes_to_host, note = [asks | host_reads],"),
                ("answers.input.valid.eq(ends)", "answers.input.valid.eq(writes)"),
            )
        ),
    ],
)
def test_a_broken_arena_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(ArenaProof(broken(arena, old, new)), tmp_path, depth=16, mode="bounded")
