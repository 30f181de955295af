"""The unit that executes STORE."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.timing.latencies import WORDS_IN_FLIGHT
from ...golden.units import ErrorCode, Unit
from ..bus.axi import BEATS_BITS, BurstSplitter, Response, WriteSignature, write_beat_layout
from ..parts.fifo import Buffer, Fifo, counted, remains
from ..parts.isa import INDEX_BITS, ErrorReport, command_shape, is_beyond, report_error, report_first, unit_members
from ..parts.pipeline import Assertions
from .loop_nest import LoopNest, Nest

__all__ = [
    "DmaStore",
    "StoreBeats",
    "feature_word_layout",
]


# Conversion of write bursts into feature reads, and of the words that return into beats.

#: Words that wait at the bus.
_OUTGOING = 2


def feature_word_layout(config: Config) -> data.StructLayout:
    """A word from the feature memory: ``lanes`` bytes, the first of them at the requested address."""
    return data.StructLayout({"valid": unsigned(1), "data": unsigned(8 * config.array.lanes)})


class StoreBeats(wiring.Component):
    """Request one word each cycle while there is room for it, and pass the words on as beats; the next burst follows
    without a gap.

    All outputs depend on registers only, but for ``bursts.ready``, which depends combinationally on ``read.ready``.

    Parameters
    ----------
    config : Config

    Members
    -------
    bursts : In(stream)
        ``source``: feature address of the first beat of a run, which begins with a burst that is ``first``; the run
        goes on from there. ``first_byte`` of the first beat and ``last_byte`` of the last one that are written.
    read : Out(stream(24))
    word : In(feature_word_layout)
    beats : Out(stream of write_beat_layout)
    """

    def __init__(self, config: Config):
        self.config = config
        byte = unsigned(ceil_log2(config.axi.data_bytes))
        super().__init__(
            {
                "bursts": In(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "source": unsigned(isa.LOCAL_BITS),
                                "beats_minus_one": unsigned(BEATS_BITS),
                                "first_byte": byte,
                                "last_byte": byte,
                                "first": unsigned(1),
                            }
                        )
                    )
                ),
                "read": Out(stream.Signature(unsigned(isa.LOCAL_BITS))),
                "word": In(feature_word_layout(config)),
                "beats": Out(stream.Signature(write_beat_layout(config.axi.data_bits))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        data_bytes = self.config.axi.data_bytes
        word = unsigned(self.config.axi.data_bits)
        m.submodules.words = words = Fifo(word, depth=WORDS_IN_FLIGHT)
        # Words are queued at the bus, where they wait for strobes, so that a bus that is not ready has to stop nothing
        # near the feature memory.
        m.submodules.outgoing = Fifo(word, depth=_OUTGOING)
        m.submodules.strobes = strobes = Fifo(unsigned(data_bytes), depth=WORDS_IN_FLIGHT + _OUTGOING)
        burst, read, beat = self.bursts.payload, self.read, self.beats

        active = Signal()
        beats_left = Signal(BEATS_BITS, reset_less=True)
        # Strobes of the present beat before its end is cut, and of the last beat.
        strobe, last_strobe = Signal(data_bytes, reset_less=True), Signal(data_bytes, reset_less=True)
        has_room, last, asked = Signal(init=1), Signal(reset_less=True), Signal()
        m.d.comb += [
            read.valid.eq(active & has_room),
            asked.eq(read.valid & read.ready),
            self.bursts.ready.eq(~active | asked & last),
            strobes.input.valid.eq(asked),
            strobes.input.payload.eq(strobe & Mux(last, last_strobe, (1 << data_bytes) - 1)),
        ]
        with m.If(asked):
            m.d.sync += [
                read.payload.eq(read.payload + data_bytes),
                beats_left.eq(beats_left - 1),
                last.eq(beats_left == 1),
                strobe.eq((1 << data_bytes) - 1),
                active.eq(~last),
            ]
        with m.If(self.bursts.ready & self.bursts.valid):
            m.d.sync += [
                active.eq(1),
                beats_left.eq(burst.beats_minus_one),
                last.eq(burst.beats_minus_one == 0),
                strobe.eq(((1 << data_bytes) - 1) << burst.first_byte),
                last_strobe.eq(((1 << data_bytes) - 1) >> ~burst.last_byte),
            ]
            with m.If(burst.first):
                m.d.sync += read.payload.eq(burst.source)

        self._elaborate_words(m, asked, has_room)
        checks = Assertions(m, platform)
        checks.never(self.word.valid & ~words.input.ready, "STORE: a word finds its queue full")
        checks.never(asked & ~strobes.input.ready, "STORE: the strobes of a word find their queue full")
        checks.never(beat.valid & ~strobes.output.valid, "STORE: a word comes that was not asked for")
        return m

    def _elaborate_words(self, m: Module, asked: Signal, has_room: Signal) -> None:
        """Pass words on with their strobes.

        Room is reserved when a word is requested, so that no queue can overflow. It is released a cycle late, as words
        are requested at another end of the device.
        """
        words, outgoing, strobes, beat = m.submodules.words, m.submodules.outgoing, m.submodules.strobes, self.beats
        wiring.connect(m, words.output, outgoing.input)
        room = Signal(range(WORDS_IN_FLIGHT + 1), init=WORDS_IN_FLIGHT)
        left, passed = Signal(), Signal()
        m.d.comb += [
            words.input.valid.eq(self.word.valid),
            words.input.payload.eq(self.word.data),
            beat.valid.eq(outgoing.output.valid),
            beat.payload.data.eq(outgoing.output.payload),
            beat.payload.strobe.eq(strobes.output.payload),
            passed.eq(beat.valid & beat.ready),
            outgoing.output.ready.eq(passed),
            strobes.output.ready.eq(passed),
        ]
        m.d.sync += [
            left.eq(words.output.valid & words.output.ready),
            room.eq(counted(room, comes=left, leaves=asked)),
            has_room.eq(remains(room, leaves=asked, comes=left)),
        ]


class DmaStore(wiring.Component):
    """Execute STORE in order, one beat each cycle in which the feature memory can be read.

    Each beat is read at the feature address of its first byte, which may lie before the row, and strobes mask the bytes
    that do not belong to the row: nothing has to be aligned. Bit-exact with
    :func:`lutterfly.golden.machine.dma.store`; after an error no burst begins until reset. An address out of range is
    that of its row; that of a failed burst is relative to EXTERNAL_BASE.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream of command_shape(STORE))
    bus : Out(WriteSignature)
        ``aw`` is registered, ``w`` depends on registers only.
    read : Out(stream(24))
        Feature addresses; depends on registers only.
    word : In(feature_word_layout)
        The words, in order, at any latency; they cannot be held up.
    done : Out(1)
        The last write response of a command has arrived.
    error : Out(ErrorReport)
    halt : In(1)
    progress : Out(1)
        A command, a burst, a read, a beat or a response has moved.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "command": In(stream.Signature(command_shape(isa.STORE))),
                "bus": Out(WriteSignature(config.axi.data_bits)),
                "read": Out(stream.Signature(unsigned(isa.LOCAL_BITS))),
                "word": In(feature_word_layout(config)),
                **unit_members(),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.beats = beats = StoreBeats(self.config)
        # With this queue a feature memory that is not ready has to stop no burst in the same cycle.
        m.submodules.starts = starts = Fifo(beats.bursts.payload.shape(), depth=2)
        connect(m, starts.output, beats.bursts)
        connect(m, beats.read, wiring.flipped(self.read))
        connect(m, beats.beats, wiring.flipped(self.bus.w))
        m.d.comb += beats.word.eq(self.word)

        failed, stop = Signal(), Signal()
        # It stops two cycles after an error: before that no burst of a later row can begin.
        m.d.sync += stop.eq(self.halt | failed)
        rows, refused = self._elaborate_rows(m, stop)
        strayed = self._elaborate_runs(m, rows)
        self._elaborate_bursts(m, stop)
        burst_failed = self._elaborate_responses(m, failed)

        report_first(m, self.error, (refused, strayed, burst_failed), failed)
        m.d.sync += self.progress.eq(
            self.bus.b.valid
            | Cat(moving.valid & moving.ready for moving in (self.command, self.bus.aw, self.read, self.bus.w)).any()
        )
        return m

    def _elaborate_rows(self, m: Module, stop) -> tuple:
        """Take commands, refuse those without bytes, and walk the rows of the others."""
        context = data.StructLayout({"index": unsigned(INDEX_BITS), "last_byte": unsigned(isa.LOCAL_BITS)})
        m.submodules.rows = rows = LoopNest(
            Nest(counts={"row": 16}, pointers={"external": isa.EXTERNAL_BITS, "local": isa.LOCAL_BITS}, context=context)
        )
        # There is a cycle to take a command, one to check it, and one to begin it or to stay here until the reset.
        nest = rows.nests
        waiting, checked, legal = Signal(), Signal(), Signal()
        command = Signal(self.command.payload.shape(), name="waiting_command", reset_less=True)
        m.d.comb += self.command.ready.eq(~waiting & ~stop)
        with m.If(~waiting):
            m.d.sync += [waiting.eq(self.command.valid & ~stop), command.eq(self.command.payload)]
        with m.Elif(nest.valid & nest.ready):
            m.d.sync += waiting.eq(0)
        m.d.sync += [
            checked.eq(waiting & ~(nest.valid & nest.ready)),
            legal.eq((command.row_bytes != 0) & (command.rows != 0)),
        ]
        fields = nest.payload
        m.d.comb += [
            nest.valid.eq(checked & legal & ~stop),
            fields.count.row.eq(command.rows),
            [fields.start[name].eq(command[name]) for name in ("external", "local")],
            [fields.pitch[name].row.eq(command[f"{name}_row"]) for name in ("external", "local")],
            fields.context.index.eq(command.index),
            fields.context.last_byte.eq(command.row_bytes - 1),
        ]
        refused = Signal(ErrorReport, name="refused")
        with m.If(checked & ~legal):
            m.d.comb += report_error(refused, ErrorCode.ILLEGAL_FIELD, Unit.STORE, command.index)
        return rows.iterations, refused

    def _elaborate_runs(self, m: Module, rows: stream.Interface) -> Signal:
        """Check that a row lies in the feature memory, and pass it to the burst splitter."""
        data_bytes = self.config.axi.data_bytes
        context = data.StructLayout(
            {
                "index": unsigned(INDEX_BITS),
                "last_row": unsigned(1),
                "source": unsigned(isa.LOCAL_BITS),
            }
        )
        m.submodules.splitter = splitter = BurstSplitter(data_bytes=data_bytes, context=context)

        # This is one stage. The sum has a bit more, so that nothing wraps.
        run, runs, row = Signal(splitter.runs.payload.shape(), reset_less=True), splitter.runs, rows.payload
        checked, out_of_range = Signal(), Signal(reset_less=True)
        local = Signal(isa.LOCAL_BITS, reset_less=True)
        end = Signal(isa.LOCAL_BITS + 1)
        m.d.comb += [
            end.eq(row.pointer.local + row.context.last_byte),
            rows.ready.eq(~checked),
            runs.valid.eq(checked & ~out_of_range),
            runs.payload.eq(run),
        ]
        with m.If(rows.ready):
            m.d.sync += [
                checked.eq(rows.valid),
                out_of_range.eq(is_beyond(end, self.config.memory.feature_bytes)),
                local.eq(row.pointer.local),
                run.address.eq(row.pointer.external),
                run.last_byte.eq(row.context.last_byte),
                run.context.index.eq(row.context.index),
                run.context.last_row.eq(row.end.row),
                # The source of the first beat's first byte may lie before the row.
                run.context.source.eq(row.pointer.local - row.pointer.external[: ceil_log2(data_bytes)]),
            ]
        with m.Elif(runs.ready & runs.valid):
            m.d.sync += checked.eq(0)
        # The bursts of the rows before it begin first.
        strayed = Signal(ErrorReport, name="strayed")
        with m.If(checked & out_of_range & runs.ready & ~splitter.bursts.valid):
            m.d.comb += report_error(strayed, ErrorCode.ADDRESS_RANGE, Unit.STORE, run.context.index, local)
        return strayed

    def _elaborate_bursts(self, m: Module, stop) -> None:
        """Begin each burst at the bus and at the feature memory."""
        m.submodules.pending = pending = Fifo(
            data.StructLayout(
                {
                    "index": unsigned(INDEX_BITS),
                    "address": unsigned(isa.EXTERNAL_BITS),
                    "last": unsigned(1),
                }
            ),
            depth=self.config.axi.outstanding,
        )
        m.submodules.requests = requests = Buffer(self.bus.aw.payload.shape())
        connect(m, requests.output, wiring.flipped(self.bus.aw))
        bursts, starts = m.submodules.splitter.bursts, m.submodules.starts.input
        burst = bursts.payload
        begin = Signal()
        m.d.comb += [
            begin.eq(bursts.valid & ~stop & starts.ready & pending.input.ready & requests.input.ready),
            bursts.ready.eq(begin),
            starts.valid.eq(begin),
            [starts.payload[name].eq(burst[name]) for name in ("beats_minus_one", "first_byte", "last_byte", "first")],
            starts.payload.source.eq(burst.context.source),
            requests.input.valid.eq(begin),
            [requests.input.payload[name].eq(burst[name]) for name in ("address", "beats_minus_one")],
            pending.input.valid.eq(begin),
            pending.input.payload.index.eq(burst.context.index),
            pending.input.payload.address.eq(burst.address),
            pending.input.payload.last.eq(burst.last & burst.context.last_row),
        ]

    def _elaborate_responses(self, m: Module, failed):
        """Report completed commands and failed bursts; after a failure, bursts that have begun end without effect."""
        b, pending = self.bus.b, m.submodules.pending.output
        m.d.comb += pending.ready.eq(b.valid)
        m.d.sync += self.done.eq(b.valid & pending.payload.last & ~b.payload.response[1] & ~failed)
        problem = Signal(ErrorReport, name="burst_failed")
        with m.If(b.valid & b.payload.response[1]):
            code = Mux(b.payload.response == Response.DECERR, ErrorCode.AXI_DECODE, ErrorCode.AXI_SLAVE)
            m.d.comb += report_error(problem, code, Unit.STORE, pending.payload.index, pending.payload.address)
        return problem
