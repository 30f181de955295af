"""Nested loops, proved for all counts and pitches against counters that count up, and pointers that are sums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, Signal, signed

from cocotb_tests.support.proofs import Proof, ProofError, broken, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden import isa
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.dma import loop_nest
from lutterfly.hdl.dma.chunks import transfer_nest
from lutterfly.hdl.parts import loops
from lutterfly.hdl.parts.isa import command_shape

pytestmark = needs_yosys
NAMES = ("outer", "middle", "inner")


class Counters(Elaboratable):
    """Indices of nested loops, and multiples of them: ``index * pitch`` without a product.

    Attributes
    ----------
    begin, advance
        Inputs: the first iteration comes next, or the one that follows.
    runs
        There is an iteration; the last one's ``advance`` ends it.
    index : dict
        Of each loop, outermost first.
    """

    def __init__(self, counts: dict[str, Signal], *, bits: int = 16) -> None:
        self.counts = counts
        self.begin = Signal()
        self.advance = Signal()
        self.runs = Signal()
        self.index = {name: Signal(bits, name=f"index_{name}") for name in counts}
        self.multiples: list[tuple[str, Signal, Signal]] = []

    def multiple(self, name: str, pitch: Signal, bits: int) -> Signal:
        """``index[name] * pitch``, whose lowest ``bits`` are kept."""
        product = Signal(bits, name=f"multiple_{name}_{len(self.multiples)}")
        self.multiples.append((name, pitch, product))
        return product

    def at_last(self, names: Sequence[str]) -> Signal:
        """Whether all the loops named are in their last iteration."""
        return Cat(self.index[name] + 1 == self.counts[name] for name in names).all() if names else 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        names = list(self.index)
        with m.If(self.advance):
            m.d.sync += self.runs.eq(~self.at_last(names))
            for position, name in enumerate(names):
                index = self.index[name]
                counts_on = self.at_last(names[position + 1 :])
                begins_again = counts_on & self.at_last([name])
                multiples = [(product, pitch) for loop, pitch, product in self.multiples if loop == name]
                for signal, pitch in [(index, 1), *multiples]:
                    with m.If(begins_again):
                        m.d.sync += signal.eq(0)
                    with m.Elif(counts_on):
                        m.d.sync += signal.eq(signal + pitch)
        with m.If(self.begin):
            m.d.sync += self.runs.eq(1)
            m.d.sync += [signal.eq(0) for signal in self.index.values()]
            m.d.sync += [product.eq(0) for *_, product in self.multiples]
        return m


class LoopNestProof(Proof):
    def __init__(self, nest: loop_nest.Nest, module=loop_nest) -> None:
        super().__init__()
        self.nest, self.unit = nest, module.LoopNest(nest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        source, sink = unit.nests, unit.iterations
        taken = Signal.like(source.payload)
        names = list(self.nest.counts)
        m.submodules.counters = counters = Counters({name: taken.count[name] for name in names})
        offsets = {
            (pointer, name): counters.multiple(name, taken.pitch[pointer][name], bits)
            for pointer, bits in self.nest.pointers.items()
            for name in names
        }
        m.d.comb += [
            source.valid.eq(self.free(name="offers")),
            source.payload.eq(self.free(self.nest.nest_layout, name="offered")),
            sink.ready.eq(self.free(name="takes")),
            [Assume(source.payload.count[name] != 0) for name in names],
            counters.begin.eq(source.valid & source.ready),
            counters.advance.eq(sink.valid & sink.ready),
        ]
        with m.If(counters.begin):
            m.d.sync += taken.eq(source.payload)

        m.d.comb += [
            Assert(source.ready == ~counters.runs),
            Assert(counters.runs == (sink.valid | found.begins)),
            Assert(~(sink.valid & found.begins)),
            Cover(sink.valid & ~found.last & (counters.index[names[0]] == 1) & (counters.index[names[-1]] == 1)),
        ]
        with m.If(counters.runs):
            m.d.comb += [Assert(found.nest == taken)]
            m.d.comb += [Assert(counters.index[name] < taken.count[name]) for name in names]
        with m.If(found.begins):
            m.d.comb += [Assert(signal == 0) for signal in (*counters.index.values(), *offsets.values())]
        with m.If(sink.valid):
            m.d.comb += Assert(sink.payload.context == taken.context)
            for name in names:
                m.d.comb += [
                    Assert(sink.payload.end[name] == counters.at_last([name])),
                    Assert(found.left[name] == taken.count[name] - 1 - counters.index[name]),
                ]
            for pointer, bits in self.nest.pointers.items():
                expected = taken.start[pointer]
                for name in names:
                    expected = (expected + offsets[pointer, name])[:bits]
                    m.d.comb += Assert(found.base[pointer, name] == expected)
                m.d.comb += Assert(sink.payload.pointer[pointer] == expected)
        return m


class LoopsProof(Proof):
    """Each window of a command has as many steps, and with ``count_bits`` each result of a window; its parent holds the
    command, and how many results there are.

    Of the byte pointer the lowest ``bits`` are looked at, which do not depend on the others.
    """

    def __init__(self, module=loops, *, side: str, word_bits: int, bits: int, count_bits: int = 0) -> None:
        super().__init__()
        self.side, self.word_bits, self.bits, self.count_bits = side, word_bits, bits, count_bits
        self.unit = module.Loops(side=side, word_bits=word_bits, count_bits=count_bits)
        self.names = (*NAMES, "result") if count_bits else NAMES

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        command = Signal(command_shape(isa.COMPUTE))
        steps, first_steps, step = Signal(12), self.free(12, name="first_steps"), Signal(12)
        first_word = Signal(self.word_bits)
        counts = {name: command[name] for name in NAMES}
        pitches = {name: command[f"{self.side}_{name}"] for name in NAMES}
        if self.count_bits:
            more, pitches["result"] = self._several(m)
            counts["result"] = more + 1
        m.submodules.counters = counters = Counters(counts)
        offsets = {name: counters.multiple(name, pitches[name], self.bits) for name in self.names}
        words = {name: counters.multiple(name, steps, self.word_bits) for name in ("outer", "inner")}
        m.d.comb += [
            unit.load.eq(self.free(name="load")),
            unit.first.eq(self.free(command.shape(), name="first")),
            unit.first_word.eq(self.free(self.word_bits, name="first_word")),
            unit.step.eq(self.free(name="step")),
            unit.advance.eq(self.free(name="advance")),
            unit.command.eq(command),
            counters.begin.eq(unit.load),
            counters.advance.eq(unit.advance),
            [Assume(unit.first[name] != 0) for name in NAMES],
            Assume(~unit.load | ~counters.runs | unit.advance & unit.last),
            Assume(~unit.advance | counters.runs),
            # The last step of a window goes on to the next one; a window may be without steps.
            Assume(~unit.step | counters.runs & (step < steps)),
            Assume(~unit.step | (unit.advance == (step + 1 == steps))),
            Assume(~unit.advance | unit.step | (steps == 0)),
        ]
        with m.If(unit.step):
            m.d.sync += step.eq(Mux(unit.advance, 0, step + 1))
        with m.If(unit.load):
            m.d.sync += [command.eq(unit.first), steps.eq(first_steps), step.eq(0), first_word.eq(unit.first_word)]

        # Where the current iteration of each loop begins, and where it did a cycle ago.
        pointer = {name: Signal(self.bits, name=f"pointer_{name}") for name in self.names}
        before = {name: Signal(self.bits, name=f"before_{name}") for name in self.names}
        ran, loaded, tile = Signal(), Signal(), Signal(self.word_bits)
        m.d.sync += [ran.eq(counters.runs), loaded.eq(unit.load)]
        expected = command[self.side]
        for name in self.names:
            expected = (expected + offsets[name])[: self.bits]
            m.d.comb += pointer[name].eq(expected)
            m.d.sync += before[name].eq(pointer[name])
        with m.If(ran):
            m.d.comb += Assert(unit.pointer[: self.bits] == before[self.names[-1]])
            m.d.comb += [
                # A command's own pointer is on its way, and counts from zero.
                Assert(
                    found.base[name][: self.bits] == (Mux(loaded, 0, before[name]) if name == "outer" else before[name])
                )
                for name in self.names
            ]

        m.d.comb += tile.eq(first_word + Mux(command.tile_inner, words["inner"], words["outer"]))
        tile_ends = Mux(command.tile_inner, ~counters.at_last(["inner"]), counters.at_last(["middle", "inner"]))
        last_tile = Mux(command.tile_inner, counters.at_last(["inner"]), counters.at_last(["outer"]))
        with m.If(counters.runs):
            m.d.comb += [
                Assert(unit.word == (tile + step)[: self.word_bits]),
                Assert(unit.row_ends == counters.at_last(self.names[2:])),
                Assert(unit.last == counters.at_last(self.names)),
                Assert(found.ends == counters.at_last(NAMES)),
                Assert(found.tile_ends == tile_ends),
                Assert(unit.last_tile == last_tile),
                Assert((step < steps) | (step == 0)),
                Assert(found.tile == tile),
                Assert(found.start == first_word),
            ]
            if self.count_bits:
                m.d.comb += [
                    Assert(found.results_left == more - counters.index["result"]),
                    Assert(found.is_last == counters.at_last(["result"])),
                    Cover(~unit.last & (counters.index["result"] == 2) & (counters.index["inner"] == 1) & (steps == 2)),
                ]
            for name in NAMES:
                m.d.comb += [
                    Assert(counters.index[name] < command[name]),
                    Assert(found.loops[name].left == command[name] - 1 - counters.index[name]),
                    Assert(found.loops[name].at_end == counters.at_last([name])),
                    Assert(found.loops[name].near_end == (found.loops[name].left == 1)),
                    Assert(found.loops[name].has_one == (command[name] == 1)),
                    Assert(found.loops[name].has_two == (command[name] == 2)),
                ]
            m.d.comb += [
                Cover(~unit.last & (counters.index["outer"] == 1) & (counters.index["middle"] == 1) & (steps == 2)),
                Cover(unit.load & unit.last),
            ]
        return m

    def _several(self, m: Module) -> tuple[Signal, Signal]:
        """What the parent says of a window's results: how many follow the first one, and their pitch."""
        unit, more, pitch = self.unit, Signal(self.count_bits), Signal(signed(isa.LOCAL_BITS))
        first_more = self.free(self.count_bits, name="first_more")
        m.d.comb += [unit.more.eq(more), unit.pitch.eq(pitch), unit.first_more.eq(first_more)]
        with m.If(unit.load):
            m.d.sync += [more.eq(first_more), pitch.eq(self.free(len(pitch), name="first_pitch"))]
        return more, pitch


