"""The arena in external memory: a chip of SDR SDRAM on AXI4, behind litedram's controller.

litedram, which comes with ``pip install 'lutterfly[sdram]'``, generates the controller as a module of Verilog: its PHY,
bank machines and AXI frontend. Its reset lasts until the chip is initialised, as litedram's software would do it.

Source: litedram 2024.12 (github.com/enjoy-digital/litedram), `phy/gensdrphy.py`, `init.py` and `frontend/axi.py`; JEDEC
21-C, section 3.11.5 (SDR SDRAM), for the time before the first command.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from types import SimpleNamespace
from typing import NamedTuple

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..bus.axi import INCREMENTING, axi4_signature
from ..parts.device import PinRegisters
from .arena import HostSignature

__all__ = [
    "LEAD_NS",
    "POWER_UP_S",
    "HostMaster",
    "InitSequencer",
    "InitStep",
    "Sdram",
    "SdramChip",
    "SdramController",
    "generate_controller",
]

#: The time by which the chip's clock is before the FPGA's. Commands and data leave the FPGA with its clock's edge, so
#: that they are valid for all but this time before the chip takes them, and for this time afterwards; what is read is
#: valid until this time before the edge after the next one, and the chip's hold time and the pins' delays longer.
LEAD_NS = 3.0
#: The cycle from the chip's clock to the FPGA's.
_PIN_LATENCY = 1
#: Chips want a stable clock for so long before their first command.
POWER_UP_S = 200e-6
_PACKAGE, _RELEASE = "litedram", "2024.12"
_MODULE = "sdram_controller"
#: Commands that litedram's steps name, and their pins, which are active low.
_COMMAND_PINS = {"CS": "select_n", "RAS": "ras_n", "CAS": "cas_n", "WE": "we_n"}
#: Fields of each channel beside its handshake, and whether the controller drives them.
_CHANNELS = {
    "aw": (("addr", "burst", "len", "size", "id"), False),
    "w": (("data", "strb", "last"), False),
    "b": (("resp", "id"), True),
    "ar": (("addr", "burst", "len", "size", "id"), False),
    "r": (("data", "resp", "last", "id"), True),
}
#: Names of the controller's ports at the chip in litedram's PHY.
_PINS = {
    "clock_enable": "cke",
    "select_n": "cs_n",
    "ras_n": "ras_n",
    "cas_n": "cas_n",
    "we_n": "we_n",
    "bank": "ba",
    "address": "a",
    "mask": "dm",
}


@dataclass(frozen=True, slots=True)
class SdramChip:
    """A chip of SDR SDRAM, or several side by side.

    Attributes
    ----------
    name : str
        Its name in :mod:`litedram.modules`.
    data_bits : int
        Bits of its words.
    has_mask : bool
        Whether bytes of a word can be left alone; otherwise words are read before they are written in part.
    """

    name: str
    data_bits: int
    has_mask: bool = True


class InitStep(NamedTuple):
    """A step of the chip's initialisation: a command's levels at the pins, and the cycles to the next one."""

    select_n: int
    ras_n: int
    cas_n: int
    we_n: int
    bank: int
    address: int
    cycles: int


@dataclass(frozen=True, slots=True)
class SdramController:
    """A generated controller.

    Attributes
    ----------
    verilog : str
        Its module.
    size_bytes : int
        Bytes of the memory.
    bank_bits, row_bits, column_bits : int
        Bits of the parts of an address; an address at the pins has as many as a row.
    cas_latency : int
        Cycles of the chip's clock from a read to its word.
    times : dict of str to int
        Times between commands in cycles, by their names in data sheets.
    steps : tuple of InitStep
        The initialisation.
    """

    verilog: str
    size_bytes: int
    bank_bits: int
    row_bits: int
    column_bits: int
    cas_latency: int
    times: dict[str, int]
    steps: tuple[InitStep, ...]


@functools.cache
def generate_controller(chip: SdramChip, clock_hz: int, data_bits: int, id_bits: int) -> SdramController:
    """Generate the controller of a chip.

    Parameters
    ----------
    chip : SdramChip
    clock_hz : int
        The clock of chip and controller.
    data_bits, id_bits : int
        Bits of a beat and of an identifier on AXI4.

    Raises
    ------
    ImportError
        If litedram is not installed, or another release of it.
    ValueError
        If litedram does not know the chip.
    """
    # litedram is imported here, since all other designs do without.
    try:
        release = importlib.metadata.version(_PACKAGE)
        if release != _RELEASE:
            raise ImportError(f"{_PACKAGE} must be {_RELEASE} for external memory, not {release}; {_REMEDY}")
        import migen  # noqa: PLC0415
        from litedram import common, init, modules  # noqa: PLC0415
        from litedram.core.controller import ControllerSettings, LiteDRAMController  # noqa: PLC0415
        from litedram.core.crossbar import LiteDRAMCrossbar  # noqa: PLC0415
        from litedram.frontend.axi import LiteDRAMAXI2Native, LiteDRAMAXIPort  # noqa: PLC0415
        from litedram.phy.gensdrphy import GENSDRPHY  # noqa: PLC0415
        from litex.build.io import SDROutput, SDRTristate  # noqa: PLC0415
        from litex.gen.fhdl.verilog import convert  # noqa: PLC0415
    except (importlib.metadata.PackageNotFoundError, ModuleNotFoundError) as error:
        raise ImportError(f"external memory needs {_PACKAGE}, and it is not installed; {_REMEDY}") from error
    kind = getattr(modules, chip.name, None)
    if not isinstance(kind, type) or getattr(kind, "memtype", "") != "SDR":
        raise ValueError(f"name must be a chip of SDR SDRAM in litedram.modules, not {chip.name}")
    module = kind(clock_hz, "1:1")
    geometry, times = module.geom_settings, module.timing_settings
    core = migen.Module()
    core.clock_domains.cd_sys = migen.ClockDomain("sys")
    widths = {"ba": geometry.bankbits, "a": geometry.rowbits, "dm": chip.data_bits // 8}
    # The PHY's data pins are in no port: they are split below.
    pads = SimpleNamespace(
        dq=migen.Signal(chip.data_bits),
        **{
            pad: migen.Signal(widths.get(pad, 1), name_override=name)
            for name, pad in _PINS.items()
            if chip.has_mask or pad != "dm"
        },
    )
    data = {name: migen.Signal(chip.data_bits, name_override=name) for name in ("data_out", "data_enable", "data_in")}
    latency = common.get_default_cl("SDR", 1 / clock_hz)
    core.submodules.phy = phy = GENSDRPHY(pads, clock_hz, cl=latency + _PIN_LATENCY)
    core.submodules.controller = controller = LiteDRAMController(
        phy.settings, geometry, times, clock_hz, ControllerSettings()
    )
    core.comb += controller.dfi.connect(phy.dfi)
    core.submodules.crossbar = crossbar = LiteDRAMCrossbar(controller.interface)
    native = crossbar.get_port(data_width=data_bits)
    byte_bits = ceil_log2(data_bits // 8)
    bus = LiteDRAMAXIPort(data_width=data_bits, address_width=native.address_width + byte_bits, id_width=id_bits)
    core.submodules.frontend = LiteDRAMAXI2Native(bus, native, with_read_modify_write=not chip.has_mask)
    ports = [*(pad for name, pad in vars(pads).items() if name != "dq"), *data.values()]
    clock, reset = (migen.Signal(name_override=name) for name in ("clock", "reset"))
    core.comb += [core.cd_sys.clk.eq(clock), core.cd_sys.rst.eq(reset)]
    for channel, (fields, is_driven) in _CHANNELS.items():
        end = getattr(bus, channel)
        for field in ("valid", "ready", *fields):
            inside = getattr(end, field)
            port = migen.Signal(len(inside), name_override=f"{channel}{field}")
            core.comb += port.eq(inside) if is_driven is (field != "ready") else inside.eq(port)
            ports.append(port)

    # The PHY's registers at the pins are the device's (:class:`PinRegisters`); here they are wires.
    class Wire:
        @staticmethod
        def lower(pad: SDROutput) -> migen.Module:
            wire = migen.Module()
            wire.comb += pad.o.eq(pad.i)
            return wire

    class Split:
        @staticmethod
        def lower(pad: SDRTristate) -> migen.Module:
            bit, split = pad.io.start, migen.Module()
            split.comb += [
                data["data_out"][bit].eq(pad.o),
                data["data_enable"][bit].eq(pad.oe),
                pad.i.eq(data["data_in"][bit]),
            ]
            return split

    overrides = {SDROutput: Wire, SDRTristate: Split}
    text = str(convert(core, {clock, reset, *ports}, _MODULE, special_overrides=overrides))
    # The time of its generation stands before and after the module.
    head, body = text[text.index(f"\nmodule {_MODULE}") + 1 :].split(");\n", 1)
    body = body[: body.index("\nendmodule")]
    settings = dataclasses.make_dataclass("Settings", ["cl", "nphases"])(latency, phy.settings.nphases)
    steps, _ = init.get_sdr_phy_init_sequence(settings, times)
    cycles = {name: getattr(times, name) for name in ("tRP", "tRCD", "tWR", "tRFC", "tRRD", "tRC", "tRAS", "tREFI")}
    return SdramController(
        verilog=f"{head});\n{_PRAGMA}\n{body}\nendmodule\n",
        size_bytes=1 << (geometry.bankbits + geometry.rowbits + geometry.colbits + ceil_log2(chip.data_bits // 8)),
        bank_bits=geometry.bankbits,
        row_bits=geometry.rowbits,
        column_bits=geometry.colbits,
        cas_latency=latency,
        times={name: value or 0 for name, value in cycles.items()},
        steps=tuple(_init_steps(steps, clock_hz, max(times.tRFC, times.tRP, times.tRC or 0))),
    )


#: Migen writes all assignments as those of registers.
_PRAGMA = "/* verilator lint_off COMBDLY */"
_REMEDY = "run `pip install 'lutterfly[sdram]'`"


def _init_steps(steps: list[tuple[str, int, int, str, int]], clock_hz: int, longest: int) -> Iterator[InitStep]:
    """Yield litedram's steps with at least the ``longest`` time of the chip, in cycles, after each.

    A processor takes some cycles for each of litedram's, and for each access; here none of them is counted on.
    """
    for number, (_, address, bank, command, delay) in enumerate(steps):
        named = re.findall(r"DFII_COMMAND_(\w+)", command)
        levels = {pin: int(name not in named) for name, pin in _COMMAND_PINS.items()}
        least = longest if number else ceil(POWER_UP_S * clock_hz)
        yield InitStep(**levels, bank=bank, address=address, cycles=max(delay, least))


class InitSequencer(wiring.Component):
    """Initialise the chip after a reset: a command at each step's first cycle. Every output is registered.

    Parameters
    ----------
    controller : SdramController

    Members
    -------
    select_n, ras_n, cas_n, we_n : Out(1), bank : Out(bank_bits), address : Out(row_bits)
        The command; none is selected where there is none.
    done : Out(1)
        Whether all steps and their times are over.
    """

    def __init__(self, controller: SdramController):
        self.controller = controller
        super().__init__(
            {
                **{name: Out(1, init=1) for name in _COMMAND_PINS.values()},
                "bank": Out(controller.bank_bits),
                "address": Out(controller.row_bits),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        steps = self.controller.steps
        number = Signal(range(len(steps) + 1))
        left = Signal(range(max(step.cycles for step in steps)))
        m.d.sync += [getattr(self, name).eq(1) for name in _COMMAND_PINS.values()]
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Else(), m.Switch(number):
            for at, step in enumerate(steps):
                with m.Case(at):
                    m.d.sync += [
                        number.eq(at + 1),
                        left.eq(step.cycles - 1),
                        *(getattr(self, name).eq(getattr(step, name)) for name in step._fields[:-1]),
                    ]
            with m.Default():
                m.d.sync += self.done.eq(1)
        return m


class HostMaster(wiring.Component):
    """Read and write bytes for a host on AXI4: one access at a time, with bursts of one beat.

    A write is taken when it is answered, so that whatever is asked for afterwards sees its byte. Combinational paths
    lead from ``bvalid``, ``rvalid`` and ``arready`` to the host's ``ready``.

    Parameters
    ----------
    address_bits : int
        Bits of a byte's address.
    data_bits : int
        Bits of a beat.

    Members
    -------
    host : In(HostSignature)
    memory : Out(axi4_signature)
    """

    def __init__(self, *, address_bits: int, data_bits: int):
        self.address_bits, self.data_bits = address_bits, data_bits
        super().__init__({"host": In(HostSignature(address_bits)), "memory": Out(axi4_signature(data_bits))})

    def elaborate(self, platform) -> Module:
        m = Module()
        bus, request, answer = self.memory, self.host.request, self.host.answer
        byte_bits = ceil_log2(self.data_bits // 8)
        byte, word = request.payload.address[:byte_bits], request.payload.address[byte_bits:]
        for channel in ("aw", "ar"):
            m.d.comb += [
                getattr(bus, f"{channel}addr").eq(Cat(Const(0, byte_bits), word)),
                getattr(bus, f"{channel}size").eq(byte_bits),
                getattr(bus, f"{channel}burst").eq(INCREMENTING),
            ]
        m.d.comb += [
            bus.wdata.eq(request.payload.data.replicate(self.data_bits // 8)),
            bus.wstrb.eq(1 << byte),
            bus.wlast.eq(1),
            bus.bready.eq(1),
            bus.rready.eq(1),
        ]
        for channel in ("aw", "w", "ar"):
            with m.If(getattr(bus, f"{channel}ready")):
                m.d.sync += getattr(bus, f"{channel}valid").eq(0)
        m.d.sync += [
            answer.valid.eq(bus.rvalid),
            answer.payload.eq(bus.rdata.word_select(byte, 8)),
        ]
        m.d.comb += request.ready.eq(bus.bvalid | bus.rvalid)
        with m.FSM():
            with m.State("LISTEN"), m.If(request.valid):
                write = request.payload.write
                m.d.sync += [bus.awvalid.eq(write), bus.wvalid.eq(write), bus.arvalid.eq(~write)]
                m.next = "WAIT"
            with m.State("WAIT"), m.If(request.ready):
                m.next = "LISTEN"
        return m


class Sdram(wiring.Component):
    """Serve AXI4 from a chip of SDR SDRAM; requests wait until it is initialised, some 200 microseconds.

    Bursts are incrementing, of whole beats, and cross no page of 4 KiB; they are answered in order, reads and writes
    apart, and always with OKAY. Addresses beyond the end begin again at 0. A read sees what was written by bursts that
    were answered before it was asked for. Of its outputs to the chip every one is a register at its pin, and of the
    inputs too; those on AXI4 are combinational, from registers of the controller and ``ready`` of the other side.

    Parameters
    ----------
    chip : SdramChip
    clock_hz : int
        The clock of the domain ``sync``, and of the chip, whose clock is ``LEAD_NS`` before.
    data_bits : int
        Bits of a beat.
    id_bits : int
        Bits of the identifiers.

    Members
    -------
    bus : In(axi4_signature)
    clock_enable, select_n, ras_n, cas_n, we_n : Out(1)
    bank : Out(bank_bits), address : Out(row_bits), mask : Out(data_bits // 8)
    data_out, data_off : Out(data_bits), data_in : In(data_bits)
        The data's pins, and where they are not driven.

    Raises
    ------
    ImportError
        If litedram is not installed.
    """

    def __init__(self, chip: SdramChip, *, clock_hz: int, data_bits: int, id_bits: int):
        self.chip = chip
        self.controller = generate_controller(chip, clock_hz, data_bits, id_bits)
        idle = {"select_n": 1, "ras_n": 1, "cas_n": 1, "we_n": 1, "data_off": -1}
        widths = {
            **dict.fromkeys(_PINS, 1),
            "bank": self.controller.bank_bits,
            "address": self.controller.row_bits,
            "mask": chip.data_bits // 8,
            "data_out": chip.data_bits,
            "data_off": chip.data_bits,
        }
        #: The outputs, with their levels at first.
        self.outputs = {name: (width, idle.get(name, 0) & ((1 << width) - 1)) for name, width in widths.items()}
        super().__init__(
            {
                "bus": In(axi4_signature(data_bits, id_bits)),
                **{name: Out(width, init=init) for name, (width, init) in self.outputs.items()},
                "data_in": In(chip.data_bits),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.init = init = InitSequencer(self.controller)
        # Commands and data before the registers at the pins.
        before = {name: Signal(width, name=f"{name}_before") for name, (width, _) in self.outputs.items()}
        inside = {name: Signal.like(before[name], name=f"controller_{name}") for name in _PINS}
        enable, taken = Signal(self.chip.data_bits), Signal(self.chip.data_bits)
        m.d.comb += [
            before["clock_enable"].eq(1),
            before["mask"].eq(inside["mask"]),
            before["data_off"].eq(~enable),
        ]
        for name in (*_COMMAND_PINS.values(), "bank", "address"):
            m.d.comb += before[name].eq(inside[name])
            with m.If(~init.done):
                m.d.comb += before[name].eq(getattr(init, name))
        for name, (width, init_level) in self.outputs.items():
            m.submodules[f"{name}_pins"] = pins = PinRegisters(width, init=init_level)
            m.d.comb += [pins.input.eq(before[name]), getattr(self, name).eq(pins.output)]
        m.submodules.data_in_pins = pins = PinRegisters(self.chip.data_bits, is_input=True)
        m.d.comb += [pins.input.eq(self.data_in), taken.eq(pins.output)]
        chip_ports = {f"o_{name}": value for name, value in inside.items() if self.chip.has_mask or name != "mask"}
        m.submodules.controller = Instance(
            _MODULE,
            i_clock=ClockSignal(),
            i_reset=ResetSignal() | ~init.done,
            o_data_out=before["data_out"],
            o_data_enable=enable,
            i_data_in=taken,
            **chip_ports,
            **self._bus_ports(m, init.done),
        )
        return m

    def _bus_ports(self, m: Module, done: Signal) -> dict:
        """Return the controller's ports on AXI4; requests and data wait until it is ``done``."""
        ports = {}
        for channel, (fields, is_driven) in _CHANNELS.items():
            for field in fields:
                value = getattr(self.bus, f"{channel}{field}")
                width = ceil_log2(self.controller.size_bytes) if field == "addr" else len(value)
                ports[f"{'o' if is_driven else 'i'}_{channel}{field}"] = value[:width]
            valid, ready = (getattr(self.bus, f"{channel}{name}") for name in ("valid", "ready"))
            if is_driven:
                ports |= {f"o_{channel}valid": valid, f"i_{channel}ready": ready}
            else:
                takes = Signal(name=f"{channel}_takes")
                m.d.comb += ready.eq(takes & done)
                ports |= {f"i_{channel}valid": valid & done, f"o_{channel}ready": takes}
        return ports
