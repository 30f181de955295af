"""The run of several cores: one start, one end, and an error of one that stops all."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import registers

__all__ = ["Cluster"]


class Cluster(wiring.Component):
    """Start all cores at once, and end their run. Every output depends on registers only.

    Parameters
    ----------
    cores : int

    Members
    -------
    start : In(1)
        Begin a run; without effect while a core is busy or in error.
    clear_interrupt : In(1)
    status_0, status_1, ... : In(32)
        STATUS of each core.
    begin : Out(1)
        Start, for all cores, a cycle later.
    stop : Out(1)
        A core has had an error: the others stop, until reset.
    error_core : Out(range(cores))
        Which one was the first; of several in the same cycle the lowest.
    status : Out(32)
        STATUS of all: busy and in error where one is, done where all are.
    pending : Out(1)
        An interrupt: all are done, or all have stopped.

    Raises
    ------
    ValueError
        If there is one core only.
    """

    def __init__(self, cores: int):
        if cores < 2:
            raise ValueError(f"cores must be at least 2, not {cores}")
        self.cores = cores
        super().__init__(
            {
                "start": In(1),
                "clear_interrupt": In(1),
                **{f"status_{core}": In(32) for core in range(cores)},
                "begin": Out(1),
                "stop": Out(1),
                "error_core": Out(ceil_log2(cores)),
                "status": Out(32),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        statuses = [getattr(self, f"status_{core}") for core in range(self.cores)]

        def flags(bit: int):
            return Cat((status & bit).any() for status in statuses)

        busy, done, error = (Signal(self.cores, name=name) for name in ("busy", "done", "error"))
        ended, had_ended = Signal(), Signal()
        m.d.comb += [
            busy.eq(flags(registers.STATUS_BUSY)),
            done.eq(flags(registers.STATUS_DONE)),
            error.eq(flags(registers.STATUS_ERROR)),
            # After an error of one all others stop with one, those that were done too.
            ended.eq(done.all() | error.all()),
            self.status.eq(
                Mux(busy.any(), registers.STATUS_BUSY, 0)
                | Mux(done.all(), registers.STATUS_DONE, 0)
                | Mux(error.any(), registers.STATUS_ERROR, 0)
            ),
        ]
        m.d.sync += [self.begin.eq(self.start & ~busy.any() & ~error.any()), had_ended.eq(ended)]
        with m.If(error.any() & ~self.stop):
            m.d.sync += self.stop.eq(1)
            # Later assignments win.
            for core in reversed(range(self.cores)):
                with m.If(error[core]):
                    m.d.sync += self.error_core.eq(core)
        with m.If(ended & ~had_ended):
            m.d.sync += self.pending.eq(1)
        with m.Elif(self.clear_interrupt):
            m.d.sync += self.pending.eq(0)
        return m
