"""Winograd's minimal filtering in the array: transforms of words and of weights, and two accumulators for each
column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.engines.floorplan import ArrayWaits
from ...golden.numerics.winograd import WEIGHT_BITS, WORD_BITS
from ..parts.pipeline import Assertions, delay, spread
from .engine import ACCUMULATOR_BITS
from .stage import ArrayStage, Total, waits_behind

if TYPE_CHECKING:
    from .mac_array import MacArray
    from .mac_column import MacColumn

__all__ = [
    "TAP_CONTROL",
    "WinogradStage",
    "WinogradTaps",
    "WinogradTotals",
    "WinogradWords",
    "phased",
]


# Behind a column's adder tree stand two accumulators for Winograd steps; all other steps use one.


class WinogradTotals(wiring.Component):
    """Add up the sums of steps, and give the total of a window, or both of them, one after the other.

    Bit-exact with :func:`lutterfly.golden.numerics.winograd.outputs`: accumulators hold twice the results. The first
    total leaves out the second step of each group, the second total the first step. Where windows follow one another,
    the first step of the next window does not change the second total, which is given in that cycle.

    Parameters
    ----------
    step : StructLayout
        Layout of steps with ``phase``, see :func:`phased`.
    sum_bits, total_bits : int
    fires : function of a step
        Returns whether the total of a column is a result after the step.

    Members
    -------
    step : In(step), sum : In(signed(sum_bits))
    fired : Out(1), total : Out(signed(total_bits))
        A result, three cycles after the step that fires; for a window with two results, the second one a cycle later.
    """

    def __init__(
        self,
        *,
        step: data.StructLayout,
        sum_bits: int,
        total_bits: int,
        fires: Callable[[data.View], Value] = lambda step: step.valid & step.fire,
    ):
        self.fires = fires
        super().__init__(
            {
                "step": In(step),
                "sum": In(signed(sum_bits)),
                "fired": Out(1),
                "total": Out(signed(total_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        is_outer = self.step.winograd & ~self.step.phase[1]
        value = delay(m, Mux(is_outer, self.sum << 1, self.sum), 1, name="value")
        step = delay(m, self.step, 1, name="step")

        first, second = (Signal.like(self.total, name=name, reset_less=True) for name in ("first", "second"))
        with m.If(step.valid & ~(step.winograd & (step.phase == 1))):
            m.d.sync += first.eq(Mux(step.clear, 0, first) + value)
        with m.If(step.valid & step.winograd & (step.phase != 0)):
            before = Mux(step.clear, 0, second)
            m.d.sync += second.eq(Mux(step.phase == 3, before - value, before + value))

        fires = self.fires(step)
        fired = delay(m, fires, 1, name="fired")
        is_double = delay(m, step.winograd, 1, name="is_double")
        is_second = delay(m, fires & step.winograd & step.fields.winograd.further, 2, name="is_second")
        chosen = Mux(is_second, second, first)
        m.d.sync += self.total.eq(Mux(is_double | is_second, chosen >> 1, chosen))
        m.d.comb += self.fired.eq(delay(m, fired | is_second, 1, name="given"))
        return m


# In front of the array, words of Winograd steps become sums and differences; all others pass.

#: Control signals for the weights of a step, see :class:`WinogradTaps`; weights pass if no bit is set.
TAP_CONTROL = data.StructLayout(dict.fromkeys(("keeps", "adds", "takes", "subtracts"), unsigned(1)))


def phased(step: data.StructLayout) -> data.StructLayout:
    """Return the layout of a step with its position within its group of four, ``phase``."""
    return data.StructLayout({**step.members, "phase": unsigned(2)})


class WinogradWords(wiring.Component):
    """Make the factors of groups of four steps, whose words come in successive cycles.

    Bit-exact with :func:`lutterfly.golden.numerics.winograd.transform_inputs`. A factor is the sum or the difference of
    two words, each at most two words before or after its own.

    Parameters
    ----------
    lanes : int
    step : StructLayout
        Layout of the array's steps, with the flag ``winograd``.

    Members
    -------
    step : In(step), word : In(8 * lanes)
    next_step : Out(phased(step)), next_word : Out(lanes x signed(9))
        The step and its factors, four cycles later. ``clear`` is set for the first two steps of a window, each of which
        begins a total.
    control : Out(TAP_CONTROL)
        Control signals for the weights of the step, a cycle before it.
    """

    def __init__(self, *, lanes: int, step: data.StructLayout):
        self.lanes = lanes
        super().__init__(
            {
                "step": In(step),
                "word": In(8 * lanes),
                "next_step": Out(phased(step)),
                "next_word": Out(data.ArrayLayout(signed(WORD_BITS), lanes)),
                "control": Out(TAP_CONTROL),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        words = [self.word]
        for number in range(1, 5):
            words.append(delay(m, words[-1], 1, name=f"word_{number}"))
        first, selected, third = self._elaborate_steps(m, platform)
        m.d.comb += self.next_step.eq(delay(m, third, 1, name="step_3"))

        adds = delay(m, selected.winograd & (selected.phase == 2), 1, name="adds")
        of_lanes = [
            spread(m, first.winograd & (first.phase == phase), self.lanes, cycles=1, name=f"is_{phase}")
            for phase in range(4)
        ]
        for lane in range(self.lanes):
            after_next, after, own, before, before_last = (word.word_select(lane, 8).as_signed() for word in words)
            zeroth, one, two, three = (copies[lane] for copies in of_lanes)
            a, b = (Signal(signed(8), name=f"{name}_{lane}", reset_less=True) for name in ("a", "b"))
            m.d.sync += [
                a.eq(Mux(one, after_next, Mux(three, before_last, own))),
                b.eq(Mux(zeroth | one, after, before) & (zeroth | one | two | three).replicate(8)),
            ]
            total = Signal(signed(WORD_BITS), name=f"total_{lane}", reset_less=True)
            m.d.sync += total.eq(Mux(adds, a + b, a - b))
            m.d.comb += self.next_word[lane].eq(total)
        return m

    def _elaborate_steps(self, m: Module, platform) -> tuple[data.View, data.View, data.View]:
        """Return the step of each word but the last two, with its phase."""
        layout = self.next_step.shape()
        now, clears, following = Signal(layout, name="now"), Signal(), Signal(2, name="following")
        for name in data.Layout.cast(self.step.shape()).members:
            m.d.comb += now[name].eq(self.step[name])
        m.d.comb += now.phase.eq(Mux(self.step.clear, 0, following))
        with m.If(self.step.valid):
            m.d.sync += [following.eq(now.phase + 1), clears.eq(self.step.clear)]
        checks = Assertions(m, platform)
        if checks.wanted:
            is_group = self.step.valid & self.step.winograd
            follows = delay(m, is_group, 1, name="follows")
            checks.never(
                is_group & (now.phase != 0) & ~follows, "WINOGRAD: a step that does not follow those of its group"
            )
        is_second = self.step.winograd & (now.phase == 1) & clears
        first, selected, third = (Signal(layout, name=f"step_{number}", reset_less=True) for number in range(3))
        m.d.sync += [first.eq(now), first.clear.eq(now.clear | is_second), selected.eq(first), third.eq(selected)]
        adds_up, phase = selected.valid & selected.winograd, selected.phase
        m.d.sync += [
            self.control.keeps.eq(adds_up & ((phase == 1) | (phase == 2))),
            self.control.adds.eq(adds_up & ~phase[1]),
            self.control.takes.eq(adds_up & phase[1]),
            self.control.subtracts.eq(adds_up & (phase == 3)),
        ]
        return first, selected, third


# In front of a column's multipliers, weights of Winograd steps become sums; all others pass.


class WinogradTaps(wiring.Component):
    """Make the factors of the weights of groups of four steps.

    Bit-exact with :func:`lutterfly.golden.numerics.winograd.transform_taps`: the first two weights of a group pass and
    are added up; the last two are added to their sum, and subtracted from it. So the weight memory holds bytes, and
    sums are formed in the column that uses them.

    Parameters
    ----------
    lanes : int

    Members
    -------
    control : In(TAP_CONTROL), weights : In(lanes x signed(8))
    taps : Out(lanes x signed(10))
        The factors, a cycle later.
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__(
            {
                "control": In(TAP_CONTROL),
                "weights": In(data.ArrayLayout(signed(8), lanes)),
                "taps": Out(data.ArrayLayout(signed(WEIGHT_BITS), lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        control = self.control
        for lane in range(self.lanes):
            weight = self.weights[lane]
            outer = Signal(signed(WORD_BITS), name=f"outer_{lane}", reset_less=True)
            kept = (outer.as_unsigned() & control.keeps.replicate(WORD_BITS)).as_signed()
            added = (weight.as_unsigned() & control.adds.replicate(8)).as_signed()
            taken = (outer.as_unsigned() & control.takes.replicate(WORD_BITS)).as_signed()
            m.d.sync += outer.eq(kept + added)
            tap = Mux(control.subtracts, taken - weight, taken + weight)
            m.d.comb += self.taps[lane].eq(delay(m, tap[:WEIGHT_BITS].as_signed(), 1, name=f"tap_{lane}"))
        return m


class WinogradStage(ArrayStage):
    """Transform the words and weights of groups of four steps, and accumulate two totals.

    A column has the port ``control`` for its weights.
    """

    flag: ClassVar = "winograd"
    waits: ClassVar = ArrayWaits(words=4, weights=1, totals=2)
    word_bits: ClassVar = WORD_BITS
    product_bits: ClassVar = WORD_BITS + WEIGHT_BITS

    def words(
        self, m: Module, platform: object, array: MacArray, step: data.View, word: Value
    ) -> tuple[data.View, Value]:
        m.submodules.words = factors = WinogradWords(lanes=array.lanes, step=step.shape())
        m.d.comb += [factors.step.eq(step), factors.word.eq(word)]
        # The control signals for weights travel with the words, and leave before the words pass the stages behind.
        behind = waits_behind(array.stages, self)
        self._control = delay(m, factors.control, behind.words - behind.weights, name="control_wait")
        return factors.next_step, factors.next_word.as_value()

    def connect(self, m: Module, platform: object, array: MacArray, column: MacColumn) -> None:
        """Pass the control signals for weights from column to column."""
        own = array.pass_on(m, "control", column.index, None if column.index else self._control)
        m.d.comb += column.control.eq(own)

    def column_members(self, column: int) -> dict[str, wiring.Member]:
        return {"control": In(TAP_CONTROL)}

    def weights(self, m: Module, column: MacColumn, weights: data.View) -> data.View:
        m.submodules.taps = taps = WinogradTaps(column.lanes)
        m.d.comb += [taps.control.eq(column.control), taps.weights.eq(weights)]
        return taps.taps

    def totals(self, m: Module, column: MacColumn, step: data.View, value: Value, before: Callable[[], Total]) -> Total:
        """Replace the accumulator by two."""
        m.submodules.totals = totals = WinogradTotals(
            step=step.shape(), sum_bits=len(value), total_bits=ACCUMULATOR_BITS, fires=column.fires
        )
        m.d.comb += [totals.step.eq(step), totals.sum.eq(value)]
        return Total(totals.fired, totals.total)
