"""The program memory: a ring of commands for each queue, and the prefetcher that fills them ahead of the queues."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa, registers
from ...golden.config import Config
from ...golden.config_parts import AxiConfig
from ...golden.timing.latencies import WORDS_AHEAD
from ...golden.units import ErrorCode, Queue, Unit
from ..bus.axi import ReadSignature, Response
from ..parts.device import RAM_LATENCY, Ram
from ..parts.fifo import Fifo, remains
from ..parts.isa import INDEX_BITS, ErrorReport, report_error
from ..parts.pipeline import Assertions

__all__ = [
    "CommandRing",
    "ProgramMemory",
    "burst_layout",
    "program_layout",
]


# A ring of commands of one queue, in the program memory.

_COUNT_BITS = registers.REGISTERS["DMA_COMMANDS"].mask.bit_length()


def program_layout() -> data.StructLayout:
    """The address of a queue's commands, and their number."""
    return data.StructLayout({"address": unsigned(AxiConfig.ADDRESS_BITS), "commands": unsigned(_COUNT_BITS)})


def burst_layout() -> data.StructLayout:
    """One or two commands: address and index of the first, and whether there is a second."""
    return data.StructLayout(
        {"address": unsigned(AxiConfig.ADDRESS_BITS), "index": unsigned(INDEX_BITS), "two": unsigned(1)}
    )


#: This many words, or fewer, would leave most of a block RAM empty, however wide they are: they are in the fabric.
FEW_WORDS = 64


