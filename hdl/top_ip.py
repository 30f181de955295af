"""The accelerator as a block for other designs: AXI under the names that integrators' tools expect."""

from __future__ import annotations

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, Member

from ..golden import pins, registers
from ..golden.config import Config
from ..golden.config_parts import ArenaConfig, AxiConfig
from ..golden.timing.latencies import reset_cycles
from .bus.axi import Pin, bus_pins, constant_pins, trace_pins
from .parts.pipeline import SIMULATED
from .parts.verilog import head, to_verilog
from .top_axi import TopAxi

__all__ = ["TopIp", "generate"]


class TopIp(wiring.Component):
    """Name the pins of a core as integrators' tools expect; there is nothing between them but wires.

    Parameters
    ----------
    core : wiring.Component
        :class:`.top_axi.TopAxi`, or another with its configuration and its members.
    trace : bool
        Whether there are pins of the performance trace, for a simulator.

    Members
    -------
    aclk : In(1)
        Everything happens at its rising edge.
    aresetn : In(1)
        Active low, synchronous to ``aclk``.
    s_axi_awaddr and so on
        The registers, AXI4-Lite.
    m_axi_awaddr and so on
        The memory, AXI4; with several ports ``m_axi_0_awaddr`` and so on.
    interrupt : Out(1)
    trace_compute_done and so on : Out(1)
        The trace, where it is requested; with several cores ``trace_0_compute_done`` and so on.

    Attributes
    ----------
    pins : list of Pin
        All pins but clock and reset.
    masters : list of str
        Prefixes of the ports to the memory.
    """

    def __init__(self, core: wiring.Component, *, trace: bool = False):
        self.core = core
        self.config = config = core.config
        self.masters = pins.masters(config.cluster)
        self.pins = bus_pins(pins.SLAVE, core, "control", ignored=("prot",))
        for name, prefix in zip(pins.numbered("memory", config.cluster.ports), self.masters, strict=True):
            self.pins += [*bus_pins(prefix, core, name), *constant_pins(prefix)]
        meaning = "high while an interrupt is pending and enabled"
        self.pins.append(Pin(pins.INTERRUPT, Flow.Out, 1, meaning, core.interrupt))
        for name in pins.traces(config.cluster) if trace else ():
            self.pins += trace_pins(name, core)
        super().__init__(
            {
                pins.CLOCK: Member(Flow.In, 1),
                pins.RESET: Member(Flow.In, 1),
                **{pin.name: Member(pin.flow, pin.width) for pin in self.pins},
            }
        )
        self._tell_vivado()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.sync = ClockDomain(local=True)
        m.submodules.top = self.core
        clock, reset = getattr(self, pins.CLOCK), getattr(self, pins.RESET)
        m.d.comb += [ClockSignal().eq(clock), ResetSignal().eq(~reset)]
        for pin in self.pins:
            outside = getattr(self, pin.name)
            m.d.comb += outside.eq(pin.value) if pin.flow is Flow.Out else pin.value.eq(outside)
        return m

    def _tell_vivado(self) -> None:
        """Add attributes for Vivado: the buses of the clock, and the level of the interrupt. Other tools ignore them.

        Source: AMD UG994 (Designing IP Subsystems Using IP Integrator), "Referencing RTL Modules".
        """
        buses = ":".join((pins.SLAVE, *self.masters))
        for name, kind, port, parameter in (
            (pins.CLOCK, "clock", "CLK", f"ASSOCIATED_BUSIF {buses}, ASSOCIATED_RESET {pins.RESET}"),
            (pins.RESET, "reset", "RST", "POLARITY ACTIVE_LOW"),
            (pins.INTERRUPT, "interrupt", "INTERRUPT", "SENSITIVITY LEVEL_HIGH"),
        ):
            getattr(self, name).attrs.update(
                X_INTERFACE_INFO=f"xilinx.com:signal:{kind}:1.0 {name} {port}", X_INTERFACE_PARAMETER=parameter
            )

    def describe(self) -> str:
        """Return the comment at the head of the Verilog: clock, reset, buses, and a table of the pins."""
        rows = [
            (pins.CLOCK, "input", 1, "clock"),
            (pins.RESET, "input", 1, "reset, active low"),
            *((pin.name, pin.direction, pin.width, pin.meaning) for pin in self.pins),
        ]
        wide = max(len(name) for name, *_ in rows)
        table = [f"{name:<{wide}}  {way:<6}  {width:>4}  {meaning}" for name, way, width, meaning in rows]
        lines = (*self._facts(), "", f"{'port':<{wide}}          bits  meaning", *table)
        return "".join(f"// {line}".rstrip() + "\n" for line in lines)

    def verilog(self, *, asserted: bool = False) -> str:
        """Generate one file without dependencies: the comment and the module ``lutterfly``; see :func:`generate`."""
        text = to_verilog(self, platform=SIMULATED if asserted else None, name=pins.MODULE)
        return f"{head(self.config).rstrip()}\n//\n{self.describe()}\n{text}"

    def _facts(self) -> list[str]:
        config = self.config
        cores, axi = config.cores, config.axi
        lite, address_bits = len(self.core.control.wdata), registers.address_bits(cores)
        id_bits = config.port_id_bits
        of_port = cores // config.cluster.ports
        flights = ", ".join(f"{axi.outstanding} {kind}" for kind in ("reads of data", "of commands", "writes"))
        within = f", within {ArenaConfig.PAGE_BYTES} bytes; WSTRB leaves bytes out"
        of_each = f", for each of {of_port} cores" if of_port > 1 else ""
        facts = {
            pins.CLOCK: ["the only clock; everything happens at its rising edge"],
            pins.RESET: [
                "active low, synchronous to the clock, low at one rising edge or more; for the buses as well",
                f"then the accelerator resets itself, and STATUS says so for {reset_cycles(config)} cycles",
            ],
            pins.SLAVE: [
                f"AXI4-Lite, {lite} bits of data, {address_bits} of address: registers in {1 << address_bits} bytes",
                "WSTRB is honoured; SLVERR where there is no register",
            ],
            ", ".join(self.masters): [
                f"AXI4, {axi.data_bits} bits of data, {AxiConfig.ADDRESS_BITS} of address, {id_bits} of identifiers",
                f"bursts: INCR alone, 1 to {AxiConfig.BURST_BEATS} beats of all {axi.data_bytes} bytes{within}",
                f"in flight: at most {flights}{of_each}",
            ],
            pins.INTERRUPT: ["a level, until software clears it"],
        }
        wide = max(map(len, facts))
        return [
            f"{'' if number else name:<{wide}}  {fact}"
            for name, of_name in facts.items()
            for number, fact in enumerate(of_name)
        ]


def generate(config: Config, *, asserted: bool = False, trace: bool = False) -> str:
    """Generate the Verilog of :class:`TopIp`, whose first lines name its configuration and describe its connections.

    Parameters
    ----------
    config : Config
    asserted : bool
        Whether to add the assertions and clock gates of :mod:`lutterfly.hdl.parts.pipeline`, for simulation.
    trace : bool
        Whether to add the pins of the performance trace.

    Returns
    -------
    str
    """
    return TopIp(TopAxi(config), trace=trace).verilog(asserted=asserted)
