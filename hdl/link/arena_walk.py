"""Byte after byte of the arena: read for answers and checksums, written from a frame."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.link.operations import MAX_DATA
from ..memories.arena import HostSignature
from ..parts.fifo import push_signature
from .frame_intake import BUFFER_LATENCY

__all__ = ["ArenaWalk"]


class ArenaWalk(wiring.Component):
    """Walk over a range of the arena, a byte at a time; about eight cycles each.

    No combinational path but from the arena's answer to ``byte``.

    Parameters
    ----------
    address_bits : int
        Of the arena.

    Members
    -------
    load : In(1), address : In(address_bits), length : In(address_bits + 1)
        Begin at the front of a range, of one byte or more. Not while a byte is under way.
    ask : In(1), byte : Out(push_signature of 8 bits), last : Out(1)
        While ``ask`` is high, read the next byte; ``last``, with it, says that none follows.
    write : In(1), place : Out(10), buffered : In(8), written : Out(1)
        Begin to write the range; from which byte of the frame, ``BUFFER_LATENCY`` cycles before it is here; and, for
        one cycle, that all of it is written.
    host : Out(HostSignature)
        The arena.
    """

    def __init__(self, address_bits: int):
        self.address_bits = address_bits
        super().__init__(
            {
                "load": In(1),
                "address": In(address_bits),
                "length": In(address_bits + 1),
                "ask": In(1),
                "byte": Out(push_signature(8)),
                "last": Out(1),
                "write": In(1),
                "place": Out(ceil_log2(MAX_DATA)),
                "buffered": In(8),
                "written": Out(1),
                "host": Out(HostSignature(address_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        request, answer = self.host.request, self.host.answer
        # Bytes after the one at hand.
        left, wait = Signal(self.address_bits, reset_less=True), Signal(range(BUFFER_LATENCY + 1))
        moves = Signal()
        m.d.comb += [self.last.eq(left == 0), self.byte.payload.eq(answer.payload)]
        with m.If(moves):
            m.d.sync += [
                request.payload.address.eq(request.payload.address + 1),
                left.eq(left - 1),
                self.place.eq(self.place + 1),
            ]
        with m.If(self.load):
            m.d.sync += [request.payload.address.eq(self.address), left.eq(self.length - 1), self.place.eq(0)]
        with m.FSM() as fsm:
            with m.State("REST"):
                m.d.sync += [request.payload.write.eq(self.write), wait.eq(BUFFER_LATENCY)]
                with m.If(self.write):
                    m.next = "FETCH"
                with m.Elif(self.ask):
                    m.d.sync += request.valid.eq(1)
                    m.next = "READ"
            with m.State("READ"):
                with m.If(request.ready):
                    m.d.sync += request.valid.eq(0)
                with m.If(answer.valid):
                    m.d.comb += moves.eq(1)
                    m.next = "REST"
            with m.State("FETCH"):
                m.d.sync += [wait.eq(wait - 1), request.payload.data.eq(self.buffered)]
                with m.If(wait == 0):
                    m.d.sync += request.valid.eq(1)
                    m.next = "WRITE"
            with m.State("WRITE"), m.If(request.ready):
                m.d.sync += [request.valid.eq(0), wait.eq(BUFFER_LATENCY)]
                m.d.comb += [moves.eq(1), self.written.eq(self.last)]
                m.next = "FETCH"
                with m.If(self.last):
                    m.next = "REST"
        m.d.comb += self.byte.valid.eq(fsm.ongoing("READ") & answer.valid)
        return m
