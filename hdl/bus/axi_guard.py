"""The guard between the core's masters and the AXI4 pins, which survives a soft reset."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ..parts.fifo import Buffer, Fifo
from ..parts.pipeline import Assertions
from .axi import BEATS_BITS, INCREMENTING, ReadSignature, WriteSignature, axi4_signature

__all__ = ["TAG_LOAD", "TAG_PROGRAM", "AxiGuard"]

#: Bit 0 of the ID distinguishes the two read masters; the bits above it are the epoch.
TAG_LOAD = 0
TAG_PROGRAM = 1
_TAG_STORE = 0

_EPOCH_BITS = 3
_PAGE_BITS = 12
#: Bursts in flight are counted up to 256; no more are begun from 128 on, which leaves room for those accepted
#: meanwhile.
_FLIGHT_BITS = 8


class AxiGuard(wiring.Component):
    """Pass the bursts of three masters on to the pins, one a cycle and channel, with a latency of one cycle each way.

    Every output but ``rready`` and ``bready``, which are always high, is registered, or the choice of a register
    between two written beats; AW, W and AR stay until they are taken, whatever happens inside. ``ready`` of the
    masters'
    streams depends combinationally on ``soft_reset`` and on the pins' ready. Of the two readers the prefetcher goes
    first, because it asks for little and everything waits for it; neither blocks the other, since each requests no more
    than it has room for.

    A soft reset never waits for the slave. Its effects on transfers that have begun, and on the masters afterwards:

    * Requests and beats at the pins stay unchanged; new ones queue after them.
    * Write bursts that have begun get their missing beats from the guard, without strobes; ``store`` waits until then.
    * Answers to earlier requests are discarded, however late: IDs are {epoch, tag}, and a soft reset begins the next
      epoch. Where an earlier request is never answered, the eighth soft reset runs out of epochs: from then on nothing
      is taken from the masters, until everything is answered.

    Parameters
    ----------
    config : Config
    reset_cycles : int
        Cycles of a soft reset: more than the masters' reset takes to reach them.

    Members
    -------
    load, program : In(ReadSignature)
        The readers.
    store : In(WriteSignature)
        The writer.
    base : In(32)
        EXTERNAL_BASE, a multiple of 4096: added to every address.
    soft_reset : In(1)
        Begins a soft reset. Nothing is taken from the masters from the next cycle on, until ``resetting`` falls; they
        must be reset before that.
    resetting : Out(1)
        High from the next cycle on, until ``reset_cycles`` after the last one of ``soft_reset``.
    memory : Out(axi4_signature)
        The pins.
    """

    def __init__(self, config: Config, *, reset_cycles: int):
        if reset_cycles < 1:
            raise ValueError(f"reset_cycles must be at least 1, not {reset_cycles}")
        self.config = config
        self.reset_cycles = reset_cycles
        bits = config.axi.data_bits
        super().__init__(
            {
                "load": In(ReadSignature(bits)),
                "program": In(ReadSignature(bits)),
                "store": In(WriteSignature(bits)),
                "base": In(config.axi.ADDRESS_BITS),
                "soft_reset": In(1),
                "resetting": Out(1),
                "memory": Out(axi4_signature(bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.owed = owed = Fifo(unsigned(BEATS_BITS), depth=16)
        m.submodules.next_owed = next_owed = Buffer(unsigned(BEATS_BITS))
        wiring.connect(m, owed.output, next_owed.input)
        in_flight, begun, ended = Signal(_FLIGHT_BITS), Signal(2), Signal(2)
        epoch, exhausted = self._elaborate_epochs(m, (in_flight == 0) & (begun == 0))
        # All of these are a cycle late, which the spare flights and the cycles of a reset allow.
        held, may_begin = Signal(), Signal()
        m.d.sync += [
            held.eq(in_flight[-1] | exhausted),
            may_begin.eq(~self.soft_reset & ~self.resetting & ~held),
        ]
        # The guard generates owed beats from a soft reset on until none is owed.
        padding = Signal()
        with m.If(self.soft_reset):
            m.d.sync += padding.eq(1)
        with m.Elif(~owed.output.valid & ~next_owed.output.valid):
            m.d.sync += padding.eq(0)

        reads = self._elaborate_read_requests(m, epoch, may_begin)
        writes = self._elaborate_write_requests(m, epoch, may_begin & ~padding, owed)
        self._elaborate_write_data(m, next_owed.output, padding)
        read_ends, write_ends = self._elaborate_answers(m, epoch, exhausted)
        m.d.sync += [
            begun.eq(reads + writes),
            ended.eq(read_ends + write_ends),
            in_flight.eq(in_flight + begun - ended),
        ]

        checks = Assertions(m, platform)
        checks.never(in_flight.all(), "AXI guard: more bursts in flight than are counted")
        checks.never((in_flight == 0) & (ended != 0), "AXI guard: an answer to nothing")

        cycles_left = Signal(range(self.reset_cycles))
        with m.If(self.soft_reset):
            m.d.sync += [self.resetting.eq(1), cycles_left.eq(self.reset_cycles - 1)]
        with m.Elif(cycles_left != 0):
            m.d.sync += cycles_left.eq(cycles_left - 1)
        with m.Else():
            m.d.sync += self.resetting.eq(0)
        return m

    def _elaborate_epochs(self, m: Module, is_idle: Value) -> tuple:
        """Build the epoch, and the flag that its number may still belong to an earlier one: numbers are free again only
        when everything is answered."""
        epoch = Signal(_EPOCH_BITS)
        stale_epochs = Signal(_EPOCH_BITS + 1)
        begins, exhausted = self.soft_reset & ~self.resetting, stale_epochs[-1]
        with m.If(begins):
            m.d.sync += epoch.eq(epoch + 1)
        # An epoch is counted even when nothing is in flight: a burst may be taken in the cycle of the reset.
        with m.If(begins & ~exhausted):
            m.d.sync += stale_epochs.eq(stale_epochs + 1)
        with m.Elif(is_idle):
            m.d.sync += stale_epochs.eq(0)
        return epoch, exhausted

    def _address(self, request) -> Value:
        """Return the address of a request at the pins."""
        # The base is a multiple of the page, so that the offset in a page, and with it the 4 KiB rule, survives.
        return Cat(request.address[:_PAGE_BITS], request.address[_PAGE_BITS:] + self.base[_PAGE_BITS:])

    def _request(self, channel: str, request, address: Value, identifier) -> list:
        """Assignments that put ``request`` on the address channel ``channel``."""
        return [
            getattr(self.memory, f"{channel}addr").eq(address),
            getattr(self.memory, f"{channel}len").eq(request.beats_minus_one),
            getattr(self.memory, f"{channel}id").eq(identifier),
            getattr(self.memory, f"{channel}valid").eq(1),
        ]

    def _elaborate_read_requests(self, m: Module, epoch, may_begin):
        bus, load, program = self.memory, self.load.ar, self.program.ar
        can_take = Signal(name="read_can_take")
        m.d.comb += [
            can_take.eq(may_begin & (~bus.arvalid | bus.arready)),
            program.ready.eq(can_take),
            load.ready.eq(can_take & ~program.valid),
            bus.arsize.eq(ceil_log2(self.config.axi.data_bytes)),
            bus.arburst.eq(INCREMENTING),
        ]
        taken = can_take & (load.valid | program.valid)
        with m.If(bus.arready):
            m.d.sync += bus.arvalid.eq(0)
        with m.If(taken):
            chosen = Signal(load.payload.shape(), name="read_request")
            m.d.comb += chosen.eq(Mux(program.valid, program.payload, load.payload))
            # There is a sum for each, so that no sum waits for the choice.
            address = Mux(program.valid, self._address(program.payload), self._address(load.payload))
            identifier = Cat(Mux(program.valid, Const(TAG_PROGRAM, 1), Const(TAG_LOAD, 1)), epoch)
            m.d.sync += self._request("ar", chosen, address, identifier)
        return taken

    def _elaborate_write_requests(self, m: Module, epoch, may_begin, owed):
        bus, request = self.memory, self.store.aw
        m.d.comb += [
            request.ready.eq(may_begin & (~bus.awvalid | bus.awready) & owed.input.ready),
            bus.awsize.eq(ceil_log2(self.config.axi.data_bytes)),
            bus.awburst.eq(INCREMENTING),
            owed.input.payload.eq(request.payload.beats_minus_one),
            owed.input.valid.eq(request.valid & request.ready),
        ]
        with m.If(bus.awready):
            m.d.sync += bus.awvalid.eq(0)
        with m.If(owed.input.valid):
            identifier = Cat(Const(_TAG_STORE, 1), epoch)
            m.d.sync += self._request("aw", request.payload, self._address(request.payload), identifier)
        return owed.input.valid

    def _elaborate_write_data(self, m: Module, owed, padding) -> None:
        """Send beats once their burst is offered; while ``padding`` the guard generates them."""
        bus, beat = self.memory, self.store.w
        # Two beats wait at the pins, so that their ready has to stop nothing inside in the same cycle, and moves no
        # more than a pointer.
        m.submodules.outgoing = outgoing = Fifo(
            data.StructLayout({"data": len(bus.wdata), "strobe": len(bus.wstrb), "last": 1}), depth=2
        )
        sent = Signal(BEATS_BITS)
        can_take = Signal(name="write_can_take")
        taken = Signal(name="write_taken")
        last = Signal(name="write_last")
        m.d.comb += [
            can_take.eq(owed.valid & outgoing.input.ready),
            beat.ready.eq(can_take & ~self.soft_reset & ~padding),
            taken.eq(beat.valid & beat.ready | can_take & padding),
            last.eq(sent == owed.payload),
            owed.ready.eq(taken & last),
            outgoing.input.valid.eq(taken),
            outgoing.input.payload.data.eq(beat.payload.data),
            outgoing.input.payload.strobe.eq(Mux(padding, 0, beat.payload.strobe)),
            outgoing.input.payload.last.eq(last),
            bus.wvalid.eq(outgoing.output.valid),
            outgoing.output.ready.eq(bus.wready),
            [
                getattr(bus, f"w{name}").eq(outgoing.output.payload[field])
                for name, field in (("data", "data"), ("strb", "strobe"), ("last", "last"))
            ],
        ]
        with m.If(taken):
            m.d.sync += sent.eq(Mux(last, 0, sent + 1))

    def _elaborate_answers(self, m: Module, epoch, exhausted) -> tuple:
        """Register the answers of the pins, drop those of other epochs, and route the rest by tag."""
        bus = self.memory
        m.d.comb += [bus.rready.eq(1), bus.bready.eq(1)]

        def is_due(valid, identifier, tag: int):
            return valid & ~exhausted & (identifier == Cat(Const(tag, 1), epoch))

        beat = Signal(self.load.r.payload.shape(), name="read_beat", reset_less=True)
        m.d.sync += [
            beat.data.eq(bus.rdata),
            beat.response.eq(bus.rresp),
            beat.last.eq(bus.rlast),
        ]
        for master, tag in ((self.load, TAG_LOAD), (self.program, TAG_PROGRAM)):
            m.d.comb += master.r.payload.eq(beat)
            m.d.sync += master.r.valid.eq(is_due(bus.rvalid, bus.rid, tag))
        m.d.sync += [
            self.store.b.payload.response.eq(bus.bresp),
            self.store.b.valid.eq(is_due(bus.bvalid, bus.bid, _TAG_STORE)),
        ]
        return bus.rvalid & bus.rlast, bus.bvalid
