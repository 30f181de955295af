"""An engine that the project does not have, with a stage of its own in the multiplier array: the greatest of sums.

All that there is of it stands in this file. Its stage adds to each of the four points: it flips bits of words, makes
factors positive, adds to sums, and keeps the greatest one in the place of a total. All engines of the array wait for
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from lutterfly.golden.engines import ENGINES, SPECIFICATIONS
from lutterfly.golden.engines.engine import Engine, EngineConfig
from lutterfly.golden.engines.floorplan import ArrayWaits
from lutterfly.golden.engines.mac import SPECIFICATION as ARRAY
from lutterfly.golden.engines.specification import EngineSpecification, Issue, TileWindows, any_steps
from lutterfly.golden.isa import place_fields
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.engines.engine import ACCUMULATOR_BITS, SELECT_LATENCY
from lutterfly.hdl.engines.mac_array import MacArray
from lutterfly.hdl.engines.mac_column import MacColumn
from lutterfly.hdl.engines.stage import ArrayStage, Total, waits_before
from lutterfly.hdl.engines.stages import STAGES
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY
from lutterfly.hdl.parts.pipeline import delay, spread

#: Bits of the magnitude of a byte, with a sign.
_MAGNITUDE_BITS = 9


class PeakConfig(EngineConfig):
    """Nothing of its own, but the array waits for it."""

    def array_waits(self) -> ArrayWaits:
        """A register for flipped words, and one for the choice between total and greatest sum."""
        return ArrayWaits(words=1, totals=1)


FIELDS = place_fields(("mask", 8, "The bits of each byte of a word that are flipped."))
PEAK = Engine(11, "PEAK", configuration=PeakConfig, fields=FIELDS)


def greatest_sums(words: np.ndarray, weights: np.ndarray, mask: int) -> np.ndarray:
    """The greatest sum of each window, int32[..., columns], of words int8[..., steps, lanes] and weights
    int8[steps, columns, lanes]."""
    flipped = (words.view(np.uint8) ^ np.uint8(mask)).view(np.int8).astype(np.int64)
    sums = np.einsum("...sl,scl->...sc", np.abs(flipped), weights.astype(np.int64))
    return (sums + (flipped < 0).sum(-1)[..., None]).max(-2).astype(np.int32)


def _totals(windows: TileWindows) -> np.ndarray:
    return greatest_sums(np.ascontiguousarray(windows.words), windows.weights, windows.command["mask"])


SPECIFICATION = EngineSpecification(
    engine=PEAK,
    notes="Gives the greatest sum of products of magnitudes of flipped bytes.",
    results="array.columns",
    totals=_totals,
    latency=ARRAY.latency,
    random_window=any_steps,
    issue=Issue(weight_words="steps", fields=("mask",)),
)


class PeakStage(ArrayStage):
    """Flip words, multiply magnitudes, count negative bytes, and keep the greatest sum of a window."""

    flag: ClassVar = "peak"
    waits: ClassVar = ArrayWaits(words=1, totals=1)

    def words(
        self, m: Module, platform: object, array: MacArray, step: data.View, word: Value
    ) -> tuple[data.View, Value]:
        """Flipped, a cycle later."""
        bits = len(word) // array.lanes
        mask = Mux(step.peak, step.fields.peak.mask, 0).as_signed()
        lanes = [(word.word_select(lane, bits).as_signed() ^ mask)[:bits] for lane in range(array.lanes)]
        return delay(m, step, 1, name="flipped_step"), delay(m, Cat(lanes), 1, name="flipped_word")

    def column_members(self, column: int) -> dict[str, wiring.Member]:
        """Whether words count as magnitudes, for each lane."""
        return {"magnitudes": In(self.config.array.lanes)}

    def connect(self, m: Module, platform: object, array: MacArray, column: MacColumn) -> None:
        """As long as the engine is selected."""
        selected = array.selected[self.name]
        copies = spread(m, selected, array.lanes, cycles=SELECT_LATENCY, name=f"magnitudes_{column.index}")
        m.d.comb += column.magnitudes.eq(Cat(copies))

    def factors(self, m: Module, column: MacColumn, lane: int, a: Value, b: Value) -> tuple[Value, Value]:
        """The magnitude of a word's byte."""
        return Mux(column.magnitudes[lane] & a[-1], -a, a)[:_MAGNITUDE_BITS].as_signed(), b

    def sums(
        self, m: Module, platform: object, column: MacColumn, weights: data.View, terms: list[Value]
    ) -> list[Value]:
        """One more for each negative byte."""
        counted = []
        for lane, term in enumerate(terms):
            negative = column.word.word_select(lane, column.word_bits)[-1] & column.magnitudes[lane]
            counted.append(term + delay(m, negative, MULTIPLIER_LATENCY, name=f"negative_{lane}"))
        return counted

    def totals(self, m: Module, column: MacColumn, step: data.View, value: Value, before: Callable[[], Total]) -> Total:
        """The greatest sum, or what the stages before have made of it."""
        fired, total = before()
        wait = waits_before(column.stages, self).totals
        greatest = Signal(total.shape(), name="greatest", reset_less=True)
        with m.If(step.valid & (step.clear | (value > greatest))):
            m.d.sync += greatest.eq(value)
        own = delay(m, greatest, wait, name="greatest")
        is_own = delay(m, step.valid & step.fire & step.peak, 1 + wait, name="is_greatest")
        chosen = Signal(ACCUMULATOR_BITS, name="chosen", reset_less=True)
        m.d.sync += chosen.eq(Mux(is_own, own, total))
        return Total(delay(m, fired, 1, name="chosen_fired"), chosen)


def add_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines: one in the table of specifications, one in that of stages; two tables are made of these."""
    monkeypatch.setitem(ENGINES, PEAK, PEAK)
    monkeypatch.setitem(SPECIFICATIONS, PEAK, SPECIFICATION)
    monkeypatch.setitem(STAGES, PEAK, PeakStage)
    monkeypatch.setitem(COMPONENTS, PEAK, MacArray)