SMALL = loop_nest.Nest(counts={"row": 3, "fold": 2, "piece": 3}, pointers={"local": 6, "offset": 3}, context=2)


def test_loop_nest(tmp_path: Path) -> None:
    prove(LoopNestProof(SMALL), tmp_path, depth=2, cover_depth=16)


@pytest.mark.regress
def test_loop_nest_of_a_load(tmp_path: Path) -> None:
    prove(LoopNestProof(transfer_nest(PRESETS["tiny"])), tmp_path, depth=2, cover_depth=16, time_limit_s=1800)


@pytest.mark.parametrize("side", ["source", pytest.param("destination", marks=pytest.mark.regress)])
def test_loops(side: str, tmp_path: Path) -> None:
    prove(LoopsProof(side=side, word_bits=5, bits=6), tmp_path, depth=2, cover_depth=16)


def test_loops_over_the_results_of_windows(tmp_path: Path) -> None:
    prove(LoopsProof(side="destination", word_bits=5, bits=6, count_bits=2), tmp_path, depth=2, cover_depth=16)


@pytest.mark.regress
def test_loops_with_all_bits(tmp_path: Path) -> None:
    prove(
        LoopsProof(side="source", word_bits=10, bits=isa.LOCAL_BITS),
        tmp_path,
        depth=2,
        cover_depth=16,
        time_limit_s=3600,
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out.end[name].eq(left[name] == 1)", "out.end[name].eq(left[name] == 0)"),
        ("base[pointer, inner].eq(moved) for inner in names[index:]", "base[pointer, name].eq(moved)"),
        ("self.iterations.ready & self.iterations.valid", "self.iterations.ready"),
        ("self.nests.ready.eq(~self.iterations.valid & ~begins)", "self.nests.ready.eq(~self.iterations.valid)"),
    ],
)
def test_a_broken_loop_nest_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(LoopNestProof(SMALL, broken(loop_nest, old, new)), tmp_path, depth=9, mode="bounded")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('~inner, inner & at_end["middle"]', "~inner, inner"),
        ("self.word.eq(start), tile.eq(start)", "self.word.eq(tile)"),
        ('inner, at_end["outer"]', 'inner, at_end["middle"]'),
        ("tell(self.command, ends_next)", "tell(self.first, ends_next)"),
        ("tell(self.first, are_single)", "tell(self.command, are_single)"),
        ("tile_ends.eq(Mux(tile_inner, ~inner", "tile_ends.eq(Mux(tile_inner, inner"),
        ('"middle": leaves & end_inner,', '"middle": leaves,'),
        ("[moving.eq(0), by.eq", "[by.eq"),
        ("by.eq(self.first[self.side])", "by.eq(self.command[self.side])"),
        (', base["outer"].eq(0)]', "]"),
        ("self.load | leaving[name]", "leaving[name]"),
        ("Mux(end_inner, ~end_middle, 2)", "Mux(end_inner, 1, 2)"),
        ("self.has_two, self.left == 2", "self.has_two, self.left == 1"),
        ("self.has_two, self.left == 2", "self.has_one, self.left == 2"),
        ("Mux(moves, loops[name].ends_next, loops[name].at_end)", "loops[name].ends_next"),
        ("moves &= loops[name].at_end", "moves = loops[name].at_end"),
    ],
)
def test_broken_loops_are_found(old: str, new: str, tmp_path: Path) -> None:
    proof = LoopsProof(broken(loops, old, new), side="source", word_bits=5, bits=6)
    with pytest.raises(ProofError, match="fails after reset"):
        prove(proof, tmp_path, depth=9, mode="bounded")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("with m.If(self.advance & ~window_ends)", "with m.If(self.advance & window_ends)"),
        ("is_last.eq(results_left == 1)", "is_last.eq(results_left == 2)"),
        ("results_left.eq(self.more), is_last.eq(self.more == 0)", "results_left.eq(self.more), is_last.eq(0)"),
        ("Mux(window_ends, moves, 3)", "Mux(window_ends, 3, moves)"),
        ('leaving["result"] = self.advance', 'leaving["result"] = leaves'),
        ("end_inner & window_ends if", "end_inner if"),
    ],
)
def test_broken_loops_over_results_are_found(old: str, new: str, tmp_path: Path) -> None:
    proof = LoopsProof(broken(loops, old, new), side="destination", word_bits=5, bits=6, count_bits=2)
    with pytest.raises(ProofError, match="fails after reset"):
        prove(proof, tmp_path, depth=9, mode="bounded")
