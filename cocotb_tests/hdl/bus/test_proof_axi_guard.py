"""The guard at the AXI pins, proved for soft resets at any moment, every pace of the slave and masters that ask for
anything: the pins keep the rules of AXI, and nobody gets an answer to what was asked before a reset."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Module, Mux, Signal, Value

from cocotb_tests.support.proofs import Marked, Proof, ProofError, broken, constant, entry, inside, offers_stay, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.bus import axi_guard
from lutterfly.hdl.core import reset_latency

pytestmark = needs_yosys
CONFIG = PRESETS["tiny"]
BYTES = CONFIG.axi.data_bytes
PAGE_BYTES = 4096
#: Bursts are held back from 128 on; two channels take one in each of the four cycles until that is known.
MOST_IN_FLIGHT = 128 + 2 * 4
OWED = 16 + 2


def within_page(address: Value, beats_minus_one: Value) -> Value:
    return (address % BYTES == 0) & (address % PAGE_BYTES + (beats_minus_one + 1) * BYTES <= PAGE_BYTES)


class GuardProof(Proof):
    """One burst is watched, whichever, and one write burst's beats; the slave may answer any burst that was taken."""

    def __init__(self, module=axi_guard) -> None:
        super().__init__()
        self.unit = module.AxiGuard(CONFIG, reset_cycles=1 + reset_latency(CONFIG))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        bus = unit.memory
        m.d.comb += [
            unit.soft_reset.eq(self.free(name="soft_reset")),
            unit.base.eq(Cat(Const(0, 12), self.free(20, name="base"))),
            unit.store.w.valid.eq(self.free(name="beat_valid")),
            unit.store.w.payload.eq(self.free(unit.store.w.payload.shape(), name="beat")),
        ]
        for name in ("awready", "arready", "wready", "bvalid", "rvalid"):
            m.d.comb += getattr(bus, name).eq(self.free(name=name))
        for name in ("bid", "bresp", "rid", "rdata", "rresp", "rlast"):
            signal = getattr(bus, name)
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        masters = {"load": unit.load.ar, "program": unit.program.ar, "store": unit.store.aw}
        takes = {}
        for name, port in masters.items():
            m.d.comb += [
                port.valid.eq(self.free(name=f"{name}_asks")),
                port.payload.eq(self.free(port.payload.shape(), name=f"{name}_request")),
                Assume(within_page(port.payload.address, port.payload.beats_minus_one)),
            ]
            takes[name] = port.valid & port.ready
        takes_beat = unit.store.w.valid & unit.store.w.ready
        m.d.comb += [
            Assert(~(takes["load"] & takes["program"])),
            # Nothing is taken from a master while it is being reset.
            Assert(~unit.resetting | ~Cat(*takes.values(), takes_beat).any()),
        ]
        self.check_pins(m)
        self.check_write_data(m, found, takes["store"])
        self.check_answers(m, found, takes)
        return m

    def check_pins(self, m: Module) -> None:
        """What is offered stays until it is taken."""
        bus = self.unit.memory
        request = ("addr", "id", "len")
        offers_stay(m, bus, {"aw": request, "ar": request, "w": ("data", "strb", "last")})
        for channel in ("aw", "ar"):
            address, beats = (getattr(bus, channel + name) for name in ("addr", "len"))
            rules = within_page(address, beats) & (beats < 16) & (getattr(bus, f"{channel}burst") == 1)
            m.d.comb += [
                Assert(~getattr(bus, f"{channel}valid") | rules),
                Assert(1 << getattr(bus, f"{channel}size") == BYTES),
            ]

    def check_write_data(self, m: Module, found: SimpleNamespace, takes: Value) -> None:
        """Each burst gets as many beats as it has announced, in the order of the bursts; those that a reset has left
        owing have no strobes, and no beat of a master is taken for them."""
        unit = self.unit
        fifo, buffer = inside(found.m.submodules.owed), inside(found.next_owed)
        owed, head = found.m.submodules.owed, found.next_owed.output
        outgoing, leaving = found.m.submodules.outgoing.input, inside(found.m.submodules.outgoing)
        buffered = head.valid + buffer.has_spare
        m.submodules.beats = marked = Marked(len(head.payload), OWED)
        # Beats of the burst at hand that have gone, and bursts from before the last reset.
        sent, old = Signal(5), Signal(6)
        ends = head.valid & head.ready
        moves = outgoing.valid & outgoing.ready
        m.d.sync += sent.eq(Mux(ends, 0, sent + moves))
        with m.If(unit.soft_reset):
            m.d.sync += old.eq(marked.level + takes - ends)
        with m.Elif(ends & (old != 0)):
            m.d.sync += old.eq(old - 1)
        held = Mux(marked.ahead == 0, buffer.payload, buffer.spare)
        m.d.comb += [
            marked.mark.eq(self.free(name="mark_beats")),
            marked.push.eq(takes),
            marked.pushed.eq(unit.store.aw.payload.beats_minus_one),
            marked.pop.eq(ends),
            Assert(~marked.leaves | moves & outgoing.payload.last & (sent == marked.word)),
            Assert(~(marked.inside & (marked.ahead == 0) & moves) | (outgoing.payload.last == (sent == marked.word))),
            Assert(~moves | head.valid & (ends == outgoing.payload.last)),
            # In the cycle of a reset nothing is taken from the masters any more, and nothing owing remains.
            Assert((old == 0) | found.padding),
            Assert(~found.padding | (old == marked.level)),
            Assert(~moves | found.padding | unit.store.w.valid & unit.store.w.ready),
            Assert(~(unit.store.w.valid & unit.store.w.ready) | moves & (old == 0)),
            Assert(~moves | ~found.padding | (outgoing.payload.strobe == 0)),
            Assert(~found.padding | (moves == (head.valid & outgoing.ready))),
            # Registers.
            Assert(found.sent == sent),
            Assert(~head.valid | (sent <= head.payload)),
            Assert(head.valid | (sent == 0)),
            Assert(marked.level == fifo.level + buffered),
            Assert(fifo.level <= owed.depth),
            Assert(owed.output.valid == (fifo.level != 0)),
            Assert(~owed.input.ready | (fifo.level < owed.depth)),
            Assert(fifo.write.addr == (fifo.read.addr + fifo.level)[: len(fifo.read.addr)]),
            Assert(leaving.level <= found.m.submodules.outgoing.depth),
            Assert(unit.memory.wvalid == (leaving.level != 0)),
            Assert(~outgoing.ready | (leaving.level < found.m.submodules.outgoing.depth)),
            Assert(leaving.write.addr == (leaving.read.addr + leaving.level)[: len(leaving.read.addr)]),
            Assert(~buffer.has_spare | head.valid),
            Assert(~found.next_owed.input.ready | ~buffer.has_spare),
            Assert(~unit.resetting | found.padding | (marked.level == 0)),
            Cover(found.padding & marked.leaves & (marked.word == 2)),
        ]
        with m.If(marked.inside):
            queued = entry(m, fifo.storage, fifo.read.addr + (marked.ahead - buffered))
            m.d.comb += Assert(Mux(marked.ahead < buffered, held, queued) == marked.word)

    def check_answers(self, m: Module, found: SimpleNamespace, takes: dict[str, Value]) -> None:
        unit, bus = self.unit, self.unit.memory
        # Whose burst is watched, and the epochs that have begun since it was taken.
        whose = constant(m, 2, name="whose")
        mark, is_read, flies, was_marked = self.free(name="mark"), Signal(), Signal(), Signal()
        numbers = 1 << len(found.epoch)
        epochs, others = Signal(range(numbers + 1)), Signal(10)
        identifier = Signal.like(bus.rid)
        names = list(takes)
        marks = Signal()
        m.d.comb += [
            Assume(whose < len(names)),
            is_read.eq(whose != names.index("store")),
            marks.eq(mark & ~was_marked & (Cat(takes.values()) >> whose)[0]),
        ]
        # The slave: which of its answers are the watched burst's.
        mine = self.free(name="answers_mine")
        my_beat = mine & Mux(is_read, bus.rvalid, bus.bvalid)
        my_end = my_beat & (~is_read | bus.rlast)
        read_ends, write_ends = bus.rvalid & bus.rlast, bus.bvalid
        ended = Signal(2)
        m.d.comb += [
            ended.eq(read_ends + write_ends),
            Assume(~mine | flies & (Mux(is_read, bus.rid, bus.bid) == identifier)),
            Assume(ended - my_end <= others),
        ]
        begins = unit.soft_reset & ~unit.resetting
        taken = sum(takes.values())
        m.d.sync += others.eq(others + taken - marks - (ended - my_end))
        with m.If(marks):
            m.d.sync += [
                was_marked.eq(1),
                flies.eq(1),
                epochs.eq(begins),
                identifier.eq(Cat(whose == names.index("program"), found.epoch)),
            ]
        with m.Else():
            m.d.sync += flies.eq(flies & ~my_end)
            with m.If(begins & (epochs != numbers)):
                m.d.sync += epochs.eq(epochs + 1)

        # Answers are registered.
        was_mine, was_fresh = Signal(), Signal()
        beat = Signal.like(unit.load.r.payload)
        m.d.sync += [
            was_mine.eq(my_beat),
            was_fresh.eq(epochs == 0),
            Cat(beat.data, beat.response, beat.last).eq(Cat(bus.rdata, bus.rresp, bus.rlast)),
        ]
        arrives = {"load": unit.load.r.valid, "program": unit.program.r.valid, "store": unit.store.b.valid}
        with m.If(was_mine):
            for number, name in enumerate(names):
                m.d.comb += Assert((whose != number) | (arrives[name] == was_fresh))
            with m.If(is_read):
                m.d.comb += [
                    Assert((arrives["load"] | arrives["program"]) == was_fresh),
                    Assert(unit.load.r.payload == beat),
                    Assert(unit.program.r.payload == beat),
                ]
        m.d.comb += [
            Assert(found.in_flight + found.begun <= MOST_IN_FLIGHT),
            Assert(found.in_flight + found.begun == others + flies + found.ended),
            Assert(found.begun <= 2),
            Assert(found.ended <= found.in_flight),
            Assert(~flies | was_marked),
            Assert(epochs <= numbers),
            Assert(found.stale_epochs <= numbers),
            Assert(~flies | (found.stale_epochs >= epochs)),
            Assert(~flies | (epochs == numbers) | (identifier[1:] == (found.epoch - epochs)[: len(found.epoch)])),
            Assert(~flies | (identifier[0] == (whose == names.index("program")))),
            Assert(~found.exhausted | unit.resetting | found.held),
            Assert(~(found.exhausted & found.may_begin)),
            Assert(~(found.exhausted & flies) | (epochs != 0)),
            Cover(was_mine & ~was_fresh & ~unit.resetting),
        ]


