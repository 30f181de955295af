"""What must never happen in the compute unit, asserted in every simulation."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal

from ...golden.elements import NARROW_BITS
from ...golden.engines import specification_of
from ..engines.engine import EngineComponent
from ..memories.feature_memory import WRITE_LATENCY
from ..parts.assertions import Assertions
from ..parts.pipeline import delay
from .windows import ISSUE_LATENCY, Windows

__all__ = ["check_commands", "check_engines"]


def check_engines(m: Module, checks: Assertions, engines: Sequence[EngineComponent], halt: Signal) -> None:
    """One engine gives results at a time, narrow results are narrow, and bursts have no pauses."""
    if not checks.wanted:
        return
    valid = Cat(engine.result.valid for engine in engines)
    checks.never((valid & (valid - 1)).any(), "compute: results of two engines at once")
    for engine in engines:
        if engine.is_narrow:
            too_wide = [lane[NARROW_BITS - 1 :].any() & ~lane[NARROW_BITS - 1 :].all() for lane in engine.result.lanes]
            checks.never(engine.result.valid & Cat(too_wide).any(), "compute: a narrow result is wide")
    halted = Signal()
    with m.If(halt):
        m.d.sync += halted.eq(1)
    for engine in engines:
        if any(specification_of(code).issue.is_burst for code in engine.latencies):
            inside = Signal()
            with m.If(engine.step.valid):
                m.d.sync += inside.eq(~engine.step.fire)
            pauses = inside & ~engine.step.valid & ~halted & ~halt
            checks.never(pauses, "compute: the steps of a burst do not come one after the other")


def check_commands(m: Module, checks: Assertions, windows: Windows, completed: Signal) -> None:
    """A command that waits reads nothing before earlier ones have written it."""
    if not checks.wanted:
        return
    # The last write may come a cycle after the issue of a step that reads it: see FeatureMemory.
    begun, done = Signal(16), Signal(16)
    m.d.sync += [begun.eq(begun + windows.first), done.eq(done + completed)]
    late = ISSUE_LATENCY - WRITE_LATENCY + 1
    target, waited = delay(m, begun, late, name="target"), delay(m, windows.dependent, late, name="waited")
    checks.never(waited & ((target - done)[:16] != 0), "compute: a command reads before an earlier one has written")
