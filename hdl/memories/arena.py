"""The arena on the chip: a slave on AXI4, of block RAM, that a host reads and writes beside the core."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..bus.axi import Response, axi4_signature
from ..parts.device import RAM_LATENCY, Ram
from ..parts.fifo import Fifo, Slot, push_signature, remains

__all__ = ["READ_LATENCY", "Arena", "HostSignature"]

#: Requests that wait, each way, and answers to writes.
_REQUESTS = 4
#: Beats that are read or wait for the master: a place is free again this many cycles after its request, at least.
_BEATS = 8
#: Cycles from an address to its word, with an address register, since addresses of many block RAMs are long wires.
_FETCH_LATENCY = 1 + RAM_LATENCY
#: Cycles from a read request to its first beat, if nothing else is in progress: queue, burst, fetch, queue.
READ_LATENCY = 1 + 1 + _FETCH_LATENCY + 1


class HostSignature(wiring.Signature):
    """A host's access to the arena, a byte at a time.

    Answers cannot be held up, so a host requests no more than it has room for.

    Parameters
    ----------
    address_bits : int

    Members
    -------
    request : Out(stream)
        ``address`` of a byte; ``write``, and the byte to write.
    answer : In(push_signature of a byte)
        The byte of each read, in order.
    """

    def __init__(self, address_bits: int):
        self.address_bits = address_bits
        request = data.StructLayout({"address": unsigned(address_bits), "write": unsigned(1), "data": unsigned(8)})
        super().__init__({"request": Out(stream.Signature(request)), "answer": In(push_signature(8))})


class Arena(wiring.Component):
    """Serve bursts of whole words, a beat a cycle each way, without a pause between bursts; and a host's bytes.

    The first beat comes ``READ_LATENCY`` cycles after its request, and the answer to a write a cycle after its last
    beat. Bursts are incrementing, of whole beats, and cross no page of 4 KiB, as AXI4 demands; they are answered in
    order, reads and writes apart. Beyond the end nothing is written, data that are read are undefined, and the answer
    is DECERR.

    The host has priority, and is served in the cycle after its request is taken, but at most in every other cycle: a
    beat waits for it for one cycle at most. Later requests see a byte that it writes. A byte that it reads while the
    master
    writes it is undefined.

    No combinational path; outputs are registers, but for the payload of answers, which comes from distributed RAM.

    Parameters
    ----------
    size_bytes : int
        A power of two, at least a page.
    data_bits : int
        Bits of a beat.
    id_bits : int
        Bits of the identifiers.

    Members
    -------
    bus : In(axi4_signature)
    host : In(HostSignature)
    """

    def __init__(self, *, size_bytes: int, data_bits: int, id_bits: int):
        self.size_bytes = size_bytes
        self.data_bits = data_bits
        self.id_bits = id_bits
        self.byte_bits = ceil_log2(data_bits // 8)
        self.address_bits = ceil_log2(size_bytes)
        super().__init__(
            {
                "bus": In(axi4_signature(data_bits, id_bits)),
                "host": In(HostSignature(self.address_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.ram = Ram(width=self.data_bits, depth=8 * self.size_bytes // self.data_bits, granularity=8)
        # It takes a request every other cycle; nothing holds one up inside.
        m.submodules.asked = asked = Slot(self.host.request.payload.shape())
        wiring.connect(m, wiring.flipped(self.host.request), asked.input)
        request = asked.output
        m.d.comb += request.ready.eq(1)
        self._elaborate_read(m, request)
        next_writes = asked.input.valid & asked.input.ready & asked.input.payload.write
        self._elaborate_write(m, request, next_writes)
        return m

    def _burst_layout(self) -> data.StructLayout:
        """A burst that waits or is in progress: the word of its next beat, and whether that lies beyond the end."""
        word = unsigned(self.address_bits - self.byte_bits)
        return data.StructLayout(
            {"word": word, "left": unsigned(8), "id": unsigned(self.id_bits), "outside": unsigned(1)}
        )

    def _elaborate_queue(self, m: Module, channel: str) -> stream.Interface:
        """Build the queue of a channel's requests."""
        m.submodules[f"{channel}_queue"] = queue = Fifo(self._burst_layout(), depth=_REQUESTS)
        address, burst = getattr(self.bus, f"{channel}addr"), queue.input.payload
        m.d.comb += [
            queue.input.valid.eq(getattr(self.bus, f"{channel}valid")),
            getattr(self.bus, f"{channel}ready").eq(queue.input.ready),
            burst.word.eq(address[self.byte_bits : self.address_bits]),
            burst.outside.eq(address[self.address_bits :].any()),
            burst.left.eq(getattr(self.bus, f"{channel}len")),
            burst.id.eq(getattr(self.bus, f"{channel}id")),
        ]
        return queue.output

    def _elaborate_read(self, m: Module, request: stream.Interface) -> None:
        bus, ram = self.bus, m.submodules.ram
        waiting = self._elaborate_queue(m, "ar")
        beat_layout = data.StructLayout(
            {
                "data": unsigned(self.data_bits),
                "id": unsigned(self.id_bits),
                "outside": unsigned(1),
                "last": unsigned(1),
            }
        )
        m.submodules.beats = beats = Fifo(beat_layout, depth=_BEATS)
        # Places of that queue that are not reserved for a beat in flight.
        room, has_room = Signal(range(_BEATS + 1), init=_BEATS), Signal(init=1)
        busy, burst, last = Signal(), Signal(self._burst_layout(), reset_less=True), Signal(reset_less=True)
        host_reads, asks, leaves, begins = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            host_reads.eq(request.valid & ~request.payload.write),
            asks.eq(busy & has_room & ~host_reads),
            leaves.eq(bus.rvalid & bus.rready),
            begins.eq(waiting.valid & (~busy | asks & last)),
            waiting.ready.eq(begins),
        ]
        m.d.sync += [room.eq(room - asks + leaves), has_room.eq(remains(room, leaves=asks, comes=leaves))]
        with m.If(asks):
            m.d.sync += [busy.eq(~last), burst.word.eq(burst.word + 1), burst.left.eq(burst.left - 1)]
            m.d.sync += last.eq(burst.left == 1)
        with m.If(begins):
            m.d.sync += [busy.eq(1), burst.eq(waiting.payload), last.eq(waiting.payload.left == 0)]

        word = Signal.like(ram.read_address, reset_less=True)
        m.d.sync += word.eq(Mux(host_reads, request.payload.address[self.byte_bits :], burst.word))
        m.d.comb += ram.read_address.eq(word)
        # The word that is fetched, and its requester.
        comes, comes_to_host, note = [asks], [host_reads], Cat(burst.id, burst.outside, last)
        byte = request.payload.address[: self.byte_bits]
        for stage in range(_FETCH_LATENCY):
            comes.append(_later(m, comes[-1], f"comes_{stage}"))
            comes_to_host.append(_later(m, comes_to_host[-1], f"comes_to_host_{stage}"))
            note = _later(m, note, f"note_{stage}", reset_less=True)
            byte = _later(m, byte, f"byte_{stage}", reset_less=True)
        m.d.comb += [
            beats.input.valid.eq(comes[-1]),
            beats.input.payload.eq(Cat(ram.read_data, note)),
            bus.rvalid.eq(beats.output.valid),
            beats.output.ready.eq(bus.rready),
            bus.rdata.eq(beats.output.payload.data),
            bus.rid.eq(beats.output.payload.id),
            bus.rlast.eq(beats.output.payload.last),
            bus.rresp.eq(Mux(beats.output.payload.outside, Response.DECERR, Response.OKAY)),
        ]
        m.d.sync += [
            self.host.answer.valid.eq(comes_to_host[-1]),
            self.host.answer.payload.eq(ram.read_data.word_select(byte, 8)),
        ]

    def _elaborate_write(self, m: Module, request: stream.Interface, next_writes: Value) -> None:
        """Take beats once their burst has begun; ``next_writes``: in the next cycle the host writes."""
        bus, ram = self.bus, m.submodules.ram
        waiting = self._elaborate_queue(m, "aw")
        answer_layout = data.StructLayout({"id": unsigned(self.id_bits), "outside": unsigned(1)})
        m.submodules.answers = answers = Fifo(answer_layout, depth=_REQUESTS)
        # Places of that queue that are not reserved for a burst that has begun.
        room, has_room = Signal(range(_REQUESTS + 1), init=_REQUESTS), Signal(init=1)
        busy, burst = Signal(), Signal(self._burst_layout(), reset_less=True)
        writes, ends, begins, leaves, stays = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            writes.eq(bus.wvalid & bus.wready),
            ends.eq(writes & bus.wlast),
            begins.eq(waiting.valid & has_room & (~busy | ends)),
            stays.eq(begins | busy & ~ends),
            leaves.eq(bus.bvalid & bus.bready),
            waiting.ready.eq(begins),
        ]
        m.d.sync += [
            room.eq(room - begins + leaves),
            has_room.eq(remains(room, leaves=begins, comes=leaves)),
            busy.eq(stays),
            bus.wready.eq(stays & ~next_writes),
        ]
        with m.If(writes):
            m.d.sync += burst.word.eq(burst.word + 1)
        with m.If(begins):
            m.d.sync += burst.eq(waiting.payload)

        host, byte_bits = request.payload, self.byte_bits
        host_writes = request.valid & host.write
        address, word = Signal.like(ram.write_address, reset_less=True), Signal(self.data_bits, reset_less=True)
        enable = Signal.like(ram.write_enable)
        m.d.sync += [
            address.eq(Mux(host_writes, host.address[byte_bits:], burst.word)),
            word.eq(Mux(host_writes, host.data.replicate(self.data_bits // 8), bus.wdata)),
            enable.eq(Mux(host_writes, 1 << host.address[:byte_bits], Mux(writes & ~burst.outside, bus.wstrb, 0))),
        ]
        m.d.comb += [
            ram.write_address.eq(address),
            ram.write_data.eq(word),
            ram.write_enable.eq(enable),
            answers.input.valid.eq(ends),
            answers.input.payload.eq(Cat(burst.id, burst.outside)),
            bus.bvalid.eq(answers.output.valid),
            answers.output.ready.eq(bus.bready),
            bus.bid.eq(answers.output.payload.id),
            bus.bresp.eq(Mux(answers.output.payload.outside, Response.DECERR, Response.OKAY)),
        ]


def _later(m: Module, value: Value, name: str, *, reset_less: bool = False) -> Signal:
    """Delay ``value`` by a cycle; unlike in a delay line of the core, flags are reset, since the queues are."""
    later = Signal(len(value), name=name, reset_less=reset_less)
    m.d.sync += later.eq(value)
    return later
