"""Nested loops with strided pointers, which yield the addresses of a transfer's runs and of a run's pieces."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, ShapeLike, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["LoopNest", "Nest"]


class Nest:
    """The shape of a loop nest.

    Parameters
    ----------
    counts : mapping of str to int
        The loops, outermost first, with the width of their counts.
    pointers : mapping of str to int
        The pointers, with their widths.
    context : ShapeLike
        The shape of data that accompanies a nest and is passed on to each of its iterations.

    Attributes
    ----------
    nest_layout : StructLayout
        ``count`` of each loop, at least 1; ``start`` of each pointer; ``pitch`` of each pointer in each loop;
        ``context``.
    iteration_layout : StructLayout
        Each ``pointer``; ``end``: for each loop, whether this is its last iteration; ``context``.
    """

    def __init__(self, *, counts: Mapping[str, int], pointers: Mapping[str, int], context: ShapeLike):
        self.counts = dict(counts)
        self.pointers = dict(pointers)
        self.context = context
        pointer_layout = data.StructLayout({name: unsigned(width) for name, width in pointers.items()})
        self.nest_layout = data.StructLayout(
            {
                "count": data.StructLayout({name: unsigned(width) for name, width in counts.items()}),
                "start": pointer_layout,
                "pitch": data.StructLayout(
                    {
                        name: data.StructLayout(dict.fromkeys(counts, unsigned(width)))
                        for name, width in pointers.items()
                    }
                ),
                "context": context,
            }
        )
        self.iteration_layout = data.StructLayout(
            {
                "pointer": pointer_layout,
                "end": data.StructLayout(dict.fromkeys(counts, unsigned(1))),
                "context": context,
            }
        )


class LoopNest(wiring.Component):
    """Walk nested loops, one iteration each cycle, and two cycles for each nest: to take it, and to begin it.

    All outputs depend on registers only. Pointers wrap.

    Parameters
    ----------
    nest : Nest

    Members
    -------
    nests : In(stream of nest_layout)
    iterations : Out(stream of iteration_layout)
    """

    def __init__(self, nest: Nest):
        self.nest = nest
        super().__init__(
            {
                "nests": In(stream.Signature(nest.nest_layout)),
                "iterations": Out(stream.Signature(nest.iteration_layout)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        nest = Signal(self.nest.nest_layout, reset_less=True)
        left = Signal(self.nest.nest_layout["count"].shape, reset_less=True)
        out = Signal(self.nest.iteration_layout, reset_less=True)
        begins, last = Signal(), Signal()
        m.d.comb += [
            self.iterations.payload.eq(out),
            last.eq(out.end.as_value().all()),
            # No nest is taken in the cycle of the last iteration: that would couple the sender of nests to the taker of
            # iterations.
            self.nests.ready.eq(~self.iterations.valid & ~begins),
        ]
        m.d.sync += begins.eq(self.nests.ready & self.nests.valid)

        def restart(name: str, source) -> list:
            return [left[name].eq(source.count[name] - 1), out.end[name].eq(source.count[name] == 1)]

        # For each loop and pointer, where the loop's current iteration begins. A step moves the innermost loop that is
        # not at its end, and the loops inside it start there again, so that nothing is multiplied and every base has
        # one adder.
        names = list(self.nest.counts)
        base = {
            (pointer, name): out.pointer[pointer]
            if name == names[-1]
            else Signal(width, name=f"{pointer}_{name}", reset_less=True)
            for pointer, width in self.nest.pointers.items()
            for name in names
        }
        with m.If(self.iterations.ready & self.iterations.valid):
            m.d.sync += self.iterations.valid.eq(~last)
            for index, name in reversed(list(enumerate(names))):
                inner_at_end = Cat(out.end[inner] for inner in names[index + 1 :]).all() if names[index + 1 :] else 1
                with m.If(inner_at_end & ~out.end[name]):
                    m.d.sync += [left[name].eq(left[name] - 1), out.end[name].eq(left[name] == 1)]
                    m.d.sync += [restart(inner, nest) for inner in names[index + 1 :]]
                    for pointer in self.nest.pointers:
                        moved = base[pointer, name] + nest.pitch[pointer][name]
                        m.d.sync += [base[pointer, inner].eq(moved) for inner in names[index:]]
        with m.If(self.nests.ready):
            m.d.sync += nest.eq(self.nests.payload)
        with m.If(begins):
            m.d.sync += [self.iterations.valid.eq(1), out.context.eq(nest.context)]
            m.d.sync += [restart(name, nest) for name in names]
            m.d.sync += [at.eq(nest.start[pointer]) for (pointer, _), at in base.items()]
        return m
