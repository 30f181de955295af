"""From beats to chunks of bytes, at any alignment."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..golden import isa
from ..golden.config import Config
from ..golden.isa import ErrorCode, Unit
from .isa import ErrorReport, report
from .load_chunks import step_layout

__all__ = ["ByteAligner", "chunk_layout"]


def chunk_layout(config: Config) -> data.StructLayout:
    """The first ``count`` bytes go to ``address`` of ``memory``.

    The bytes of a FILL are all the same, those that do not fit into ``data`` too.
    """
    step = step_layout(config)
    return data.StructLayout(
        {
            "memory": step["memory"].shape,
            "address": unsigned(isa.LOCAL_BITS),
            "count": step["count"].shape,
            "last": unsigned(1),
            "data": unsigned(config.axi.data_bits),
        }
    )


class ByteAligner(wiring.Component):
    """Cut one chunk each cycle out of a stream of beats, taking at most one beat each cycle; the latency is one cycle.

    ``chunks`` is registered. ``beats.ready`` and ``steps.ready`` depend combinationally on ``chunks.ready``, on
    ``halt`` and on the valid of the other one.

    Parameters
    ----------
    config : Config

    Members
    -------
    beats : In(stream(data_bits))
    steps : In(stream of step_layout)
    chunks : Out(stream of chunk_layout)
    halt : In(1)
        No chunk comes into being.
    strayed : Out(ErrorReport)
        Combinational: the piece at hand does not lie in its memory. It is held back: the parent stops.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "beats": In(stream.Signature(unsigned(config.axi.data_bits))),
                "steps": In(stream.Signature(step_layout(config))),
                "chunks": Out(stream.Signature(chunk_layout(config))),
                "halt": In(1),
                "strayed": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        step, beat, chunk = self.steps.payload, self.beats, self.chunks
        held = Signal(self.config.axi.data_bits, reset_less=True)
        holding = Signal()

        supplied, move, uses_up, skip = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            supplied.eq(step.is_fill | holding & (~step.crosses | beat.valid)),
            move.eq(self.steps.valid & supplied & ~step.out_of_range & ~self.halt & (~chunk.valid | chunk.ready)),
            uses_up.eq(move & step.advances & ~step.is_fill),
            # The last chunk of a run that reaches into another beat finishes that one as well.
            skip.eq(uses_up & step.ends_run & step.crosses),
            beat.ready.eq(~holding | uses_up),
            self.steps.ready.eq(move),
        ]
        with m.If(beat.ready):
            m.d.sync += [held.eq(beat.payload), holding.eq(beat.valid & ~skip)]

        window = Cat(held, beat.payload)
        with m.If(~chunk.valid | chunk.ready):
            m.d.sync += [
                chunk.valid.eq(move),
                [chunk.payload[name].eq(step[name]) for name in ("memory", "address", "count", "last")],
                chunk.payload.data.eq(
                    Mux(step.is_fill, step.value.replicate(self.config.axi.data_bytes), window >> (step.offset << 3))
                ),
            ]
        with m.If(self.steps.valid & step.out_of_range & ~self.halt):
            m.d.comb += report(
                self.strayed, ErrorCode.ADDRESS_RANGE, Mux(step.is_fill, Unit.FILL, Unit.LOAD), step.index, step.address
            )
        return m