def test_guard(tmp_path: Path) -> None:
    prove(GuardProof(), tmp_path, depth=4, cover_depth=16)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # A burst that is taken in the cycle of a reset, while nothing is in flight.
        ("begins & ~exhausted", "begins & ~exhausted & ~is_idle"),
        # A burst that is not counted yet.
        ("(in_flight == 0) & (begun == 0)", "in_flight == 0"),
        # A reset in the cycle after a request is taken, which has not come to the head of the queue.
        ("~owed.output.valid & ~next_owed.output.valid", "~next_owed.output.valid"),
        *(
            pytest.param(*change, marks=pytest.mark.regress)
            for change in (
                ("may_begin & ~padding, owed", "may_begin, owed"),
                ("with m.If(bus.awready):", "with m.If(bus.awready | self.soft_reset):"),
                ("valid & ~exhausted & (identifier", "valid & (identifier"),
                ("~self.soft_reset & ~self.resetting & ~held", "~self.soft_reset & ~held"),
                ("Mux(padding, 0, beat.payload.strobe)", "beat.payload.strobe"),
                ("sent.eq(Mux(last, 0, sent + 1))", "sent.eq(sent + 1)"),
            )
        ),
    ],
)
def test_a_broken_guard_is_found(old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = broken(axi_guard, old, new)
    # With two epochs it takes no more than two resets.
    monkeypatch.setattr(module, "_EPOCH_BITS", 1)
    with pytest.raises(ProofError, match="fails after reset"):
        prove(GuardProof(module), tmp_path, depth=18, mode="bounded")


@pytest.mark.parametrize("new", ["exhausted", "(in_flight == 255) | exhausted"])
def test_a_guard_that_counts_over_is_found(new: str, tmp_path: Path) -> None:
    # From reset on that takes more cycles than the solver can look at.
    with pytest.raises(ProofError, match="does not follow"):
        prove(GuardProof(broken(axi_guard, "in_flight[-1] | exhausted", new)), tmp_path, depth=4)
