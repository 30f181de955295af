"""Split checked LOADs and FILLs into chunks, each written in one cycle, and cut their bytes out of the beats."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.memories import LocalMemory, memories
from ...golden.timing.latencies import PIECES_AHEAD
from ...golden.units import ErrorCode, Unit
from ..memories.feature_memory import feature_write_layout, rotated
from ..parts.fifo import Fifo, push_signature
from ..parts.isa import INDEX_BITS, ErrorReport, field_shape, report_error
from .loop_nest import LoopNest, Nest

__all__ = [
    "ByteAligner",
    "LoadChunks",
    "LocalWrite",
    "chunk_bytes",
    "chunk_layout",
    "local_write_layout",
    "step_layout",
    "transfer_nest",
]


def chunk_bytes(memory: LocalMemory, config: Config) -> int:
    """Return the bytes that a LOAD moves to ``memory`` in a cycle: a beat, or one unit of the memory if that is
    less."""
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
    """Return the loop nest over the pieces of a LOAD or FILL.

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
        """Check whether a piece lies in its memory, and queue it, so that loops and chunks need not move together."""
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


# Conversion of beats into chunks of bytes, at any alignment.


def chunk_layout(config: Config) -> data.StructLayout:
    """A chunk: its first ``count`` bytes go to ``address`` of ``memory``; if it is ``void``, they are dropped.

    The bytes of a FILL are all equal, including those that do not fit into ``data``.
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
        A chunk may begin; a chunk begins, and comes a cycle later.
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
            # While a beat is valid, a step that advances is supplied, so this shorter condition is enough.
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
        """Return the bytes of a chunk, a cycle after its step: two beats shifted by ``offset`` bytes.

        For each byte position only one of the two beats has a byte of the chunk, so the two are merged into one word,
        which is rotated partly before the registers and partly after them.
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


# Writing chunks of bytes into the memories.


def local_write_layout(config: Config) -> data.StructLayout:
    """A write of one unit to a memory other than FEATURE.

    ``address`` counts units. WEIGHT takes all of ``data``, PARAMETER and ADD_TABLE the low 64 bits, LIST 32 and TABLE
    8.
    """
    return data.StructLayout(
        {
            "valid": unsigned(1),
            "memory": field_shape(isa.LOAD, "memory"),
            "address": unsigned(isa.LOCAL_BITS),
            "data": unsigned(8 * max(config.array.lanes, LocalMemory.PARAMETER.write_bytes(config.array.lanes))),
        }
    )


class LocalWrite(wiring.Component):
    """Pass chunks for the feature memory on at once; gather those for other memories into units, two cycles later.

    ``feature`` and ``chunks`` are connected combinationally both ways.

    Parameters
    ----------
    config : Config

    Members
    -------
    chunks : In(stream of chunk_layout)
    feature : Out(stream of feature_write_layout)
    local : Out(local_write_layout)
    done : Out(1)
        The last chunk of a command is taken. Combinational.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "chunks": In(stream.Signature(chunk_layout(config))),
                "feature": Out(stream.Signature(feature_write_layout(config))),
                "local": Out(local_write_layout(config)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes, data_bytes = self.config.array.lanes, self.config.axi.data_bytes
        chunk = self.chunks.payload
        is_feature, exists = Signal(), Signal()
        m.d.comb += [
            is_feature.eq(chunk.memory == LocalMemory.FEATURE),
            self.chunks.ready.eq(~is_feature | self.feature.ready),
            exists.eq(self.chunks.valid & ~chunk.void),
            self.done.eq(exists & chunk.last & self.chunks.ready),
            self.feature.valid.eq(exists & is_feature),
            self.feature.payload.address.eq(chunk.address),
            self.feature.payload.count.eq(chunk.count),
            # Only a FILL, whose bytes are all equal, writes more than a beat.
            self.feature.payload.data.eq(Cat(chunk.data, chunk.data[:8].replicate(lanes - data_bytes))),
        ]

        # All memories but the feature memory are always ready: their chunks need not wait for a handshake.
        gathers, gathered = Signal(), Signal.like(chunk, reset_less=True)
        m.d.sync += [gathers.eq(exists), gathered.eq(chunk)]
        words = Signal(
            data.ArrayLayout(self.config.axi.data_bits, len(self.local.data) // self.config.axi.data_bits),
            reset_less=True,
        )
        m.d.comb += self.local.data.eq(words)
        m.d.sync += [self.local.valid.eq(0), self.local.memory.eq(gathered.memory)]
        byte_bits = ceil_log2(data_bytes)
        with m.If(gathers), m.Switch(gathered.memory):
            for memory in memories(self.config):
                if memory is LocalMemory.FEATURE:
                    continue
                unit_bits = ceil_log2(memory.write_bytes(lanes))
                # The number of this word in the unit, if a unit has several.
                word = gathered.address[byte_bits : max(unit_bits, byte_bits)]
                with m.Case(memory):
                    m.d.sync += [
                        words[word].eq(gathered.data),
                        self.local.valid.eq(word.all()),
                        self.local.address.eq(gathered.address >> unit_bits),
                    ]
        return m
