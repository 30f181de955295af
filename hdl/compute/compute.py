"""The compute unit: windows, feature memory, engines, results, requantiser, tables, write back."""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.engines.specifications import specification
from ...golden.memories import LocalMemory
from ...golden.timing import terms_latency
from ..dma.local_write import local_write_layout
from ..engines import COMPONENTS
from ..engines.engine import NARROW_BITS, EngineComponent, TermsComponent, take_fields, term_of
from ..memories.feature_memory import FETCH_LATENCY, WRITE_LATENCY, FeatureMemory, feature_write_layout
from ..memories.weight_memory import WeightMemory
from ..parts.assertions import Assertions
from ..parts.device import RAM_LATENCY
from ..parts.fifo import Buffer
from ..parts.isa import ErrorReport, command_shape
from ..parts.pipeline import copy_of, delay
from .direct_finish import LATENCY as DIRECT_LATENCY
from .direct_finish import DirectFinish
from .requant import LATENCY as REQUANT_LATENCY
from .requant import Parameter, Requantiser
from .results import RESULTS_LATENCY, Results, any_result_layout, finish_flags
from .transfer_tables import TransferTables
from .windows import ISSUE_LATENCY, Windows
from .write_back import WRITE_BACK_LATENCY, WriteBack

__all__ = ["Compute"]

#: From the result of an engine to the write of its first group, less a cycle, if it becomes no other terms on its way.
_GROUP_LATENCY = RESULTS_LATENCY - 1 + REQUANT_LATENCY + RAM_LATENCY + WRITE_BACK_LATENCY

#: Parts of a result that are chosen each by registers of their own.
_CHOICES = 2


