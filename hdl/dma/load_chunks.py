"""From a checked LOAD or FILL to its chunks: what is written in one cycle, and which bytes of the beats that takes."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.memories import LocalMemory, memories
from ...golden.timing.latencies import PIECES_AHEAD
from ..parts.fifo import Fifo
from ..parts.isa import INDEX_BITS, field_shape
from .loop_nest import LoopNest, Nest

__all__ = ["LoadChunks", "chunk_bytes", "step_layout", "transfer_nest"]


def chunk_bytes(memory: LocalMemory, config: Config) -> int:
    """Bytes that a LOAD moves to ``memory`` in a cycle: a beat, or one unit of the memory if that is less."""
    if memory is LocalMemory.FEATURE:
        return config.axi.data_bytes
    return min(memory.write_bytes(config.array.lanes), config.axi.data_bytes)


def _count_shape(config: Config):
    return unsigned(ceil_log2(config.array.lanes) + 1)


def _common_fields(config: Config) -> dict:
    return {
        "index": unsigned(INDEX_BITS),
        "is_fill": unsigned(1),
        "value": field_shape(isa.FILL, "value"),
        "memory": field_shape(isa.LOAD, "memory"),
    }


def transfer_nest(config: Config) -> Nest:
    """The loops over the pieces of a LOAD or FILL.

    ``offset`` is where in its first beat a run begins. The context: ``last_byte``: ``piece_bytes`` minus one; a piece
    is ``chunks_left`` chunks of ``chunk_bytes`` and then one of ``tail_bytes``.
    """
    context = data.StructLayout(
        {
            **_common_fields(config),
            "last_byte": unsigned(isa.LOCAL_BITS),
            "chunks_left": unsigned(isa.LOCAL_BITS),
            "chunk_bytes": _count_shape(config),
            "tail_bytes": _count_shape(config),
        }
    )
    return Nest(
        counts={"row": 16, "fold": 8, "piece": 16},
        pointers={"local": isa.LOCAL_BITS, "offset": ceil_log2(config.axi.data_bytes)},
        context=context,
    )


def step_layout(config: Config) -> data.StructLayout:
    """One chunk: ``count`` bytes to ``address``, from byte ``offset`` of the current beat on.

    ``needs_beat``: it is not a FILL's. ``crosses``: it needs bytes of the next beat too. ``advances``: the current beat
    is used up. ``skips``: and so is the next beat, with which a run ends. ``out_of_range``: the piece does not lie in
    its memory. ``last``: of the command.
    """
    flags = ("needs_beat", "crosses", "advances", "skips", "out_of_range", "last")
    return data.StructLayout(
        {
            **_common_fields(config),
            "address": unsigned(isa.LOCAL_BITS),
            "count": _count_shape(config),
            "offset": unsigned(ceil_log2(config.axi.data_bytes)),
            **dict.fromkeys(flags, unsigned(1)),
        }
    )


class LoadChunks(wiring.Component):
    """Plan one chunk each cycle, with a latency of three cycles from a transfer to its first chunk.

    ``steps`` depends on registers only. No combinational path.

    Parameters
    ----------
    config : Config

    Members
    -------
    transfers : In(stream of nests, see transfer_nest)
    steps : Out(stream of step_layout)
    """

    def __init__(self, config: Config):
        self.config = config
        self.nest = transfer_nest(config)
        super().__init__(
            {
                "transfers": In(stream.Signature(self.nest.nest_layout)),
                "steps": Out(stream.Signature(step_layout(config))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.nest = nest = LoopNest(self.nest)
        connect(m, wiring.flipped(self.transfers), nest.nests)
        self._elaborate_chunks(m, self._elaborate_pieces(m, nest.iterations))
        return m

    def _elaborate_pieces(self, m: Module, found: stream.Interface) -> stream.Interface:
        """Check whether a piece lies in its memory; queue it, so that loops and chunks need not move together."""
        m.submodules.pieces = pieces = Fifo(
            data.StructLayout(
                {
                    "address": unsigned(isa.LOCAL_BITS),
                    "offset": found.payload.pointer.offset.shape(),
                    "has_one_chunk": unsigned(1),
                    "ends_run": unsigned(1),
                    "last": unsigned(1),
                    "out_of_range": unsigned(1),
                    "context": self.nest.context,
                }
            ),
            depth=PIECES_AHEAD,
        )
        # Sizes are powers of two: the last byte is outside if it has any bit beyond them. With one bit more than an
        # address, so that nothing wraps.
        end = Signal(isa.LOCAL_BITS + 1)
        beyond = Signal.like(end)
        iteration, piece = found.payload, pieces.input.payload
        with m.Switch(iteration.context.memory):
            for memory in memories(self.config):
                with m.Case(memory):
                    m.d.comb += beyond.eq(~(self.config.size_bytes(memory) - 1))
        m.d.comb += [
            end.eq(iteration.pointer.local + iteration.context.last_byte),
            pieces.input.valid.eq(found.valid),
            found.ready.eq(pieces.input.ready),
            piece.address.eq(iteration.pointer.local),
            piece.offset.eq(iteration.pointer.offset),
            piece.has_one_chunk.eq(iteration.context.chunks_left == 0),
            piece.ends_run.eq(iteration.end.piece),
            piece.last.eq(iteration.end.as_value().all()),
            piece.out_of_range.eq((end & beyond).any()),
            piece.context.eq(iteration.context),
        ]
        return pieces.output

    def _elaborate_chunks(self, m: Module, pieces: stream.Interface) -> None:
        data_bytes = self.config.axi.data_bytes
        valid = Signal()
        piece = Signal.like(pieces.payload, name="current", reset_less=True)
        chunks_left = Signal(isa.LOCAL_BITS, reset_less=True)
        at_tail = Signal(reset_less=True)
        offset = Signal(ceil_log2(data_bytes), reset_less=True)
        begins_run = Signal(init=1)

        step, out = Signal(step_layout(self.config)), self.steps
        count = Signal.like(piece.context.chunk_bytes)
        end = Signal(len(count) + 1)
        ends_run, crosses = Signal(), Signal()
        m.d.comb += [
            count.eq(Mux(at_tail, piece.context.tail_bytes, piece.context.chunk_bytes)),
            end.eq(offset + count),
            ends_run.eq(at_tail & piece.ends_run),
            [step[name].eq(piece.context[name]) for name in _common_fields(self.config)],
            step.address.eq(piece.address),
            step.count.eq(count),
            step.offset.eq(offset),
            crosses.eq((end > data_bytes) & ~piece.context.is_fill),
            step.needs_beat.eq(~piece.context.is_fill),
            step.crosses.eq(crosses),
            step.advances.eq(((end >= data_bytes) | ends_run) & ~piece.context.is_fill),
            step.skips.eq(ends_run & crosses),
            step.out_of_range.eq(piece.out_of_range),
            step.last.eq(at_tail & piece.last),
            out.valid.eq(valid),
            out.payload.eq(step),
            pieces.ready.eq(~valid | out.ready & at_tail),
        ]
        with m.If(valid & out.ready):
            m.d.sync += [
                piece.address.eq(piece.address + piece.context.chunk_bytes),
                chunks_left.eq(chunks_left - 1),
                at_tail.eq(chunks_left == 1),
                offset.eq(end),
            ]
            with m.If(at_tail):
                m.d.sync += [valid.eq(0), begins_run.eq(piece.ends_run)]
        with m.If(pieces.ready & pieces.valid):
            m.d.sync += [
                valid.eq(1),
                piece.eq(pieces.payload),
                chunks_left.eq(pieces.payload.context.chunks_left),
                at_tail.eq(pieces.payload.has_one_chunk),
            ]
            with m.If(Mux(valid, piece.ends_run, begins_run)):
                m.d.sync += offset.eq(pieces.payload.offset)
