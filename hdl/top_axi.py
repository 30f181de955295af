"""The top level with AXI ports: AXI4-Lite for the registers, AXI4 for the memory."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Module, ResetInserter, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..golden import registers
from ..golden.config import Config
from ..golden.pins import numbered
from ..golden.timing.latencies import reset_cycles
from .bus.axi import axi4_lite_signature, axi4_signature
from .bus.axi_arbiter import AxiArbiter
from .bus.axi_guard import AxiGuard
from .control.barrier import Cluster, CoreBarrier
from .control.registers import RegisterFile
from .control.supervisor import TraceSignature
from .core import Core, reset_latency
from .parts.pipeline import Assertions

__all__ = ["TopAxi"]

_CONTROL = registers.REGISTERS["CONTROL"].name


class TopAxi(wiring.Component):
    """Serve AXI4-Lite and drive AXI4; every output is registered.

    A soft reset holds the core in reset until the guard has brought what it had begun on the bus to an end.

    Parameters
    ----------
    config : Config

    Members
    -------
    control : In(axi4_lite_signature)
    memory : Out(axi4_signature)
        With a port for each of several cores: ``memory_0``, ``memory_1`` and so on.
    interrupt : Out(1)
        High while an interrupt is pending and enabled.
    trace : Out(TraceSignature)
        With several cores: ``trace_0``, ``trace_1`` and so on.

    Attributes
    ----------
    status : Signal
        The lowest bits of STATUS, for a component around this one; no pin has them.
    """

    def __init__(self, config: Config):
        self.config = config
        cluster = config.cluster
        port = axi4_signature(config.axi.data_bits, config.port_id_bits)
        self.status = Signal(registers.STATUS_RESETTING.bit_length())
        super().__init__(
            {
                "control": In(axi4_lite_signature(registers.address_bits(config.cores))),
                **{name: Out(port) for name in numbered("memory", cluster.ports)},
                "interrupt": Out(1),
                **{name: Out(TraceSignature()) for name in numbered("trace", cluster.cores)},
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.registers = bank = RegisterFile(self.config)
        # All resets of the core come from registers, and are long, as wires cross the device and pipelines are not
        # reset but run out. So its domain has no reset of its own, and that of the pins is treated like the guard's.
        m.domains.core = ClockDomain(reset_less=True, local=True)
        guards, cores = [], []
        for number in range(self.config.cores):
            # Cycles from the soft reset to that of the last unit: a register here, and the core's own.
            guards.append(AxiGuard(self.config, reset_cycles=1 + reset_latency(self.config)))
            cores.append(Core(self.config, number))
        for guard_name, core_name, guard, core in zip(
            numbered("guard", len(cores)), numbered("core", len(cores)), guards, cores, strict=True
        ):
            m.submodules[guard_name] = guard
            m.submodules[core_name] = DomainRenamer("core")(core)
        resetting = reduce(or_, (guard.resetting for guard in guards))
        cycles = reset_cycles(self.config)
        reset_left = Signal(range(cycles), init=cycles - 1)
        core_reset = Signal(init=1)
        m.d.sync += core_reset.eq(guards[0].soft_reset | resetting | (reset_left != 0))
        with m.If(guards[0].soft_reset | resetting):
            m.d.sync += reset_left.eq(cycles - 1)
        with m.Elif(reset_left != 0):
            m.d.sync += reset_left.eq(reset_left - 1)
        m.d.comb += [ClockSignal("core").eq(ClockSignal()), *(core.reset.eq(core_reset) for core in cores)]

        connect(m, flipped(self.control), bank.control)
        self._elaborate_ports(m, guards)
        for number, (guard, core) in enumerate(zip(guards, cores, strict=True)):
            for name in ("program", "load", "store"):
                connect(m, getattr(core, name), getattr(guard, name))
            connect(m, core.trace, flipped(getattr(self, numbered("trace", len(cores))[number])))
        elaborate_run = self._elaborate_cluster if len(cores) > 1 else self._elaborate_core
        pending = elaborate_run(m, bank, guards, cores, core_reset)
        with m.If(resetting | core_reset | reduce(or_, (core.resetting for core in cores))):
            m.d.comb += bank.read.STATUS.eq(registers.STATUS_RESETTING)
        m.d.comb += self.status.eq(bank.read.STATUS)
        taken = Cat(
            port.valid & port.ready for guard in guards for port in (guard.load.ar, guard.program.ar, guard.store.aw)
        )
        Assertions(m, platform).never(
            core_reset & taken.any(), "top: the guard takes what a unit asks for that is about to be reset"
        )
        resets = bank.written[_CONTROL] & (bank.data & registers.CONTROL_RESET).any()
        m.d.sync += [guard.soft_reset.eq(resets) for guard in guards]
        m.d.sync += self.interrupt.eq(pending & bank.kept.INTERRUPT_ENABLE[0])
        return m

    def _elaborate_ports(self, m: Module, guards: list[AxiGuard]) -> None:
        """Connect the guards to the pins: each has a port of its own, or all share one through an arbiter."""
        ports = [flipped(getattr(self, name)) for name in numbered("memory", self.config.cluster.ports)]
        if len(ports) < len(guards):
            m.submodules.arbiter = arbiter = AxiArbiter(self.config)
            connect(m, arbiter.memory, *ports)
            ports = arbiter.masters
        for guard, port in zip(guards, ports, strict=True):
            connect(m, guard.memory, port)

    def _elaborate_core(
        self, m: Module, bank: RegisterFile, guards: list[AxiGuard], cores: list[Core], reset: Signal
    ) -> Value:
        """Connect the only core and the registers; return whether an interrupt is pending."""
        (core,), (guard,) = cores, guards
        start, clear_interrupt = _commands(bank)
        m.d.comb += [
            core.start.eq(start),
            core.clear_interrupt.eq(clear_interrupt),
            core.kept.eq(bank.kept),
            core.written.eq(bank.written),
            guard.base.eq(bank.kept.EXTERNAL_BASE),
            bank.read.eq(core.read),
        ]
        return core.read.INTERRUPT[0]

    def _elaborate_cluster(
        self, m: Module, bank: RegisterFile, guards: list[AxiGuard], cores: list[Core], reset: Signal
    ) -> Value:
        """Connect several cores, the registers of each, and the common units; return whether an interrupt is
        pending."""
        count = len(cores)
        m.submodules.cluster = cluster = ResetInserter(reset)(Cluster(count))
        m.submodules.barrier = barrier = ResetInserter(reset)(CoreBarrier(count))
        start, clear_interrupt = _commands(bank)
        m.d.comb += [cluster.start.eq(start), cluster.clear_interrupt.eq(clear_interrupt)]
        of_all = {"STATUS": cluster.status, "INTERRUPT": cluster.pending, "ERROR_CORE": cluster.error_core}
        m.d.comb += [bank.read[name].eq(value) for name, value in of_all.items()]
        registers_of_all = registers.register_map(count)
        for number, (guard, core) in enumerate(zip(guards, cores, strict=True)):
            names = {
                name: registers.core_name(name, number) if registers_of_all[name].core == 0 else name
                for name in (*core.kept.shape().members, *core.written.shape().members, *core.read.shape().members)
            }
            peers = [other.progress for other in cores if other is not core]
            connect(m, core.arrive, getattr(barrier, f"arrive_{number}"))
            m.d.comb += [
                [core.kept[name].eq(bank.kept[names[name]]) for name in core.kept.shape().members],
                [core.written[name].eq(bank.written[names[name]]) for name in core.written.shape().members],
                [
                    bank.read[names[name]].eq(core.read[name])
                    for name in core.read.shape().members
                    if name not in of_all
                ],
                guard.base.eq(bank.kept.EXTERNAL_BASE),
                core.start.eq(cluster.begin),
                core.clear_interrupt.eq(clear_interrupt),
                core.stop.eq(cluster.stop),
                getattr(cluster, f"status_{number}").eq(core.read.STATUS),
                getattr(barrier, f"ended_{number}").eq(core.ended),
                core.release.eq(getattr(barrier, f"release_{number}")),
                core.lost.eq(getattr(barrier, f"lost_{number}")),
                core.peers_progress.eq(Cat(peers).any()),
            ]
        return cluster.pending


def _commands(bank: RegisterFile) -> tuple[Value, Value]:
    """Return whether software starts a run, and whether it clears the interrupt."""
    starts = bank.written[_CONTROL] & (bank.data & registers.CONTROL_START).any()
    return starts, bank.written.INTERRUPT & bank.data.any()
