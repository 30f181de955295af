"""The unit that executes LOAD and FILL."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...golden import isa
from ...golden.config import Config
from ...golden.timing.latencies import BEATS_AHEAD, load_beats
from ...golden.units import ErrorCode, Unit
from ..bus.axi import ReadSignature, Response
from ..bus.burst import BurstSplitter
from ..memories.feature_memory import WRITE_LATENCY, feature_write_layout
from ..parts.fifo import BlockFifo, Buffer, Fifo
from ..parts.isa import INDEX_BITS, ErrorReport, report_error, report_first, unit_members
from ..parts.lookahead import Lookahead
from .byte_aligner import ByteAligner, chunk_layout
from .load_chunks import LoadChunks, step_layout
from .load_command import LoadCommands, load_command_layout, run_nest
from .local_write import LocalWrite, local_write_layout
from .loop_nest import LoopNest

__all__ = ["DmaLoad", "load_command_layout"]

#: LOADs and FILLs between their check and their last byte.
_COMMANDS_IN_FLIGHT = 8


class DmaLoad(wiring.Component):
    """Execute LOAD and FILL in order, moving one beat, piece or unit of a memory each cycle, whichever is the least.

    A FILL writes ``lanes`` bytes or one piece each cycle. Bursts of later commands are requested while the data of
    earlier ones arrive. Bit-exact with :func:`lutterfly.golden.machine.dma.load` and
    :func:`lutterfly.golden.machine.dma.fill`; after an error nothing is written and no burst begins until reset. An
    address out of range is that of its piece; that of a failed burst is relative to EXTERNAL_BASE.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream of load_command_layout)
    bus : Out(ReadSignature)
        ``ar`` is registered.
    feature : Out(stream of feature_write_layout)
        Registered; ``ready`` moves the buffer after it, combinationally.
    local : Out(local_write_layout)
        Registered.
    done : Out(1)
        A command has completed: what it has written may be read.
    error : Out(ErrorReport)
    halt : In(1)
    progress : Out(1)
        A command, a burst, a beat or a chunk has moved.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "command": In(stream.Signature(load_command_layout())),
                "bus": Out(ReadSignature(config.axi.data_bits)),
                "feature": Out(stream.Signature(feature_write_layout(config))),
                "local": Out(local_write_layout(config)),
                **unit_members(),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.commands = commands = LoadCommands(self.config)
        m.submodules.chunks = chunks = LoadChunks(self.config)
        m.submodules.transfers = transfers = Fifo(chunks.nest.nest_layout, depth=_COMMANDS_IN_FLIGHT)
        # On both sides of the aligner, so that a memory that is not ready has to stop nothing else in the same cycle.
        m.submodules.steps = steps = Buffer(step_layout(self.config))
        # In distributed RAM: what the aligner takes only moves a pointer.
        m.submodules.next_beat = next_beat = Fifo(unsigned(self.config.axi.data_bits), depth=BEATS_AHEAD)
        m.submodules.beats = beats = BlockFifo(unsigned(self.config.axi.data_bits), depth=self._beats)
        m.submodules.aligner = aligner = ByteAligner(self.config)
        # The aligner reserves a place after it, and the buffer keeps the memory's ready from moving that queue.
        m.submodules.aligned = aligned = Lookahead(chunk_layout(self.config))
        m.submodules.chunk_buffer = chunk_buffer = Fifo(chunk_layout(self.config), depth=2)
        m.submodules.write = write = LocalWrite(self.config)
        connect(m, flipped(self.command), commands.commands)
        connect(m, commands.transfers, transfers.input)
        connect(m, transfers.output, chunks.transfers)
        connect(m, chunks.steps, steps.input)
        connect(m, steps.output, aligner.steps)
        connect(m, beats.output, next_beat.input)
        connect(m, next_beat.output, aligner.beats)
        connect(m, aligner.chunks, aligned.input)
        connect(m, aligned.output, chunk_buffer.input)
        connect(m, chunk_buffer.output, write.chunks)
        connect(m, write.feature, flipped(self.feature))

        failed, stop = Signal(), Signal()
        # Two cycles after an error: before that no byte of a failed burst can reach a memory.
        m.d.sync += stop.eq(self.halt | failed)
        m.d.comb += [
            commands.halt.eq(stop),
            aligner.halt.eq(stop),
            aligner.room.eq(aligned.room),
            aligned.reserve.eq(aligner.reserve),
            self.local.eq(write.local),
        ]
        burst_failed = self._elaborate_bursts(m, stop)

        report_first(m, self.error, (commands.refused, burst_failed, aligner.strayed), failed)

        landing = Signal(WRITE_LATENCY)
        m.d.sync += [
            landing.eq(Cat(write.done, landing)),
            self.progress.eq(
                self.bus.r.valid
                | Cat(moving.valid & moving.ready for moving in (self.command, self.bus.ar)).any()
                | aligner.chunks.valid
            ),
        ]
        m.d.comb += self.done.eq(landing[-1])
        return m

    @property
    def _beats(self) -> int:
        return load_beats(self.config)

    def _elaborate_bursts(self, m: Module, stop) -> data.View:
        """Request what there is room for; put what comes into the queue of beats; tell what has failed."""
        axi = self.config.axi
        context = data.StructLayout({"index": unsigned(INDEX_BITS)})
        m.submodules.runs = runs = LoopNest(run_nest())
        m.submodules.splitter = splitter = BurstSplitter(data_bytes=axi.data_bytes, context=context)
        m.submodules.pending = pending = Fifo(
            data.StructLayout({"index": unsigned(INDEX_BITS), "address": unsigned(isa.EXTERNAL_BITS)}),
            depth=axi.outstanding,
        )
        m.submodules.requests = requests = Buffer(self.bus.ar.payload.shape())
        connect(m, m.submodules.commands.runs, runs.nests)
        connect(m, requests.output, flipped(self.bus.ar))
        m.submodules.next_run = next_run = Buffer(runs.iterations.payload.shape())
        connect(m, runs.iterations, next_run.input)
        run = next_run.output.payload
        m.d.comb += [
            splitter.runs.valid.eq(next_run.output.valid),
            next_run.output.ready.eq(splitter.runs.ready),
            splitter.runs.payload.address.eq(run.pointer.external),
            splitter.runs.payload.last_byte.eq(run.context.last_byte),
            splitter.runs.payload.context.index.eq(run.context.index),
        ]

        r, bursts, beats = self.bus.r, splitter.bursts, m.submodules.beats
        # Beats that may still be requested, but for the two bursts that count at most (one begins, and one began in the
        # cycle before) and whose lengths are left out, to keep them off the path.
        room = Signal(range(self._beats + 1), init=self._beats)
        has_room, begin, freed = Signal(), Signal(), Signal()
        began = Signal(range(axi.BURST_BEATS + 1))
        m.d.comb += [
            has_room.eq(room >= 2 * axi.BURST_BEATS),
            begin.eq(bursts.valid & ~stop & has_room & pending.input.ready & requests.input.ready),
            bursts.ready.eq(begin),
            pending.input.valid.eq(begin),
            pending.input.payload.index.eq(bursts.payload.context.index),
            pending.input.payload.address.eq(bursts.payload.address),
            requests.input.valid.eq(begin),
            [requests.input.payload[name].eq(bursts.payload[name]) for name in ("address", "beats_minus_one")],
            beats.input.valid.eq(r.valid),
            beats.input.payload.eq(r.payload.data),
            pending.output.ready.eq(r.valid & r.payload.last),
        ]
        m.d.sync += [
            began.eq(Mux(begin, bursts.payload.beats_minus_one + 1, 0)),
            freed.eq(beats.output.valid & beats.output.ready),
            room.eq(room + freed - began),
        ]
        problem = Signal(ErrorReport, name="burst_failed")
        with m.If(r.valid & r.payload.response[1]):
            code = Mux(r.payload.response == Response.DECERR, ErrorCode.AXI_DECODE, ErrorCode.AXI_SLAVE)
            m.d.comb += report_error(
                problem, code, Unit.LOAD, pending.output.payload.index, pending.output.payload.address
            )
        return problem
