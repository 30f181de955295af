"""The accelerator as a module of LiteX: registers on the bus of the SoC, the arena in its SDRAM, an interrupt.

LiteX and LiteDRAM come with ``pip install 'lutterfly[litex]'``.

Source: LiteX and LiteDRAM 2024.12 (github.com/enjoy-digital), `litex/soc/interconnect/axi` and `litedram/frontend`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...synth.tools import missing

try:
    from litedram.frontend.axi import LiteDRAMAXI2Native
    from litex.gen import LiteXModule
    from litex.soc.integration.soc import LiteXSoC, SoCRegion
    from litex.soc.interconnect import axi
    from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
    from migen import ClockSignal, Instance, ResetSignal, Signal
except ImportError as error:
    raise ImportError(missing("an SoC of LiteX", ["litex", "litedram"], "litex")) from error

from ...golden import pins, registers
from ...golden.config import Config
from ...golden.config_parts import AxiConfig
from ..files.files import write_whole
from ..simulation.build import IP, verilog

__all__ = ["Accelerator", "add_accelerator"]

#: Signals of each channel beside its handshake, as AXI4-Lite and AXI4 have them.
_LITE = {"aw": ("addr", "prot"), "w": ("data", "strb"), "b": ("resp",), "ar": ("addr", "prot"), "r": ("data", "resp")}
_REQUEST = ("id", "addr", "len", "size", "burst", "lock", "cache", "prot", "qos")
_FULL = {
    "aw": _REQUEST,
    "w": ("data", "strb", "last"),
    "b": ("id", "resp"),
    "ar": _REQUEST,
    "r": ("id", "data", "resp", "last"),
}
#: Channels on which the slave sends.
_ANSWERS = ("b", "r")
#: A region is a power of two in size, and as large as a page at least.
_LEAST_REGION = 4096


class Accelerator(LiteXModule):
    """The accelerator in the clock domain ``sys``.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    control : axi.AXILiteInterface
        The registers, for a master.
    memories : list of axi.AXIInterface
        The memory ports, for slaves.
    ev : EventManager
        Its event ``core`` is pending while the accelerator's interrupt is.
    """

    def __init__(self, config: Config):
        self.config = config
        self.control = axi.AXILiteInterface(data_width=32, address_width=registers.address_bits(config.cores))
        self.memories = [
            axi.AXIInterface(
                data_width=config.axi.data_bits,
                address_width=AxiConfig.ADDRESS_BITS,
                id_width=config.port_id_bits,
            )
            for _ in range(config.cluster.ports)
        ]
        self.ev = EventManager()
        self.ev.core = EventSourceLevel(description="A run has ended, or has been ended by an error.")
        self.ev.finalize()
        ports = dict(_ports(pins.SLAVE, self.control, _LITE, is_master=False))
        for prefix, memory in zip(pins.masters(config.cluster), self.memories, strict=True):
            ports |= _ports(prefix, memory, _FULL, is_master=True)
        ports |= {
            f"i_{pins.CLOCK}": ClockSignal("sys"),
            f"i_{pins.RESET}": ~ResetSignal("sys"),
            f"o_{pins.INTERRUPT}": self.ev.core.trigger,
        }
        self.specials += Instance(pins.MODULE, **ports)


def add_accelerator(
    soc: LiteXSoC, config: Config, *, folder: Path, name: str = pins.MODULE, origin: int | None = None
) -> Accelerator:
    """Add the accelerator to an SoC that has its SDRAM already.

    Its registers become the region ``name`` of the bus, its memory ports reach the region ``main_ram`` under the
    addresses that the bus has for it, and its interrupt is ``name`` too, where the SoC has a processor with interrupts.

    Parameters
    ----------
    soc : LiteXSoC
    config : Config
        Without an arena on the chip.
    folder : Path
        Folder for the Verilog, the file ``name`` with the suffix ``.v``.
    name : str
        Name of the module, its region and its interrupt.
    origin : int or None
        Address of the registers; by default LiteX chooses one among those that processors do not cache.

    Raises
    ------
    ValueError
        If the SoC has no SDRAM, or the configuration has its arena on the chip.
    """
    if not hasattr(soc, "sdram") or "main_ram" not in soc.bus.regions:
        raise ValueError("soc must have an SDRAM on its bus, the region main_ram; call add_sdram before")
    if config.arena.on_chip_bytes:
        raise ValueError(
            f"config.arena.on_chip_bytes must be 0, not {config.arena.on_chip_bytes}: the arena is in the SDRAM here"
        )
    source = folder / f"{name}.v"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(source, verilog(config, top=IP).encode())
    soc.platform.add_source(str(source))

    accelerator = Accelerator(config)
    soc.add_module(name=name, module=accelerator)
    size = max(_LEAST_REGION, 1 << registers.address_bits(config.cores))
    soc.bus.add_slave(name, accelerator.control, SoCRegion(origin=origin, size=size, cached=False))
    for memory in accelerator.memories:
        port = soc.sdram.crossbar.get_port(mode="both", data_width=config.axi.data_bits)
        soc.submodules += LiteDRAMAXI2Native(memory, port, base_address=soc.bus.regions["main_ram"].origin)
    if soc.irq.enabled:
        soc.irq.add(name, use_loc_if_exists=True)
    return accelerator


def _ports(
    prefix: str, bus: Any, channels: dict[str, tuple[str, ...]], *, is_master: bool
) -> Iterator[tuple[str, Signal]]:
    """The ports of the Verilog at a bus, as :class:`Instance` takes them."""
    for channel, names in channels.items():
        sends = is_master is (channel not in _ANSWERS)
        for name in ("valid", "ready", *names):
            direction = "o" if sends is (name != "ready") else "i"
            yield f"{direction}_{prefix}_{channel}{name}", getattr(getattr(bus, channel), name)
