"""The receiving half of a UART: bytes of eight bits, lowest first, between a start bit and a stop bit."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import cdc, data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.link import frames
from ..parts.fifo import push_signature

__all__ = [
    "TICKS",
    "UartReceiver",
    "UartTransmitter",
    "last_cycle",
    "received_layout",
]


# Bit times need not be whole cycles: the remainder of one counts for the next one.


def last_cycle(m: Module, bit_time: Value, part_bits: int, *, begins: Value) -> Signal:
    """Return whether this cycle is the last one of the present interval; the next interval follows.

    Parameters
    ----------
    m : Module
    bit_time : Value
        The length of an interval, in parts of a cycle: at least one cycle.
    part_bits : int
        Defines the parts: a cycle has 2 ** part_bits of them.
    begins : Value
        Restarts: the next cycle is the first one of an interval.
    """
    left = Signal(range(frames.MOST_BIT_TIME + (1 << part_bits)), name="left", reset_less=True)
    ends, again = Signal(name="ends"), Signal(name="again")
    part, whole = left[:part_bits], left[part_bits:]
    m.d.comb += [ends.eq(whole == 1), again.eq(ends | begins)]
    # One adder serves both cases: a whole cycle less, or the next interval plus the remainder.
    cycle_less = Const(-1 << part_bits, len(left))
    m.d.sync += left.eq(Mux(again, bit_time, left) + Mux(again, Mux(begins, 0, part), cycle_less))
    return ends


#: Samples of the line in each bit: one each cycle where a bit is as short as it may be.
TICKS = frames.LEAST_BIT_TIME // frames.PARTS
#: The interval of a tick is the time of a bit in other units: a cycle has this many parts.
_TICK_PARTS = frames.PARTS * TICKS
_BITS = 10
_MIDDLE = TICKS // 2


def received_layout() -> data.StructLayout:
    """Return the layout of a byte from the line; ``error`` is set if it came without its stop bit."""
    return data.StructLayout({"byte": unsigned(8), "error": unsigned(1)})


class UartReceiver(wiring.Component):
    """Receive bytes; each bit is the majority of three samples, and a start bit that is a glitch begins none.

    Ticks come ``TICKS`` times a bit, from the falling edge of the start bit on; those around the middle count. A byte
    is given five eighths into its stop bit, and the next one may begin right then: a sender's rate may be off by 2 %.
    Without a stop bit, the byte is marked, and the next one is looked for once the line is high again.

    The line is asynchronous: it passes two registers, which idle high. No combinational path.

    Members
    -------
    rx : In(1)
    bit_time : In(16)
        Time of a bit in sixteenths of a cycle, see :mod:`lutterfly.golden.link.frames`; it may change between bytes.
    output : Out(push_signature of received_layout)
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "rx": In(1, init=1),
                "bit_time": In(range(frames.MOST_BIT_TIME + 1)),
                "output": Out(push_signature(received_layout())),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchroniser = cdc.FFSynchronizer(self.rx, line, init=1)

        number, bits_left = Signal(range(TICKS)), Signal(range(_BITS))
        looks = Signal(2, reset_less=True)
        bits = Signal(8, reset_less=True)
        is_high, runs, waits_for_high = Signal(), Signal(), Signal()
        tick = last_cycle(m, self.bit_time, ceil_log2(_TICK_PARTS), begins=~runs)
        m.d.comb += is_high.eq((line & looks[0]) | (line & looks[1]) | (looks[0] & looks[1]))
        m.d.sync += self.output.valid.eq(0)
        with m.If(line):
            m.d.sync += waits_for_high.eq(0)
        with m.If(~runs):
            m.d.sync += [number.eq(1), bits_left.eq(_BITS - 1)]
            m.d.sync += runs.eq(~line & ~waits_for_high)
        with m.Elif(tick):
            m.d.sync += [number.eq(number + 1), looks.eq(Cat(line, looks[0]))]
            with m.If(number == _MIDDLE + 1):
                m.d.sync += [bits.eq(Cat(bits[1:], is_high)), bits_left.eq(bits_left - 1)]
                with m.If(bits_left == 0):
                    m.d.sync += [
                        runs.eq(0),
                        # A fast sender may have begun the next byte already, but not without a stop bit.
                        waits_for_high.eq(~is_high),
                        self.output.valid.eq(1),
                        self.output.payload.byte.eq(bits),
                        self.output.payload.error.eq(~is_high),
                    ]
                # The falling edge did not begin a start bit.
                with m.If((bits_left == _BITS - 1) & is_high):
                    m.d.sync += [runs.eq(0), waits_for_high.eq(1)]
        return m


# The sending half of a UART sends bytes of eight bits, lowest first, between a start bit and a stop bit.


class UartTransmitter(wiring.Component):
    """Send a byte in the time of ten bits, the next one two cycles later if it is there; no combinational path.

    The times of single bits are whole cycles; a whole byte takes ten times ``bit_time``, to within a cycle.

    Members
    -------
    input : In(stream of 8 bits)
    bit_time : In(16)
        Time of a bit in sixteenths of a cycle, see :mod:`lutterfly.golden.link.frames`; a byte has that of the cycle
        before it is taken, to its end.
    tx : Out(1)
        High while nothing is sent.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "input": In(stream.Signature(8)),
                "bit_time": In(range(frames.MOST_BIT_TIME + 1)),
                "tx": Out(1, init=1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bits, bits_left = Signal(_BITS - 1, reset_less=True), Signal(range(_BITS))
        busy, bit_time = Signal(), Signal.like(self.bit_time, reset_less=True)
        ends = last_cycle(m, bit_time, ceil_log2(frames.PARTS), begins=~busy)
        m.d.comb += self.input.ready.eq(~busy)
        is_over = busy & ends & (bits_left == 0)
        with m.If(~busy | is_over):
            m.d.sync += bit_time.eq(self.bit_time)
        with m.If(~busy):
            m.d.sync += [bits.eq(Cat(self.input.payload, Const(1, 1))), bits_left.eq(_BITS - 1)]
            with m.If(self.input.valid):
                m.d.sync += [busy.eq(1), self.tx.eq(0)]
        with m.Elif(ends):
            m.d.sync += [Cat(self.tx, bits).eq(Cat(bits, Const(1, 1))), bits_left.eq(bits_left - 1)]
            with m.If(is_over):
                m.d.sync += busy.eq(0)
        return m
