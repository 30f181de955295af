"""From beats to chunks of bytes, at any alignment."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.units import ErrorCode, Unit
from ..memories.feature_memory import rotated
from ..parts.fifo import push_signature
from ..parts.isa import ErrorReport, report_error
from .load_chunks import step_layout

__all__ = ["ByteAligner", "chunk_layout"]


def chunk_layout(config: Config) -> data.StructLayout:
    """The first ``count`` bytes go to ``address`` of ``memory``; if it is ``void``, nowhere.

    The bytes of a FILL are all the same, those that do not fit into ``data`` too.
    """
    step = step_layout(config)
    return data.StructLayout(
        {
            "memory": step["memory"].shape,
            "address": unsigned(isa.LOCAL_BITS),
            "count": step["count"].shape,
            "last": unsigned(1),
            "void": unsigned(1),
            "data": unsigned(config.axi.data_bits),
        }
    )


class ByteAligner(wiring.Component):
    """Cut one chunk each cycle out of a stream of beats, taking at most one beat each cycle; the latency is one cycle.

    ``beats.ready`` and ``steps.ready`` depend combinationally on ``room`` and on the valid of the other one.

    Parameters
    ----------
    config : Config

    Members
    -------
    beats : In(stream(data_bits))
    steps : In(stream of step_layout)
    room : In(1), reserve : Out(1)
        A chunk may begin, and one begins: it comes a cycle later.
    chunks : Out(push_signature(chunk_layout))
        Registered, but for the last choice of ``data``.
    halt : In(1)
        From the next cycle on all chunks are void, until reset.
    strayed : Out(ErrorReport)
        Registered: a piece does not lie in its memory. All chunks are void from its own on.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "beats": In(stream.Signature(unsigned(config.axi.data_bits))),
                "steps": In(stream.Signature(step_layout(config))),
                "room": In(1),
                "reserve": Out(1),
                "chunks": Out(push_signature(chunk_layout(config))),
                "halt": In(1),
                "strayed": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        step, beat, chunk = self.steps.payload, self.beats, self.chunks
        held = Signal(self.config.axi.data_bits, reset_less=True)
        holding = Signal()

        may_move, supplied, move, stopped = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            may_move.eq(self.steps.valid & self.room),
            supplied.eq((holding | ~step.needs_beat) & (beat.valid | ~step.crosses)),
            move.eq(may_move & supplied),
            # Of a step that advances nothing is lacking while there is a beat: what a beat waits for is little.
            beat.ready.eq(~holding | may_move & step.advances),
            self.steps.ready.eq(move),
            self.reserve.eq(move),
        ]
        with m.If(beat.valid & beat.ready):
            m.d.sync += [held.eq(beat.payload), holding.eq(~(move & step.skips))]
        with m.Elif(move & step.advances):
            m.d.sync += holding.eq(0)
        m.d.sync += stopped.eq(stopped | self.halt | move & step.out_of_range)

        m.d.sync += [
            chunk.valid.eq(move),
            chunk.payload.void.eq(stopped | step.out_of_range),
            [chunk.payload[name].eq(step[name]) for name in ("memory", "address", "count", "last")],
        ]
        m.d.comb += chunk.payload.data.eq(self._elaborate_data(m, held))
        m.d.sync += [
            report_error(
                self.strayed, ErrorCode.ADDRESS_RANGE, Mux(step.is_fill, Unit.FILL, Unit.LOAD), step.index, step.address
            ),
            self.strayed.valid.eq(move & step.out_of_range & ~stopped),
        ]
        return m

    def _elaborate_data(self, m: Module, held: Signal) -> Value:
        """The bytes of a chunk, a cycle after its step: two beats shifted by ``offset`` bytes.

        Of the two bytes that may come to a place of the held beat, one is in the chunk: so the beats are one, which is
        rotated, half of the way in front of the registers and half behind them.
        """
        step, beat = self.steps.payload, self.beats.payload
        near_bits = len(step.offset) // 2
        near, far = step.offset[:near_bits], step.offset[near_bits:]
        is_fill, value, left = (Signal.like(part, reset_less=True) for part in (step.is_fill, step.value, near))
        half = Signal.like(held, reset_less=True)
        mixed = Cat(
            Mux(place < step.offset, beat.word_select(place, 8), held.word_select(place, 8))
            for place in range(self.config.axi.data_bytes)
        )
        m.d.sync += [
            is_fill.eq(step.is_fill),
            value.eq(step.value),
            left.eq(near),
            half.eq(rotated(mixed, far, unit=1 << near_bits)),
        ]
        return Mux(is_fill, value.replicate(self.config.axi.data_bytes), rotated(half, left))
