"""A short queue between a walker, which runs ahead, and a gate, which decides in one cycle what may go on."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden.timing.latencies import LOOKAHEAD
from .assertions import Assertions
from .fifo import push_signature, remains

__all__ = ["Lookahead"]


class Lookahead(wiring.Component):
    """Queue what a walker has found, so that neither side's decisions reach into the other's in the same cycle.

    The walker reserves a place a fixed time before it pushes into it. One word goes in and one comes out each cycle. A
    word comes out two cycles after its push at the earliest. What the gate decides by comes from registers; the rest,
    which may be wide, from distributed RAM, so that the gate moves little but a pointer; and the walker hears of a move
    a cycle later.

    Parameters
    ----------
    shape : ShapeLike
        Of a word; a structure, if it has fields that are ``gated``.
    gated : sequence of str
        Fields that come from registers.
    depth : int
        Words; with 5, a walker that pushes two cycles after it reserves goes on without a pause.

    Members
    -------
    room : Out(1)
        A place may be reserved; registered.
    next_room : Out(1)
        What ``room`` is in the next cycle; depends combinationally on ``reserve``, but not on ``output``.
    reserve : In(1)
        A word will be pushed; only while ``room``.
    input : In(push_signature)
        In the order of the reservations.
    output : Out(stream)
        ``valid`` is registered.

    Raises
    ------
    ValueError
        If ``depth`` is below 2.
    """

    def __init__(self, shape: ShapeLike, *, gated: Sequence[str] = (), depth: int = LOOKAHEAD):
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth}")
        self.shape = shape
        self.gated = tuple(gated)
        self.depth = depth
        super().__init__(
            {
                "room": Out(1),
                "next_room": Out(1),
                "reserve": In(1),
                "input": In(push_signature(shape)),
                "output": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # More places, and a power of two: the word at the output stays where it is while others come.
        places = 1 << self.depth.bit_length()
        m.submodules.storage = storage = memory.Memory(shape=self.shape, depth=places, init=[])
        write = storage.write_port()
        read, held = (storage.read_port(domain="comb") for _ in range(2))
        stored, free = Signal(range(self.depth + 1)), Signal(range(self.depth + 1), init=self.depth)
        waits, move, moved = Signal(), Signal(), Signal()
        m.d.comb += [
            write.data.eq(self.input.payload),
            write.en.eq(self.input.valid),
            move.eq(waits & (~self.output.valid | self.output.ready)),
            self.output.payload.eq(held.data),
            self.next_room.eq(remains(free, leaves=self.reserve, comes=moved)),
        ]
        m.d.sync += [
            write.addr.eq(write.addr + self.input.valid),
            read.addr.eq(read.addr + move),
            stored.eq(stored + self.input.valid - move),
            moved.eq(move),
            free.eq(free - self.reserve + moved),
            waits.eq(remains(stored, leaves=move, comes=self.input.valid)),
            self.room.eq(self.next_room),
        ]
        with m.If(move):
            m.d.sync += held.addr.eq(read.addr)
        registers = {name: Signal(self.shape[name].shape, name=name, reset_less=True) for name in self.gated}
        m.d.comb += [self.output.payload[name].eq(register) for name, register in registers.items()]
        with m.If(~self.output.valid | self.output.ready):
            m.d.sync += [
                self.output.valid.eq(waits),
                *(register.eq(read.data[name]) for name, register in registers.items()),
            ]
        checks = Assertions(m, platform)
        checks.never(self.reserve & ~self.room, "Lookahead: a place is reserved where there is no room")
        checks.never(self.input.valid & (stored == self.depth), "Lookahead: a word finds the queue full")
        return m
