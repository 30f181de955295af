"""The issue gate: a step is issued only when nothing behind it can overflow and its operands have been written back."""

from functools import reduce
from operator import add

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.engines.engine import Engine
from ...golden.timing.latencies import RESULT_WINDOWS, backlog_limit, window_results
from ..engines.engine import further_results, has_whole_epilogue, is_whole, most_further
from ..parts.isa import field_shape
from ..parts.pipeline import Assertions, delay

__all__ = ["IssueGate", "foreseen_layout", "foreseen_limit", "window_work"]

#: The backlog limit of engines whose windows have one result.
_SINGLE_LIMIT = RESULT_WINDOWS - 1


def foreseen_layout(config: Config) -> StructLayout:
    """Return the layout of a step at the issue gate.

    ``counts`` is set for one step of each window, the last one, or in a burst the first. ``work`` is the number of
    cycles that :class:`~lutterfly.hdl.results.results.Results` is busy with the window's results: one for each group,
    and one more where a command begins. ``waits`` holds the step until every earlier result can be read. ``changes``,
    where engines overlap, holds it until every earlier result has left its engine and the result FIFO. ``limit``, where
    engines have limits of their own, is that of :func:`foreseen_limit`.
    """
    work, changes = range(_most_groups(config) + 2), {"changes": 1} if config.hands_over else {}
    engine = field_shape(isa.COMPUTE, "engine")
    limit = {"limit": len(own)} if (own := _own_limits(config)) else {}
    return StructLayout({"counts": 1, "waits": 1, **changes, **limit, "engine": engine, "work": work})


def _own_limits(config: Config) -> list[int]:
    return sorted({backlog_limit(config, code) for code in config.engines} - {_SINGLE_LIMIT})


def foreseen_limit(engine: Value, config: Config) -> Value:
    """Return a bit for each backlog limit other than that of engines with one result: whether it is the engine's."""
    of_limit = {
        limit: [c for c in config.engines if backlog_limit(config, c) == limit] for limit in _own_limits(config)
    }
    return Cat(Cat(engine == code for code in codes).any() for codes in of_limit.values())


def window_work(m: Module, command: data.View, last_tile: Value, begins: Value, config: Config) -> Value:
    """The ``work`` of a window: groups of its results, rounded up, and one cycle more where the command begins.

    The command is the same as in the cycle before.
    """
    lanes = Mux(last_tile, command.last_lanes, command.lanes)
    lane_bits, all_bits = ceil_log2(config.array.requant_lanes), ceil_log2(config.array.lanes)
    # One adder computes both.
    work = (lanes + Cat(Const((1 << lane_bits) - 1, lane_bits), begins)) >> lane_bits
    if has_whole_epilogue(config):
        whole_work = (lanes + Cat(Const((1 << all_bits) - 1, all_bits), begins)) >> all_bits
        work = Mux(is_whole(command, config), whole_work, work)
    if most_further(config):
        further, of_last = (
            delay(m, _further_groups(command[name], command, config), 1, name=f"further_groups_of_{name}")
            for name in ("lanes", "last_lanes")
        )
        work += Mux(last_tile, of_last, further)
    return work


def _further_groups(lanes: Value, command: data.View, config: Config) -> Value:
    """Return the groups of all results of a window but the first one, as a sum: a multiplier would be far away."""
    lane_bits, further = ceil_log2(config.array.requant_lanes), further_results(command, config)
    groups = (lanes + (1 << lane_bits) - 1) >> lane_bits
    return reduce(add, (Mux(bit, groups << place, 0) for place, bit in enumerate(further)))


def _most_groups(config: Config) -> int:
    """Return the greatest number of groups of a window's results."""
    results = max(window_results(config, code) for code in config.engines)
    return results * config.array.lanes // config.array.requant_lanes


class IssueGate(wiring.Component):
    """Let steps pass, one each cycle, or hold them back.

    Nothing after the issue can stall, so two counters predict the occupancy there. ``backlog`` is an upper bound of the
    cycles that the results of all windows so far still take; it holds the last step of a window back while its result
    could overflow the result FIFO, and in a burst, which cannot be interrupted, the first step. ``landing`` is the
    number of cycles until the last result can be read; it holds the first step of a dependent command back. Where
    engines overlap, a command of another engine, or of bursts, is held back until ``landing`` is what every result
    takes behind the result FIFO. ``test_proof_issue_gate.py`` proves that neither counter is ever too small, for any
    commands; ``test_proof_windows.py`` proves that steps carry the right fields, and that nothing comes between those
    of a burst.

    Parameters
    ----------
    config : Config
    landing_latency : dict of Engine to int
        Cycles from the last issue of a window with one group (the first one of a burst), when nothing waits, to two
        before the first issue that may read its result.
    epilogue_latency : int
        The part of these cycles that comes after the engine.

    Members
    -------
    steps : In(stream of foreseen_layout)
        Registered; a step is issued when it is transferred.
    halt : In(1)
        Issue nothing more.
    """

    def __init__(self, config: Config, *, landing_latency: dict[Engine, int], epilogue_latency: int = 0):
        self.config = config
        self.landing_latency = landing_latency
        self.epilogue_latency = epilogue_latency
        super().__init__({"steps": In(stream.Signature(foreseen_layout(config))), "halt": In(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        step = self.steps.payload
        limits = {_SINGLE_LIMIT, *_own_limits(self.config)}
        most = max(limits) + _most_groups(self.config)
        backlog, working = Signal(range(most + 1)), Signal(range(most + 1))
        landed, counted = Signal(), Signal()
        # Whether the backlog is above each limit, from registers: the gate is the longest path of the issue.
        full = {limit: Signal(name=f"above_{limit}") for limit in sorted(limits)}
        is_full: Value = full[_SINGLE_LIMIT]
        for place, limit in enumerate(_own_limits(self.config)):
            is_full = Mux(step.limit[place], full[limit], is_full)
        waits = step.waits & ~landed
        if self.config.hands_over:
            handed = Signal()
            waits |= step.changes & ~handed
        m.d.comb += [
            self.steps.ready.eq(~self.halt & ~(step.counts & is_full) & ~waits),
            counted.eq(self.steps.valid & self.steps.ready & step.counts),
            working.eq(Mux(backlog == 0, 0, backlog - 1)),
        ]
        more = working + step.work
        m.d.sync += [
            backlog.eq(Mux(counted, more, working)),
            *(above.eq(Mux(counted, more > limit, working > limit)) for limit, above in full.items()),
        ]

        # A cycle after the step that counts, `landing` becomes its engine's latency plus the backlog then: the window's
        # last group leaves the requantiser when the backlog has been worked off.
        latencies = {engine: self.landing_latency[engine] for engine in self.config.engines}
        ended, engine = Signal(), Signal.like(step.engine, reset_less=True)
        landing = Signal(range(max(latencies.values()) + most + 1))
        m.d.sync += [ended.eq(counted), engine.eq(step.engine), landed.eq(~counted & ~ended & (landing <= 1))]
        if self.config.hands_over:
            m.d.sync += handed.eq(~counted & ~ended & (landing <= 1 + self.epilogue_latency))
        with m.If(ended), m.Switch(engine):
            for code, cycles in latencies.items():
                with m.Case(code):
                    m.d.sync += landing.eq(cycles + backlog)
        with m.Elif(landing != 0):
            m.d.sync += landing.eq(landing - 1)
        Assertions(m, platform).never(backlog > most, "IssueGate: more results are under way than are counted")
        return m
