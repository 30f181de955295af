"""The unit that executes LOAD and FILL."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.memories import LocalMemory, memories
from ...golden.timing.latencies import BEATS_AHEAD, load_beats
from ...golden.units import ErrorCode, Unit
from ..bus.axi import BurstSplitter, ReadSignature, Response
from ..memories.feature_memory import WRITE_LATENCY, feature_write_layout
from ..parts.fifo import BlockFifo, Buffer, Fifo, Lookahead
from ..parts.isa import INDEX_BITS, ErrorReport, command_shape, report_error, report_first, unit_members
from .chunks import (
    ByteAligner,
    LoadChunks,
    LocalWrite,
    chunk_bytes,
    chunk_layout,
    local_write_layout,
    step_layout,
    transfer_nest,
)
from .loop_nest import LoopNest, Nest

__all__ = [
    "DmaLoad",
    "LoadCommands",
    "load_command_layout",
    "run_nest",
]


# Checking LOAD and FILL commands, and converting them into runs to request and transfers to write.

#: A run has less than 2^32 bytes; the product of its two 16- and 24-bit factors has this many bits.
_PRODUCT_BITS = 40


def load_command_layout() -> data.StructLayout:
    """A LOAD (``is_fill`` is 0) or a FILL: both are views of the same command word, and the other one is ignored."""
    return data.StructLayout({"is_fill": unsigned(1), "load": command_shape(isa.LOAD), "fill": command_shape(isa.FILL)})


def run_nest() -> Nest:
    """Return the loop nest over the runs of a LOAD; ``last_byte`` is the bytes of a run minus one."""
    context = data.StructLayout({"index": unsigned(INDEX_BITS), "last_byte": unsigned(isa.EXTERNAL_BITS)})
    return Nest(counts={"row": 16, "fold": 8}, pointers={"external": isa.EXTERNAL_BITS}, context=context)


class _Taken(NamedTuple):
    """Registers of the command that is taken: a FILL is handled as a LOAD of rows of one piece that has no source."""

    load: data.View
    value: Signal
    is_fill: Signal
    last_byte: Signal
    #: Bytes of a run.
    product: Signal


class LoadCommands(wiring.Component):
    """Take a command every four cycles, plus one for each bit of ``row_pieces``; all outputs depend on registers only.

    Parameters
    ----------
    config : Config

    Members
    -------
    commands : In(stream of load_command_layout)
    runs : Out(stream of nests, see run_nest)
        The runs of LOADs.
    transfers : Out(stream of nests, see transfer_nest)
    refused : Out(ErrorReport)
        A command with an illegal field; it goes no further, and no other one is taken until reset.
    halt : In(1)
        Take no command.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "commands": In(stream.Signature(load_command_layout())),
                "runs": Out(stream.Signature(run_nest().nest_layout)),
                "transfers": Out(stream.Signature(transfer_nest(config).nest_layout)),
                "refused": Out(ErrorReport),
                "halt": In(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        load = Signal(command_shape(isa.LOAD), reset_less=True)
        value = Signal(8, reset_less=True)
        is_fill = Signal(reset_less=True)
        last_byte = Signal(isa.LOCAL_BITS, reset_less=True)
        product, addend = Signal(_PRODUCT_BITS, reset_less=True), Signal(_PRODUCT_BITS, reset_less=True)
        taken = _Taken(load, value, is_fill, last_byte, product)
        runs_offered, transfers_offered = Signal(), Signal()
        illegal = self._elaborate_check(m, load)
        m.d.comb += [self.runs.valid.eq(runs_offered), self.transfers.valid.eq(transfers_offered)]
        self._elaborate_outputs(m, taken)

        # Until a command is taken the registers follow the offered one. This is not `ready` itself, which has enough to
        # drive.
        follows = Signal(init=1)
        with m.If(follows):
            self._follow(m, taken)
        with m.FSM():
            with m.State("TAKE"):
                with m.If(self.commands.valid & self.commands.ready):
                    m.d.sync += [self.commands.ready.eq(0), follows.eq(0)]
                    m.next = "CHECK"
                with m.Else():
                    m.d.sync += self.commands.ready.eq(~self.halt)
            self._multiply(m, taken, addend, illegal)
            with m.State("COMPARE"):
                with m.If(product[isa.EXTERNAL_BITS :].any()):
                    m.next = "REFUSE"
                with m.Else():
                    m.d.sync += [runs_offered.eq(~is_fill), transfers_offered.eq(1)]
                    m.next = "OFFER"
            with m.State("OFFER"):
                with m.If(self.runs.ready):
                    m.d.sync += runs_offered.eq(0)
                with m.If(self.transfers.ready):
                    m.d.sync += transfers_offered.eq(0)
                with m.If((~runs_offered | self.runs.ready) & (~transfers_offered | self.transfers.ready)):
                    m.d.sync += [self.commands.ready.eq(~self.halt), follows.eq(1)]
                    m.next = "TAKE"
            with m.State("REFUSE"):
                m.d.comb += report_error(
                    self.refused, ErrorCode.ILLEGAL_FIELD, Mux(is_fill, Unit.FILL, Unit.LOAD), load.index
                )
                m.next = "STOP"
            with m.State("STOP"):
                m.next = "STOP"
        return m

    def _follow(self, m: Module, taken: _Taken) -> None:
        """Copy the command that is offered."""
        command, load = self.commands.payload, taken.load
        m.d.sync += [
            load.eq(command.load),
            taken.is_fill.eq(command.is_fill),
            taken.value.eq(command.fill.value),
            taken.product.eq(0),
        ]
        with m.If(command.is_fill):
            m.d.sync += [
                load[name].eq(command.fill[name]) for name in ("index", "local", "piece_bytes", "rows", "local_row")
            ]
            m.d.sync += [load.memory.eq(LocalMemory.FEATURE), load.folds.eq(1), load.row_pieces.eq(1)]

    def _multiply(self, m: Module, taken: _Taken, addend: Signal, illegal: Value) -> None:
        """Build the states that compute the bytes of a run, a bit of ``row_pieces`` each cycle.

        Shifting and adding takes few cycles, since rows have few pieces, and it overlaps with the command before.
        """
        pieces_left = Signal(16, reset_less=True)
        with m.State("CHECK"):
            m.d.sync += [
                taken.last_byte.eq(taken.load.piece_bytes - 1),
                addend.eq(taken.load.piece_bytes),
                pieces_left.eq(taken.load.row_pieces),
            ]
            m.next = "MULTIPLY"
            with m.If(illegal):
                m.next = "REFUSE"
        with m.State("MULTIPLY"):
            m.d.sync += [addend.eq(addend << 1), pieces_left.eq(pieces_left >> 1)]
            with m.If(pieces_left[0]):
                m.d.sync += taken.product.eq(taken.product + addend)
            with m.If(pieces_left[1:] == 0):
                m.next = "COMPARE"

    def _elaborate_check(self, m: Module, load: data.View) -> Value:
        """Return whether a count is zero, or a memory other than the feature memory gets less than whole words."""
        counts = [load[name] for name in ("row_pieces", "piece_bytes", "rows", "folds")]
        several = Cat(load[name] != 1 for name in ("row_pieces", "rows", "folds")).any()
        misplaced = Signal()
        with m.Switch(load.memory):
            for memory in memories(self.config):
                unit_bits = ceil_log2(memory.write_bytes(self.config.array.lanes))
                with m.Case(memory):
                    if memory is not LocalMemory.FEATURE:
                        m.d.comb += misplaced.eq(
                            several | Cat(load.local[:unit_bits], load.piece_bytes[:unit_bits]).any()
                        )
            with m.Default():
                m.d.comb += misplaced.eq(1)
        return Cat(count == 0 for count in counts).any() | misplaced

    def _elaborate_outputs(self, m: Module, taken: _Taken) -> None:
        """Build the loops of the command over its runs and its transfers."""
        load, value, is_fill, last_byte, product = taken
        run, transfer = self.runs.payload, self.transfers.payload
        m.d.comb += [
            [run.count[name].eq(load[f"{name}s"]) for name in ("row", "fold")],
            run.start.external.eq(load.external),
            [run.pitch.external[name].eq(load[f"external_{name}"]) for name in ("row", "fold")],
            run.context.index.eq(load.index),
            run.context.last_byte.eq(product - 1),
        ]
        context = transfer.context
        m.d.comb += [
            [transfer.count[name].eq(load[f"{name}s"]) for name in ("row", "fold")],
            transfer.count.piece.eq(load.row_pieces),
            transfer.start.local.eq(load.local),
            [transfer.pitch.local[name].eq(load[f"local_{name}"]) for name in ("row", "fold", "piece")],
            transfer.start.offset.eq(load.external),
            [transfer.pitch.offset[name].eq(load[f"external_{name}"]) for name in ("row", "fold")],
            context.index.eq(load.index),
            context.is_fill.eq(is_fill),
            context.value.eq(value),
            context.memory.eq(load.memory),
            context.last_byte.eq(last_byte),
        ]

        # These are signals of their own, as Yosys writes a structure that is partly driven in a process as processes
        # without inputs.
        chosen = {name: Signal.like(context[name], name=name) for name in ("chunk_bytes", "tail_bytes", "chunks_left")}
        m.d.comb += [context[name].eq(signal) for name, signal in chosen.items()]

        def split(size_bytes: int) -> list:
            bits = ceil_log2(size_bytes)
            return [
                chosen["chunk_bytes"].eq(size_bytes),
                chosen["tail_bytes"].eq(last_byte[:bits] + 1),
                chosen["chunks_left"].eq(last_byte >> bits),
            ]

        with m.If(is_fill):
            m.d.comb += split(self.config.array.lanes)
        with m.Else(), m.Switch(load.memory):
            for memory in memories(self.config):
                with m.Case(memory):
                    m.d.comb += split(chunk_bytes(memory, self.config))


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
        A command has completed: the bytes that it has written may be read.
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
        # There are queues on both sides of the aligner, so that a memory that is not ready has to stop nothing else in
        # the same cycle.
        m.submodules.steps = steps = Buffer(step_layout(self.config))
        # This queue is in distributed RAM: a beat that the aligner takes only moves a pointer.
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
        # It stops two cycles after an error: before that no byte of a failed burst can reach a memory.
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
        """Request bursts as there is room, queue the beats that arrive, and report failed bursts."""
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
        # Beats that may still be requested. The lengths of the burst that begins, and of one that began in the cycle
        # before, are left out to shorten the path.
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
