"""The registers of :mod:`lutterfly.golden.registers` behind AXI4-Lite."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden import registers
from ...golden.config import Config
from ...golden.registers import REGISTERS, Access
from ..bus.axi import Response, axi4_lite_signature

__all__ = ["Registers", "kept_layout", "read_layout", "write_layout"]

#: The core keeps the bit that INTERRUPT reads, though software may write to it.
_IN_THE_CORE = ("INTERRUPT",)


def _constants(config: Config) -> dict[str, int]:
    return {"ID": registers.ID, "VERSION": registers.VERSION, "CONFIG_HASH": config.hash}


def _layout(names: list[str], width: int) -> data.StructLayout:
    return data.StructLayout({name: unsigned(width) for name in names})


def kept_layout() -> data.StructLayout:
    """Registers that only software changes, by name."""
    return _layout(
        [
            name
            for name, register in REGISTERS.items()
            if register.access is Access.READ_WRITE and name not in _IN_THE_CORE
        ],
        32,
    )


def read_layout(config: Config) -> data.StructLayout:
    """Registers whose value the core supplies, by name."""
    supplied = [
        name
        for name, register in REGISTERS.items()
        if register.access is Access.READ and name not in _constants(config)
    ]
    return _layout([*supplied, *_IN_THE_CORE], 32)


def write_layout() -> data.StructLayout:
    """A flag for each register that software may write, by name."""
    return _layout([name for name, register in REGISTERS.items() if register.access is not Access.READ], 1)


class Registers(wiring.Component):
    """Serve reads and writes of the registers, one of each at a time, in four cycles or so.

    Address and data of a write may come in either order; strobes are honoured. Every output is registered.

    Parameters
    ----------
    config : Config

    Members
    -------
    control : In(axi4_lite_signature)
    kept : Out(kept_layout)
        Values of the registers that software writes and reads back.
    read : In(read_layout)
        Values of the registers that software reads from the core.
    written : Out(write_layout)
        High for one cycle for a register that has just been written; ``kept`` has the new value already.
    data : Out(32)
        What was written, zero where the strobe or the mask is; valid with ``written``.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "control": In(axi4_lite_signature(registers.ADDRESS_BITS)),
                "kept": Out(kept_layout(), init={name: REGISTERS[name].reset for name in kept_layout().members}),
                "read": In(read_layout(config)),
                "written": Out(write_layout()),
                "data": Out(32),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        self._elaborate_write(m)
        self._elaborate_read(m)
        return m

    def _elaborate_write(self, m: Module) -> None:
        bus = self.control
        address, word, strobe = Signal(registers.ADDRESS_BITS), Signal(32), Signal(4)
        # The channels are ready until each has brought its part; both parts are used at once, a cycle after it is clear
        # for which register.
        have_address, have_word, use, used = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            bus.awready.eq(~have_address),
            bus.wready.eq(~have_word),
            use.eq(have_address & have_word & ~bus.bvalid & ~used),
        ]
        with m.If(bus.awready & bus.awvalid):
            m.d.sync += [have_address.eq(1), address.eq(bus.awaddr)]
        with m.If(bus.wready & bus.wvalid):
            m.d.sync += [have_word.eq(1), word.eq(bus.wdata), strobe.eq(bus.wstrb)]
        chosen = Signal(write_layout(), reset_less=True)
        m.d.sync += [
            used.eq(use),
            [chosen[name].eq(address[2:] == REGISTERS[name].address // 4) for name in chosen.shape().members],
        ]

        m.d.sync += self.written.eq(0)
        enable = Signal(32)
        m.d.comb += enable.eq(Cat(bit.replicate(8) for bit in strobe))
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(used):
            m.d.sync += [have_address.eq(0), have_word.eq(0), bus.bvalid.eq(1), bus.bresp.eq(Response.SLVERR)]
            for name in chosen.shape().members:
                mask = REGISTERS[name].mask
                with m.If(chosen[name]):
                    m.d.sync += [
                        self.written[name].eq(1),
                        self.data.eq(word & enable & mask),
                        bus.bresp.eq(Response.OKAY),
                    ]
                    if name in self.kept.shape().members:
                        kept = self.kept[name]
                        m.d.sync += kept.eq(((word & enable) | (kept & ~enable)) & mask)

    def _elaborate_read(self, m: Module) -> None:
        bus = self.control
        address, waiting, found = Signal(registers.ADDRESS_BITS), Signal(), Signal()
        m.d.comb += bus.arready.eq(~waiting & ~found & ~bus.rvalid)
        m.d.sync += [waiting.eq(bus.arready & bus.arvalid), found.eq(waiting)]
        with m.If(bus.arready):
            m.d.sync += address.eq(bus.araddr)
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)

        # In two steps: of each row of four registers the one in the column, then the one of the row.
        readable = [register for register in REGISTERS.values() if register.access is not Access.WRITE]
        words = {}
        for row in sorted({register.address // 16 for register in readable}):
            words[row] = Signal(33, name=f"row_{row}", reset_less=True)
            m.d.sync += words[row].eq(0)
            with m.Switch(address[2:4]):
                for register in readable:
                    if register.address // 16 == row:
                        with m.Case(register.address // 4 % 4):
                            m.d.sync += words[row].eq(Cat(self._value(register.name), Const(1, 1)))
        with m.If(found):
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(0), bus.rresp.eq(Response.SLVERR)]
            with m.Switch(address[4:]):
                for row, word in words.items():
                    with m.Case(row):
                        m.d.sync += [
                            bus.rdata.eq(word),
                            bus.rresp.eq(Mux(word[-1], Response.OKAY, Response.SLVERR)),
                        ]

    def _value(self, name: str):
        constants = _constants(self.config)
        if name in constants:
            return Const(constants[name], 32)
        return self.kept[name] if name in self.kept.shape().members else self.read[name]
