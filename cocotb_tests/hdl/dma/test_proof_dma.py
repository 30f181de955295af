"""The room of LOAD and STORE, which is counted instead of asked for, proved for all commands, buses and memories: no
queue there overflows, and no answer comes without a note of what it answers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Proof, ProofError, broken, inside, leave_out, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.dma import chunks, load, store
from lutterfly.hdl.dma.chunks import step_layout
from lutterfly.hdl.parts.fifo import Fifo, Lookahead

pytestmark = needs_yosys
CONFIG = PRESETS["tiny"]
BYTES = CONFIG.axi.data_bytes


def check_fifo(m: Module, queue: Fifo) -> Signal:
    """Assert what is known of a queue's registers, and return its level."""
    found = inside(queue)
    runs = Signal()
    m.d.sync += runs.eq(1)
    m.d.comb += [
        Assert(found.level <= queue.depth),
        Assert(queue.output.valid == (found.level != 0)),
        Assert(queue.input.ready == (runs & (found.level < queue.depth))),
        Assert(found.write.addr == (found.read.addr + found.level)[: len(found.read.addr)]),
    ]
    return found.level


class StoreBeatsProof(Proof):
    """The feature memory gives one word for each address, in order, at any time."""

    def __init__(self, module=store) -> None:
        super().__init__()
        self.unit = module.StoreBeats(CONFIG)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        bursts, burst, read = unit.bursts, unit.bursts.payload, unit.read
        asked, passed = read.valid & read.ready, unit.beats.valid & unit.beats.ready
        owed = Signal(8)
        m.d.comb += [
            bursts.valid.eq(self.free(name="begins")),
            burst.eq(self.free(burst.shape(), name="burst")),
            read.ready.eq(self.free(name="reads")),
            unit.word.valid.eq(self.free(name="word_comes")),
            unit.word.data.eq(self.free(len(unit.word.data), name="word")),
            unit.beats.ready.eq(self.free(name="takes")),
            Assume(~unit.word.valid | (owed != 0)),
        ]
        m.d.sync += owed.eq(owed + asked - unit.word.valid)
        strobes, words, outgoing = found.strobes, found.words, found.outgoing
        levels = {queue: check_fifo(m, queue) for queue in (strobes, words, outgoing)}
        m.d.comb += [
            Assert(~strobes.input.valid | strobes.input.ready),
            Assert(~words.input.valid | words.input.ready),
            Assert(~unit.beats.valid | strobes.output.valid),
            # Each beat's strobe has been put aside when its word was asked for.
            Assert(levels[strobes] == levels[words] + levels[outgoing] + owed),
            Assert(found.room == words.depth - levels[words] - owed - found.left),
            Assert(found.has_room == (found.room != 0)),
            Cover(passed & (levels[words] == words.depth)),
        ]

        # The beat at hand of the burst at hand, and where it is read.
        begun, beat = Signal.like(burst), Signal(5)
        address, runs = Signal.like(read.payload), Signal()
        last = beat == begun.beats_minus_one
        with m.If(asked):
            m.d.sync += [beat.eq(beat + 1), address.eq(address + BYTES), runs.eq(~last)]
        with m.If(bursts.valid & bursts.ready):
            m.d.sync += [begun.eq(burst), beat.eq(0), runs.eq(1)]
            with m.If(burst.first):
                m.d.sync += address.eq(burst.source)
        m.d.comb += [
            Assert(found.active == runs),
            Assert(~read.valid | runs),
            Assert(read.payload == address),
            Assert(~runs | (beat <= begun.beats_minus_one)),
            Assert(~runs | (found.beats_left == begun.beats_minus_one - beat)),
            Assert(~runs | (found.last == last)),
        ]
        for number in range(BYTES):
            written = ((beat != 0) | (number >= begun.first_byte)) & (~last | (number <= begun.last_byte))
            m.d.comb += [
                Assert(~asked | (strobes.input.payload[number] == written)),
                Assert(~runs | (found.last_strobe[number] == (number <= begun.last_byte))),
                Assert(~runs | (found.strobe[number] == ((beat != 0) | (number >= begun.first_byte)))),
            ]
        return m


