"""Fast pointwise convolution as a pipeline: a stage after the other, with the multipliers that its weights need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.numerics.butterfly import Pattern, pixel_words
from ...golden.numerics.fpc import MOST_INPUT_SHIFT, VALUE_BITS
from ..parts.device import Multiplier
from ..parts.pipeline import delay, spread
from .pair_line import SETTING_LATENCY, values_layout
from .stage import WEIGHT_BITS, Stage, stage_multipliers

__all__ = ["Butterfly", "settings_layout", "step_layout", "weights_layout"]

#: From codes to values: subtract, shift.
_ENTRY_LATENCY = 2


def step_layout(pattern: Pattern, lanes: int) -> data.StructLayout:
    """A word of codes on its way in.

    ``position``: its number in its pixel. ``exists``: for each code whether it is a channel; the others are null.
    """
    words = pixel_words(pattern.width, lanes)
    return data.StructLayout(
        {"valid": unsigned(1), "position": unsigned(max(ceil_log2(words), 1)), "exists": unsigned(lanes)}
    )


def settings_layout(pattern: Pattern) -> data.StructLayout:
    """What is the same for a layer: how codes enter; for each stage whether it halves and is used; which skips
    there are."""
    return data.StructLayout(
        {
            "zero_point": signed(8),
            "input_shift": range(MOST_INPUT_SHIFT + 1),
            "halves": unsigned(pattern.stages),
            "is_used": unsigned(pattern.stages),
            **({"skips": unsigned(len(pattern.skips))} if pattern.skips else {}),
        }
    )


def weights_layout(columns: int, lanes: int) -> data.ArrayLayout:
    """A word of weights for each column."""
    return data.ArrayLayout(data.ArrayLayout(signed(WEIGHT_BITS), lanes), columns)


class Butterfly(wiring.Component):
    """The stages of a pattern, ``lanes`` values a cycle: a pixel of N channels takes N / ``lanes`` cycles.

    Bit-exact with :func:`lutterfly.golden.numerics.fpc.run_stages` after :func:`~lutterfly.golden.numerics.fpc.enter`,
    a word ``latency`` cycles after its codes. The words of a pixel come one after the other, between pixels any number
    of cycles may pass. A layer of fewer stages has the others pass values on.

    Parameters
    ----------
    pattern : Pattern
        The greatest: its channels are ``pattern.width``.
    lanes : int
        A power of two.
    borrowed : int
        Columns of multipliers, the first ones, that belong to the array, which has their weights.

    Attributes
    ----------
    columns : int
        Of multipliers: one for each trained weight of a value in a stage.
    weight_times : list of int
        For each column, cycles from a word of codes to its weights.
    latency : int

    Members
    -------
    step : In(step_layout), word : In(8 * lanes)
    settings : In(settings_layout)
        Stays while words are under way.
    weights : In(columns x lanes x signed(8)), if there are any columns of its own
        Stage by stage, own weights before partners'; the weight of a partner within the word in the partner's lane.
    is_selected : In(1), borrowed_multipliers : Out(stage_multipliers), if there are borrowed columns
        Their factors are zero ``SETTING_LATENCY`` cycles after ``is_selected`` has gone, and not so many after it has
        come.
    valid : Out(1), values : Out(lanes x signed(16))
    """

    def __init__(self, pattern: Pattern, *, lanes: int, borrowed: int = 0):
        self.pattern = pattern
        self.lanes = lanes
        self.borrowed = borrowed
        self.skips = [[skip for skip in pattern.skips if skip[1] == stage] for stage in range(pattern.stages)]
        self.stages = [
            Stage(lanes=lanes, distance=distance, density=density, skip_bits=_sum_bits(len(skips)))
            for distance, density, skips in zip(pattern.distances, pattern.densities, self.skips, strict=True)
        ]
        self.times = list(accumulate((stage.latency for stage in self.stages), initial=_ENTRY_LATENCY))
        self.latency = self.times[-1]
        self.weight_times = [
            time + weight_time
            for time, stage in zip(self.times, self.stages, strict=False)
            for weight_time in stage.weight_times
        ]
        self.columns = len(self.weight_times)
        own = self.columns - borrowed
        super().__init__(
            {
                "step": In(step_layout(pattern, lanes)),
                "word": In(8 * lanes),
                "settings": In(settings_layout(pattern)),
                **({"weights": In(weights_layout(own, lanes))} if own else {}),
                **(
                    {"is_selected": In(1), "borrowed_multipliers": Out(stage_multipliers(borrowed, lanes))}
                    if borrowed
                    else {}
                ),
                "valid": Out(1),
                "values": Out(values_layout(lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        entering, first_column = [self._enter(m)], 0
        position, now = delay(m, self.step.position, _ENTRY_LATENCY, name="position_0"), _ENTRY_LATENCY
        for index, stage in enumerate(self.stages):
            m.submodules[f"stage_{index}"] = stage
            m.d.comb += [
                stage.values.eq(entering[-1]),
                stage.halves.eq(self.settings.halves[index]),
                stage.is_used.eq(self.settings.is_used[index] & (self.is_selected if self.borrowed else 1)),
            ]
            for column in range(stage.columns):
                self._multiply(m, first_column + column, stage, column)
            first_column += stage.columns
            if stage.words:
                time = self.times[index] + stage.partner_time - 1
                position, now = delay(m, position, time - now, name=f"position_{index + 1}"), time
                m.d.comb += stage.is_second.eq(position[ceil_log2(stage.words)])
            if self.skips[index]:
                totals = self._skipped(m, index, entering)
                m.d.comb += [target.eq(total) for target, total in zip(stage.skipped, totals, strict=True)]
            entering.append(stage.results)
        m.d.comb += [
            self.valid.eq(delay(m, self.step.valid, self.latency, name="valid")),
            self.values.eq(entering[-1]),
        ]
        return m

    def _multiply(self, m: Module, number: int, stage: Stage, column: int) -> None:
        """Give a stage the products of a column, ``number`` among all."""
        factors, products = stage.multipliers.factors[column], stage.multipliers.products[column]
        if number < self.borrowed:
            if stage.density.trains_own and column == 0:
                masks = spread(m, self.is_selected, self.lanes, cycles=SETTING_LATENCY, name=f"is_selected_{number}")
                factors = [
                    (factor.as_unsigned() & mask.replicate(VALUE_BITS)).as_signed()
                    for factor, mask in zip(factors, masks, strict=True)
                ]
            # Else they are partners', which are zero where the stage does not work.
            given = self.borrowed_multipliers
            m.d.comb += [target.eq(factor) for target, factor in zip(given.factors[number], factors, strict=True)]
            m.d.comb += products.eq(given.products[number])
            return
        for lane, factor in enumerate(factors):
            multiplier = Multiplier(a_width=VALUE_BITS, b_width=WEIGHT_BITS)
            m.submodules[f"multiplier_{number}_{lane}"] = multiplier
            m.d.comb += [
                multiplier.a.eq(factor),
                multiplier.b.eq(self.weights[number - self.borrowed][lane]),
                products[lane].eq(multiplier.product),
            ]

    def _enter(self, m: Module) -> Signal:
        """Codes become values; those that are no channels become null."""
        values = Signal(values_layout(self.lanes), name="entering", reset_less=True)
        shift = spread(m, self.settings.input_shift, self.lanes, cycles=1, name="input_shift")
        for lane in range(self.lanes):
            code = self.word.word_select(lane, 8).as_signed()
            difference = Signal(signed(9), name=f"difference_{lane}", reset_less=True)
            exists = self.step.exists[lane].replicate(len(difference))
            m.d.sync += [
                difference.eq((code - self.settings.zero_point)[: len(difference)] & exists),
                values[lane].eq(difference << shift[lane]),
            ]
        return values

    def _skipped(self, m: Module, index: int, entering: Sequence) -> list[Signal]:
        """What the skips that end in a stage add to its results, by lane."""
        stage, terms = self.stages[index], []
        for skip in self.skips[index]:
            exists = self.settings.skips[self.pattern.skips.index(skip)].replicate(VALUE_BITS)
            wait = self.times[index] + stage.skip_time - self.times[skip[0]] - 1
            values = delay(m, entering[skip[0]], wait, name=f"skip_{skip[0]}_{skip[1]}")
            terms.append([(value.as_unsigned() & exists).as_signed() for value in values])
        totals = []
        for lane, values in enumerate(zip(*terms, strict=True)):
            total = Signal(signed(stage.skip_bits), name=f"skipped_{index}_{lane}", reset_less=True)
            m.d.sync += total.eq(sum(values[1:], start=values[0]))
            totals.append(total)
        return totals


def _sum_bits(count: int) -> int:
    """Bits of the sum of so many values."""
    return VALUE_BITS + ceil_log2(count) if count else 0
