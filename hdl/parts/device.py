"""The device layer: block RAM and multiplier with fixed latency, the only parts of the core that a device family may
replace; a board has a PLL beside it (:mod:`.pll`).

A family's primitives (:class:`.pipeline.Primitives`) are put in by elaborating for a platform of that family; latency
and ports stay as they are here, so that no control changes. The generic bodies below simulate, and every synthesis tool
infers block RAM and multipliers from them.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, IOPort, Module, Shape, ShapeLike, Signal, signed, unsigned
from amaranth.lib import data, io, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .pipeline import copy_of, parts, platform_of

__all__ = [
    "BANK_WORDS",
    "MULTIPLIER_LATENCY",
    "RAM_LATENCY",
    "BidirectionalPins",
    "ClockPin",
    "DistributedRam",
    "Multiplier",
    "MultiplierColumns",
    "PinRegisters",
    "Ram",
    "Rom",
]


RAM_LATENCY = 2
MULTIPLIER_LATENCY = 3


class Ram(wiring.Component):
    """Read one word and write one word each cycle; a read takes ``RAM_LATENCY`` cycles (address register, output
    register).

    A word that is written can be read from the next cycle on. A word that is read in the cycle in which it is written
    is undefined in hardware: the reader must know that it is not written then.

    Parameters
    ----------
    width : int
        Bits of a word.
    depth : int
        Words.
    granularity : int or None
        Bits that one write enable covers; a divisor of ``width``, by default all of it.
    is_block : bool
        Whether it is in block RAM, if synthesis finds that worthwhile; else in the fabric, as distributed RAM.

    Members
    -------
    read_address : In(ceil_log2(depth))
    read_data : Out(width)
    write_address : In(ceil_log2(depth))
    write_data : In(width)
    write_enable : In(width // granularity)

    Raises
    ------
    ValueError
        If ``granularity`` does not divide ``width``, or in the fabric is not all of it.
    """

    def __init__(self, *, width: int, depth: int, granularity: int | None = None, is_block: bool = True):
        granularity = width if granularity is None else granularity
        if granularity < 1 or width % granularity:
            raise ValueError(f"granularity must be a divisor of width ({width} bits), not {granularity}")
        if not is_block and granularity != width:
            raise ValueError(f"granularity must be {width} in the fabric, not {granularity}")
        self.width = width
        self.depth = depth
        self.granularity = granularity
        self.is_block = is_block
        super().__init__(
            {
                "read_address": In(ceil_log2(depth)),
                "read_data": Out(width),
                "write_address": In(ceil_log2(depth)),
                "write_data": In(width),
                "write_enable": In(width // granularity),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        if not self.is_block:
            self._elaborate_in_fabric(m)
            return m
        # Without the attribute Yosys adds logic after the output, against the collision that the contract rules out.
        m.submodules.storage = storage = memory.Memory(
            shape=unsigned(self.width),
            depth=self.depth,
            init=[],
            attrs={"no_rw_check": 1},
        )
        write = storage.write_port(granularity=self.granularity)
        read = storage.read_port()
        m.d.comb += [
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            write.en.eq(self.write_enable),
            read.addr.eq(self.read_address),
            read.en.eq(1),
        ]
        output = Signal(self.width, reset_less=True)
        m.d.sync += output.eq(read.data)
        m.d.comb += self.read_data.eq(output)
        return m

    def _elaborate_in_fabric(self, m: Module) -> None:
        """Build the memory in parts, each with an address register beside it, instead of one register for the
        output."""
        output = Signal(self.width, reset_less=True)
        m.d.comb += self.read_data.eq(output)
        for part, bits in enumerate(parts(self.width)):
            m.submodules[f"storage_{part}"] = storage = memory.Memory(
                shape=unsigned(bits.stop - bits.start), depth=self.depth, init=[], attrs={"ram_style": "distributed"}
            )
            write, read = storage.write_port(), storage.read_port(domain="comb")
            address = copy_of(self.read_address, part % 2, name=f"address_{part}", reset_less=True)
            m.d.sync += [address.eq(self.read_address), output[bits].eq(read.data)]
            m.d.comb += [
                write.addr.eq(self.write_address),
                write.data.eq(self.write_data[bits]),
                write.en.eq(self.write_enable),
                read.addr.eq(address),
            ]


class Rom(wiring.Component):
    """Read one word each enabled cycle; a read takes ``RAM_LATENCY`` of them (address register, output register).

    Parameters
    ----------
    width : int
        Bits of a word.
    words : sequence of int
        The contents, not negative.
    is_block : bool
        Whether it is in block RAM; else in the fabric, as look-up tables.

    Members
    -------
    enable : In(1)
        Without it, both registers keep their values.
    read_address : In(ceil_log2(len(words)))
    read_data : Out(width)
    """

    def __init__(self, *, width: int, words: Sequence[int], is_block: bool):
        self.width = width
        self.words = words
        self.is_block = is_block
        super().__init__(
            {
                "enable": In(1),
                "read_address": In(ceil_log2(len(words))),
                "read_data": Out(width),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.storage = storage = memory.Memory(
            shape=unsigned(self.width),
            depth=len(self.words),
            init=self.words,
            attrs={"rom_style": "block" if self.is_block else "logic"},
        )
        read = storage.read_port()
        output = Signal(self.width, reset_less=True)
        m.d.comb += [read.addr.eq(self.read_address), read.en.eq(self.enable), self.read_data.eq(output)]
        with m.If(self.enable):
            m.d.sync += output.eq(read.data)
        return m


class MultiplierColumns(wiring.Signature):
    """Columns of multipliers as one user sees them: it supplies factors, and gets products with factors of others.

    Parameters
    ----------
    columns, lanes : int
    a_width, b_width : int
        Bits of the operands, which are signed; ``a`` are the factors.
    weighed : int
        The number of first columns in which the user may supply both factors.

    Members
    -------
    factors : Out(columns x lanes x signed(a_width))
    products : In(columns x lanes x signed(a_width + b_width))
        ``MULTIPLIER_LATENCY`` cycles after their factors.
    weights : Out(weighed x lanes x signed(b_width)), weighs : Out(lanes x 1), if there are any
        The other factors while ``weighs`` is set, a bit for each lane so that it may come from beside it.
    """

    def __init__(self, columns: int, lanes: int, *, a_width: int, b_width: int, weighed: int = 0):
        def layout(bits: int, columns: int = columns) -> data.ArrayLayout:
            return data.ArrayLayout(data.ArrayLayout(signed(bits), lanes), columns)

        own = {"weights": Out(layout(b_width, weighed)), "weighs": Out(lanes)} if weighed else {}
        super().__init__({"factors": Out(layout(a_width)), "products": In(layout(a_width + b_width)), **own})


class Multiplier(wiring.Component):
    """Multiply two numbers each cycle, with a latency of ``MULTIPLIER_LATENCY`` cycles.

    Parameters
    ----------
    a_width, b_width : int
        Bits of the operands.
    is_signed : bool
        Both operands are two's complement; else both are unsigned.

    Members
    -------
    a, b : In
    product : Out(a_width + b_width)
    """

    def __init__(self, *, a_width: int, b_width: int, is_signed: bool = True):
        shape = signed if is_signed else unsigned
        self.a_width = a_width
        self.b_width = b_width
        self.is_signed = is_signed
        super().__init__(
            {
                "a": In(shape(a_width)),
                "b": In(shape(b_width)),
                "product": Out(shape(a_width + b_width)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        if platform_of(platform).primitives.multiplier(m, self):
            return m
        a, b = Signal.like(self.a, reset_less=True), Signal.like(self.b, reset_less=True)
        product, output = Signal.like(self.product, reset_less=True), Signal.like(self.product, reset_less=True)
        m.d.sync += [a.eq(self.a), b.eq(self.b), product.eq(a * b), output.eq(product)]
        m.d.comb += self.product.eq(output)
        return m


# Distributed RAM, which is read in the cycle of the address.

#: Words of a bank: the depth of a cell of look-up tables, or half of it, on all devices.
BANK_WORDS = 16


class DistributedRam(wiring.Component):
    """Store words in banks of up to ``BANK_WORDS``. A written word replaces the old one in the cycle after its data.

    The address of a word comes a cycle before the word, so that each bank has a register for its write enable: a bank
    is many cells, and wires to them are long.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word.
    depth : int
        Words, a power of two, at least 2.
    copy : int
        0 or 1, see :func:`.pipeline.copy_of`: memories that are written alike have registers of their own.

    Members
    -------
    write_valid : In(1), write_address : In
        A cycle before ``write_data``.
    write_data : In(shape)
    read_address : In
    read_data : Out(shape)
        The word of the same cycle's address.

    Raises
    ------
    ValueError
        If ``depth`` is not allowed.
    """

    def __init__(self, shape: ShapeLike, *, depth: int, copy: int = 0):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two, at least 2, not {depth}")
        self.depth, self.copy = depth, copy
        address_bits = ceil_log2(depth)
        super().__init__(
            {
                "write_valid": In(1),
                "write_address": In(address_bits),
                "write_data": In(shape),
                "read_address": In(address_bits),
                "read_data": Out(shape),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        words = min(self.depth, BANK_WORDS)
        bits = ceil_log2(words)
        address = copy_of(self.write_address[:bits], self.copy, name="write_address", reset_less=True)
        m.d.sync += address.eq(self.write_address[:bits])
        found = []
        for number in range(self.depth // words):
            storage = memory.Memory(shape=Shape.cast(self.write_data.shape()).width, depth=words, init=[])
            m.submodules[f"bank_{number}"] = storage
            write, read = storage.write_port(), storage.read_port(domain="comb")
            is_written = copy_of(Signal(), self.copy, name=f"is_written_{number}", reset_less=True)
            m.d.sync += is_written.eq(self.write_valid & (self.write_address[bits:] == number))
            m.d.comb += [
                write.en.eq(is_written),
                write.addr.eq(address),
                write.data.eq(self.write_data),
                read.addr.eq(self.read_address[:bits]),
            ]
            found.append(read.data)
        m.d.comb += self.read_data.eq(Array(found)[self.read_address[bits:]])
        return m


# Pins of a chip beside the FPGA, whose times hold only if nothing but a cell of the pin is between register and pin.


class PinRegisters(wiring.Component):
    """Registers between the fabric and pins, one for each: a cycle. They have no reset.

    Parameters
    ----------
    width : int
    is_input : bool
        Whether ``input`` is at pins, where nothing else may use it; otherwise ``output`` is.
    init : int
        Their levels at first.

    Members
    -------
    input : In(width), output : Out(width)
    """

    def __init__(self, width: int, *, is_input: bool = False, init: int = 0):
        self.width, self.is_input, self.init = width, is_input, init
        super().__init__({"input": In(width), "output": Out(width)})

    def elaborate(self, platform) -> Module:
        m = Module()
        if not platform_of(platform).primitives.pin_registers(m, self):
            registers = Signal(self.width, init=self.init, reset_less=True)
            m.d.sync += registers.eq(self.input)
            m.d.comb += self.output.eq(registers)
        return m


class BidirectionalPins(wiring.Component):
    """Drive pins where they are not off, and read them. Everything is combinational.

    Parameters
    ----------
    port : IOPort

    Members
    -------
    output, off : In(width), input : Out(width)
    """

    def __init__(self, port: IOPort):
        self.port = port
        super().__init__({"output": In(len(port)), "off": In(len(port)), "input": Out(len(port))})

    def elaborate(self, platform) -> Module:
        m = Module()
        if not platform_of(platform).primitives.bidirectional_pins(m, self):
            for bit, pin in enumerate(self.port):
                m.submodules[f"pin_{bit}"] = buffer = io.Buffer("io", io.SingleEndedPort(pin))
                m.d.comb += [
                    buffer.o.eq(self.output[bit]),
                    buffer.oe.eq(~self.off[bit]),
                    self.input[bit].eq(buffer.i),
                ]
        return m


class ClockPin(wiring.Component):
    """Give a clock to a pin, as late after its edge as :class:`PinRegisters` give theirs.

    Members
    -------
    clock : In(1)
    pin : Out(1)
        Combinational from ``clock`` where there is no primitive.
    """

    def __init__(self):
        super().__init__({"clock": In(1), "pin": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        if not platform_of(platform).primitives.clock_pin(m, self):
            m.d.comb += self.pin.eq(self.clock)
        return m
