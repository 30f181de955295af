"""What the requantiser adds: accumulator and bias, or what a finish of an engine's own makes of them."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.timing.latencies import addends_latency
from ..engines.engine import ACCUMULATOR_BITS
from ..engines.finish import AddendsComponent, addend_of, addends_layout, take_finish_settings
from ..parts.pipeline import delay
from .settings import settings_layout

__all__ = ["Addends"]


class Addends(wiring.Component):
    """Give two addends for each accumulator of a group, :func:`~lutterfly.golden.timing.latencies.addends_latency`
    cycles later.

    Parameters
    ----------
    config : Config
    finishes : mapping of str to AddendsComponent
        Submodules of somebody else, by the flag in ``settings`` that chooses each.

    Members
    -------
    settings : In(settings_layout)
    accumulators, biases : In(requant_lanes x signed(32))
    addends : Out(addends_layout)
    """

    def __init__(self, config: Config, finishes: Mapping[str, AddendsComponent]):
        self.lanes = config.array.requant_lanes
        self.finishes = finishes
        self.latency = addends_latency(config)
        words = data.ArrayLayout(signed(ACCUMULATOR_BITS), self.lanes)
        super().__init__(
            {
                "settings": In(settings_layout(config)),
                "accumulators": In(words),
                "biases": In(words),
                "addends": Out(addends_layout(config)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # The last cycle is the choice.
        latest = self.latency - 1
        chosen = {name: delay(m, self.settings[name], latest, name=name) for name in self.finishes}
        for component in self.finishes.values():
            m.d.comb += [
                *take_finish_settings(component.settings, self.settings),
                component.accumulators.eq(self.accumulators),
                component.biases.eq(self.biases),
            ]
        for lane in range(self.lanes):
            for place, given in enumerate((self.accumulators[lane], self.biases[lane])):
                if not self.finishes:
                    m.d.comb += self.addends[lane][place].eq(addend_of(given))
                    continue
                name = f"lane_{lane}_addend_{place}"
                value = addend_of(delay(m, given, latest, name=f"{name}_passing"))
                for flag, component in self.finishes.items():
                    waits = latest - component.finish.addends_latency
                    own = delay(m, component.addends[lane][place], waits, name=f"{name}_{flag}")
                    value = Mux(chosen[flag], own, value)
                addend = Signal.like(self.addends[lane][place], name=name, reset_less=True)
                m.d.sync += addend.eq(value)
                m.d.comb += self.addends[lane][place].eq(addend)
        return m