class CommandRing(wiring.Component):
    """Hold commands of one queue, and supply them in words, one each cycle.

    The first word follows ``RAM_LATENCY`` + 3 cycles after it has arrived. The ring requests as much as it has room
    for, and never waits for the queue to begin a command. If all commands of a program fit, the next start runs from
    the ring,
    unless ``changed`` was high since.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1), program : In(program_layout)
        Begin a program; only when not ``busy``.
    changed : In(1)
        The program may be another one.
    stop : In(1)
        The queue needs no more commands: words that have been read ahead are dropped.
    halt : In(1)
        Request nothing more.
    burst : Out(stream of bursts)
        Commands to fetch. Registered.
    word_valid : In(1), word : In(data_bits)
        Words of the bursts, in order.
    words : Out(stream of data_bits)
        Words of the commands, in order.
    exhausted : Out(1)
        Every word has been supplied.
    busy : Out(1)
        Commands are to be fetched or supplied, or are in flight. Registered.
    """

    def __init__(self, config: Config):
        self.config = config
        self.data_bits = config.axi.data_bits
        super().__init__(
            {
                "start": In(1),
                "program": In(program_layout()),
                "changed": In(1),
                "stop": In(1),
                "halt": In(1),
                "burst": Out(stream.Signature(burst_layout())),
                "word_valid": In(1),
                "word": In(self.data_bits),
                "words": Out(stream.Signature(self.data_bits)),
                "exhausted": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        command_words = isa.COMMAND_BITS // self.data_bits
        depth = self.config.resident_commands * command_words
        # Positions count words; the top bit tells a full ring from an empty one.
        requested, written, read = (Signal(range(2 * depth), name=name) for name in ("requested", "written", "read"))
        m.submodules.storage = storage = Ram(width=self.data_bits, depth=depth, is_block=depth > FEW_WORDS)
        m.d.comb += [
            storage.write_enable.eq(self.word_valid),
            storage.write_address.eq(written),
            storage.write_data.eq(self.word),
            storage.read_address.eq(read),
        ]
        with m.If(self.word_valid):
            m.d.sync += written.eq(written + 1)

        to_fetch, asking = self._elaborate_fetch(m, requested, read, command_words, depth)
        resident = Signal()
        reading, emptied = self._elaborate_output(m, storage, written, read, resident, command_words)
        checks = Assertions(m, platform)
        full = (written - read)[: len(read)] >= depth
        checks.never(self.word_valid & full, "program: a word takes the place of one that was not read")
        checks.never(self.word_valid & (written == requested), "program: a word comes that was not asked for")
        m.d.sync += self.busy.eq((to_fetch != 0) | asking | (written != requested) | reading | ~emptied)

        # The ring holds a whole program, from its first word on, once that has been fetched to the end.
        whole = Signal()
        m.d.comb += resident.eq(whole & ~self.busy & ~self.changed)
        with m.If(self.changed):
            m.d.sync += whole.eq(0)
        with m.If(self.stop):
            m.d.sync += to_fetch.eq(0)
            with m.If(to_fetch != 0):
                m.d.sync += whole.eq(0)
        with m.If(self.start):
            m.d.sync += read.eq(0)
            with m.If(~resident):
                m.d.sync += [
                    requested.eq(0),
                    written.eq(0),
                    to_fetch.eq(self.program.commands),
                    self.burst.payload.address.eq(self.program.address),
                    self.burst.payload.index.eq(0),
                    whole.eq(self.program.commands <= self.config.resident_commands),
                ]
        return m

    def _elaborate_fetch(self, m: Module, requested, read, command_words: int, depth: int) -> tuple:
        """Offer bursts while there is room; return how many commands remain to be requested, and whether a burst is in
        flight."""
        to_fetch = Signal(_COUNT_BITS)
        used = Signal(range(2 * depth))
        burst = self.burst.payload
        # A burst of two begins at a multiple of its size, so that it never crosses 4 KiB.
        may_pair = self.data_bits * AxiConfig.BURST_BEATS >= 2 * isa.COMMAND_BITS
        pair = Signal()
        m.d.comb += pair.eq(
            may_pair
            & ~burst.address[ceil_log2(isa.COMMAND_BYTES)]
            & (to_fetch > 1)
            & (used <= depth - 2 * command_words)
        )
        size_commands = Mux(burst.two, 2, 1)
        with m.FSM(name="fetch") as fsm:
            with m.State("MEASURE"):
                # Reading goes on meanwhile, which only makes more room than was measured.
                m.d.sync += used.eq(requested - read)
                with m.If((to_fetch != 0) & ~self.halt & ~self.stop & ~self.start):
                    m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.sync += burst.two.eq(pair)
                m.next = "MEASURE"
                with m.If((to_fetch != 0) & (used <= depth - command_words) & ~self.stop):
                    m.d.sync += self.burst.valid.eq(1)
                    m.next = "ASK"
            with m.State("ASK"), m.If(self.burst.ready):
                m.d.sync += self.burst.valid.eq(0)
                m.next = "COUNT"
            # This takes a cycle of its own, so that the handshake of the burst need not reach all of it in the same
            # cycle.
            with m.State("COUNT"):
                m.d.sync += [
                    requested.eq(requested + Mux(burst.two, 2 * command_words, command_words)),
                    burst.address.eq(burst.address + (size_commands << ceil_log2(isa.COMMAND_BYTES))),
                    burst.index.eq(burst.index + size_commands),
                ]
                with m.If(to_fetch != 0):
                    m.d.sync += to_fetch.eq(to_fetch - size_commands)
                m.next = "MEASURE"
        return to_fetch, ~fsm.ongoing("MEASURE")

    def _elaborate_output(
        self, m: Module, storage: Ram, written, read, resident, command_words: int
    ) -> tuple[Signal, Signal]:
        """Read ahead into a small FIFO; return whether words remain to be read, and whether none is in flight."""
        to_read = Signal(_COUNT_BITS)
        m.submodules.output = output = Fifo(unsigned(self.data_bits), depth=WORDS_AHEAD)
        # Words in the ring that are not read.
        stored, waits = Signal(range(storage.depth + 1)), Signal()
        credits, has_credit = Signal(range(WORDS_AHEAD + 1), init=WORDS_AHEAD), Signal()
        reading, is_last, issue, taken, emptied = Signal(), Signal(), Signal(), Signal(), Signal()
        ends_command = read[: ceil_log2(command_words)].all()
        arrives = Signal(RAM_LATENCY)
        m.d.comb += [
            issue.eq(waits & reading & has_credit),
            # Words that were read ahead after an early END are dropped.
            taken.eq(output.output.valid & output.output.ready),
            output.input.valid.eq(arrives[-1]),
            output.input.payload.eq(storage.read_data),
            output.output.ready.eq(self.words.ready | self.stop),
            self.words.valid.eq(output.output.valid),
            self.words.payload.eq(output.output.payload),
            self.exhausted.eq(~reading & emptied),
        ]
        m.d.sync += [
            arrives.eq((arrives << 1) | issue),
            credits.eq(credits - issue + taken),
            has_credit.eq(remains(credits, leaves=issue, comes=taken)),
            emptied.eq((credits == WORDS_AHEAD) & ~issue),
            stored.eq(stored + self.word_valid - issue),
            # A word that arrives in this cycle counts later.
            waits.eq(remains(stored, leaves=issue)),
            is_last.eq(to_read == 1),
        ]
        with m.If(issue):
            m.d.sync += read.eq(read + 1)
            with m.If(ends_command):
                m.d.sync += to_read.eq(to_read - 1)
                with m.If(is_last):
                    m.d.sync += reading.eq(0)
        with m.If(self.stop):
            m.d.sync += reading.eq(0)
        with m.If(self.start):
            m.d.sync += [
                stored.eq(Mux(resident, written, 0)),
                waits.eq(0),
                to_read.eq(self.program.commands),
                reading.eq(self.program.commands != 0),
            ]
        return reading, emptied


class ProgramMemory(wiring.Component):
    """Fetch the commands of both queues, one or two a burst, several bursts in flight, and hold them in a ring each.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        Begin both programs; only when not ``busy``.
    dma_program, compute_program : In(program_layout)
    dma_changed, compute_changed : In(1)
        The program may be another one: the next start fetches it.
    dma_stop, compute_stop : In(1)
        The queue needs no more commands.
    halt : In(1)
        Begin no more bursts.
    read : Out(ReadSignature)
    dma_words, compute_words : Out(stream of data_bits)
    dma_exhausted, compute_exhausted : Out(1)
        Every command has been supplied.
    busy : Out(1)
    progress : Out(1)
        A word has arrived.
    error : Out(ErrorReport)
        A burst failed; its commands and those after it in its ring are not supplied.
    """

    def __init__(self, config: Config):
        self.config = config
        self.data_bits = config.axi.data_bits
        ports = {
            "start": In(1),
            "halt": In(1),
            "read": Out(ReadSignature(self.data_bits)),
            "busy": Out(1),
            "progress": Out(1),
            "error": Out(ErrorReport),
        }
        for name in (queue.value for queue in Queue):
            ports |= {
                f"{name}_program": In(program_layout()),
                f"{name}_changed": In(1),
                f"{name}_stop": In(1),
                f"{name}_words": Out(stream.Signature(self.data_bits)),
                f"{name}_exhausted": Out(1),
            }
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        rings = []
        for name in (queue.value for queue in Queue):
            m.submodules[name] = ring = CommandRing(self.config)
            rings.append(ring)
            for port in ("program", "changed", "stop"):
                m.d.comb += getattr(ring, port).eq(getattr(self, f"{name}_{port}"))
            m.d.comb += [
                ring.start.eq(self.start),
                ring.halt.eq(self.halt),
                getattr(self, f"{name}_exhausted").eq(ring.exhausted),
            ]
            wiring.connect(m, ring.words, wiring.flipped(getattr(self, f"{name}_words")))
        m.d.comb += self.busy.eq(rings[0].busy | rings[1].busy)

        asked = data.StructLayout(
            {"address": unsigned(AxiConfig.ADDRESS_BITS), "index": unsigned(INDEX_BITS), "queue": unsigned(1)}
        )
        m.submodules.flight = flight = Fifo(asked, depth=self.config.axi.outstanding)
        self._elaborate_requests(m, rings, flight.input)
        self._elaborate_answers(m, rings, flight.output)
        return m

    def _elaborate_requests(self, m: Module, rings: list[CommandRing], flight: stream.Interface) -> None:
        """Take the rings' bursts in turns, one every other cycle at most."""
        request = self.read.ar
        command_beats = isa.COMMAND_BITS // self.data_bits
        turn, chosen = Signal(), Signal()
        # The queue that was not served last goes first.
        m.d.comb += chosen.eq(Mux(turn, rings[1].burst.valid, ~rings[0].burst.valid))
        burst = Signal(burst_layout())
        m.d.comb += burst.eq(Mux(chosen, rings[1].burst.payload, rings[0].burst.payload))
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(~request.valid & ~self.halt & flight.ready & (rings[0].burst.valid | rings[1].burst.valid)):
            m.d.comb += [rings[0].burst.ready.eq(~chosen), rings[1].burst.ready.eq(chosen), flight.valid.eq(1)]
            m.d.sync += [
                turn.eq(~chosen),
                request.valid.eq(1),
                request.payload.address.eq(burst.address),
                request.payload.beats_minus_one.eq(Mux(burst.two, 2 * command_beats - 1, command_beats - 1)),
            ]
        asked = flight.payload
        m.d.comb += [asked.address.eq(burst.address), asked.index.eq(burst.index), asked.queue.eq(chosen)]

    def _elaborate_answers(self, m: Module, rings: list[CommandRing], flight: stream.Interface) -> None:
        """Pass each word to the ring that requested it."""
        valid = Signal()
        beat = Signal.like(self.read.r.payload, reset_less=True)
        m.d.sync += [valid.eq(self.read.r.valid), beat.eq(self.read.r.payload)]
        failed = Signal(len(rings))
        bad = Signal()
        asked = flight.payload
        m.d.comb += [
            bad.eq(valid & (beat.response >= Response.SLVERR)),
            flight.ready.eq(valid & beat.last),
            self.progress.eq(valid),
        ]
        for position, ring in enumerate(rings):
            mine = Signal(name=f"mine_{position}")
            m.d.comb += mine.eq(asked.queue == position)
            m.d.sync += [ring.word.eq(beat.data), ring.word_valid.eq(valid & mine & ~bad & ~failed[position])]
            with m.If(bad & mine):
                m.d.sync += failed[position].eq(1)
        code = Mux(beat.response == Response.DECERR, ErrorCode.AXI_DECODE, ErrorCode.AXI_SLAVE)
        m.d.sync += [
            report_error(self.error, code, Unit.PREFETCH, asked.index, asked.address),
            self.error.valid.eq(bad),
        ]
