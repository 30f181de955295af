"""The result of the selected engine."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.elements import NARROW_BITS
from ..engines.engine import result_layout
from ..parts.pipeline import copy_of
from .result_fifo import any_result_layout

__all__ = ["ResultChoice"]

#: Parts of a result that are chosen each by registers of their own: there are many bits to choose.
_CHOICES = 2


class ResultChoice(wiring.Component):
    """Choose between the results of all engines, of which one at a time gives any.

    See :class:`~lutterfly.hdl.compute.windows.Windows`.

    Parameters
    ----------
    config : Config
    is_narrow : sequence of bool
        Of each component, whether its results are narrow.

    Members
    -------
    steps : In(a bit for each component)
        It has a step: long before the result.
    result_0, result_1, ... : In(result_layout)
    result : Out(any_result_layout)
    """

    def __init__(self, config: Config, is_narrow: Sequence[bool]):
        self.lanes = config.array.lanes
        self.is_narrow = is_narrow
        self.names = [f"result_{place}" for place in range(len(is_narrow))]
        super().__init__(
            {
                "steps": In(len(is_narrow)),
                **{name: In(result_layout(config)) for name in self.names},
                "result": Out(any_result_layout(config)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        results = [getattr(self, name) for name in self.names]
        for number in range(_CHOICES):
            works = copy_of(self.steps[1:], number, name=f"works_{number}")
            with m.If(self.steps.any()):
                m.d.sync += works.eq(self.steps[1:])
            for lane in range(number * self.lanes // _CHOICES, (number + 1) * self.lanes // _CHOICES):
                totals = {place: result.lanes[lane] for place, result in enumerate(results)}
                wide = {place: total for place, total in totals.items() if not self.is_narrow[place]}
                m.d.comb += self.result.low[lane].eq(_choose(totals, works)[:NARROW_BITS])
                if wide:
                    m.d.comb += self.result.high[lane].eq(_choose(wide, works)[NARROW_BITS:])
        valid = dict(enumerate(result.valid for result in results))
        is_wide = dict(enumerate(Const(not narrow) for narrow in self.is_narrow))
        m.d.comb += [self.result.valid.eq(_choose(valid, works)), self.result.is_wide.eq(_choose(is_wide, works))]
        return m


def _choose(values: dict[int, Value], works: Value) -> Value:
    """The value of the selected component, by its place; of any where that one has none. ``works`` leaves out the
    first."""
    (_, chosen), *others = values.items()
    for place, value in others:
        chosen = Mux(works[place - 1], value, chosen)
    return chosen
