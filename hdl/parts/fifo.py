"""First-in, first-out queues of structured words: in registers, in distributed RAM, and in block RAM."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value, ValueLike
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.timing.latencies import LOOKAHEAD
from .pipeline import Assertions, parts

__all__ = [
    "BlockFifo",
    "Buffer",
    "Fifo",
    "Lookahead",
    "Slot",
    "counted",
    "push_signature",
    "remains",
]


def push_signature(shape: ShapeLike) -> wiring.Signature:
    """Return the signature of words that cannot be held up: a stream without ``ready``, whose receiver has reserved
    room."""
    return wiring.Signature({"valid": Out(1), "payload": Out(shape)})


def remains(count: Value, *, leaves: ValueLike, comes: ValueLike = 0) -> Value:
    """Compute whether ``count + comes - leaves`` is above zero, without the sum: for a register beside that of the
    count.

    Both are one bit; nothing leaves while ``count`` is zero.
    """
    return (count > 1) | (count == 1) & ~Value.cast(leaves) | comes


def counted(count: Value, *, comes: ValueLike = 0, leaves: ValueLike = 0) -> Value:
    """Compute ``count + comes - leaves``, chosen among sums that wait for neither bit: both may come late, from far
    away."""
    comes, leaves = Value.cast(comes), Value.cast(leaves)
    return Mux(comes ^ leaves, Mux(comes, count + 1, count - 1), count)


class Slot(wiring.Component):
    """Queue one word in a register, one every two cycles, with a latency of one cycle; no combinational path.

    It suits wide words that come seldom: it has half of the registers of a :class:`Buffer`, and no multiplexer.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word.

    Members
    -------
    input : In(stream)
    output : Out(stream)
    """

    def __init__(self, shape: ShapeLike):
        self.shape = shape
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        payload = Signal(Shape.cast(self.shape).width, reset_less=True)
        m.d.comb += [self.input.ready.eq(~self.output.valid), self.output.payload.eq(payload)]
        with m.If(self.output.valid):
            m.d.sync += self.output.valid.eq(~self.output.ready)
        with m.Else():
            m.d.sync += [payload.eq(self.input.payload), self.output.valid.eq(self.input.valid)]
        return m


class Buffer(wiring.Component):
    """Queue two words in registers, one in and one out each cycle, with a latency of one cycle; no combinational path.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word.

    Members
    -------
    input : In(stream)
    output : Out(stream)
    """

    def __init__(self, shape: ShapeLike):
        self.shape = shape
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        width = Shape.cast(self.shape).width
        payload, spare = Signal(width, reset_less=True), Signal(width, reset_less=True)
        has_spare, keeps_spare = Signal(), Signal()
        m.d.comb += self.output.payload.eq(payload)
        # `ready` is the complement of `has_spare`, but a register of its own with wires of its own.
        m.d.sync += [has_spare.eq(keeps_spare), self.input.ready.eq(~keeps_spare)]
        with m.If(~has_spare):
            m.d.sync += spare.eq(self.input.payload)
        with m.If(~self.output.valid | self.output.ready):
            m.d.sync += [
                payload.eq(Mux(has_spare, spare, self.input.payload)),
                self.output.valid.eq(has_spare | self.input.valid & self.input.ready),
            ]
        with m.Else():
            m.d.comb += keeps_spare.eq(has_spare | self.input.valid & self.input.ready)
        return m


class Fifo(wiring.Component):
    """Queue up to ``depth`` words, one in and one out each cycle, with a latency of one cycle; no combinational path.

    ``valid`` and ``ready`` are registers, the payload comes from distributed RAM.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word.
    depth : int
        Words; up to 16 cost the same.

    Members
    -------
    input : In(stream)
    output : Out(stream)
    """

    def __init__(self, shape: ShapeLike, *, depth: int):
        self.shape = shape
        self.depth = depth
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        push, pop, level = Signal(), Signal(), Signal(range(self.depth + 1))
        has_room = (level < self.depth - 1) | (level == self.depth - 1) & ~push | pop
        m.d.comb += [
            push.eq(self.input.valid & self.input.ready),
            pop.eq(self.output.valid & self.output.ready),
        ]
        m.d.sync += [
            level.eq(counted(level, comes=push, leaves=pop)),
            self.output.valid.eq(remains(level, leaves=pop, comes=push)),
            self.input.ready.eq(has_room),
        ]
        # There are at least two places: one would have an address of no bits, which is not legal Verilog.
        depth = max(2, 1 << ceil_log2(self.depth))
        ranges = parts(Shape.cast(self.shape).width)
        for part, bits in enumerate(ranges):
            m.submodules[f"storage_{part}"] = storage = memory.Memory(
                shape=bits.stop - bits.start, depth=depth, init=[]
            )
            write, read = storage.write_port(), storage.read_port(domain="comb")
            write_pointer, read_pointer = (
                Signal(ceil_log2(depth), name=f"{side}_pointer_{part}", init=part % depth) for side in ("write", "read")
            )
            with m.If(push):
                m.d.sync += write_pointer.eq(write_pointer + 1)
            with m.If(pop):
                m.d.sync += read_pointer.eq(read_pointer + 1)
            is_free: Value = self.input.ready
            if len(ranges) > 1:
                # This differs from that of `ready` and of the neighbouring part: synthesis merges registers that are
                # always equal.
                is_own, is_inverted = Signal(name=f"is_own_{part}", init=1), part % 2 == 0
                m.d.sync += is_own.eq(has_room ^ is_inverted)
                is_free = is_own ^ is_inverted
            m.d.comb += [
                write.addr.eq(write_pointer),
                read.addr.eq(read_pointer),
                # A free place may hold anything, so a register alone is the write enable all over the part.
                write.en.eq(is_free),
                write.data.eq(Value.cast(self.input.payload)[bits]),
                Value.cast(self.output.payload)[bits].eq(read.data),
            ]
        return m


class BlockFifo(wiring.Component):
    """Queue up to ``depth`` words, one in and one out each cycle, with a latency of four cycles.

    The writer has to count the room: a write into a full queue is lost. The output is registered; the stages after the
    RAM move when ``output.ready`` lets them, combinationally.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word.
    depth : int
        Words, a power of two.

    Members
    -------
    input : In(push_signature)
    output : Out(stream)

    Raises
    ------
    ValueError
        If ``depth`` is not a power of two.
    """

    def __init__(self, shape: ShapeLike, *, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two, at least 2, not {depth}")
        self.shape = shape
        self.depth = depth
        super().__init__({"input": In(push_signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        width = Shape.cast(self.shape).width
        # Without the attribute Yosys guards against a collision that cannot occur: an entry is never read before its
        # write.
        m.submodules.storage = storage = memory.Memory(shape=width, depth=self.depth, init=[], attrs={"no_rw_check": 1})
        write, read = storage.write_port(), storage.read_port()
        stored = Signal(range(self.depth + 1))
        came, waits, fetch, fetched, move_fetched, move_output = (Signal() for _ in range(6))
        m.d.comb += [
            write.data.eq(self.input.payload),
            write.en.eq(self.input.valid),
            move_output.eq(~self.output.valid | self.output.ready),
            move_fetched.eq(~fetched | move_output),
            fetch.eq(waits & move_fetched),
            read.en.eq(move_fetched),
        ]
        with m.If(self.input.valid):
            m.d.sync += write.addr.eq(write.addr + 1)
        m.d.sync += [
            # A written word counts a cycle later, so that a bus at another end of the device reaches no sum.
            came.eq(self.input.valid),
            read.addr.eq(read.addr + fetch),
            stored.eq(counted(stored, comes=came, leaves=fetch)),
            waits.eq(remains(stored, leaves=fetch, comes=came)),
        ]
        with m.If(move_fetched):
            m.d.sync += fetched.eq(fetch)
        payload = Signal(width, reset_less=True)
        m.d.comb += self.output.payload.eq(payload)
        with m.If(move_output):
            m.d.sync += [self.output.valid.eq(fetched), payload.eq(read.data)]
        Assertions(m, platform).never(
            self.input.valid & (stored + came == self.depth), "BlockFifo: a word finds the queue full"
        )
        return m


# A short queue between a walker, which runs ahead, and a gate, which decides in one cycle what may go on.


class Lookahead(wiring.Component):
    """Queue a walker's words, so that neither side's decisions reach into the other's in the same cycle.

    The walker reserves a place a fixed time before it pushes into it. One word goes in and one comes out each cycle. A
    word comes out two cycles after its push at the earliest. Fields on which the gate decides come from registers; the
    rest, which may be wide, from distributed RAM, so that the gate moves little but a pointer; and the walker sees a
    freed place a cycle later.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word; a structure, if it has fields that are ``gated``.
    gated : sequence of str
        Fields that come from registers.
    depth : int
        Words; with 5, a walker that pushes two cycles after it reserves continues without a pause.

    Members
    -------
    room : Out(1)
        A place may be reserved; registered.
    next_room : Out(1)
        The value of ``room`` in the next cycle; depends combinationally on ``reserve``, but not on ``output``.
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
