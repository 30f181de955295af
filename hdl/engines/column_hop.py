"""The hop from one column of the array to the next: a register, and for depthwise layers a delay line of words."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ..parts.pipeline import delay

__all__ = ["ColumnHop"]


class ColumnHop(wiring.Component):
    """Pass steps and words on to the next column, one per cycle, with a latency of one cycle.

    In chain mode, where steps have one, the word that leaves with a step is that of ``rows`` steps earlier, so that
    with words read column by column of an image, ``rows`` words each, the next array column sees the image column
    before.

    Parameters
    ----------
    lanes : int
        Bytes of a word.
    step : StructLayout
        As the array's steps are.
    has_line : bool
        Whether the hop can delay; else chain mode passes words on like the other.

    Members
    -------
    step : In(step), word : In(8 * lanes)
    next_step : Out(step), next_word : Out(8 * lanes)
    """

    def __init__(self, *, lanes: int, step: data.StructLayout, has_line: bool):
        self.lanes = lanes
        self.has_line = has_line
        super().__init__(
            {
                "step": In(step),
                "word": In(8 * lanes),
                "next_step": Out(step),
                "next_word": Out(8 * lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        word = self.word
        if self.has_line:
            rows = self.step.fields.depthwise.rows
            pointer = Signal(rows.shape())
            m.submodules.line = line = memory.Memory(shape=unsigned(8 * self.lanes), depth=1 << len(pointer), init=[])
            write, read = line.write_port(), line.read_port(domain="comb")
            next_pointer = pointer + self.step.valid
            # A cycle ahead, with the rows of the step before: a command's first step has nothing of its own to see.
            m.d.sync += [pointer.eq(next_pointer), read.addr.eq(next_pointer - rows)]
            m.d.comb += [
                write.addr.eq(pointer),
                write.data.eq(self.word),
                write.en.eq(self.step.valid),
            ]
            word = Mux(self.step.chain, read.data, self.word)
        m.d.comb += [
            self.next_step.eq(delay(m, self.step, 1, name="step")),
            self.next_word.eq(delay(m, word, 1, name="word")),
        ]
        return m
