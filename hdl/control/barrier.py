"""Where the cores meet: who waits at a barrier, and with whom it goes on."""

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..parts.assertions import Assertions
from ..parts.fifo import push_signature

__all__ = ["Barrier"]


class Barrier(wiring.Component):
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
        The core goes on.
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
