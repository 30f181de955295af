"""The compute unit: issue of windows, feature memory, engines, results, epilogue, write-back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.elements import NARROW_BITS
from ...golden.engines import specification_of
from ...golden.engines.engine import Engine
from ...golden.memories import LocalMemory
from ..dma.chunks import local_write_layout
from ..engines import COMPONENTS
from ..engines.engine import EngineComponent, component_name, take_fields
from ..engines.multipliers import connect_multipliers
from ..memories.feature_memory import FETCH_LATENCY, WRITE_LATENCY, FeatureMemory, feature_write_layout
from ..memories.weight_memory import WeightMemory
from ..parts.device import RAM_LATENCY
from ..parts.fifo import Buffer
from ..parts.isa import ErrorReport, command_shape
from ..parts.pipeline import Assertions, Sleep, delay
from ..results.epilogues import Epilogues, epilogues_latency
from ..results.results import RESULTS_LATENCY, ResultChoice, Results
from ..results.write_back import WRITE_BACK_LATENCY, WriteBack
from .windows import ISSUE_LATENCY, Windows

__all__ = [
    "ComputeUnit",
    "check_commands",
    "check_engines",
]


# Assertions on the compute unit, which every simulation checks.


def check_engines(m: Module, checks: Assertions, engines: Sequence[EngineComponent], halt: Signal) -> None:
    """Assert that one engine gives results at a time, and none after the first word of another engine, which selects
    that engine's results; that narrow results are narrow; and that bursts have no pauses."""
    if not checks.wanted:
        return
    valid = Cat(engine.result.valid for engine in engines)
    checks.never((valid & (valid - 1)).any(), "compute: results of two engines at once")
    steps = Cat(engine.step.valid for engine in engines)
    works = Signal.like(steps, name="works")
    with m.If(steps.any()):
        m.d.sync += works.eq(steps)
    checks.never((valid & ~works).any(), "compute: a result that comes after the first word of another engine")
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
    """Assert that a command that waits reads nothing before earlier commands have written it."""
    if not checks.wanted:
        return
    # The last write may come a cycle after the issue of a step that reads it: see FeatureMemory.
    begun, done = Signal(16), Signal(16)
    m.d.sync += [begun.eq(begun + windows.first), done.eq(done + completed)]
    late = ISSUE_LATENCY - WRITE_LATENCY + 1
    target, waited = delay(m, begun, late, name="target"), delay(m, windows.dependent, late, name="waited")
    checks.never(waited & ((target - done)[:16] != 0), "compute: a command reads before an earlier one has written")


