"""The arbiter of the AXI port, proved for four masters that ask for anything and every pace of the slave: the port
keeps the rules of AXI, beats follow in the order of their bursts and are there in time, and nobody waits for long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal, Value

from cocotb_tests.support.proofs import Marked, Proof, ProofError, broken, constant, entry, inside, offers_stay, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.config_parts import AxiConfig, ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.bus import axi_arbiter

pytestmark = needs_yosys
CORES = 4
CONFIG = replace(PRESETS["tiny"], cluster=ClusterConfig(cores=CORES))
#: Beats that are held of each master, so that a run is short; a burst has half as many at most.
BEATS = 4


class ArbiterProof(Proof):
    """One master is watched, whichever, and one request of it on each address channel.

    Stated bound: a master's bursts have at most half of the beats that are held of it.
    """

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        module._BEATS = BEATS
        self.unit = module.AxiArbiter(CONFIG)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        self.found = inside(unit)
        # After the first cycle, in which queues are not ready.
        self.runs = Signal()
        m.d.sync += self.runs.eq(1)
        self.whose = constant(m, range(CORES), name="whose")
        bus = unit.memory
        for name in ("awready", "arready", "wready", "bvalid", "rvalid"):
            m.d.comb += getattr(bus, name).eq(self.free(name=name))
        for name in ("bid", "bresp", "rid", "rdata", "rresp", "rlast"):
            m.d.comb += getattr(bus, name).eq(self.free(len(getattr(bus, name)), name=name))
        for number, master in enumerate(unit.masters):
            for channel, names in (
                ("ar", ("addr", "len", "id")),
                ("aw", ("addr", "len", "id")),
                ("w", ("data", "last")),
            ):
                for name in ("valid", *names):
                    wire = getattr(master, channel + name)
                    m.d.comb += wire.eq(self.free(len(wire), name=f"{channel}{name}_{number}"))
        self.check_pins(m)
        self.check_beats(m)
        for channel, room in (("ar", 1), ("aw", self.found.order.input.ready)):
            self.check_turns(m, channel, room)
            self.check_requests(m, channel)
        self.check_answers(m)
        return m

    def check_pins(self, m: Module) -> None:
        """What is offered stays until it is taken."""
        bus = self.unit.memory
        request = ("addr", "id", "len", "size", "burst")
        offers_stay(m, bus, {"aw": request, "ar": request, "w": ("data", "strb", "last")})
        outgoing = inside(self.found.m.submodules.outgoing)
        m.d.comb += [
            Assert(bus.rready & bus.bready),
            Assert(~outgoing.has_spare | bus.wvalid),
            Assert(~self.runs | (self.found.outgoing.input.ready == ~outgoing.has_spare)),
        ]

    def check_turns(self, m: Module, channel: str, room: Value | int) -> None:
        """Who asks is served after each other one at most once, and somebody is whenever there is room."""
        turns = self.found.m.submodules[f"{channel}_turns"]
        last = inside(turns).last
        bus, whose = self.unit.memory, self.whose
        asks, serves = (turns.asks >> whose)[0], turns.serve & (turns.chosen == whose)
        # Others that were served since it asks, and those between the last one and it.
        others, ahead = (
            Signal(range(2 * CORES), name=f"{channel}_others"),
            Signal(range(CORES), name=f"{channel}_ahead"),
        )
        m.d.comb += ahead.eq(whose - last - 1)
        m.d.sync += others.eq(Mux(asks & ~serves, others + turns.serve, 0))
        can_take = (~getattr(bus, f"{channel}valid") | getattr(bus, f"{channel}ready")) & room
        m.d.comb += [
            Assert(others <= CORES - 1),
            Assert(~asks | (others + ahead <= CORES - 1)),
            Assert(asks | (others == 0)),
            Assert((turns.asks.any() & can_take) == turns.serve),
            Assert(~turns.serve | (turns.asks >> turns.chosen)[0]),
            Cover(serves & (others == CORES - 1)),
        ]

    def check_requests(self, m: Module, channel: str) -> None:
        """A request comes to the port as it was, in the order of its master, with the master in front of its id."""
        bus, whose = self.unit.memory, self.whose
        turns = self.found.m.submodules[f"{channel}_turns"]
        names = ("addr", "len", "id")

        def pick(values: list[Value]) -> Value:
            chosen = values[0]
            for number in range(1, CORES):
                chosen = Mux(whose == number, values[number], chosen)
            return chosen

        pushed = pick(
            [Cat(getattr(master, channel + name)[: self.width(name)] for name in names) for master in self.unit.masters]
        )
        m.submodules[f"{channel}_marked"] = marked = Marked(len(pushed), 8)
        queues = [self.found.m.submodules[f"{channel}_{number}"] for number in range(CORES)]
        m.d.comb += [
            marked.mark.eq(self.free(name=f"mark_{channel}")),
            marked.push.eq(pick([queue.input.valid & queue.input.ready for queue in queues])),
            marked.pushed.eq(pushed),
            marked.pop.eq(turns.serve & (turns.chosen == whose)),
        ]
        left, word = Signal(name=f"{channel}_left"), Signal.like(marked.word, name=f"{channel}_word")
        m.d.sync += [left.eq(marked.leaves), word.eq(marked.word)]
        at_port = Cat(getattr(bus, channel + name)[: self.width(name)] for name in names)
        core = getattr(bus, f"{channel}id")[AxiConfig.ID_BITS :]
        m.d.comb += Assert(~left | getattr(bus, f"{channel}valid") & (at_port == word) & (core == whose))
        levels, held = [], []
        for queue in queues:
            inner, head = inside(queue), queue.output
            if channel == "ar":
                # Two places: what leaves next, and what waits behind it.
                levels.append(head.valid + inner.has_spare)
                held.append(Mux(marked.ahead == 0, inner.payload, inner.spare))
                m.d.comb += [
                    Assert(~inner.has_spare | head.valid),
                    Assert(~queue.input.ready | ~inner.has_spare),
                ]
            else:
                levels.append(inner.level)
                held.append(entry(m, inner.storage, inner.read.addr + marked.ahead))
                self.check_fifo(m, queue, inner)
        m.d.comb += [
            Assert(marked.level == pick(levels)),
            Assert(~marked.inside | (pick(held) == marked.word)),
            Cover(left & (whose == CORES - 1)),
        ]

    @staticmethod
    def width(name: str) -> int:
        return {"addr": AxiConfig.ADDRESS_BITS, "len": 4, "id": AxiConfig.ID_BITS}[name]

    def check_fifo(self, m: Module, queue: object, inner: object) -> None:
        m.d.comb += [
            Assert(inner.level <= queue.depth),
            Assert(queue.output.valid == (inner.level != 0)),
            Assert(~self.runs | (queue.input.ready == (inner.level < queue.depth))),
            Assert(~queue.input.ready | (inner.level < queue.depth)),
            Assert(inner.write.addr == (inner.read.addr + inner.level)[: len(inner.read.addr)]),
        ]

    def check_beats(self, m: Module) -> None:
        """Beats go out in the order of the bursts, whole bursts, and never late: what is offered is all here."""
        found = self.found
        order, outgoing = found.order, found.outgoing.input
        buffer = inside(order)
        moves = outgoing.valid & outgoing.ready
        # The cores of the bursts that are offered, whose beats have not all gone.
        m.submodules.bursts = marked = Marked(CONFIG.cluster.core_bits, 4)
        m.d.comb += [
            marked.mark.eq(self.free(name="mark_burst")),
            marked.push.eq(found.m.submodules.aw_turns.serve),
            marked.pushed.eq(found.m.submodules.aw_turns.chosen),
            marked.pop.eq(moves & outgoing.payload.last),
            Assert(marked.level == order.output.valid + buffer.has_spare),
            Assert(~buffer.has_spare | order.output.valid),
            Assert(~self.runs | (order.input.ready == ~buffer.has_spare)),
            Assert(~order.input.ready | ~buffer.has_spare),
            Assert(~marked.inside | (Mux(marked.ahead == 0, buffer.payload, buffer.spare) == marked.word)),
            # The port never waits for beats of a burst that is offered.
            Assert(outgoing.valid == order.output.valid),
            Cover(marked.leaves & (marked.word == 2)),
        ]
        for number in range(CORES):
            beats = found.m.submodules[f"beats_{number}"]
            inner, head = inside(beats), beats.output
            pops = head.valid & head.ready
            offered = (order.output.valid & (buffer.payload == number)) + (buffer.has_spare & (buffer.spare == number))
            bursts = found.waiting[number]
            # Beats since the last burst's end, of which there are never more than a burst has.
            begun = Signal(range(BEATS), name=f"begun_{number}")
            pushes = beats.input.valid & beats.input.ready
            with m.If(pushes):
                m.d.sync += begun.eq(Mux(beats.input.payload.last, 0, begun + 1))
            self.check_fifo(m, beats, inner)
            lasts = []
            for place in range(BEATS):
                # Where it stands, from the oldest and from the youngest on.
                after = (place - inner.read.addr)[: len(inner.read.addr)]
                before, last = inner.level - 1 - after, entry(m, inner.storage, place)[-1]
                lasts.append((after < inner.level) & last)
                with m.If(after < inner.level):
                    m.d.comb += [Assert((before >= begun) | ~last), Assert((before != begun) | last)]
            m.d.comb += [
                Assert(inner.level >= begun),
                Assume(~beats.input.valid | beats.input.payload.last | (begun < BEATS // 2 - 1)),
                Assert(begun < BEATS // 2),
                Assert(pops == (moves & (order.output.payload == number))),
                Assert(sum(lasts) == bursts + offered),
                Assert(found.whole[number] == (bursts != 0)),
                Assert(bursts <= BEATS),
                # Where no last beat is, there is room for it.
                Assert((sum(lasts) != 0) | (inner.level == begun)),
                Assert(~self.runs | (sum(lasts) != 0) | beats.input.ready),
            ]

    def check_answers(self, m: Module) -> None:
        """An answer comes to its core in the next cycle, and to nobody else."""
        bus = self.unit.memory
        for channel, names in (("r", ("id", "data", "resp", "last")), ("b", ("id", "resp"))):
            valid, core = Signal(name=f"{channel}_was_valid"), Signal(len(self.whose), name=f"{channel}_core")
            payload = Cat(getattr(bus, channel + name)[: AxiConfig.ID_BITS if name == "id" else None] for name in names)
            before = Signal(len(payload), name=f"{channel}_answer")
            m.d.sync += [
                valid.eq(getattr(bus, f"{channel}valid")),
                core.eq(getattr(bus, f"{channel}id")[AxiConfig.ID_BITS :]),
                before.eq(payload),
            ]
            for number, master in enumerate(self.unit.masters):
                mine, found = getattr(master, f"{channel}valid"), Cat(getattr(master, channel + name) for name in names)
                m.d.comb += [Assert(mine == (valid & (core == number))), Assert(~mine | (found == before))]


@pytest.mark.regress
def test_arbiter(tmp_path: Path) -> None:
    prove(ArbiterProof(broken(axi_arbiter, "_REQUESTS = 4", "_REQUESTS = 2")), tmp_path, depth=3, cover_depth=16)


MUTATIONS = (
    # The one that was served goes first again.
    ("(number + distance) % self.count", "(number + distance - 1) % self.count"),
    # A burst whose turn has no place.
    ("writes, whole, order.input.ready", "writes, whole, 1"),
    ("remains(bursts, leaves=taken[number], comes=ends[number])", "remains(bursts, leaves=0, comes=ends[number])"),
    ("Cat(request.id, chosen)", "Cat(request.id, turns.asks)"),
    ("identifier[AxiConfig.ID_BITS :] == number", "identifier[AxiConfig.ID_BITS] == number"),
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # A burst that is on its way.
        ("writes, whole, order.input.ready", "writes, Const(-1, self.config.cores), order.input.ready"),
        ("with m.If((~valid | ready) & room):", "with m.If(room):"),
        *(pytest.param(*change, marks=pytest.mark.regress) for change in MUTATIONS),
    ],
)
def test_a_broken_arbiter_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(ArbiterProof(broken(axi_arbiter, old, new)), tmp_path, depth=10, mode="bounded")
