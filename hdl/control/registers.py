"""The registers of :mod:`lutterfly.golden.registers`, on AXI4-Lite."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden import registers
from ...golden.config import Config
from ...golden.registers import Access, Register
from ..bus.axi import Response, axi4_lite_signature

__all__ = ["RegisterFile", "core_read_layout", "kept_layout", "read_layout", "write_layout"]

#: The core keeps the bit that INTERRUPT reads, though software may write to it.
_IN_THE_CORE = ("INTERRUPT",)


def _constants(config: Config) -> dict[str, int]:
    several = {"CORES": config.cores} if config.cores > 1 else {}
    return {"ID": registers.ID, "VERSION": registers.VERSION, "CONFIG_HASH": config.hash} | several


def _layout(names: list[str], width: int) -> data.StructLayout:
    return data.StructLayout({name: unsigned(width) for name in names})


def kept_layout(cores: int = 1) -> data.StructLayout:
    """Return the layout of registers that only software changes, by name; of one core, as a core sees its own."""
    return _layout(
        [
            name
            for name, register in registers.register_map(cores).items()
            if register.access is Access.READ_WRITE and name not in _IN_THE_CORE
        ],
        32,
    )


def read_layout(config: Config) -> data.StructLayout:
    """Return the layout of registers whose value the hardware supplies, by name."""
    return _read_layout(config, list(registers.register_map(config.cores).values()))


def core_read_layout(config: Config) -> data.StructLayout:
    """Return the layout of registers whose value a core supplies, its own under the names of core 0."""
    everywhere = [register for register in registers.register_map(config.cores).values() if register.core in (None, 0)]
    return _read_layout(config, [register for register in everywhere if register.name != "ERROR_CORE"])


def _read_layout(config: Config, among: list[Register]) -> data.StructLayout:
    constants = _constants(config)
    supplied = [
        register.name for register in among if register.access is Access.READ and register.name not in constants
    ]
    return _layout([*supplied, *_IN_THE_CORE], 32)


def write_layout(cores: int = 1) -> data.StructLayout:
    """Return the layout of flags of registers that software may write, by name; of one core, as a core sees its own."""
    writable = [name for name, register in registers.register_map(cores).items() if register.access is not Access.READ]
    return _layout(writable, 1)


class RegisterFile(wiring.Component):
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
        The written value, zero where the strobe or the mask is; valid with ``written``.
    """

    def __init__(self, config: Config):
        self.config = config
        self.map = registers.register_map(config.cores)
        self.address_bits = registers.address_bits(config.cores)
        kept = kept_layout(config.cores)
        super().__init__(
            {
                "control": In(axi4_lite_signature(self.address_bits)),
                "kept": Out(kept, init={name: self.map[name].reset for name in kept.members}),
                "read": In(read_layout(config)),
                "written": Out(write_layout(config.cores)),
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
        address, word, strobe = Signal(self.address_bits), Signal(32), Signal(4)
        # Each channel is ready until it has delivered its part; both parts are used together, a cycle after the
        # register is decoded.
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
        chosen = Signal(self.written.shape(), reset_less=True)
        m.d.sync += [
            used.eq(use),
            [chosen[name].eq(address[2:] == self.map[name].address // 4) for name in chosen.shape().members],
        ]

        m.d.sync += self.written.eq(0)
        enable = Signal(32)
        m.d.comb += enable.eq(Cat(bit.replicate(8) for bit in strobe))
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(used):
            m.d.sync += [have_address.eq(0), have_word.eq(0), bus.bvalid.eq(1), bus.bresp.eq(Response.SLVERR)]
            for name in chosen.shape().members:
                mask = self.map[name].mask
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
        address, waiting, found = Signal(self.address_bits), Signal(), Signal()
        m.d.comb += bus.arready.eq(~waiting & ~found & ~bus.rvalid)
        m.d.sync += [waiting.eq(bus.arready & bus.arvalid), found.eq(waiting)]
        with m.If(bus.arready):
            m.d.sync += address.eq(bus.araddr)
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)

        # The value is chosen in two steps: in each row of four registers by the column, then by the row.
        readable = [register for register in self.map.values() if register.access is not Access.WRITE]
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