class LoadRoomProof(Proof):
    """Bursts of any lengths, answers at any pace, and an aligner that takes beats when it likes."""

    def __init__(self, module=load) -> None:
        super().__init__()
        self.unit = module.DmaLoad(CONFIG)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        parts = found.m.submodules
        leave_out(
            *(
                parts[name]
                for name in (
                    "commands",
                    "chunks",
                    "transfers",
                    "steps",
                    "next_beat",
                    "aligner",
                    "aligned",
                    "chunk_buffer",
                    "write",
                    "runs",
                    "next_run",
                    "splitter",
                )
            )
        )
        bursts, beats, r = parts.splitter.bursts, parts.beats, unit.bus.r
        m.d.comb += [
            bursts.valid.eq(self.free(name="burst_found")),
            bursts.payload.eq(self.free(bursts.payload.shape(), name="burst")),
            parts.next_beat.input.ready.eq(self.free(name="takes_beat")),
            unit.bus.ar.ready.eq(self.free(name="takes_request")),
            r.valid.eq(self.free(name="beat_comes")),
            r.payload.eq(self.free(r.payload.shape(), name="beat")),
            unit.halt.eq(self.free(name="halt")),
        ]
        pushed, popped = beats.input.valid, beats.output.valid & beats.output.ready
        begin = bursts.valid & bursts.ready
        # Beats and bursts that are yet to come, and beats that are in the queue.
        coming, flying, level = Signal(16), Signal(8), Signal(16)
        m.d.sync += [
            coming.eq(coming + Mux(begin, bursts.payload.beats_minus_one + 1, 0) - r.valid),
            flying.eq(flying + begin - (r.valid & r.payload.last)),
            level.eq(level + pushed - popped),
        ]
        pending = check_fifo(m, parts.pending)
        queue = inside(beats)
        m.d.comb += [
            Assume(~r.valid | (coming != 0) & (flying != 0)),
            Assert(pushed == r.valid),
            Assert(~pushed | (level < beats.depth)),
            Assert(~r.valid | parts.pending.output.valid),
            Assert(~begin | parts.pending.input.ready & parts.requests.input.ready),
            Assert(pending == flying),
            Assert(level == queue.stored + queue.came + queue.fetched + beats.output.valid),
            Assert(~queue.waits | (queue.stored != 0)),
            Assert(level + coming <= beats.depth),
            Assert(found.room + level + coming == beats.depth + found.began - found.freed),
            Assert(found.began <= CONFIG.axi.BURST_BEATS),
            Cover(begin & (level + coming >= 20)),
        ]
        return m


