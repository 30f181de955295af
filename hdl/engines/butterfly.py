"""The fast pointwise convolution: a butterfly's stages, their epilogue, and a component with its own multipliers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.engines.fpc import ROUND_LATENCY
from ...golden.numerics.butterfly import Density, Pattern, lane_exchange, pixel_words
from ...golden.numerics.fpc import FRACTION_BITS, MOST_INPUT_SHIFT, VALUE_BITS
from ..parts.device import MULTIPLIER_LATENCY, Multiplier, MultiplierColumns
from ..parts.pipeline import delay, spread

__all__ = [
    "SETTING_LATENCY",
    "WEIGHT_BITS",
    "Butterfly",
    "ButterflyStage",
    "PairLine",
    "StageSum",
    "settings_layout",
    "stage_multipliers",
    "step_layout",
    "sum_latency",
    "values_layout",
    "weights_layout",
]


# The two values of a pair are brought together; a delay line holds words until the word with their partners comes.

#: Cycles until a setting has reached all lanes of a stage.
SETTING_LATENCY = 2


def values_layout(lanes: int) -> data.ArrayLayout:
    """Return the layout of a word of values between stages."""
    return data.ArrayLayout(signed(VALUE_BITS), lanes)


class PairLine(wiring.Component):
    """Give with each value the other one of its pair, a word each cycle, ``distance`` cycles later.

    The words of a pixel come one after the other, each with its position; between pixels any number of cycles may pass.
    The first of two words waits until the second one is there, the second one still finds the first. A pair within a
    word needs no line: there ``partner`` is the value itself, because what it is multiplied to changes its lane after
    the multiplier, where nothing has to be chosen.

    Parameters
    ----------
    lanes : int
        Values in a word.
    distance : int
        Words between the two values of a pair, a power of two; 0 for pairs within a word.
    own_delay, partner_delay : int
        Extra cycles before ``own`` and ``partner``, so that the results that are computed from them meet.

    Members
    -------
    values : In(lanes x signed(16))
    is_second : In(1)
        A cycle before ``partner``: the word of ``own`` is the second one of its pair.
    enable : In(1)
        While it is low, the partner is zero. A change reaches all lanes after ``SETTING_LATENCY`` cycles.
    partner : Out(lanes x signed(16))
        ``distance + partner_delay`` cycles after ``values``.
    own : Out(lanes x signed(16))
        ``distance + own_delay`` cycles after ``values``.
    """

    def __init__(self, *, lanes: int, distance: int, own_delay: int, partner_delay: int):
        self.lanes = lanes
        self.distance = distance
        self.own_delay = own_delay
        self.partner_delay = partner_delay
        values = values_layout(lanes)
        super().__init__(
            {"values": In(values), "is_second": In(1), "enable": In(1), "partner": Out(values), "own": Out(values)}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        length = max(2 * self.distance + self.partner_delay, self.distance + self.own_delay)
        # Both outputs share one line of registers: the partner reads its end and ``own`` its middle.
        taps = [self.values]
        for number in range(length):
            tap = Signal.like(self.values, name=f"tap_{number}", reset_less=True)
            m.d.sync += tap.eq(taps[-1])
            taps.append(tap)
        m.d.comb += self.own.eq(taps[self.distance + self.own_delay])
        enable = spread(m, self.enable, self.lanes, cycles=SETTING_LATENCY, name="enable")
        if self.distance:
            is_second = spread(m, self.is_second, self.lanes, cycles=1, name="is_second")
        for lane in range(self.lanes):
            latest, earliest = (taps[self.partner_delay + wait][lane] for wait in (0, 2 * self.distance))
            partner = Mux(is_second[lane], earliest, latest) if self.distance else latest
            # The partner is masked instead of chosen: synthesis turns a choice into a reset, and a multiplier's
            # register has none to spare.
            m.d.comb += self.partner[lane].eq(partner.as_unsigned() & enable[lane].replicate(VALUE_BITS))
        return m


# The end of a stage: the sum of a pair, rounded once and saturated.


def sum_latency(*, has_skip: bool) -> int:
    """Cycles from the terms to the values: add, round, add the skip connections, saturate."""
    return ROUND_LATENCY + has_skip + 1


def _differ(bits: Value) -> Value:
    return ~(bits.all() | ~bits.any())


class StageSum(wiring.Component):
    """Add own values and terms with a fraction, divide by one or two, round, add skip connections, and saturate.

    Bit-exact with :func:`lutterfly.golden.numerics.fpc.run_stages`, with a latency of :func:`sum_latency`.

    Parameters
    ----------
    lanes : int
    term_bits : int
        Bits of a term.
    has_own : bool
        Whether there are own values; else they are part of the terms.
    skip_bits : int
        Bits of the skip connections' sum, which is added after the rounding; 0 if there are none.

    Members
    -------
    terms : In(lanes x signed(term_bits))
        Fixed point, with ``FRACTION_BITS`` fractional bits.
    own : In(lanes x signed(16)), if ``has_own``
    halves : In(1)
        Divide by two; stable from ``SETTING_LATENCY`` cycles before the first word until the last word has left.
    skipped : In(lanes x signed(skip_bits)), if there are any
        ``ROUND_LATENCY`` cycles after the terms.
    values : Out(lanes x signed(16))
    """

    def __init__(self, *, lanes: int, term_bits: int, has_own: bool, skip_bits: int = 0):
        self.lanes = lanes
        self.term_bits = term_bits
        self.has_own = has_own
        self.skip_bits = skip_bits
        values = values_layout(lanes)
        super().__init__(
            {
                "terms": In(data.ArrayLayout(signed(term_bits), lanes)),
                **({"own": In(values)} if has_own else {}),
                "halves": In(1),
                **({"skipped": In(data.ArrayLayout(signed(skip_bits), lanes))} if skip_bits else {}),
                "values": Out(values),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        halves = spread(m, self.halves, self.lanes, cycles=SETTING_LATENCY, name="halves")
        for lane in range(self.lanes):
            own = self.own[lane] if self.has_own else Const(0, signed(1))
            rounded, overflows = self._rounded(m, lane, self.terms[lane], own, halves[lane])
            if self.skip_bits:
                total = Signal.like(rounded + self.skipped[lane], name=f"with_skip_{lane}", reset_less=True)
                m.d.sync += total.eq(rounded + self.skipped[lane])
                rounded, overflows = total, _differ(total[VALUE_BITS - 1 :])
            is_negative = rounded[-1]
            limit = Cat(is_negative.replicate(VALUE_BITS - 1) ^ ((1 << VALUE_BITS - 1) - 1), is_negative)
            value = Signal(signed(VALUE_BITS), name=f"value_{lane}", reset_less=True)
            m.d.sync += value.eq(Mux(overflows, limit, rounded[:VALUE_BITS]))
            m.d.comb += self.values[lane].eq(value)
        return m

    def _rounded(self, m: Module, lane: int, term: Value, own: Value, halves: Value) -> tuple[Signal, Signal]:
        """Return the rounded sum, two cycles later, and whether it needs more bits than a value has.

        Rounding half up is a carry into the sum; a tie that has become odd then loses its lowest bit. Where the sum is
        halved, the carry is one, and the bit that is shifted out shows the ties.
        """
        whole, fraction = term[FRACTION_BITS:].as_signed(), term[:FRACTION_BITS]
        width = max(len(whole), len(own)) + 1
        total = Signal(signed(width), name=f"total_{lane}", reset_less=True)
        carried = Cat(fraction[-1] | halves, whole).as_signed()
        m.d.sync += total.eq((Cat(Const(1, 1), own).as_signed() + carried) >> 1)
        may_tie = Signal(name=f"may_tie_{lane}", reset_less=True)
        m.d.sync += may_tie.eq(~fraction[:-1].any() & (fraction[-1] ^ halves))

        rounded = Signal(signed(width), name=f"rounded_{lane}", reset_less=True)
        overflows = Signal(name=f"overflows_{lane}", reset_less=True)
        half = total >> 1
        lowest = Mux(halves, total[1] & ~(may_tie & ~total[0]), total[0] & ~may_tie)
        m.d.sync += [
            rounded.eq(Cat(lowest, Mux(halves, half, total)[1:width]).as_signed()),
            overflows.eq(Mux(halves, _differ(total[VALUE_BITS:]), _differ(total[VALUE_BITS - 1 :]))),
        ]
        return rounded, overflows


# One stage of a fast pointwise convolution forms pairs of values, their products with weights, and sums.

WEIGHT_BITS = 8


def stage_multipliers(columns: int, lanes: int) -> MultiplierColumns:
    """Return the interface to columns of multipliers of values by weights: factors out, products in."""
    return MultiplierColumns(columns, lanes, a_width=VALUE_BITS, b_width=WEIGHT_BITS)


class ButterflyStage(wiring.Component):
    """One stage, a word each cycle; bit-exact with :func:`lutterfly.golden.numerics.fpc.run_stages`.

    Parameters
    ----------
    lanes : int
        Values in a word, a power of two.
    distance : int
        Distance between the two values of a pair, in values.
    density : Density
        Which weights are trained; each of them is a column of multipliers, one for each lane, outside of the stage.
    skip_bits : int
        See :class:`StageSum`.

    Attributes
    ----------
    columns : int
        Columns of multipliers, 0 to 2: those for own values, and a cycle later those for partners.
    weight_times : list of int
        For each column, cycles from a word of values to its factors, which are multiplied by their weights.
    skip_time, latency : int
        Cycles from a word of values to the skip connections that are added to it, and to its results.

    Members
    -------
    values : In(lanes x signed(16))
    is_second : In(1)
        See :class:`PairLine`; a cycle before the partners' factors.
    multipliers : Out(stage_multipliers), if there are any columns
        A partner within the word is multiplied in its own lane.
    halves : In(1)
    is_used : In(1)
        While it is low, partners are zero and values pass, multiplied by own weights of one where there are any.
    skipped : In(lanes x signed(skip_bits)), if there are any
    results : Out(lanes x signed(16))
    """

    def __init__(self, *, lanes: int, distance: int, density: Density, skip_bits: int = 0):
        self.lanes = lanes
        self.words = distance // lanes
        # Within a word the partner is this many lanes away: a bit of the lane's number.
        self.exchange = lane_exchange(distance, lanes)
        self.density = density
        self.skip_bits = skip_bits
        self.columns = density.trains_own + density.trains_cross
        # Partners' factors come a cycle after own ones, so that their words of weights may be read from memory in turn.
        self.partner_time = self.words + density.trains_own
        self.weight_times = list(range(self.words, self.words + self.columns))
        # Two products are added before they are rounded, which takes a cycle more.
        self.terms_time = self.partner_time + (MULTIPLIER_LATENCY + density.trains_own if self.columns else 0)
        self.skip_time = self.terms_time + ROUND_LATENCY
        self.latency = self.terms_time + sum_latency(has_skip=bool(skip_bits))
        values = values_layout(lanes)
        super().__init__(
            {
                "values": In(values),
                "is_second": In(1),
                **({"multipliers": Out(stage_multipliers(self.columns, lanes))} if self.columns else {}),
                "halves": In(1),
                "is_used": In(1),
                **({"skipped": In(data.ArrayLayout(signed(skip_bits), lanes))} if skip_bits else {}),
                "results": Out(values),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        has_own = not self.density.trains_own
        m.submodules.pairs = line = PairLine(
            lanes=self.lanes,
            distance=self.words,
            own_delay=self.terms_time - self.words if has_own else 0,
            partner_delay=self.partner_time - self.words,
        )
        m.d.comb += [line.values.eq(self.values), line.is_second.eq(self.is_second), line.enable.eq(self.is_used)]
        terms = self._terms(m, line)
        m.submodules.sum = total = StageSum(
            lanes=self.lanes, term_bits=len(terms[0]), has_own=has_own, skip_bits=self.skip_bits
        )
        m.d.comb += [total.halves.eq(self.halves), self.results.eq(total.values)]
        m.d.comb += [total.terms[lane].eq(term) for lane, term in enumerate(terms)]
        if has_own:
            m.d.comb += total.own.eq(line.own)
        if self.skip_bits:
            m.d.comb += total.skipped.eq(self.skipped)
        return m

    def _terms(self, m: Module, line: PairLine) -> list:
        """Return the addends of each lane's result: the partner's term, with the own value's if that has a weight."""
        lanes = range(self.lanes)
        if not self.columns:
            return [line.partner[lane ^ self.exchange] << FRACTION_BITS for lane in lanes]
        factors, all_products = self.multipliers.factors, self.multipliers.products
        m.d.comb += factors[self.columns - 1].eq(line.partner)
        products = [all_products[self.columns - 1][lane ^ self.exchange] for lane in lanes]
        if not self.density.trains_own:
            return products
        m.d.comb += factors[0].eq(line.own)
        totals = []
        for lane in lanes:
            waiting = delay(m, all_products[0][lane], 1, name=f"own_product_{lane}")
            total = Signal.like(waiting + products[lane], name=f"both_{lane}", reset_less=True)
            m.d.sync += total.eq(waiting + products[lane])
            totals.append(total)
        return totals


