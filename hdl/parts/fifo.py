"""First-in, first-out queues of structured words: in registers, in distributed RAM, and in block RAM."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value, ValueLike
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .assertions import Assertions
from .pipeline import parts

__all__ = ["BlockFifo", "Buffer", "Fifo", "Slot", "counted", "push_signature", "remains"]


def push_signature(shape: ShapeLike) -> wiring.Signature:
    """Words that cannot be held up: a stream without ``ready``, for a receiver that has made room beforehand."""
    return wiring.Signature({"valid": Out(1), "payload": Out(shape)})


def remains(count: Value, *, leaves: ValueLike, comes: ValueLike = 0) -> Value:
    """Whether ``count + comes - leaves`` is above zero, without the sum: for a register beside that of the count.

    Both are one bit; nothing leaves while ``count`` is zero.
    """
    return (count > 1) | (count == 1) & ~Value.cast(leaves) | comes


def counted(count: Value, *, comes: ValueLike = 0, leaves: ValueLike = 0) -> Value:
    """``count + comes - leaves``, chosen among sums that wait for neither bit: they may come late, from far off."""
    comes, leaves = Value.cast(comes), Value.cast(leaves)
    return Mux(comes ^ leaves, Mux(comes, count + 1, count - 1), count)


class Slot(wiring.Component):
    """Queue one word in a register, one every two cycles, with a latency of one cycle; no combinational path.

    For wide words that come seldom: it has half of the registers of a :class:`Buffer`, and nothing to choose from.

    Parameters
    ----------
    shape : ShapeLike
        Of a word.

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
        Of a word.

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
        Of a word.
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
        # At least two places: one would have an address of no bits, which is no legal Verilog.
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
                # Not that of `ready` or of the part beside: synthesis takes those that are always equal for one.
                is_own, is_inverted = Signal(name=f"is_own_{part}", init=1), part % 2 == 0
                m.d.sync += is_own.eq(has_room ^ is_inverted)
                is_free = is_own ^ is_inverted
            m.d.comb += [
                write.addr.eq(write_pointer),
                read.addr.eq(read_pointer),
                # A free place may hold anything: so a register alone says so all over the part.
                write.en.eq(is_free),
                write.data.eq(Value.cast(self.input.payload)[bits]),
                Value.cast(self.output.payload)[bits].eq(read.data),
            ]
        return m


class BlockFifo(wiring.Component):
    """Queue up to ``depth`` words, one in and one out each cycle, with a latency of four cycles.

    Whoever writes keeps count of the room: a write into a full queue is lost. The output is registered; the stages
    after the RAM move when ``output.ready`` lets them, combinationally.

    Parameters
    ----------
    shape : ShapeLike
        Of a word.
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
        # Without the attribute Yosys guards against a collision that cannot occur: an entry is read after its write at
        # the earliest.
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
            # What is written counts a cycle later, so that a bus at another end of the device reaches no sum.
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
