"""Conversion of groups of accumulators into codes: addends, requantiser and tables, or a whole epilogue beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.memories import PARAMETER_BYTES, LocalMemory
from ...golden.timing.latencies import addends_latency
from ..engines.engine import (
    ACCUMULATOR_BITS,
    AddendsComponent,
    EpilogueComponent,
    addend_of,
    addends_layout,
    built_epilogues,
    codes_layout,
    epilogue_flag,
    has_whole_epilogue,
    take_epilogue_settings,
    values_layout,
)
from ..parts.device import RAM_LATENCY, Ram
from ..parts.isa import field_shape
from ..parts.pipeline import Sleep, delay
from .group_walk import GroupTarget, settings_layout
from .requant import LATENCY as REQUANT_LATENCY
from .requant import Parameter, Requantiser

__all__ = [
    "Addends",
    "Epilogues",
    "TransferTables",
    "epilogues_latency",
]


# The addends of the requantiser: accumulator and bias, or what an engine's own epilogue makes of them.


class Addends(wiring.Component):
    """Give two addends for each accumulator of a group, :func:`~lutterfly.golden.timing.latencies.addends_latency`
    cycles later.

    Parameters
    ----------
    config : Config
    epilogues : mapping of str to AddendsComponent
        Submodules of another component, by the flag in ``settings`` that selects each.

    Members
    -------
    settings : In(settings_layout)
    accumulators, biases : In(requant_lanes x signed(32))
    addends : Out(addends_layout)
    """

    def __init__(self, config: Config, epilogues: Mapping[str, AddendsComponent]):
        self.lanes = config.array.requant_lanes
        self.epilogues = epilogues
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
        # The last cycle chooses between the epilogues.
        latest = self.latency - 1
        chosen = {name: delay(m, self.settings[name], latest, name=name) for name in self.epilogues}
        for component in self.epilogues.values():
            m.d.comb += [
                *take_epilogue_settings(component.settings, self.settings),
                component.accumulators.eq(self.accumulators),
                component.biases.eq(self.biases),
            ]
        for lane in range(self.lanes):
            for place, given in enumerate((self.accumulators[lane], self.biases[lane])):
                if not self.epilogues:
                    m.d.comb += self.addends[lane][place].eq(addend_of(given))
                    continue
                name = f"lane_{lane}_addend_{place}"
                value = addend_of(delay(m, given, latest, name=f"{name}_passing"))
                for flag, component in self.epilogues.items():
                    waits = latest - component.epilogue.addends_latency
                    own = delay(m, component.addends[lane][place], waits, name=f"{name}_{flag}")
                    value = Mux(chosen[flag], own, value)
                addend = Signal.like(self.addends[lane][place], name=name, reset_less=True)
                m.d.sync += addend.eq(value)
                m.d.comb += self.addends[lane][place].eq(addend)
        return m


# Transfer tables: one byte in, one byte out, from one of several tables of 256 bytes.


class TransferTables(wiring.Component):
    """Look ``requant_lanes`` codes up in a table each cycle, or pass them unchanged, with a latency of ``RAM_LATENCY``
    cycles.

    Bit-exact with :func:`lutterfly.golden.transfer.tables.apply_table`. Every lane has its own copy of all tables, and
    they are written alike.

    Parameters
    ----------
    config : Config

    Members
    -------
    enable : In(1), table : In
        Whether to look up, and the number of the table.
    codes : In(requant_lanes x signed(8))
    values : Out(requant_lanes x 8)
    write : Out(memory.WritePort.Signature)
        One byte of a table; the address is 256 times the table, plus the code plus 128.
    """

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.requant_lanes
        self.size = config.memory.tables * isa.TABLE_BYTES
        super().__init__(
            {
                "enable": In(1),
                "table": In(field_shape(isa.COMPUTE, "table")),
                "codes": In(data.ArrayLayout(signed(8), self.lanes)),
                "values": Out(data.ArrayLayout(unsigned(8), self.lanes)),
                "write": Out(memory.WritePort.Signature(addr_width=ceil_log2(self.size), shape=8)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        enabled = delay(m, self.enable, RAM_LATENCY, name="enabled")
        for lane in range(self.lanes):
            m.submodules[f"lane_{lane}"] = ram = Ram(width=8, depth=self.size)
            code = self.codes[lane].as_unsigned()
            m.d.comb += [
                ram.read_address.eq(Cat(code ^ 0x80, self.table)),
                ram.write_address.eq(self.write.addr),
                ram.write_data.eq(self.write.data),
                ram.write_enable.eq(self.write.en),
                self.values[lane].eq(Mux(enabled, ram.read_data, delay(m, code, RAM_LATENCY, name=f"code_{lane}"))),
            ]
        return m


def epilogues_latency(config: Config) -> int:
    """Return the cycles from a group of accumulators to its codes."""
    return addends_latency(config) + REQUANT_LATENCY + RAM_LATENCY


class Epilogues(wiring.Component):
    """Convert a group into codes each cycle, :func:`epilogues_latency` cycles later, as its command has chosen.

    Parameters
    ----------
    config : Config
    kinds : iterable of EpilogueComponent classes
        The epilogues of the configuration's engines.

    Members
    -------
    accumulators, parameters, settings, place, values
        The outputs of :class:`.results.Results`.
    codes : Out(requant_lanes x 8)
        The codes of a group that the requantiser epilogues.
    whole_codes : Out(codes_layout), if the configuration has a whole epilogue
        The codes of a group that is all lanes.
    finished_place : Out(GroupTarget)
    table_write, ... : Out(memory.WritePort.Signature)
        The write ports of the tables, and of every memory of an epilogue, by its name.

    Raises
    ------
    ValueError
        If an epilogue of the configuration has no component, or a whole one takes longer than requantiser and tables.
    """

    def __init__(self, config: Config, kinds: Iterable[type[EpilogueComponent]]):
        self.config = config
        self.lanes = config.array.requant_lanes
        self.has_whole = has_whole_epilogue(config)
        components: dict[str, type[EpilogueComponent]] = {kind.epilogue.name: kind for kind in kinds}
        self.epilogues: dict[str, EpilogueComponent] = {}
        for engine, epilogue in built_epilogues(config):
            if epilogue.name not in components:
                raise ValueError(f"{engine.engine.name}: the epilogue {epilogue.name} must have a component")
            component = components[epilogue.name](config)
            most = epilogues_latency(config)
            if epilogue.is_whole and component.latency > most:
                raise ValueError(
                    f"the epilogue {epilogue.name} must take at most {most} cycles, not {component.latency}"
                )
            self.epilogues[epilogue_flag(engine, epilogue)] = component
        self.tables = TransferTables(config)
        self.memories = {LocalMemory.TABLE: self.tables} | {
            component.memory: component for component in self.epilogues.values() if component.memory is not None
        }
        writes = {self.write_name(code): Out(owner.write.signature) for code, owner in self.memories.items()}
        super().__init__(
            {
                "accumulators": In(data.ArrayLayout(signed(ACCUMULATOR_BITS), self.lanes)),
                "parameters": In(data.ArrayLayout(unsigned(8 * PARAMETER_BYTES), self.lanes)),
                "settings": In(settings_layout(config)),
                "place": In(GroupTarget),
                **({"values": In(values_layout(config.array.lanes))} if self.has_whole else {}),
                "codes": Out(data.ArrayLayout(unsigned(8), self.lanes)),
                **({"whole_codes": Out(codes_layout(config.array.lanes))} if self.has_whole else {}),
                "finished_place": Out(GroupTarget),
                **writes,
            }
        )

    @staticmethod
    def write_name(code: LocalMemory) -> str:
        """Return the name of the member that writes a memory."""
        return f"{code.name.lower()}_write"

    def elaborate(self, platform) -> Module:
        m = Module()
        for flag, component in self.epilogues.items():
            m.submodules[flag.removeprefix("is_")] = self._sleeper(m, platform, flag, component)
        m.submodules.tables = self.tables
        for code, owner in self.memories.items():
            given = getattr(self, self.write_name(code))
            m.d.comb += [getattr(owner.write, name).eq(getattr(given, name)) for name in ("addr", "data", "en")]
        self._elaborate_requantisers(m, platform)
        if self.has_whole:
            self._elaborate_whole(m)
        place = delay(m, self.place, epilogues_latency(self.config), name="place")
        m.d.comb += [self.finished_place.eq(place), self.codes.eq(self.tables.values)]
        return m

    def _sleeper(self, m: Module, platform: object, flag: str, component: EpilogueComponent) -> Elaboratable:
        """Wrap an epilogue so that in a simulation its clock is gated while it has no group and its memory is not
        written."""
        used = self.place.valid & self.settings[flag]
        if component.memory is not None:
            used |= component.write.en
        return Sleep(m, platform, used, cycles=epilogues_latency(self.config)).of(component)

    def _elaborate_requantisers(self, m: Module, platform: object) -> None:
        """Add, scale, round and clamp in each lane, and look the codes up."""
        parameters = [data.View(Parameter, self.parameters[lane]) for lane in range(self.lanes)]
        given = {flag: one for flag, one in self.epilogues.items() if not one.epilogue.is_whole}
        m.submodules.addends = addends = Addends(self.config, given)
        m.d.comb += [
            addends.settings.eq(self.settings),
            addends.accumulators.eq(self.accumulators),
            *(bias.eq(parameter.bias) for bias, parameter in zip(addends.biases, parameters, strict=True)),
        ]
        settings = delay(m, self.settings, addends.latency, name="settings")
        # In a simulation their clock is gated while they have no group.
        whole = [self.settings[flag] for flag, component in self.epilogues.items() if component.epilogue.is_whole]
        sleep = Sleep(m, platform, self.place.valid & ~Cat(whole).any(), cycles=epilogues_latency(self.config))
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
        """Build the codes of all lanes without the requantiser, in as many cycles as with it."""
        latency, codes = epilogues_latency(self.config), None
        biases = Cat(self.parameters)[: len(self.values.as_value())]
        for flag, component in self.epilogues.items():
            if not component.epilogue.is_whole:
                continue
            m.d.comb += [
                *take_epilogue_settings(component.settings, self.settings),
                component.values.eq(self.values),
                component.biases.eq(biases),
            ]
            own = delay(m, component.codes, latency - component.latency, name=f"{flag}_codes")
            chosen = delay(m, self.settings[flag], latency, name=flag)
            codes = own if codes is None else Mux(chosen, own, codes)
        m.d.comb += self.whole_codes.eq(codes)