# A fast pointwise convolution is a pipeline of stages, with the multipliers that their weights need.

#: Cycles from codes to values: subtract, shift.
_ENTRY_LATENCY = 2


def step_layout(pattern: Pattern, lanes: int) -> data.StructLayout:
    """Return the control signals beside a word of codes that enters.

    ``position`` is its number within its pixel. ``exists`` has a bit for each code that is a channel; the others count
    as zero.
    """
    words = pixel_words(pattern.width, lanes)
    return data.StructLayout(
        {"valid": unsigned(1), "position": unsigned(max(ceil_log2(words), 1)), "exists": unsigned(lanes)}
    )


def settings_layout(pattern: Pattern) -> data.StructLayout:
    """Return the settings of a layer: zero point and shift of its input codes; for each stage whether it halves and is
    used; which skip connections it has."""
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
    """Return the layout of a word of weights for each column."""
    return data.ArrayLayout(data.ArrayLayout(signed(WEIGHT_BITS), lanes), columns)


class Butterfly(wiring.Component):
    """The stages of a pattern, ``lanes`` values a cycle: a pixel of N channels takes N / ``lanes`` cycles.

    Bit-exact with :func:`lutterfly.golden.numerics.fpc.run_stages` after :func:`~lutterfly.golden.numerics.fpc.enter`;
    the results of a word come ``latency`` cycles after its codes. The words of a pixel come one after the other,
    between pixels any number of cycles may pass. In a layer of fewer stages the remaining stages pass values on.

    Parameters
    ----------
    pattern : Pattern
        The largest supported pattern; it has ``pattern.width`` channels.
    lanes : int
        A power of two.
    borrowed : int
        Number of columns, the first ones, whose multipliers belong to the array, which also has their weights.

    Attributes
    ----------
    columns : int
        Columns of multipliers: one for each trained weight of a value in a stage.
    weight_times : list of int
        For each column, cycles from a word of codes to its weights.
    latency : int

    Members
    -------
    step : In(step_layout), word : In(8 * lanes)
    settings : In(settings_layout)
        Stable while words are under way.
    weights : In(columns x lanes x signed(8)), if there are any columns of its own
        Weights stage by stage, own ones before partners'; a partner within the word has its weight in the partner's
        lane.
    is_selected : In(1), borrowed_multipliers : Out(stage_multipliers), if there are borrowed columns
        Their factors become zero ``SETTING_LATENCY`` cycles after ``is_selected`` has fallen, and may be anything else
        at most as many cycles after it has risen.
    valid : Out(1), values : Out(lanes x signed(16))
    """

    def __init__(self, pattern: Pattern, *, lanes: int, borrowed: int = 0):
        self.pattern = pattern
        self.lanes = lanes
        self.borrowed = borrowed
        self.skips = [[skip for skip in pattern.skips if skip[1] == stage] for stage in range(pattern.stages)]
        self.stages = [
            ButterflyStage(lanes=lanes, distance=distance, density=density, skip_bits=_sum_bits(len(skips)))
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

    def _multiply(self, m: Module, number: int, stage: ButterflyStage, column: int) -> None:
        """Connect a column of a stage, column ``number`` of all, with its multipliers."""
        factors, products = stage.multipliers.factors[column], stage.multipliers.products[column]
        if number < self.borrowed:
            if stage.density.trains_own and column == 0:
                masks = spread(m, self.is_selected, self.lanes, cycles=SETTING_LATENCY, name=f"is_selected_{number}")
                factors = [
                    (factor.as_unsigned() & mask.replicate(VALUE_BITS)).as_signed()
                    for factor, mask in zip(factors, masks, strict=True)
                ]
            # The other columns have partners' factors, which are zero where the stage is not used.
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
        """Convert codes to values; codes that are no channels become zero."""
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
        """Return the sum, for each lane, of the skip connections that end in a stage."""
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
    """Return the bits of the sum of ``count`` values."""
    return VALUE_BITS + ceil_log2(count) if count else 0
