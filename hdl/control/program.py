"""The program memory: a ring of commands for each queue, and the prefetcher that fills them ahead of the queues."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.config_parts import AxiConfig
from ...golden.units import ErrorCode, Queue, Unit
from ..bus.axi import ReadSignature, Response
from ..parts.fifo import Fifo
from ..parts.isa import INDEX_BITS, ErrorReport, report_error
from .ring import Ring, burst_layout, program_layout

__all__ = ["Program"]


class Program(wiring.Component):
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
        The program may be another one than before: the next start fetches it.
    dma_stop, compute_stop : In(1)
        The queue needs no more commands.
    halt : In(1)
        Begin no more bursts.
    read : Out(ReadSignature)
    dma_words, compute_words : Out(stream of data_bits)
    dma_exhausted, compute_exhausted : Out(1)
        Every command has been handed out.
    busy : Out(1)
    progress : Out(1)
        A word has arrived.
    error : Out(ErrorReport)
        A burst failed; its commands and those after it in its ring are not handed out.
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
            m.submodules[name] = ring = Ring(self.config)
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

    def _elaborate_requests(self, m: Module, rings: list[Ring], flight: stream.Interface) -> None:
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

    def _elaborate_answers(self, m: Module, rings: list[Ring], flight: stream.Interface) -> None:
        """Hand each word to the ring that asked for it."""
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