class ReservationProof(Proof):
    """The aligner and the queue after it, for any steps and beats."""

    def __init__(self, module=chunks) -> None:
        super().__init__()
        self.aligner = module.ByteAligner(CONFIG)
        self.aligned = Lookahead(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.aligner, m.submodules.aligned = aligner, aligned = self.aligner, self.aligned
        found = inside(aligned)
        m.d.comb += [
            aligner.beats.valid.eq(self.free(name="beat_comes")),
            aligner.steps.valid.eq(self.free(name="step_comes")),
            aligner.steps.payload.eq(self.free(step_layout(CONFIG), name="step")),
            aligner.halt.eq(self.free(name="halt")),
            aligner.room.eq(aligned.room),
            aligned.reserve.eq(aligner.reserve),
            aligned.input.valid.eq(aligner.chunks.valid),
            aligned.output.ready.eq(self.free(name="takes")),
        ]
        owed = Signal(4)
        m.d.sync += owed.eq(owed + aligned.reserve - aligned.input.valid)
        m.d.comb += [
            Assert(~aligned.reserve | aligned.room),
            # What has been reserved comes, one cycle later, and nothing else does.
            Assert(aligned.input.valid == (owed != 0)),
            Assert(owed <= 1),
            Assert(found.stored + owed + found.moved <= aligned.depth),
            Assert(found.free == aligned.depth - found.stored - owed - found.moved),
            Assert(~aligned.room | (found.free != 0)),
            Assert(~found.waits | (found.stored != 0)),
            Cover(aligned.output.valid & (found.stored == aligned.depth)),
        ]
        return m


class StoreResponsesProof(Proof):
    """Rows and bursts of any kind, and answers at any pace."""

    def __init__(self, module=store) -> None:
        super().__init__()
        self.unit = module.DmaStore(CONFIG)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        parts = inside(unit).m.submodules
        leave_out(parts.beats, parts.rows, parts.splitter)
        bursts, b = parts.splitter.bursts, unit.bus.b
        m.d.comb += [
            bursts.valid.eq(self.free(name="burst_found")),
            bursts.payload.eq(self.free(bursts.payload.shape(), name="burst")),
            parts.beats.bursts.ready.eq(self.free(name="starts_burst")),
            unit.bus.aw.ready.eq(self.free(name="takes_request")),
            b.valid.eq(self.free(name="answer_comes")),
            b.payload.eq(self.free(b.payload.shape(), name="answer")),
            unit.halt.eq(self.free(name="halt")),
        ]
        begin = bursts.valid & bursts.ready
        flying = Signal(8)
        m.d.sync += flying.eq(flying + begin - b.valid)
        m.d.comb += [
            Assume(~b.valid | (flying != 0)),
            Assert(~begin | parts.pending.input.ready & parts.requests.input.ready & parts.starts.input.ready),
            Assert(check_fifo(m, parts.pending) == flying),
            Assert(~b.valid | parts.pending.output.valid),
            Cover(flying == CONFIG.axi.outstanding),
        ]
        return m


def test_store_beats(tmp_path: Path) -> None:
    prove(StoreBeatsProof(), tmp_path, depth=2, cover_depth=30)


def test_room_of_a_load(tmp_path: Path) -> None:
    prove(LoadRoomProof(), tmp_path, depth=3, cover_depth=8)


def test_reservations_of_the_aligner(tmp_path: Path) -> None:
    prove(ReservationProof(), tmp_path, depth=2, cover_depth=16)


def test_responses_of_a_store(tmp_path: Path) -> None:
    prove(StoreResponsesProof(), tmp_path, depth=2, cover_depth=12)


@pytest.mark.parametrize(
    ("proof", "module", "old", "new"),
    [
        (StoreBeatsProof, store, "active & has_room", "active"),
        (LoadRoomProof, load, "room >= 2 * axi.BURST_BEATS", "room >= axi.BURST_BEATS"),
        *(
            pytest.param(*change, marks=pytest.mark.regress)
            for change in (
                (
                    StoreBeatsProof,
                    store,
                    "counted(room, comes=left, ",
                    "counted(room, comes=words.output.valid, ",
                ),
                (StoreBeatsProof, store, "Mux(last, last_strobe, (1 << data_bytes) - 1)", "last_strobe"),
                (StoreBeatsProof, store, "read.payload + data_bytes", "read.payload + 1"),
                (StoreBeatsProof, store, "last.eq(beats_left == 1)", "last.eq(beats_left == 0)"),
                (StoreBeatsProof, store, "last.eq(burst.beats_minus_one == 0)", "last.eq(0)"),
                (LoadRoomProof, load, "bursts.payload.beats_minus_one + 1, 0", "bursts.payload.beats_minus_one, 0"),
                (LoadRoomProof, load, "has_room & pending.input.ready", "has_room"),
                (LoadRoomProof, load, "room + freed - began", "room + beats.output.valid - began"),
                (ReservationProof, chunks, "self.reserve.eq(move)", "self.reserve.eq(may_move)"),
                (ReservationProof, chunks, "self.steps.valid & self.room", "self.steps.valid"),
                (StoreResponsesProof, store, "starts.ready & pending.input.ready", "starts.ready"),
                (StoreResponsesProof, store, "pending.ready.eq(b.valid)", "pending.ready.eq(1)"),
            )
        ),
    ],
)
def test_broken_room_is_found(proof: type[Proof], module: ModuleType, old: str, new: str, tmp_path: Path) -> None:
    # Some take more cycles than the solver can look at from reset on.
    with pytest.raises(ProofError, match=r"does not follow|fails after reset"):
        prove(proof(broken(module, old, new)), tmp_path, depth=3)
