"""The unit that executes BARRIER."""

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.units import ErrorCode, Unit
from ..parts.fifo import push_signature
from ..parts.isa import INDEX_BITS, ErrorReport, command_shape, report_error, report_first, unit_members

__all__ = ["BarrierUnit"]

#: Cycles by which a core that waits gives up after one that is stuck: longer than that one's error takes to stop it.
_GRACE = 8


class BarrierUnit(wiring.Component):
    """Execute BARRIER, one at a time; ``done`` four cycles after its command where the others are there already.

    Parameters
    ----------
    config : Config
        With several cores.
    core : int
        The number of the core.

    Members
    -------
    command : In(stream of command_shape(BARRIER))
    arrive : Out(push_signature of a group)
        This core is at a barrier. Registered.
    release, lost : In(1)
        From :class:`.barrier.Barrier`: it goes on, or one of its group has ended.
    peers_progress : In(1)
        Something moves in another core. While this one waits that is its progress too, some cycles longer, so that
        the watchdog names the core that is stuck and not those that wait for it.
    waiting : Out(1)
        The core waits at a barrier.
    done : Out(1)
    error : Out(ErrorReport)
    halt : In(1)
    progress : Out(1)

    Raises
    ------
    ValueError
        If there is no core of this number, or one core only.
    """

    def __init__(self, config: Config, core: int):
        if config.cores < 2:
            raise ValueError(f"cores must be at least 2, not {config.cores}")
        if core not in range(config.cores):
            raise ValueError(f"core must be between 0 and {config.cores - 1}, not {core}")
        self.config = config
        self.core = core
        super().__init__(
            {
                "command": In(stream.Signature(command_shape(isa.BARRIER))),
                "arrive": Out(push_signature(unsigned(config.cores))),
                "release": In(1),
                "lost": In(1),
                "peers_progress": In(1),
                "waiting": Out(1),
                **unit_members(),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        command, cores = self.command.payload, self.config.cores
        failed, taken, legal = Signal(), Signal(), Signal()
        index, grace = Signal(INDEX_BITS, reset_less=True), Signal(range(_GRACE + 1))
        m.d.comb += [
            self.command.ready.eq(~self.waiting & ~self.halt & ~failed),
            taken.eq(self.command.valid & self.command.ready),
            legal.eq(command.group[self.core] & ~command.group[cores:].any()),
        ]
        m.d.sync += [
            self.arrive.valid.eq(taken & legal),
            self.arrive.payload.eq(command.group),
            self.done.eq(self.release),
            self.progress.eq(taken | self.release | self.waiting & (grace != 0)),
        ]
        with m.If(self.peers_progress):
            m.d.sync += grace.eq(_GRACE)
        with m.Elif(grace != 0):
            m.d.sync += grace.eq(grace - 1)
        with m.If(taken):
            m.d.sync += [self.waiting.eq(legal), index.eq(command.index)]
        with m.Elif(self.release | self.lost):
            m.d.sync += self.waiting.eq(0)

        refused, deserted = Signal(ErrorReport), Signal(ErrorReport)
        with m.If(taken & ~legal):
            m.d.comb += report_error(refused, ErrorCode.ILLEGAL_FIELD, Unit.BARRIER, command.index)
        with m.If(self.lost):
            m.d.comb += report_error(deserted, ErrorCode.BARRIER, Unit.BARRIER, index)
        report_first(m, self.error, (refused, deserted), failed)
        return m
