"""The top level of a board: a clock, a reset, a serial port, and the arena on the chip or in an SDRAM."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from ..golden import registers
from ..golden.config import Config
from ..golden.config_parts import ClusterConfig
from ..golden.pins import MODULE
from .bus.axi_arbiter import AxiArbiter
from .link.bridge import Bridge
from .link.uart import UartReceiver, UartTransmitter
from .memories.arena import Arena
from .memories.sdram import HostMaster, Sdram, SdramChip
from .parts.pipeline import SIMULATED
from .parts.verilog import head, to_verilog
from .top_axi import TopAxi

__all__ = ["TopUart", "generate"]


class TopUart(wiring.Component):
    """The accelerator with its arena, and a UART at which a host uses the protocol of :mod:`lutterfly.golden.link`.
    Every output is registered; ``rx`` is asynchronous.

    Parameters
    ----------
    config : Config
        A configuration with an arena on the chip, or of one core.
    clock_hz : int
        Cycles in a second: rates of the line are multiples of a cycle's sixteenth.
    sdram : SdramChip or None
        The memory that has the arena, if it is not on the chip.
    rate_timeout : int or None
        Cycles of the link's time-out, for tests; a second by default.

    Members
    -------
    rx : In(1), tx : Out(1)
        The serial port, high while nothing is sent: 115,200 bits a second after reset, no parity, one stop bit.
    busy, error : Out(1)
        For LEDs: bits of STATUS.
    sdram_address, sdram_data_out and so on
        With an SDRAM: the members of :class:`~lutterfly.hdl.memories.sdram.Sdram` but ``bus``.

    Attributes
    ----------
    sources : tuple of str
        Verilog of modules that it instantiates beside its own.

    Raises
    ------
    ValueError
        If the arena is not in one place, several cores share an SDRAM, or the clock is too slow or too fast for the
        line.
    ImportError
        If there is an SDRAM, and litedram is not installed.
    """

    def __init__(
        self, config: Config, clock_hz: int, *, sdram: SdramChip | None = None, rate_timeout: int | None = None
    ):
        on_chip = config.arena.on_chip_bytes
        if not on_chip and not sdram:
            raise ValueError(
                "on_chip_bytes must be at least 4096, not 0: without an arena on the chip there is nothing behind the "
                "serial port; take a preset whose name ends in -on-chip, or set arena.on_chip_bytes"
            )
        if sdram and on_chip:
            raise ValueError(f"on_chip_bytes must be 0 with an arena in SDRAM, not {on_chip}")
        if sdram and config.cores > 1:
            raise ValueError(f"cores must be 1 with an arena in SDRAM, not {config.cores}")
        self.config = config
        self.clock_hz = clock_hz
        self.sdram, self.sources, pins = None, (), {}
        if sdram:
            # The arbiter takes the link for another core.
            self._sharing = dataclasses.replace(config, cluster=ClusterConfig(cores=2))
            self.sdram = Sdram(
                sdram, clock_hz=clock_hz, data_bits=config.axi.data_bits, id_bits=self._sharing.port_id_bits
            )
            self.sources = (self.sdram.controller.verilog,)
            pins = {f"sdram_{name}": member for name, member in self.sdram.signature.members.items() if name != "bus"}
        self.bridge = Bridge(
            clock_hz=clock_hz,
            arena_bytes=self.sdram.controller.size_bytes if self.sdram else on_chip,
            register_bits=registers.address_bits(config.cores),
            rate_timeout=rate_timeout,
        )
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "busy": Out(1), "error": Out(1), **pins})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.top = top = TopAxi(self.config)
        if self.sdram is None:
            m.submodules.arena = arena = Arena(
                size_bytes=self.config.arena.on_chip_bytes,
                data_bits=self.config.axi.data_bits,
                id_bits=len(top.memory.awid),
            )
            bus, host = arena.bus, arena.host
        else:
            bus, host = self._elaborate_sdram(m, self.sdram)
        m.submodules.bridge = bridge = self.bridge
        m.submodules.receiver = receiver = UartReceiver()
        m.submodules.transmitter = transmitter = UartTransmitter()
        connect(m, top.memory, bus)
        connect(m, bridge.control, top.control)
        connect(m, bridge.host, host)
        connect(m, receiver.output, bridge.received)
        connect(m, bridge.sent, transmitter.input)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            receiver.bit_time.eq(bridge.bit_time),
            transmitter.bit_time.eq(bridge.bit_time),
            bridge.interrupt.eq(top.interrupt),
        ]
        m.d.sync += [
            self.busy.eq((top.status & registers.STATUS_BUSY).any()),
            self.error.eq((top.status & registers.STATUS_ERROR).any()),
        ]
        return m

    def _elaborate_sdram(self, m: Module, sdram: Sdram) -> tuple[wiring.PureInterface, wiring.PureInterface]:
        """Put the core and the link in turns before the memory; return the ports for both."""
        m.submodules.sdram = sdram
        m.submodules.arbiter = arbiter = AxiArbiter(self._sharing)
        m.submodules.host = host = HostMaster(
            address_bits=self.bridge.address_bits, data_bits=self.config.axi.data_bits
        )
        core, link = arbiter.masters
        connect(m, host.memory, link)
        connect(m, arbiter.memory, sdram.bus)
        for name, member in sdram.signature.members.items():
            if name != "bus":
                inside, outside = getattr(sdram, name), getattr(self, f"sdram_{name}")
                m.d.comb += outside.eq(inside) if member.flow is Out else inside.eq(outside)
        return core, host.host


def generate(config: Config, clock_hz: int, *, sdram: Sequence[str | int] | None = None, asserted: bool = False) -> str:
    """Generate the Verilog of :class:`TopUart`, whose first lines name its configuration.

    Parameters
    ----------
    config : Config
    clock_hz : int
    sdram : sequence or None
        The fields of :class:`~lutterfly.hdl.memories.sdram.SdramChip`, for an arena in SDRAM.
    asserted : bool
        Whether to add the assertions of :mod:`lutterfly.hdl.parts.pipeline`, for simulation.

    Returns
    -------
    str
        One file without dependencies; its top module is ``lutterfly``.
    """
    top = TopUart(config, clock_hz, sdram=SdramChip(*sdram) if sdram else None)
    text = to_verilog(top, platform=SIMULATED if asserted else None, name=MODULE)
    return "".join((head(config), text, *top.sources))
