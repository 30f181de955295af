"""Frames from the line: a header in registers, data in block RAM, and whether all of it is right."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.link import frames
from ...golden.link.frames import CRC_BYTES, FIELDS, LEAST_BYTES
from ...golden.link.operations import MAX_DATA, WORD_BYTES
from ..parts.device import RAM_LATENCY, Ram
from ..parts.fifo import push_signature
from .cobs_decoder import CobsDecoder
from .crc32 import RESIDUE
from .uart_receiver import received_layout

__all__ = ["BUFFER_LATENCY", "FrameIntake", "header_layout"]

#: From ``place`` to ``buffered``.
BUFFER_LATENCY = RAM_LATENCY
_TAIL_BITS = 8 * (WORD_BYTES + CRC_BYTES)


def header_layout() -> data.StructLayout:
    """The header of a frame."""
    layout = data.StructLayout({name: unsigned(8 * size) for name, (_, size) in FIELDS.items()})
    assert all(layout[name].offset == 8 * at for name, (at, _) in FIELDS.items())
    return layout


class FrameIntake(wiring.Component):
    """Gather a frame while it may, and say at its end whether it is good; nothing else ever follows from its bytes.

    Good is what has the right length and the right CRC, and no damage. It is said three cycles after the delimiter, and
    stands in here until ``begin``. Bytes that come while a request is carried out are lost. If the last of them was no
    delimiter, so is what follows, up to the next one.

    Bytes come four cycles apart at least. No combinational path, but from ``crc`` on, into registers.

    Members
    -------
    received : In(push_signature of received_layout)
    listens : In(1)
        Gather what comes; else it is lost.
    begin : In(1)
        The next frame begins: what is here of the last one is forgotten.
    content : Out(push_signature of 8 bits)
        What the CRC is of, its own four bytes after it; ``begin`` clears it.
    crc : In(32)
        Of this content, a cycle later.
    frame : Out(push_signature of one bit)
        The end of a frame, and whether it is good.
    header : Out(header_layout), data_bytes : Out(signed)
        ``data_bytes`` is what there is, whatever ``length`` says.
    tail : Out(64)
        The last four bytes of data, and the CRC.
    place : In(10), buffered : Out(8)
        A byte of the data, ``BUFFER_LATENCY`` cycles later.
    answers : In(1), status : In(8), length : In(32)
        Put these into the header.
    shifts : In(1)
        The first byte of the header leaves, the next one takes its place.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "received": In(push_signature(received_layout())),
                "listens": In(1),
                "begin": In(1),
                "content": Out(push_signature(8)),
                "crc": In(32),
                "frame": Out(push_signature(1)),
                "header": Out(header_layout()),
                "data_bytes": Out(signed(ceil_log2(MAX_DATA) + 2), init=-LEAST_BYTES),
                "tail": Out(_TAIL_BITS),
                "place": In(ceil_log2(MAX_DATA)),
                "buffered": Out(8),
                "answers": In(1),
                "status": In(8),
                "length": In(32),
                "shifts": In(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.decoder = decoder = CobsDecoder()
        m.submodules.buffer = buffer = Ram(width=8, depth=MAX_DATA)
        received, decoded = self.received, decoder.output.payload
        # What has begun while nobody listened is let go to its end.
        skips, is_delimiter = Signal(), Signal()
        m.d.comb += [
            is_delimiter.eq((received.payload.byte == frames.DELIMITER) & ~received.payload.error),
            decoder.input.valid.eq(received.valid & self.listens & ~skips),
            decoder.input.payload.eq(received.payload),
        ]
        with m.If(received.valid & (~self.listens | skips)):
            m.d.sync += skips.eq(~is_delimiter)

        comes, ends = Signal(), Signal()
        is_header, is_data, at = Signal(), Signal(), Signal(signed(len(self.data_bytes)))
        m.d.comb += [
            comes.eq(decoder.output.valid & ~decoded.end),
            ends.eq(decoder.output.valid & decoded.end),
            self.content.valid.eq(comes),
            self.content.payload.eq(decoded.byte),
            # Of the byte that comes: data begins at zero, and the CRC, of which nobody knows yet, follows.
            at.eq(self.data_bytes + CRC_BYTES),
            is_header.eq(at < 0),
            is_data.eq(~is_header & (at < MAX_DATA)),
            buffer.write_address.eq(at),
            buffer.write_data.eq(decoded.byte),
            buffer.write_enable.eq(comes & is_data),
            buffer.read_address.eq(self.place),
            self.buffered.eq(buffer.read_data),
        ]
        m.d.sync += [
            self.frame.valid.eq(ends),
            self.frame.payload.eq(
                ~decoded.damaged & (self.data_bytes >= 0) & (self.data_bytes <= MAX_DATA) & (self.crc == RESIDUE)
            ),
        ]
        with m.If(comes):
            m.d.sync += self.tail.eq(Cat(self.tail[8:], decoded.byte))
            with m.If(self.data_bytes <= MAX_DATA):
                m.d.sync += self.data_bytes.eq(self.data_bytes + 1)
        with m.If(self.begin):
            m.d.sync += self.data_bytes.eq(-LEAST_BYTES)
        header = self.header.as_value()
        with m.If(self.answers):
            m.d.sync += [self.header.status.eq(self.status), self.header.length.eq(self.length)]
        with m.Elif(self.shifts | comes & is_header):
            m.d.sync += header.eq(Cat(header[8:], decoded.byte))
        return m
