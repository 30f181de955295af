"""The core: queues, program memory, units and supervisor; everything that a soft reset resets."""

from __future__ import annotations

from itertools import combinations

from amaranth.hdl import Module, ResetInserter, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..golden.config import Config
from ..golden.units import ErrorCode, Queue, Unit
from .bus.axi import ReadSignature, WriteSignature
from .compute.compute import ComputeUnit
from .control.barrier import BarrierUnit
from .control.program import ProgramMemory
from .control.queue import CommandQueue
from .control.registers import core_read_layout, kept_layout, write_layout
from .control.supervisor import Supervisor, TraceSignature
from .dma.load import DmaLoad
from .dma.store import DmaStore
from .parts.fifo import push_signature
from .parts.isa import report_error
from .parts.pipeline import Assertions

__all__ = ["Core", "reset_latency"]


def reset_latency(config: Config) -> int:
    """Return the cycles from a core's ``reset`` to that of its last unit, the supervisor."""
    return 7 if config.cores == 1 else 8


class Core(wiring.Component):
    """Execute programs. The registers and the guard of the buses stand outside, because they survive a soft reset.

    Parameters
    ----------
    config : Config
    core : int
        The core's number.

    Members
    -------
    reset : In(1)
        A soft reset, for :func:`lutterfly.golden.timing.latencies.reset_cycles` at least.
    resetting : Out(1)
        The last unit is in reset.
    start : In(1)
        Begin a run.
    clear_interrupt : In(1)
    kept : In(kept_layout), written : In(write_layout)
        From the registers.
    read : Out(core_read_layout)
        To the registers.
    program, load : Out(ReadSignature), store : Out(WriteSignature)
        The masters; addresses are relative to EXTERNAL_BASE.
    trace : Out(TraceSignature)
    arrive : Out(push_signature of a group), release, lost : In(1), ended : Out(1)
        To and from :class:`.control.barrier.CoreBarrier`, with several cores.
    stop : In(1)
        An error of another core ends the run, with several cores.
    progress : Out(1), peers_progress : In(1)
        A unit other than the barrier unit makes progress in this core, or in another one, with several cores.
    """

    def __init__(self, config: Config, core: int = 0):
        self.config = config
        self.core = core
        several = {
            "arrive": Out(push_signature(unsigned(config.cores))),
            "release": In(1),
            "lost": In(1),
            "ended": Out(1),
            "stop": In(1),
            "progress": Out(1),
            "peers_progress": In(1),
        }
        super().__init__(
            {
                "reset": In(1),
                "resetting": Out(1),
                "start": In(1),
                "clear_interrupt": In(1),
                "kept": In(kept_layout()),
                "written": In(write_layout()),
                "read": Out(core_read_layout(config)),
                "program": Out(ReadSignature(config.axi.data_bits)),
                "load": Out(ReadSignature(config.axi.data_bits)),
                "store": Out(WriteSignature(config.axi.data_bits)),
                "trace": Out(TraceSignature()),
                **(several if config.cores > 1 else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        self._units = {
            "supervisor": Supervisor(self.config),
            "program": ProgramMemory(self.config),
            **{f"{queue.value}_queue": CommandQueue(self.config, queue) for queue in Queue},
            "load": DmaLoad(self.config),
            "store": DmaStore(self.config),
            "compute": ComputeUnit(self.config),
        }
        if self.config.cores > 1:
            self._units["barrier"] = BarrierUnit(self.config, self.core)
        # Each unit's reset comes from a register of its own, one after the other: no wire has to reach all over the
        # device, and a reset is much longer than the chain. The supervisor comes last, so that no run begins before.
        reset = self.reset
        for name, unit in reversed(self._units.items()):
            later = Signal(name=f"{name}_reset")
            m.d.sync += later.eq(reset)
            m.submodules[name] = ResetInserter(later)(unit)
            reset = later
        assert len(self._units) == reset_latency(self.config)
        m.d.comb += self.resetting.eq(reset)
        program, dma_queue, compute_queue, load, store, compute = list(self._units.values())[1:7]

        connect(m, program.read, flipped(self.program))
        connect(m, load.bus, flipped(self.load))
        connect(m, store.bus, flipped(self.store))
        connect(m, dma_queue.load, load.command)
        connect(m, dma_queue.store, store.command)
        connect(m, compute_queue.compute, compute.command)
        connect(m, load.feature, compute.feature_write)
        connect(m, store.read, compute.store_read)
        m.d.comb += [
            compute.local_write.eq(load.local),
            store.word.eq(compute.store_word),
            dma_queue.finished.eq(self._dma_done()),
            compute_queue.finished.eq(compute.done),
        ]
        for queue in Queue:
            self._elaborate_queue(m, queue)
        progress = self._elaborate_supervision(m)
        if self.config.cores > 1:
            self._elaborate_cluster(m, progress)
        self._elaborate_trace(m)
        self._elaborate_assertions(m, Assertions(m, platform))
        return m

    def _elaborate_queue(self, m: Module, which: Queue) -> None:
        """Connect a queue to its ring, its peer and the supervisor."""
        program, supervisor = self._units["program"], self._units["supervisor"]
        name, queue, peer = which.value, self._units[f"{which.value}_queue"], self._units[f"{which.peer.value}_queue"]
        connect(m, getattr(program, f"{name}_words"), queue.words)
        settings = getattr(program, f"{name}_program")
        registers = (f"{name.upper()}_PROGRAM", f"{name.upper()}_COMMANDS")
        m.d.comb += [
            queue.start.eq(supervisor.begin),
            queue.granted.eq(peer.grant),
            queue.exhausted.eq(getattr(program, f"{name}_exhausted")),
            settings.address.eq(self.kept[registers[0]]),
            settings.commands.eq(self.kept[registers[1]]),
            getattr(program, f"{name}_changed").eq(
                self.written.EXTERNAL_BASE | self.written[registers[0]] | self.written[registers[1]]
            ),
            getattr(program, f"{name}_stop").eq(queue.done),
            getattr(supervisor, f"{name}_done").eq(queue.done),
            getattr(supervisor, f"{name}_tokens_left").eq(queue.tokens_left),
            getattr(supervisor, f"{name}_standing").eq(queue.standing),
            supervisor.errors[f"{name}_queue"].eq(queue.error),
        ]

    def _elaborate_supervision(self, m: Module) -> Signal:
        """Connect the units to the supervisor; return the progress of each, in their order."""
        supervisor, *workers = self._units.values()
        program, dma_queue, compute_queue, load, store, compute = workers[:6]
        # Each has a register, so that handshakes at different ends of the core are not joined; the halt passes from one
        # to the next, or synthesis would merge all its registers.
        progress, halt = Signal(len(workers)), supervisor.halt
        for bit, worker in zip(progress, workers, strict=True):
            m.d.sync += [worker.halt.eq(halt), bit.eq(worker.progress)]
            halt = worker.halt
        m.d.comb += [
            supervisor.start.eq(self.start),
            supervisor.clear_interrupt.eq(self.clear_interrupt),
            supervisor.watchdog.eq(self.kept.WATCHDOG),
            supervisor.progress.eq(progress.any()),
            supervisor.fetching.eq(program.busy),
            program.start.eq(supervisor.begin),
            supervisor.errors.prefetch.eq(program.error),
            supervisor.errors.load.eq(load.error),
            supervisor.errors.store.eq(store.error),
            supervisor.errors.compute.eq(compute.error),
            supervisor.events.dma_busy.eq(dma_queue.in_flight),
            supervisor.events.dma_stalled.eq(dma_queue.stalled),
            supervisor.events.dma_done.eq(dma_queue.completed),
            supervisor.events.compute_busy.eq(compute.issued),
            supervisor.events.compute_stalled.eq(compute_queue.stalled | compute.stalled),
            supervisor.events.compute_done.eq(compute_queue.completed),
            self.read.eq(supervisor.read),
        ]
        return progress

    def _elaborate_cluster(self, m: Module, progress: Signal) -> None:
        """Connect the other cores, where there are some."""
        supervisor, barrier, dma_queue = (self._units[name] for name in ("supervisor", "barrier", "dma_queue"))
        connect(m, dma_queue.barrier, barrier.command)
        connect(m, barrier.arrive, flipped(self.arrive))
        # These are registered, so that no core's handshakes are joined with another's.
        m.d.sync += self.progress.eq(progress[:-1].any())
        m.d.comb += [
            barrier.release.eq(self.release),
            barrier.lost.eq(self.lost),
            barrier.peers_progress.eq(self.peers_progress),
            self.ended.eq(dma_queue.done),
            supervisor.events.barrier_stalled.eq(barrier.waiting),
            supervisor.errors.barrier.eq(barrier.error),
        ]
        with m.If(self.stop):
            m.d.comb += report_error(supervisor.errors.cluster, ErrorCode.STOPPED, Unit.NONE, 0)

    def _dma_done(self) -> Value:
        """Return whether a command of the DMA queue has completed."""
        done = self._units["load"].done | self._units["store"].done
        return done | self._units["barrier"].done if self.config.cores > 1 else done

    def _elaborate_trace(self, m: Module) -> None:
        load, store, compute = (self._units[name] for name in ("load", "store", "compute"))
        begins = Signal()
        m.d.comb += begins.eq((load.command.valid & load.command.ready) | (store.command.valid & store.command.ready))
        if self.config.cores > 1:
            command = self._units["barrier"].command
            with m.If(command.valid & command.ready):
                m.d.comb += begins.eq(1)
        m.d.sync += [
            self.trace.compute_issue_first.eq(compute.first),
            self.trace.compute_issue_last.eq(compute.last),
            self.trace.compute_done.eq(compute.done),
            self.trace.dma_begin.eq(begins),
            self.trace.dma_done.eq(self._dma_done()),
        ]

    def _elaborate_assertions(self, m: Module, checks: Assertions) -> None:
        """Assert that units which exclude each other never run together: one may be about to read what the other
        writes."""
        if not checks.wanted:
            return
        busy = []
        for name in ("load", "store", "barrier")[: 2 if self.config.cores == 1 else 3]:
            unit, under_way = self._units[name], Signal(8, name=f"{name}_under_way")
            with m.If(self.resetting):
                m.d.sync += under_way.eq(0)
            with m.Else():
                m.d.sync += under_way.eq(under_way + (unit.command.valid & unit.command.ready) - unit.done)
            busy.append(under_way != 0)
        for one, other in combinations(busy, 2):
            checks.never(one & other & ~self.resetting, "core: LOAD or FILL, STORE or BARRIER runs beside another")
