"""The top level of a board without external memory: a clock, a reset, and a serial port."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from ..golden import registers
from ..golden.config import Config
from ..golden.pins import MODULE
from .link.bridge import Bridge
from .link.uart import UartReceiver, UartTransmitter
from .memories.arena import Arena
from .parts.pipeline import SIMULATED
from .parts.verilog import head, to_verilog
from .top_axi import TopAxi

__all__ = ["TopUart", "generate"]


class TopUart(wiring.Component):
    """The accelerator with its arena on the chip, and a UART at which a host uses the protocol of
    :mod:`lutterfly.golden.link`. Every output is registered; ``rx`` is asynchronous.

    Parameters
    ----------
    config : Config
        A configuration with an arena on the chip.
    clock_hz : int
        Cycles in a second: rates of the line are multiples of a cycle's sixteenth.
    rate_timeout : int or None
        Cycles of the link's time-out, for tests; a second by default.

    Members
    -------
    rx : In(1), tx : Out(1)
        The serial port, high while nothing is sent: 115,200 bits a second after reset, no parity, one stop bit.
    busy, error : Out(1)
        For LEDs: bits of STATUS.

    Raises
    ------
    ValueError
        If there is no arena on the chip, or the clock is too slow or too fast for the line.
    """

    def __init__(self, config: Config, clock_hz: int, *, rate_timeout: int | None = None):
        if not config.arena.on_chip_bytes:
            raise ValueError(
                "on_chip_bytes must be at least 4096, not 0: without an arena on the chip there is nothing behind the "
                "serial port; take a preset whose name ends in -on-chip, or set arena.on_chip_bytes"
            )
        self.config = config
        self.clock_hz = clock_hz
        self.bridge = Bridge(
            clock_hz=clock_hz,
            arena_bytes=config.arena.on_chip_bytes,
            register_bits=registers.address_bits(config.cores),
            rate_timeout=rate_timeout,
        )
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "busy": Out(1), "error": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.top = top = TopAxi(self.config)
        m.submodules.arena = arena = Arena(
            size_bytes=self.config.arena.on_chip_bytes,
            data_bits=self.config.axi.data_bits,
            id_bits=len(top.memory.awid),
        )
        m.submodules.bridge = bridge = self.bridge
        m.submodules.receiver = receiver = UartReceiver()
        m.submodules.transmitter = transmitter = UartTransmitter()
        connect(m, top.memory, arena.bus)
        connect(m, bridge.control, top.control)
        connect(m, bridge.host, arena.host)
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


def generate(config: Config, clock_hz: int, *, asserted: bool = False) -> str:
    """Generate the Verilog of :class:`TopUart`, whose first lines name its configuration.

    Parameters
    ----------
    config : Config
    clock_hz : int
    asserted : bool
        Whether to add the assertions of :mod:`lutterfly.hdl.parts.pipeline`, for simulation.

    Returns
    -------
    str
        One file without dependencies; its top module is ``lutterfly``.
    """
    top = TopUart(config, clock_hz)
    return head(config) + to_verilog(top, platform=SIMULATED if asserted else None, name=MODULE)
