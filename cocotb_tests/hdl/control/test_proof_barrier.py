"""Barriers from command to completion, proved for four cores, all groups, every order of arrivals and of ends: no core
goes on before all of its group are there, none twice, and nobody waits for ever for a core that has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal, Value

from cocotb_tests.support.proofs import Proof, ProofError, broken, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode
from lutterfly.hdl.control import barrier

pytestmark = needs_yosys
CORES = 4
CONFIG = replace(PRESETS["tiny"], cluster=ClusterConfig(cores=CORES))
#: Cycles from the command of the last core of a group to the completion of all, and to the error where one has ended.
DONE_LATENCY, ERROR_LATENCY = 4, 4


class BarrierProof(Proof):
    """The units of all cores and what joins them; commands come at any time, illegal ones too.

    Stated bound: a core whose program has ended has no command left; it may begin its next program at any time.
    """

    def __init__(self, barrier_module: ModuleType = barrier, unit_module: ModuleType = barrier) -> None:
        super().__init__()
        self.barrier = barrier_module.Barrier(CORES)
        self.units = [unit_module.BarrierUnit(CONFIG, core) for core in range(CORES)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.barrier = meeting = self.barrier
        found = inside(meeting)
        # Between its command and its completion, and with whom.
        at, groups = Signal(CORES), [Signal(CORES, name=f"at_group_{core}") for core in range(CORES)]
        ended = Signal(CORES)
        done, fails = Cat(unit.done for unit in self.units), Signal(CORES)
        for core, unit in enumerate(self.units):
            m.submodules[f"unit_{core}"] = unit
            inner = inside(unit)
            arrive = getattr(meeting, f"arrive_{core}")
            release, lost = (getattr(meeting, f"{name}_{core}") for name in ("release", "lost"))
            m.d.comb += [
                unit.command.valid.eq(self.free(name=f"offers_{core}")),
                unit.command.payload.group.eq(self.free(8, name=f"offered_{core}")),
                unit.halt.eq(self.free(name=f"halt_{core}")),
                ended[core].eq(self.free(name=f"ended_{core}")),
                arrive.valid.eq(unit.arrive.valid),
                arrive.payload.eq(unit.arrive.payload),
                unit.release.eq(release),
                unit.lost.eq(lost),
                getattr(meeting, f"ended_{core}").eq(ended[core]),
                Assume(~(ended[core] & (at[core] | inner.taken))),
                fails[core].eq(unit.error.valid & (unit.error.code == ErrorCode.BARRIER)),
            ]
            group = unit.command.payload.group
            is_legal = group[core] & (group < 1 << CORES)
            with m.If(inner.taken & is_legal):
                m.d.sync += [at[core].eq(1), groups[core].eq(group)]
            with m.Elif(done[core] | fails[core]):
                m.d.sync += at[core].eq(0)
            refused = Signal(name=f"refused_{core}")
            m.d.sync += refused.eq(inner.taken & ~is_legal)
            stages = [arrive.valid, found.here[core], release, lost, unit.done, fails[core]]
            m.d.comb += [
                Assert(refused == (unit.error.valid & (unit.error.code == ErrorCode.ILLEGAL_FIELD))),
                # It is somewhere between the two, and nowhere else.
                Assert(sum(stages) == at[core]),
                Assert(unit.waiting == Cat(stages[:4]).any()),
                Assert(~unit.waiting | ~inner.failed),
                Assert(~found.here[core] | (found.groups[core] == groups[core])),
                Assert(~arrive.valid | (arrive.payload == groups[core])),
                Assert(~at[core] | groups[core][core]),
                Assert(~found.ended[core] | ~at[core]),
            ]
        for core in range(CORES):
            self.check_meeting(m, core, at, groups, done)
            self.check_end(m, core, at[core], groups[core], ended, fails[core])
        m.d.comb += [
            Cover((done == 0b0101) & at[1]),
            Cover(done == 0b1111),
            Cover((done == 0b0011) & fails[2]),
        ]
        return m

    def check_meeting(self, m: Module, core: int, at: Signal, groups: list, done: Value) -> None:
        """Whoever goes on goes with all of its group, each once for its command, and soon."""
        group = groups[core]
        alike = Cat(at[other] & (groups[other] == group) for other in range(CORES))
        complete, waited = at[core] & (alike | ~group).all(), Signal(range(8), name=f"complete_for_{core}")
        m.d.sync += waited.eq(Mux(complete & ~done[core], waited + (waited != 7), 0))
        m.d.comb += [
            Assert(~done[core] | complete & ((done & group) == group)),
            Assert(waited < DONE_LATENCY),
        ]

    def check_end(self, m: Module, core: int, waits: Value, group: Signal, ended: Signal, fails: Value) -> None:
        """Whoever waits for one that has ended is told soon, and nobody else."""
        has_ended, waited = (ended & group).any(), Signal(range(8), name=f"ended_for_{core}")
        before = Signal(3, name=f"had_ended_{core}")
        m.d.sync += [
            waited.eq(Mux(waits & has_ended & ~fails, waited + (waited != 7), 0)),
            before.eq(Cat(has_ended, before)),
        ]
        m.d.comb += [Assert(waited < ERROR_LATENCY), Assert(~fails | before[-1])]


def test_barriers(tmp_path: Path) -> None:
    prove(BarrierProof(), tmp_path, depth=6, cover_depth=16)


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        # Who is here is enough, whatever it waits for.
        (barrier, "here[other] & (groups[other] == group)", "here[other]"),
        # A core that has gone on counts again.
        (barrier, "with m.Elif(meets | loses_one):", "with m.Elif(loses_one):"),
        # One that arrives in the cycle in which another one ends.
        (barrier, "here[core] & (ended & group).any()", "here[core] & (ended & group & ~Cat(has_ended)).any()"),
        (barrier, "(ended & group).any()", "(ended & group).all()"),
        (barrier, "self.arrive.valid.eq(taken & legal)", "self.arrive.valid.eq(taken)"),
        (
            barrier,
            "legal.eq(command.group[self.core] & ~command.group[cores:].any())",
            "legal.eq(command.group[self.core])",
        ),
        (barrier, "with m.Elif(self.release | self.lost):", "with m.Elif(self.release):"),
        (barrier, "~self.waiting & ~self.halt", "~self.halt"),
    ],
)
def test_a_broken_barrier_is_found(part: ModuleType, old: str, new: str, tmp_path: Path) -> None:
    changed = {"barrier_module": broken(part, old, new)} if part is barrier else {"unit_module": broken(part, old, new)}
    with pytest.raises(ProofError, match="fails after reset"):
        prove(BarrierProof(**changed), tmp_path, depth=10, mode="bounded")