class ComputeUnit(wiring.Component):
    """Execute COMPUTE commands in order, one step a cycle, and hold the memories that they work on.

    Parameters
    ----------
    config : Config

    Members
    -------
    command, done, error, halt, progress
        The members of every unit, see ``docs/architecture.md``.
    feature_write : In(stream of feature writes)
        Writes of LOAD and FILL; they wait for write-back.
    local_write : In(local write)
        Writes of LOAD to the other memories.
    store_read : In(stream of addresses), store_word : Out(valid, data)
        Reads of STORE, in cycles in which no step reads; words come in order, a fixed time later.
    issued, stalled : Out(1)
        For the performance counters.
    first, last : Out(1)
        The first or the last step of a command is issued.
    """

    def __init__(self, config: Config):
        self.config = config
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
        for engine in engines:
            m.submodules[component_name(engine)] = self._sleeper(m, platform, engine)
        m.submodules.windows = windows = Windows(
            self.config,
            landing_latency=self._landing_latency(engines),
            epilogue_latency=self._epilogue_latency,
        )
        m.submodules.feature_memory = features = FeatureMemory(self.config)
        times = {component_name(one): one.weight_times for one in engines if one.weight_times is not None}
        m.submodules.weight_memory = weights = WeightMemory(self.config, times=times)
        m.submodules.results = results = Results(self.config)
        m.submodules.epilogues = epilogues = Epilogues(self.config, [kind for one in engines for kind in one.epilogues])
        m.submodules.write_back = write_back = WriteBack(self.config)

        wiring.connect(m, wiring.flipped(self.command), windows.command)
        wiring.connect(m, windows.context, results.context)
        wiring.connect(m, wiring.flipped(self.feature_write), features.transfer_write)
        for unit in (windows, results, write_back):
            m.d.sync += unit.halt.eq(self.halt)

        self._elaborate_fetch(m, windows, features, weights)
        self._elaborate_engines(m, windows, features, weights, engines)
        self._elaborate_results(m, engines, results, epilogues, write_back)
        self._elaborate_local_writes(
            m,
            {
                LocalMemory.LIST: windows.list_write,
                **{code: getattr(epilogues, epilogues.write_name(code)) for code in epilogues.memories},
                LocalMemory.PARAMETER: results.parameter_write,
                LocalMemory.WEIGHT: weights.write,
                **{engine.memory: engine.write for engine in engines if engine.memory is not None},
            },
        )

        m.d.comb += [
            features.result_valid.eq(write_back.write_valid),
            features.no_result.eq(write_back.no_write),
            features.result_write.eq(write_back.write),
            self.done.eq(write_back.done),
            self.progress.eq(windows.issued | write_back.write_valid),
            *(getattr(self, name).eq(getattr(windows, name)) for name in ("issued", "stalled", "first", "last")),
        ]
        with m.If(windows.error.valid):
            m.d.sync += self.error.eq(windows.error)
        with m.Elif(results.error.valid):
            m.d.sync += self.error.eq(results.error)
        with m.Else():
            m.d.sync += self.error.eq(write_back.error)
        checks = Assertions(m, platform)
        check_engines(m, checks, engines, self.halt)
        check_commands(m, checks, windows, self.done)
        return m

    @property
    def _epilogue_latency(self) -> int:
        """Cycles from an engine's result until a step may read it, in terms of the steps' issue."""
        return RESULTS_LATENCY + epilogues_latency(self.config) + WRITE_BACK_LATENCY + WRITE_LATENCY

    def _sleeper(self, m: Module, platform: object, engine: EngineComponent) -> Elaboratable:
        """Return the engine, whose clock a simulation stops while it is not selected and nothing is written to its
        memory."""
        if not engine.sleeps:
            return engine
        used = engine.selected.as_value().any()
        if engine.memory is not None:
            used |= engine.write.en
        sleep = Sleep(m, platform, used, cycles=max(engine.latencies.values()))
        Assertions(m, platform).never(
            ~sleep.awake & engine.result.valid, f"compute: a result of {component_name(engine)}, which is asleep"
        )
        return sleep.of(engine)

    def _landing_latency(self, engines: list[EngineComponent]) -> dict[Engine, int]:
        """Return, for each engine, the cycles from the issue of a window's last step to two cycles before a step may
        read its result."""
        after = self._epilogue_latency - 3
        return {
            code: FETCH_LATENCY + latency + after for engine in engines for code, latency in engine.latencies.items()
        }

    def _elaborate_fetch(self, m: Module, windows: Windows, features: FeatureMemory, weights: WeightMemory) -> None:
        """Read the words of steps, and of STORE in cycles without one, and align words and weights at the engines."""
        # With a buffer, a step need not stop STORE in the same cycle.
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

    def _elaborate_engines(
        self,
        m: Module,
        windows: Windows,
        features: FeatureMemory,
        weights: WeightMemory,
        engines: list[EngineComponent],
    ) -> None:
        """Give each engine its steps, words and weights, and the multipliers that it borrows."""
        step = delay(m, windows.step, FETCH_LATENCY, name="step")
        valid = delay(m, windows.step.valid, FETCH_LATENCY - 1, name="valid")
        code = delay(m, windows.engine, FETCH_LATENCY - 1, name="engine")

        def is_of(codes: Iterable[Engine], name: str, steps: Value | int = 1) -> Value:
            """Return whether a step is one of these engines, from a register, as the bit leads to each lane."""
            return delay(m, Cat(code == own for own in codes).any() & steps, 1, name=f"is_of_{name}")

        for engine in engines:
            m.d.comb += [
                engine.word.eq(features.read_word),
                engine.step.valid.eq(is_of(engine.latencies, component_name(engine), valid)),
                engine.step.clear.eq(step.clear),
                engine.step.fire.eq(step.fire),
                *(engine.step[flag].eq(is_of([own], flag)) for flag, own in engine.flags.items()),
                *take_fields(engine.step, step),
            ]
            if "keeps" in data.Layout.cast(engine.step.shape()).members:
                m.d.comb += engine.step.keeps.eq(step.keeps)
            if "weights" in engine.signature.members:
                m.d.comb += engine.weights.eq(weights.weights)
            self._select(m, windows, engine)
            if engine.weight_times is not None:
                name = component_name(engine)
                m.d.comb += weights.selected[name].eq(engine.selected.as_value().any())
        connect_multipliers(m, engines, self.config.array.lanes)

    def _select(self, m: Module, windows: Windows, engine: EngineComponent) -> None:
        """Select an engine long before its first word, and until another engine begins, which waits for its results."""
        for code in engine.latencies:
            name = specification_of(code).name
            selected = Signal(name=f"selected_{name}")
            with m.If(windows.engine_valid):
                m.d.sync += selected.eq(windows.engine == code)
            m.d.comb += engine.selected[name].eq(selected)

    def _elaborate_results(
        self, m: Module, engines: list[EngineComponent], results: Results, epilogues: Epilogues, write_back: WriteBack
    ) -> None:
        """Connect the result of the selected engine with the epilogue, and the codes with write-back."""
        m.submodules.result_choice = choice = ResultChoice(self.config, [engine.is_narrow for engine in engines])
        m.d.comb += [
            choice.steps.eq(Cat(engine.step.valid for engine in engines)),
            *(getattr(choice, name).eq(engine.result) for name, engine in zip(choice.names, engines, strict=True)),
            results.result.eq(choice.result),
            write_back.values.eq(epilogues.codes),
            write_back.place.eq(epilogues.finished_place),
        ]
        handed = ("accumulators", "parameters", "settings", "place", *(["values"] if results.has_whole else []))
        m.d.comb += [getattr(epilogues, name).eq(getattr(results, name)) for name in handed]
        if results.has_whole:
            m.d.comb += write_back.whole_codes.eq(epilogues.whole_codes)

    def _elaborate_local_writes(self, m: Module, ports: dict[LocalMemory, wiring.PureInterface]) -> None:
        """Pass each write on from one memory to the next, so that no wire has to reach all of them."""
        local = self.local_write
        for code, port in ports.items():
            local = delay(m, local, 1, name=f"{code.name.lower()}_write")
            m.d.comb += [
                port.en.eq(local.valid & (local.memory == code)),
                port.addr.eq(local.address),
                port.data.eq(local.data),
            ]
