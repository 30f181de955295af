"""In front of the array: sums and differences of the words of Winograd steps; all others pass."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.numerics.winograd import WORD_BITS
from ..parts.assertions import Assertions
from ..parts.pipeline import delay, spread

__all__ = ["TAP_CONTROL", "WinogradWords", "phased"]


#: What becomes of the weights of a step, see :class:`.taps.WinogradTaps`; nothing, if no bit is set.
TAP_CONTROL = data.StructLayout(dict.fromkeys(("keeps", "adds", "takes", "subtracts"), unsigned(1)))


def phased(step: data.StructLayout) -> data.StructLayout:
    """A step that knows which one of its group of four it is: ``phase``."""
    return data.StructLayout({**step.members, "phase": unsigned(2)})


class WinogradWords(wiring.Component):
    """Make the factors of groups of four steps, whose words come in successive cycles.

    Bit-exact with :func:`lutterfly.golden.numerics.winograd.transform_inputs`. A factor is the sum or the difference of
    two words: its own, the one or two before, the one or two after.

    Parameters
    ----------
    lanes : int
    step : StructLayout
        As the array's steps are, with the flag ``winograd``.

    Members
    -------
    step : In(step), word : In(8 * lanes)
    next_step : Out(phased(step)), next_word : Out(lanes x signed(9))
        Four cycles later. ``clear`` stands for the first two steps of a window, which begin a total each.
    control : Out(TAP_CONTROL)
        For the weights of the step, a cycle before it.
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
        """The step of each word but the last two, with its phase."""
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
