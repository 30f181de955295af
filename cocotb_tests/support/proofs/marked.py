"""One word on its way through a queue, for proofs."""

from __future__ import annotations

from amaranth.hdl import Assert, Elaboratable, Module, Signal


class Marked(Elaboratable):
    """Watch one word, whichever, on its way through a queue: what is true of it is true of all.

    Parameters
    ----------
    width : int
        Bits of a word.
    capacity : int
        Words that the queue and what is around it hold at most; beyond it the levels here wrap.

    Attributes
    ----------
    mark, push, pop, pushed
        Inputs: a word goes in, or comes out; ``mark``: watch the one that goes in now, if none was watched before.
        ``pushed`` is the word.
    level
        Words that are inside.
    inside, ahead, word
        The watched word is inside, after so many others, and what it is.
    leaves
        It comes out in this cycle, and must be ``word``.
    """

    def __init__(self, width: int, capacity: int) -> None:
        self.mark = Signal()
        self.push = Signal()
        self.pop = Signal()
        self.pushed = Signal(width)
        self.word = Signal(width)
        self.level = Signal(range(2 * capacity))
        self.ahead = Signal(range(2 * capacity))
        self.was_marked = Signal()
        self.inside = Signal()
        self.leaves = Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.level.eq(self.level + self.push - self.pop)
        m.d.comb += [
            self.leaves.eq(self.inside & self.pop & (self.ahead == 0)),
            Assert(~self.inside | self.was_marked & (self.ahead < self.level)),
        ]
        with m.If(self.inside):
            m.d.sync += self.ahead.eq(self.ahead - self.pop)
        with m.If(self.leaves):
            m.d.sync += self.inside.eq(0)
        with m.If(self.push & self.mark & ~self.was_marked):
            m.d.sync += [
                self.was_marked.eq(1),
                self.inside.eq(1),
                self.word.eq(self.pushed),
                self.ahead.eq(self.level - self.pop),
            ]
        return m