class Compute(wiring.Component):
    """Execute COMPUTE commands in order, one step a cycle, and hold the memories that they work on.

    Parameters
    ----------
    config : Config

    Members
    -------
    command, done, error, halt, progress
        As every unit has them, see ``docs/architecture.md``.
    feature_write : In(stream of feature writes)
        Of LOAD and FILL; waits for write back.
    local_write : In(local write)
        Of LOAD, to the other memories.
    store_read : In(stream of addresses), store_word : Out(valid, data)
        Of STORE: takes the cycles in which no step is read; words come in order, a fixed time later.
    issued, stalled : Out(1)
        For the performance counters.
    first, last : Out(1)
        The first, the last step of a command is issued.
    """

    def __init__(self, config: Config):
        self.config = config
        self.terms_latency = terms_latency(config)
        super().__init__(
            {
                "command": In(stream.Signature(command_shape(isa.COMPUTE))),
                "done": Out(1),
                "error": Out(ErrorReport),
                "halt": In(1),
                "progress": Out(1),
                "feature_write": In(stream.Signature(feature_write_layout(config))),
                "local_write": In(local_write_layout(config)),
                "store_read": In(stream.Signature(unsigned(isa.LOCAL_BITS))),
                "store_word": Out(data.StructLayout({"valid": unsigned(1), "data": unsigned(8 * config.array.lanes)})),
                "issued": Out(1),
                "stalled": Out(1),
                "first": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        engines = [kind(self.config) for kind in dict.fromkeys(COMPONENTS[code] for code in self.config.engines)]
        landing = {
            code: FETCH_LATENCY + latency + self.terms_latency + _GROUP_LATENCY + WRITE_LATENCY - 2
            for engine in engines
            for code, latency in engine.latencies.items()
        }
        m.submodules.windows = windows = Windows(self.config, landing_latency=landing)
        m.submodules.feature_memory = features = FeatureMemory(self.config)
        late = [engine for engine in engines if engine.weight_times is not None]
        if len(late) > 1:
            raise ValueError(f"engines must have at most one with weight times of its own, not {len(late)}")
        m.submodules.weight_memory = weights = WeightMemory(
            self.config, late_times=late[0].weight_times if late else None
        )
        m.submodules.results = results = Results(self.config)
        terms = self._submodules_for_terms(m, engines)
        m.submodules.tables = tables = TransferTables(self.config)
        m.submodules.write_back = write_back = WriteBack(self.config)
        for engine in engines:
            m.submodules["_".join(code.name.lower() for code in engine.latencies)] = engine

        wiring.connect(m, wiring.flipped(self.command), windows.command)
        wiring.connect(m, windows.context, results.context)
        wiring.connect(m, wiring.flipped(self.feature_write), features.transfer_write)
        for unit in (windows, results, write_back):
            m.d.sync += unit.halt.eq(self.halt)

        self._elaborate_fetch(m, windows, features, weights, engines)
        m.d.comb += results.result.eq(self._chosen_result(m, engines))
        self._elaborate_requantise(m, results, terms, tables, write_back)
        self._elaborate_local_writes(m, engines, windows, weights, results, terms, tables)

        m.d.comb += [
            features.result_valid.eq(write_back.write_valid),
            features.result_write.eq(write_back.write),
            self.done.eq(write_back.done),
            self.progress.eq(windows.issued | write_back.write_valid),
            self.issued.eq(windows.issued),
            self.stalled.eq(windows.stalled),
            self.first.eq(windows.first),
            self.last.eq(windows.last),
        ]
        with m.If(windows.error.valid):
            m.d.sync += self.error.eq(windows.error)
        with m.Elif(results.error.valid):
            m.d.sync += self.error.eq(results.error)
        with m.Else():
            m.d.sync += self.error.eq(write_back.error)
        self._elaborate_assertions(m, Assertions(m, platform), engines, windows)
        return m

    def _elaborate_assertions(self, m: Module, checks: Assertions, engines: list, windows: Windows) -> None:
        """One engine works at a time, bursts have no pauses, and a command that waits reads nothing too early."""
        if not checks.wanted:
            return
        valid = Cat(engine.result.valid for engine in engines)
        checks.never((valid & (valid - 1)).any(), "compute: results of two engines at once")
        for engine in engines:
            if engine.is_narrow:
                too_wide = [
                    lane[NARROW_BITS - 1 :].any() & ~lane[NARROW_BITS - 1 :].all() for lane in engine.result.lanes
                ]
                checks.never(engine.result.valid & Cat(too_wide).any(), "compute: a narrow result is wide")
        halted = Signal()
        with m.If(self.halt):
            m.d.sync += halted.eq(1)
        for engine in engines:
            if any(specification(code).is_burst for code in engine.latencies):
                inside = Signal()
                with m.If(engine.step.valid):
                    m.d.sync += inside.eq(~engine.step.fire)
                pauses = inside & ~engine.step.valid & ~halted & ~self.halt
                checks.never(pauses, "compute: the steps of a burst do not come one after the other")
        # The last write may come a cycle behind the issue of a step that reads it: see FeatureMemory.
        begun, done = Signal(16), Signal(16)
        m.d.sync += [begun.eq(begun + windows.first), done.eq(done + self.done)]
        late = ISSUE_LATENCY - WRITE_LATENCY + 1
        target, waited = delay(m, begun, late, name="target"), delay(m, windows.dependent, late, name="waited")
        checks.never(waited & ((target - done)[:16] != 0), "compute: a command reads before an earlier one has written")

    def _elaborate_fetch(
        self, m: Module, windows: Windows, features: FeatureMemory, weights: WeightMemory, engines: list
    ) -> None:
        """Steps read first, STORE in between; words and weights meet at the engines."""
        # So that a step does not have to stop STORE in the same cycle.
        m.submodules.store_reads = store_reads = Buffer(self.store_read.payload.shape())
        wiring.connect(m, wiring.flipped(self.store_read), store_reads.input)
        store_read, store_taken = store_reads.output, Signal()
        m.d.comb += [
            features.read_address.eq(Mux(windows.reads, windows.address, store_read.payload)),
            store_read.ready.eq(~windows.reads),
            store_taken.eq(store_read.valid & ~windows.reads),
            self.store_word.valid.eq(delay(m, store_taken, FETCH_LATENCY, name="store")),
            self.store_word.data.eq(features.read_word),
            weights.address.eq(delay(m, windows.weight, FETCH_LATENCY - RAM_LATENCY, name="weight")),
        ]
        step = delay(m, windows.step, FETCH_LATENCY, name="step")
        code = delay(m, windows.engine, FETCH_LATENCY, name="engine")
        for engine in engines:
            m.d.comb += [
                engine.word.eq(features.read_word),
                engine.step.valid.eq(step.valid & Cat(code == own for own in engine.latencies).any()),
                engine.step.clear.eq(step.clear),
                engine.step.fire.eq(step.fire),
            ]
            m.d.comb += [
                *(engine.step[flag].eq(code == own) for flag, own in engine.flags.items()),
                *take_fields(engine.step, step),
            ]
            if "keeps" in data.Layout.cast(engine.step.shape()).members:
                m.d.comb += engine.step.keeps.eq(step.keeps)
            for name in engine.modes:
                works = self._works(m, windows, [engine.flags[name]], name=f"mode_{name}")
                m.d.comb += engine.mode[name].eq(works)
            if "weights" in engine.signature.members:
                m.d.comb += engine.weights.eq(weights.weights)
            if engine.weight_times is not None:
                works = self._works(m, windows, engine.latencies, name="works_late")
                m.d.comb += weights.is_late.eq(works)
                if "active" in engine.signature.members:
                    self._lend(m, engines, engine, works)

    def _works(self, m: Module, windows: Windows, codes: Iterable[int], *, name: str) -> Signal:
        """Whether one of these engines works: long before its first word, and until others begin, which wait for it."""
        works = Signal(name=name)
        with m.If(windows.step.valid):
            m.d.sync += works.eq(Cat(windows.engine == code for code in codes).any())
        return works

    def _lend(self, m: Module, engines: list, borrower: EngineComponent, works: Signal) -> None:
        """Connect a borrower of multipliers with the array, which its work begins and ends for as well."""
        (array,) = (engine for engine in engines if "lent" in engine.signature.members)
        m.d.comb += [borrower.active.eq(works), array.lent.eq(works)]
        wiring.connect(m, borrower.borrowed_multipliers, array.lent_multipliers)

    def _chosen_result(self, m: Module, engines: list[EngineComponent]) -> data.View:
        """The result of the engine that works: Windows lets only one work at a time."""
        chosen = Signal(any_result_layout(self.config))
        steps = Cat(engine.step.valid for engine in engines)
        lanes = self.config.array.lanes
        for number in range(_CHOICES):
            # Which engine that is stands long before its result. There are many bits to choose.
            works = copy_of(steps[1:], number, name=f"works_{number}")
            with m.If(steps.any()):
                m.d.sync += works.eq(steps[1:])
            for lane in range(number * lanes // _CHOICES, (number + 1) * lanes // _CHOICES):
                totals = {place: engine.result.lanes[lane] for place, engine in enumerate(engines)}
                wide = {place: total for place, total in totals.items() if not engines[place].is_narrow}
                m.d.comb += chosen.low[lane].eq(_choose(totals, works)[:NARROW_BITS])
                if wide:
                    m.d.comb += chosen.high[lane].eq(_choose(wide, works)[NARROW_BITS:])
        valid = dict(enumerate(engine.result.valid for engine in engines))
        is_wide = dict(enumerate(Const(not engine.is_narrow) for engine in engines))
        m.d.comb += [chosen.valid.eq(_choose(valid, works)), chosen.is_wide.eq(_choose(is_wide, works))]
        return chosen

    def _submodules_for_terms(self, m: Module, engines: list[EngineComponent]) -> TermsComponent | None:
        """What makes other terms of the results of an engine, if there is one."""
        kinds = {code: engine.terms for engine in engines if engine.terms for code in engine.latencies}
        if len(kinds) > 1:
            raise ValueError(f"engines must have at most one with terms of its own, not {len(kinds)}")
        for code, kind in kinds.items():
            m.submodules[f"{code.name.lower()}_tables"] = terms = kind(self.config)
            return terms
        return None

    def _elaborate_requantise(
        self, m: Module, results: Results, own: TermsComponent | None, tables: TransferTables, write_back: WriteBack
    ) -> None:
        """From accumulators to codes: ``own`` makes other terms of those of its engine."""
        settings = delay(m, results.settings, self.terms_latency, name="settings")
        if own:
            (is_own,) = finish_flags(self.config).values()
            m.d.comb += [
                own.settings.enable.eq(results.settings[is_own]),
                *take_fields(own.settings, results.settings),
                own.accumulators.eq(results.accumulators),
            ]
        for lane in range(self.config.array.requant_lanes):
            m.submodules[f"requantiser_{lane}"] = requantiser = Requantiser()
            parameter = data.View(Parameter, results.parameters[lane])
            if own:
                m.d.comb += [
                    own.biases[lane].eq(parameter.bias),
                    requantiser.terms.eq(own.terms[lane]),
                ]
            else:
                terms = (results.accumulators[lane], parameter.bias)
                m.d.comb += [target.eq(term_of(term)) for target, term in zip(requantiser.terms, terms, strict=True)]
            m.d.comb += [
                requantiser.scale.eq(delay(m, parameter.scale, self.terms_latency, name=f"scale_{lane}")),
                requantiser.zero_point.eq(settings.zero_point),
                requantiser.low.eq(settings.low),
                requantiser.high.eq(settings.high),
                tables.codes[lane].eq(requantiser.result),
            ]
        latency = self.terms_latency + REQUANT_LATENCY + RAM_LATENCY
        if results.has_direct:
            self._elaborate_direct(m, results, write_back, latency)
        place = delay(m, results.place, latency, name="place")
        m.d.comb += [
            tables.enable.eq(delay(m, settings.table_enable, REQUANT_LATENCY, name="table_enable")),
            tables.table.eq(delay(m, settings.table, REQUANT_LATENCY, name="table")),
            write_back.values.eq(tables.values),
            write_back.place.eq(place),
        ]

    def _elaborate_direct(self, m: Module, results: Results, write_back: WriteBack, latency: int) -> None:
        """From values to codes without the requantiser, in as many cycles as with it."""
        m.submodules.direct_finish = finish = DirectFinish(self.config.array.lanes)
        settings = results.settings
        (direct,) = (one for one in map(specification, self.config.engines) if one.direct)
        biases = Cat(results.parameters)[: len(finish.biases.as_value())]
        m.d.comb += [
            finish.values.eq(results.direct_values),
            finish.biases.eq(biases),
            finish.settings.shift.eq(settings.fields[direct.name].shift),
            *(finish.settings[name].eq(settings[name]) for name in ("zero_point", "low", "high")),
            write_back.direct_values.eq(delay(m, finish.codes, latency - DIRECT_LATENCY, name="direct_codes")),
        ]

    def _elaborate_local_writes(
        self,
        m: Module,
        engines: list[EngineComponent],
        windows: Windows,
        weights: WeightMemory,
        results: Results,
        terms: TermsComponent | None,
        tables: TransferTables,
    ) -> None:
        """Each write to its memory: from one memory to the next, so that no wire has to reach all of them."""
        local = self.local_write
        ports = {
            LocalMemory.LIST: windows.list_write,
            LocalMemory.TABLE: tables.write,
            **({terms.memory: terms.write} if terms else {}),
            LocalMemory.PARAMETER: results.parameter_write,
            LocalMemory.WEIGHT: weights.write,
            **{engine.memory: engine.write for engine in engines if engine.memory is not None},
        }
        for code, port in ports.items():
            local = delay(m, local, 1, name=f"{code.name.lower()}_write")
            m.d.comb += [
                port.en.eq(local.valid & (local.memory == code)),
                port.addr.eq(local.address),
                port.data.eq(local.data),
            ]


def _choose(values: dict[int, Value], works: Value) -> Value:
    """The value of the engine that works, by its place; of any where that one has none. ``works`` leaves out the
    first."""
    (_, chosen), *others = values.items()
    for place, value in others:
        chosen = Mux(works[place - 1], value, chosen)
    return chosen
