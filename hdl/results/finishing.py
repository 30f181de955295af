"""From groups of accumulators to codes: addends, requantiser and tables, or a whole finish beside them."""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Cat, Elaboratable, Module, Mux, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.memories import PARAMETER_BYTES, LocalMemory
from ...golden.timing.latencies import addends_latency
from ..engines.engine import ACCUMULATOR_BITS
from ..engines.finish import (
    FinishComponent,
    built_finishes,
    codes_layout,
    finish_flag,
    has_whole_finish,
    take_finish_settings,
    values_layout,
)
from ..parts.device import RAM_LATENCY
from ..parts.pipeline import delay
from ..parts.sleep import Sleep
from .addends import Addends
from .place import Place
from .requant import LATENCY as REQUANT_LATENCY
from .requant import Parameter, Requantiser
from .settings import settings_layout
from .transfer_tables import TransferTables

__all__ = ["Finishing", "finishing_latency"]


def finishing_latency(config: Config) -> int:
    """Cycles from a group of accumulators to its codes."""
    return addends_latency(config) + REQUANT_LATENCY + RAM_LATENCY


class Finishing(wiring.Component):
    """Make codes of a group each cycle, :func:`finishing_latency` cycles later, as its command has chosen.

    Parameters
    ----------
    config : Config
    kinds : iterable of FinishComponent classes
        Those of the engines of the configuration.

    Members
    -------
    accumulators, parameters, settings, place, values
        As :class:`.results.Results` gives them.
    codes : Out(requant_lanes x 8)
        Of a group that the requantiser finishes.
    whole_codes : Out(codes_layout), if the configuration has a whole finish
        Of a group that is all lanes.
    finished_place : Out(Place)
    table_write, ... : Out(memory.WritePort.Signature)
        Of the tables, and of every memory of a finish, by its name.

    Raises
    ------
    ValueError
        If a finish of the configuration has no component, or a whole one takes longer than requantiser and tables.
    """

    def __init__(self, config: Config, kinds: Iterable[type[FinishComponent]]):
        self.config = config
        self.lanes = config.array.requant_lanes
        self.has_whole = has_whole_finish(config)
        components: dict[str, type[FinishComponent]] = {kind.finish.name: kind for kind in kinds}
        self.finishes: dict[str, FinishComponent] = {}
        for engine, finish in built_finishes(config):
            if finish.name not in components:
                raise ValueError(f"{engine.engine.name}: the finish {finish.name} must have a component")
            component = components[finish.name](config)
            most = finishing_latency(config)
            if finish.is_whole and component.latency > most:
                raise ValueError(f"the finish {finish.name} must take at most {most} cycles, not {component.latency}")
            self.finishes[finish_flag(engine, finish)] = component
        self.tables = TransferTables(config)
        self.memories = {LocalMemory.TABLE: self.tables} | {
            component.memory: component for component in self.finishes.values() if component.memory is not None
        }
        writes = {self.write_name(code): Out(owner.write.signature) for code, owner in self.memories.items()}
        super().__init__(
            {
                "accumulators": In(data.ArrayLayout(signed(ACCUMULATOR_BITS), self.lanes)),
                "parameters": In(data.ArrayLayout(unsigned(8 * PARAMETER_BYTES), self.lanes)),
                "settings": In(settings_layout(config)),
                "place": In(Place),
                **({"values": In(values_layout(config.array.lanes))} if self.has_whole else {}),
                "codes": Out(data.ArrayLayout(unsigned(8), self.lanes)),
                **({"whole_codes": Out(codes_layout(config.array.lanes))} if self.has_whole else {}),
                "finished_place": Out(Place),
                **writes,
            }
        )

    @staticmethod
    def write_name(code: LocalMemory) -> str:
        """The name of the member that writes a memory."""
        return f"{code.name.lower()}_write"

    def elaborate(self, platform) -> Module:
        m = Module()
        for flag, component in self.finishes.items():
            m.submodules[flag.removeprefix("is_")] = self._sleeper(m, platform, flag, component)
        m.submodules.tables = self.tables
        for code, owner in self.memories.items():
            given = getattr(self, self.write_name(code))
            m.d.comb += [getattr(owner.write, name).eq(getattr(given, name)) for name in ("addr", "data", "en")]
        self._elaborate_requantisers(m, platform)
        if self.has_whole:
            self._elaborate_whole(m)
        place = delay(m, self.place, finishing_latency(self.config), name="place")
        m.d.comb += [self.finished_place.eq(place), self.codes.eq(self.tables.values)]
        return m

    def _sleeper(self, m: Module, platform: object, flag: str, component: FinishComponent) -> Elaboratable:
        """A finish, which in a simulation sleeps while no group is its and nothing is written to its memory."""
        used = self.place.valid & self.settings[flag]
        if component.memory is not None:
            used |= component.write.en
        return Sleep(m, platform, used, cycles=finishing_latency(self.config)).of(component)

    def _elaborate_requantisers(self, m: Module, platform: object) -> None:
        """Add, scale, round and clamp in each lane, and look the codes up."""
        parameters = [data.View(Parameter, self.parameters[lane]) for lane in range(self.lanes)]
        given = {flag: one for flag, one in self.finishes.items() if not one.finish.is_whole}
        m.submodules.addends = addends = Addends(self.config, given)
        m.d.comb += [
            addends.settings.eq(self.settings),
            addends.accumulators.eq(self.accumulators),
            *(bias.eq(parameter.bias) for bias, parameter in zip(addends.biases, parameters, strict=True)),
        ]
        settings = delay(m, self.settings, addends.latency, name="settings")
        # In a simulation they sleep while no group is theirs.
        whole = [self.settings[flag] for flag, component in self.finishes.items() if component.finish.is_whole]
        sleep = Sleep(m, platform, self.place.valid & ~Cat(whole).any(), cycles=finishing_latency(self.config))
        for lane, parameter in enumerate(parameters):
            requantiser = Requantiser()
            m.submodules[f"requantiser_{lane}"] = sleep.of(requantiser)
            m.d.comb += [
                requantiser.addends.eq(addends.addends[lane]),
                requantiser.scale.eq(delay(m, parameter.scale, addends.latency, name=f"scale_{lane}")),
                requantiser.zero_point.eq(settings.zero_point),
                requantiser.low.eq(settings.low),
                requantiser.high.eq(settings.high),
                self.tables.codes[lane].eq(requantiser.result),
            ]
        m.d.comb += [
            self.tables.enable.eq(delay(m, settings.table_enable, REQUANT_LATENCY, name="table_enable")),
            self.tables.table.eq(delay(m, settings.table, REQUANT_LATENCY, name="table")),
        ]

    def _elaborate_whole(self, m: Module) -> None:
        """Codes of all lanes without the requantiser, in as many cycles as with it."""
        latency, codes = finishing_latency(self.config), None
        biases = Cat(self.parameters)[: len(self.values.as_value())]
        for flag, component in self.finishes.items():
            if not component.finish.is_whole:
                continue
            m.d.comb += [
                *take_finish_settings(component.settings, self.settings),
                component.values.eq(self.values),
                component.biases.eq(biases),
            ]
            own = delay(m, component.codes, latency - component.latency, name=f"{flag}_codes")
            chosen = delay(m, self.settings[flag], latency, name=flag)
            codes = own if codes is None else Mux(chosen, own, codes)
        m.d.comb += self.whole_codes.eq(codes)
