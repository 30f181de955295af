"""COBS towards the line encodes as :func:`lutterfly.golden.link.frames.encode`, a block at a time."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.link import frames
from ..parts.device import RAM_LATENCY, Ram
from ..parts.fifo import push_signature
from .uart import received_layout

__all__ = [
    "CobsDecoder",
    "CobsEncoder",
    "decoded_layout",
    "plain_layout",
]


#: Cycles from an address to its byte, which comes from the RAM's output register.
_FETCH = RAM_LATENCY + 1


def plain_layout() -> data.StructLayout:
    """Return the layout of a byte of a frame; ``last`` closes the frame."""
    return data.StructLayout({"byte": unsigned(8), "last": unsigned(1)})


class CobsEncoder(wiring.Component):
    """Encode frames, a block of up to 254 bytes at a time, with a delimiter after each frame.

    A block is gathered, a byte each cycle; then its code and its bytes are sent, one every four cycles at most, and
    nothing is taken meanwhile. A frame has at least one byte. No combinational path.

    Parameters
    ----------
    block_bytes : int
        Most data bytes of a block; only proofs use another number than that of COBS.

    Members
    -------
    input : In(stream of plain_layout)
    output : Out(stream of 8 bits)
    """

    def __init__(self, *, block_bytes: int = frames.BLOCK_BYTES):
        self.block_bytes = block_bytes
        super().__init__({"input": In(stream.Signature(plain_layout())), "output": Out(stream.Signature(8))})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.block = block = Ram(width=8, depth=1 << ceil_log2(self.block_bytes))
        plain, output = self.input.payload, self.output
        # Number of bytes in the block, and of those that have been sent.
        count, sent = Signal(range(self.block_bytes + 1)), Signal(range(self.block_bytes + 1))
        # Whether the frame ends with this block, or with an empty one after it.
        last, last_is_zero = Signal(), Signal()
        wait = Signal(range(_FETCH + 1))
        is_zero, is_full = Signal(), Signal()
        m.d.comb += [
            is_zero.eq(plain.byte == 0),
            is_full.eq(count == self.block_bytes - 1),
            block.write_address.eq(count),
            block.write_data.eq(plain.byte),
            block.read_address.eq(sent),
        ]
        with m.FSM() as fsm:
            with m.State("GATHER"):
                m.d.comb += block.write_enable.eq(self.input.valid)
                m.d.sync += [last.eq(plain.last), last_is_zero.eq(plain.last & is_zero), sent.eq(0)]
                with m.If(self.input.valid):
                    m.d.sync += count.eq(Mux(is_zero, count, count + 1))
                    with m.If(is_zero | is_full | plain.last):
                        m.d.sync += [output.valid.eq(1), output.payload.eq(Mux(is_zero, count, count + 1) + 1)]
                        m.next = "SEND"
            with m.State("SEND"), m.If(output.ready):
                m.d.sync += [output.valid.eq(0), wait.eq(_FETCH - 1)]
                m.next = "FETCH"
            with m.State("FETCH"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    with m.If(sent != count):
                        m.d.sync += [output.valid.eq(1), output.payload.eq(block.read_data), sent.eq(sent + 1)]
                        m.next = "SEND"
                    with m.Elif(last_is_zero):
                        m.d.sync += [output.valid.eq(1), output.payload.eq(1), last_is_zero.eq(0)]
                        m.next = "SEND"
                    with m.Elif(last):
                        m.d.sync += [output.valid.eq(1), output.payload.eq(frames.DELIMITER), count.eq(0)]
                        m.next = "END"
                    with m.Else():
                        m.d.sync += count.eq(0)
                        m.next = "GATHER"
            with m.State("END"), m.If(output.ready):
                m.d.sync += output.valid.eq(0)
                m.next = "GATHER"
        m.d.comb += self.input.ready.eq(fsm.ongoing("GATHER"))
        return m


# COBS from the line decodes as :func:`lutterfly.golden.link.frames.decode`, a byte at a time.


def decoded_layout() -> data.StructLayout:
    """Return the layout of a byte of a frame, or of its ``end``, which has no byte and may be ``damaged``."""
    return data.StructLayout({"byte": unsigned(8), "end": unsigned(1), "damaged": unsigned(1)})


class CobsDecoder(wiring.Component):
    """Decode a byte each cycle, with a latency of one cycle: at most one byte or end for each that comes.

    An empty frame has no end. A frame is damaged if it ends within a block, or if a byte of it came with an error:
    that byte is no delimiter, whatever it is. No combinational path.

    Parameters
    ----------
    block_bytes : int
        Most data bytes of a block; only proofs use another number than that of COBS.

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
        # State of the present frame: it has begun, a zero comes before the next block, it is damaged.
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
