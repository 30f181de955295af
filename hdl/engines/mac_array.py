"""The multiply-accumulate array: ``lanes`` x ``columns`` multipliers, output-stationary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.engines.floorplan import ArrayWaits, Floorplan
from ..parts.pipeline import Assertions, delay
from .engine import EngineComponent, engine_members, step_layout
from .mac_column import MacColumn
from .multipliers import borrowed_columns
from .stage import ArrayStage, LaneResults
from .stages import stages_of

__all__ = [
    "ColumnHop",
    "MacArray",
]


class ColumnHop(wiring.Component):
    """Pass steps and words on to the next column, one per cycle, with a latency of one cycle.

    Parameters
    ----------
    word_bits : int
    step : StructLayout
        Layout of the array's steps.
    column : int
        Index of the column that receives them.
    stages : sequence of ArrayStage
        Stages of the array, which may choose another word for a step (:meth:`.stage.ArrayStage.hop`).

    Members
    -------
    step : In(step), word : In(word_bits)
    next_step : Out(step), next_word : Out(word_bits)
    """

    def __init__(self, *, word_bits: int, step: data.StructLayout, column: int, stages: Sequence[ArrayStage] = ()):
        self.word_bits = word_bits
        self.column = column
        self.stages = stages
        super().__init__(
            {
                "step": In(step),
                "word": In(word_bits),
                "next_step": Out(step),
                "next_word": Out(word_bits),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        word = self.word
        for stage in self.stages:
            word = stage.hop(m, self.column, self.step, word)
        # Proofs look at the word before its register.
        coming_word = Signal(self.word_bits)
        m.d.comb += [
            self.next_step.eq(delay(m, self.step, 1, name="step")),
            coming_word.eq(word),
            self.next_word.eq(delay(m, word, 1, name="word")),
        ]
        return m


class MacArray(EngineComponent):
    """Multiply each activation word with one word of weights for each column, one word per cycle.

    Words travel from column to column, one column per cycle, so that a word is driven to one column's multipliers only
    and wires stay short. Each column adds its products up over lanes and steps: ``columns`` results, when the last
    column has its own. What an engine needs beside that is its stage (:class:`.stage.ArrayStage`); of engines the array
    knows nothing else. Bit-exact with the golden function of MAC, :func:`lutterfly.golden.engines.mac.mac`, and with
    that of the engine of each stage.

    A window may follow one of another engine only when all results of the earlier one are out.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    stages : list of ArrayStage
        The stages, in the order in which words pass.
    floorplan : Floorplan

    Members
    -------
    step, word, selected, result, borrowed_multipliers
        See :class:`.engine.EngineComponent`. The first ``columns`` lanes of the result are accumulators, or all, if a
        stage gives results of lanes.
    weights : In(columns x lanes x signed(8))
        Column j's come as late as their activation word (:attr:`~lutterfly.golden.engines.floorplan.Floorplan.hops`),
        or by ``weight_times``.

    Raises
    ------
    ValueError
        If an engine's configuration does not state the latencies of its stage.
    """

    # Other engines borrow its multipliers, and its bit counters stop their own clocks.
    sleeps: ClassVar = False

    def __init__(self, config: Config):
        self.config = config
        self.lanes, self.columns = config.array.lanes, config.array.columns
        self.stages = stages_of(config)
        self.floorplan = Floorplan.of(config)
        self.hops, self.waits = self.floorplan.hops, self.floorplan.waits
        self.borrowed_columns = borrowed_columns(config)
        for stage in self.stages:
            _check_waits(config, stage)
        engines = [stage for stage in self.stages if stage.engine is not None]
        self.latencies = {stage.engine: stage.latency(self.floorplan) for stage in engines}
        self.flags = {stage.flag: stage.engine for stage in engines if stage.flag}
        if self.waits.words:
            self.weight_times = [self.waits.words + hops for hops in self.hops]
        self.step_layout = step_layout(config, self.latencies, self.flags)
        super().__init__(
            {
                **engine_members(config, self.latencies, self.flags),
                "weights": In(data.ArrayLayout(data.ArrayLayout(signed(8), self.lanes), self.columns)),
                **{name: member for stage in self.stages for name, member in stage.members().items()},
            }
        )

    # The array's interface for its stages, beside ports and floorplan; `entering_step` is the step behind the last
    # engine's stage.

    @property
    def multiplies(self) -> Value:
        """Whether an engine is selected whose words the columns multiply."""
        engines = [stage.name for stage in self.stages if stage.engine is not None and stage.multiplies]
        return Cat(self.selected[name] for name in engines).any()

    def is_lent(self, column: int) -> bool:
        """Whether another engine multiplies in a column."""
        return column < self.borrowed_columns

    def pass_on(self, m: Module, name: str, column: int, first: Value | None) -> Value:
        """Pass a value on from column to column beside the words, and return it at this column: ``first`` at the first
        column, the value of the column before, a cycle later, at any other."""
        value = first
        if column:
            before = self.passed(name, self.floorplan.before(column))
            value = delay(m, before, 1, name=f"{name}_{column}")
        self._passed.setdefault(name, []).append(value)
        return value

    def passed(self, name: str, column: int) -> Value:
        """Return the value that :meth:`pass_on` has passed on to a column."""
        return self._passed[name][column]

    def elaborate(self, platform) -> Module:
        m = Module()
        step, word, first_word = self._elaborate_entry(m, platform)
        steps, words = [step], [word]
        columns: list[MacColumn] = []
        for index in range(self.columns):
            own_word = first_word
            if index:
                before = self.floorplan.before(index)
                m.submodules[f"hop_{index}"] = hop = ColumnHop(
                    word_bits=len(word), step=step.shape(), column=index, stages=self.stages
                )
                m.d.comb += [hop.step.eq(steps[before]), hop.word.eq(words[before])]
                steps.append(hop.next_step)
                words.append(hop.next_word)
                own_word = hop.next_word
            m.submodules[f"column_{index}"] = column = MacColumn(
                lanes=self.lanes, step=step.shape(), index=index, stages=self.stages
            )
            for stage in self.stages:
                stage.connect(m, platform, self, column)
            m.d.comb += [
                column.step.eq(steps[index]),
                column.word.eq(own_word),
                column.weights.eq(self.weights[index]),
            ]
            columns.append(column)
        self._elaborate_results(m, platform, steps, columns)
        return m

    def _elaborate_entry(self, m: Module, platform) -> tuple[data.View, Value, Value]:
        """Return the step and its word as the columns see them, and the word of the first column."""
        self._passed: dict[str, list[Value]] = {}
        step, word = self.entering_step, entering_word = self.step, self.word
        for stage in self.stages:
            step, word = stage.words(m, platform, self, step, word)
            if stage.engine is not None:
                self.entering_step, entering_word = step, word
        # A stage that masks words in front of multipliers does so for loans as well.
        return step, word, word if all(stage.multiplies for stage in self.stages) else entering_word

    def _elaborate_results(self, m: Module, platform, steps: list[data.View], columns: list[MacColumn]) -> None:
        """Give the results when the last column has its own; or those of lanes, if a stage gives any."""
        farthest = max(column.index for column in columns if self.hops[column.index] == max(self.hops))
        column_fired, totals = columns[farthest].fired, [column.total for column in columns]
        giving = [stage for stage in self.stages if stage.gives_lanes]
        if giving:
            products = [list(column.products) for column in columns]
            given = [stage.lane_results(m, platform, self, steps, products) for stage in giving]
            name = "_".join(stage.flag for stage in giving)
            self._elaborate_both_results(m, platform, column_fired, totals, _any_of(given), name)
            return
        m.d.comb += self.result.valid.eq(column_fired)
        for lane, total in enumerate(totals):
            later = delay(m, total, self._waits(lane), name=f"total_{lane}")
            m.d.comb += self.result.lanes[lane].eq(later)

    def _waits(self, column: int) -> int:
        """Return the cycles that the total of a column waits for that of the farthest column."""
        return max(self.hops) - self.hops[column]

    def _elaborate_both_results(
        self, m: Module, platform, column_fired: Value, totals: list[Value], given: LaneResults, name: str
    ) -> None:
        """Choose between the totals of columns and those of lanes."""
        lanes_later = delay(m, given.fired[0], 1, name=f"{name}_fired")
        m.d.comb += self.result.valid.eq(column_fired | lanes_later)
        for lane, (result, own) in enumerate(zip(self.result.lanes, given.totals, strict=True)):
            waits = self._waits(lane) if lane < self.columns else -1
            if waits < 0:
                total = delay(m, own, 1, name=f"total_{lane}")
            elif waits:
                # Totals that wait for the last column's have a register, and the choice is made in front of it.
                total = delay(m, totals[lane], waits - 1, name=f"total_{lane}")
                total = delay(m, Mux(given.fired[lane], own, total), 1, name=f"result_{lane}")
            else:
                total = Mux(lanes_later, delay(m, own, 1, name=f"total_{lane}"), totals[lane])
            m.d.comb += result.eq(total)
        Assertions(m, platform).never(column_fired & lanes_later, "MAC array: results of both modes at once")


def _check_waits(config: Config, stage: ArrayStage) -> None:
    """Check that the engine's configuration, from which cycles are predicted, states the latencies of its stage."""
    own = ArrayWaits() if stage.engine is None else config.engines[stage.engine].array_waits()
    if own != stage.waits:
        raise ValueError(f"{stage.engine}.array_waits must be {stage.waits}, which its stage takes, not {own}")


def _any_of(given: Sequence[LaneResults]) -> LaneResults:
    """Return the results of the stage that has some."""
    (fired, totals), *others = given
    for other in others:
        totals = [Mux(own, mine, total) for own, mine, total in zip(other.fired, other.totals, totals, strict=True)]
        fired = [one | own for one, own in zip(fired, other.fired, strict=True)]
    return LaneResults(fired, totals)
