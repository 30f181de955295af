"""COBS, from the line: what :func:`lutterfly.golden.link.frames.decode` does, a byte at a time."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.link import frames
from ..parts.fifo import push_signature
from .uart_receiver import received_layout

__all__ = ["CobsDecoder", "decoded_layout"]


def decoded_layout() -> data.StructLayout:
    """A byte of a frame; or its ``end``, without a byte, and whether it is ``damaged``."""
    return data.StructLayout({"byte": unsigned(8), "end": unsigned(1), "damaged": unsigned(1)})


class CobsDecoder(wiring.Component):
    """Decode a byte each cycle, with a latency of one cycle: at most one byte or end for each that comes.

    An empty frame has no end. A frame is damaged if it ends within a block, or if a byte of it came with an error:
    that byte is no delimiter, whatever it is. No combinational path.

    Parameters
    ----------
    block_bytes : int
        Data bytes of a block, at most: other than COBS has it in proofs alone.

    Members
    -------
    input : In(push_signature of received_layout)
    output : Out(push_signature of decoded_layout)
    """

    def __init__(self, *, block_bytes: int = frames.BLOCK_BYTES):
        self.block_bytes = block_bytes
        super().__init__(
            {"input": In(push_signature(received_layout())), "output": Out(push_signature(decoded_layout()))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        received, decoded = self.input.payload, self.output.payload
        left = Signal(range(256))
        # Of the frame at hand: it has begun, a zero comes before the next block, it is damaged.
        begun, owes_zero, damaged, within = Signal(), Signal(), Signal(), Signal()
        m.d.comb += within.eq(left != 0)
        m.d.sync += [self.output.valid.eq(0), decoded.byte.eq(received.byte), decoded.end.eq(0), decoded.damaged.eq(0)]
        with m.If(self.input.valid):
            with m.If(received.error):
                m.d.sync += [begun.eq(1), damaged.eq(1)]
            with m.Elif(received.byte == frames.DELIMITER):
                m.d.sync += [
                    *(flag.eq(0) for flag in (left, begun, owes_zero, damaged)),
                    self.output.valid.eq(begun),
                    decoded.end.eq(1),
                    decoded.damaged.eq(damaged | within),
                ]
            with m.Elif(within):
                m.d.sync += [left.eq(left - 1), self.output.valid.eq(1)]
            with m.Else():
                m.d.sync += [
                    begun.eq(1),
                    left.eq(received.byte - 1),
                    owes_zero.eq(received.byte != self.block_bytes + 1),
                    self.output.valid.eq(owes_zero),
                    decoded.byte.eq(0),
                ]
        return m
