"""Barriers between cores, the unit that executes BARRIER, and the common run of several cores."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa, registers
from ...golden.config import Config
from ...golden.units import ErrorCode, Unit
from ..parts.fifo import push_signature
from ..parts.isa import INDEX_BITS, ErrorReport, command_shape, report_error, report_first, unit_members
from ..parts.pipeline import Assertions

__all__ = [
    "BarrierUnit",
    "Cluster",
    "CoreBarrier",
]


class CoreBarrier(wiring.Component):
    """Release the cores of a group, all in one cycle, two cycles after the last of them has arrived.

    A group is a set of cores, bit i for core i; its cores meet where all of them have arrived with this group. Groups
    without a core in common do not wait for each other. Every output is registered.

    Parameters
    ----------
    cores : int

    Members
    -------
    arrive_0, arrive_1, ... : In(push_signature of a group)
        A core is at a barrier of this group, of which it is one. It arrives again only after ``release`` or ``lost``.
    ended_0, ended_1, ... : In(1)
        A core's program has ended: it does not arrive any more.
    release_0, release_1, ... : Out(1)
        The core continues.
    lost_0, lost_1, ... : Out(1)
        The core waits no more, because one of its group has ended; two cycles after the later of the two events.

    Raises
    ------
    ValueError
        If there is one core only.
    """

    def __init__(self, cores: int):
        if cores < 2:
            raise ValueError(f"cores must be at least 2, not {cores}")
        self.cores = cores
        members = {}
        for core in range(cores):
            members |= {
                f"arrive_{core}": In(push_signature(unsigned(cores))),
                f"ended_{core}": In(1),
                f"release_{core}": Out(1),
                f"lost_{core}": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        cores = range(self.cores)
        arrives, has_ended, releases, loses = (
            [getattr(self, f"{name}_{core}") for core in cores] for name in ("arrive", "ended", "release", "lost")
        )
        checks = Assertions(m, platform)
        here, ended = Signal(self.cores), Signal(self.cores)
        groups = [Signal(self.cores, name=f"group_{core}") for core in cores]
        m.d.sync += ended.eq(Cat(has_ended))
        for core, (arrive, group) in enumerate(zip(arrives, groups, strict=True)):
            alike = Cat(here[other] & (groups[other] == group) for other in cores)
            meets, loses_one = Signal(name=f"meets_{core}"), Signal(name=f"loses_{core}")
            m.d.comb += [
                meets.eq(here[core] & (alike | ~group).all()),
                loses_one.eq(here[core] & (ended & group).any()),
            ]
            m.d.sync += [releases[core].eq(meets), loses[core].eq(loses_one)]
            with m.If(arrive.valid):
                m.d.sync += [here[core].eq(1), group.eq(arrive.payload)]
            with m.Elif(meets | loses_one):
                m.d.sync += here[core].eq(0)
            checks.never(arrive.valid & here[core], "barrier: a core arrives that is here")
            checks.never(arrive.valid & ~arrive.payload[core], "barrier: a core arrives in a group without it")
            checks.never(has_ended[core] & (here[core] | arrive.valid), "barrier: a core waits that has ended")
        return m


# The unit that executes BARRIER.

#: Cycles by which a waiting core's watchdog expires after that of a stuck core: more than that core's error takes to
#: stop the waiting one.
_GRACE = 8


class BarrierUnit(wiring.Component):
    """Execute BARRIER, one at a time; ``done`` comes four cycles after its command where the others have arrived
    already.

    Parameters
    ----------
    config : Config
        A configuration with several cores.
    core : int
        The number of the core.

    Members
    -------
    command : In(stream of command_shape(BARRIER))
    arrive : Out(push_signature of a group)
        This core is at a barrier. Registered.
    release, lost : In(1)
        From :class:`.barrier.CoreBarrier`: the core continues, or one of its group has ended.
    peers_progress : In(1)
        Another core makes progress. While this core waits that counts as its own progress, some cycles longer, so
        that the watchdog names the core that is stuck and not those that wait for it.
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


# The run of several cores: they start and end together, and an error of one stops all.


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
        The first core with an error; of several in the same cycle the lowest.
    status : Out(32)
        The common STATUS: busy and in error where one core is, done where all are.
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
            # After an error of one core all others stop with an error, including those that were done.
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
