"""The run: start and done, the first error, the watchdog, and the performance counters."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden import registers
from ...golden.config import Config
from ...golden.units import ErrorCode, Queue, Unit
from ..parts.isa import INDEX_BITS, ErrorReport, report_error
from .registers import core_read_layout

__all__ = [
    "QueueStatus",
    "Supervisor",
    "TraceSignature",
    "error_sources",
    "events_layout",
]


# The status of a queue, for the watchdog's report.


class QueueStatus(data.Struct):
    """The status of a queue: the oldest command that is not completed, and the next one to begin."""

    # The unit has not completed command ``oldest``.
    in_flight: unsigned(1)
    unit: unsigned(8)
    oldest: unsigned(INDEX_BITS)
    # Command ``index`` has not arrived, or waits for its turn.
    missing: unsigned(1)
    waiting: unsigned(1)
    index: unsigned(INDEX_BITS)


def error_sources(config: Config) -> tuple[str, ...]:
    """Return the sources of errors; of several errors in the same cycle the first source counts."""
    sources = ("prefetch", "dma_queue", "compute_queue", "load", "store", "compute")
    # A stop from outside comes last: an error of the core's own is more specific.
    return (*sources, "barrier", "cluster") if config.cores > 1 else sources


def events_layout(config: Config) -> data.StructLayout:
    """The events of the performance counters: each is a cycle or a command."""
    names = ("dma_busy", "dma_stalled", "compute_busy", "compute_stalled", "dma_done", "compute_done")
    several = ("barrier_stalled",) if config.cores > 1 else ()
    return data.StructLayout(dict.fromkeys((*names, *several), unsigned(1)))


class Supervisor(wiring.Component):
    """Start a run, watch it, and report its end. Every output depends on registers only.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        Begin a run; without effect during a run, or after an error.
    clear_interrupt : In(1)
    watchdog : In(32)
        Cycles without progress after which a run stops; 0 for never.
    begin : Out(1)
        The run begins; to queues and prefetcher.
    halt : Out(1)
        An error has stopped the run, until reset.
    dma_done, compute_done : In(1)
        The queues' programs have ended. Ignored while ``begin`` is high.
    fetching : In(1)
        The prefetcher is not done.
    dma_tokens_left, compute_tokens_left : In(1)
    dma_standing, compute_standing : In(QueueStatus)
    progress : In(1)
    events : In(events_layout)
    errors : In(ErrorReport for each of error_sources)
        Registered.
    read : Out(core_read_layout)
        Values of the registers; STATUS without the bit of the soft reset.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "clear_interrupt": In(1),
                "watchdog": In(32),
                "begin": Out(1),
                "halt": Out(1),
                "dma_done": In(1),
                "compute_done": In(1),
                "fetching": In(1),
                "dma_tokens_left": In(1),
                "compute_tokens_left": In(1),
                "dma_standing": In(QueueStatus),
                "compute_standing": In(QueueStatus),
                "progress": In(1),
                "events": In(events_layout(config)),
                "errors": In(data.StructLayout(dict.fromkeys(error_sources(config), ErrorReport))),
                "read": Out(core_read_layout(config)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        busy, done, pending = Signal(), Signal(), Signal()
        error = Signal(ErrorReport)
        accepted, ended = Signal(), Signal()
        m.d.comb += [
            accepted.eq(self.start & ~busy & ~error.valid),
            ended.eq(busy & ~self.begin & self.dma_done & self.compute_done & ~self.fetching),
            self.halt.eq(error.valid),
        ]
        m.d.sync += self.begin.eq(accepted)
        with m.If(self.clear_interrupt):
            m.d.sync += pending.eq(0)
        with m.If(accepted):
            m.d.sync += [busy.eq(1), done.eq(0)]

        # The kind of the run's end is found in two steps, and takes effect in the next cycle.
        closes = Signal(2)
        m.d.sync += closes.eq(Cat(ended & ~closes.any(), closes))
        verdict = self._elaborate_first_error(m, busy, closes[0])
        with m.If(closes[-1]):
            m.d.sync += [busy.eq(0), done.eq(1), pending.eq(1)]
        with m.If(verdict.valid & ~error.valid):
            m.d.sync += [error.eq(verdict), busy.eq(0), done.eq(0), pending.eq(1)]

        self._elaborate_counters(m, busy)
        m.d.comb += [
            self.read.STATUS.eq(
                Mux(busy, registers.STATUS_BUSY, 0)
                | Mux(done, registers.STATUS_DONE, 0)
                | Mux(error.valid, registers.STATUS_ERROR, 0)
            ),
            self.read.INTERRUPT.eq(pending),
            self.read.ERROR[0:8].eq(error.code),
            self.read.ERROR[8:16].eq(error.unit),
            self.read.ERROR[16:32].eq(error.index),
            self.read.ERROR_ADDRESS.eq(error.address),
        ]
        return m

    def _elaborate_first_error(self, m: Module, busy, closes) -> data.View:
        """Choose the report that counts, two cycles late: the sources', then the watchdog's, then that of tokens
        left."""
        stuck = self._elaborate_watchdog(m, busy)
        left = Signal(ErrorReport)
        # Later assignments win.
        for queue in reversed(Queue):
            with m.If(closes & getattr(self, f"{queue.value}_tokens_left")):
                index = getattr(self, f"{queue.value}_standing").index
                m.d.comb += report_error(left, ErrorCode.TOKENS_LEFT, queue.unit, index)
        sources = [self.errors[name] for name in error_sources(self.config)]
        half = len(sources) // 2
        firsts = [_first(m, group, name) for name, group in (("early", sources[:half]), ("late", sources[half:]))]
        return _first(m, [*firsts, stuck, left], "verdict")

    def _elaborate_watchdog(self, m: Module, busy) -> data.View:
        """Count cycles without progress; report the unit that is stuck, those nearest to the memory first."""
        progress, idle_cycles, is_late, expired = Signal(), Signal(32), Signal(), Signal()
        m.d.sync += [
            progress.eq(self.progress),
            idle_cycles.eq(Mux(busy & ~progress, idle_cycles + 1, 0)),
            is_late.eq((idle_cycles == self.watchdog) & (self.watchdog != 0)),
            expired.eq(busy & ~progress & is_late),
        ]
        dma, compute = self.dma_standing, self.compute_standing
        stuck = Signal(ErrorReport)
        with m.If(dma.in_flight):
            m.d.comb += report_error(stuck, ErrorCode.WATCHDOG, dma.unit, dma.oldest)
        with m.Elif(compute.in_flight):
            m.d.comb += report_error(stuck, ErrorCode.WATCHDOG, compute.unit, compute.oldest)
        with m.Elif(dma.missing):
            m.d.comb += report_error(stuck, ErrorCode.WATCHDOG, Unit.PREFETCH, dma.index)
        with m.Elif(compute.missing):
            m.d.comb += report_error(stuck, ErrorCode.WATCHDOG, Unit.PREFETCH, compute.index)
        with m.Elif(compute.waiting):
            m.d.comb += report_error(stuck, ErrorCode.WATCHDOG, Unit.COMPUTE_QUEUE, compute.index)
        with m.Else():
            m.d.comb += report_error(stuck, ErrorCode.WATCHDOG, Unit.DMA_QUEUE, dma.index)
        later = Signal.like(stuck)
        m.d.sync += [later.eq(stuck), later.valid.eq(expired & busy)]
        return later

    def _elaborate_counters(self, m: Module, busy) -> None:
        events = Signal(self.events.shape())
        m.d.sync += events.eq(self.events)
        for name, event in (("CYCLES", busy), *((name.upper(), events[name]) for name in events.shape().members)):
            counter = Signal(32, name=name.lower())
            # This is a cycle late, from a register; the run's own first cycle has passed then.
            with m.If(self.begin):
                m.d.sync += counter.eq(int(name == "CYCLES"))
            with m.Elif(event):
                m.d.sync += counter.eq(counter + 1)
            m.d.comb += self.read[name].eq(counter)


def _first(m: Module, reports: list, name: str) -> data.View:
    """Register the first of ``reports`` that is valid."""
    first, register = Signal(ErrorReport), Signal(ErrorReport, name=name)
    # Later assignments win.
    for source in reversed(reports):
        with m.If(source.valid):
            m.d.comb += first.eq(source)
    m.d.sync += register.eq(first)
    return register


# The events of a core for a performance trace.


class TraceSignature(wiring.Signature):
    """Pulses of one cycle for the performance trace, each registered.

    Members
    -------
    compute_issue_first, compute_issue_last : Out(1)
        The first, the last step of a COMPUTE command has been issued.
    compute_done : Out(1)
        A COMPUTE command has completed.
    dma_begin, dma_done : Out(1)
        A LOAD, STORE, FILL or BARRIER has been issued to its unit, or has completed.
    """

    def __init__(self):
        names = ("compute_issue_first", "compute_issue_last", "compute_done", "dma_begin", "dma_done")
        super().__init__(dict.fromkeys(names, Out(1)))
