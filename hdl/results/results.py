"""Results: queue the results of windows, and supply them in groups with their parameters and their place."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.elements import NARROW_BITS
from ...golden.engines import specification_of
from ...golden.memories import PARAMETER_BYTES
from ...golden.timing.latencies import RESULT_WINDOWS, result_windows
from ...golden.units import ErrorCode, Unit
from ..engines import COMPONENTS
from ..engines.engine import ACCUMULATOR_BITS, has_whole_epilogue, result_layout, values_layout
from ..parts.device import RAM_LATENCY, DistributedRam, Ram
from ..parts.fifo import counted, remains
from ..parts.isa import ErrorReport, command_shape, is_beyond, report_error
from ..parts.pipeline import copy_of, delay, spread
from .group_walk import GroupTarget, GroupWalk, settings_layout

__all__ = [
    "GROUP_LATENCY",
    "RESULTS_LATENCY",
    "ResultChoice",
    "ResultFifo",
    "Results",
    "any_result_layout",
]


# The queue of results that wait for the requantiser.

#: Cycles from the choice of a group to its accumulators, as many as its parameters take: a register and the memory.
GROUP_LATENCY = 1 + RAM_LATENCY


def any_result_layout(config: Config) -> data.StructLayout:
    """A result of the selected engine: for each lane the bits that every engine gives, and where it ``is_wide`` the
    others."""
    lanes = config.array.lanes
    return data.StructLayout(
        {
            "valid": unsigned(1),
            "is_wide": unsigned(1),
            "low": data.ArrayLayout(signed(NARROW_BITS), lanes),
            "high": data.ArrayLayout(unsigned(ACCUMULATOR_BITS - NARROW_BITS), lanes),
        }
    )


class ResultFifo(wiring.Component):
    """Queue results in order, and output one group of the first one each cycle.

    Results come without backpressure. There are as many places for the high bits of wide results as engines without
    bursts may have waiting.

    Parameters
    ----------
    config : Config

    Members
    -------
    result : In(any_result_layout)
    available : Out(1)
        There is a result; registered.
    pop : In(1)
        Drop the first result, whose last group is output.
    group : In, is_wide : In(1)
        The group of the first result that is output, and whether that result has high bits.
    accumulators : Out(requant_lanes x signed(32))
        The accumulators of the group, ``GROUP_LATENCY`` cycles later.
    values : Out(values_layout), if the configuration has a whole epilogue
        The low bits of all lanes of that result, in the same cycle.
    overflows : Out(1)
        A result came to a full queue: it has overwritten another one.
    """

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.requant_lanes
        self.groups = config.array.lanes // self.lanes
        self.has_whole = has_whole_epilogue(config)
        super().__init__(
            {
                "result": In(any_result_layout(config)),
                "available": Out(1),
                "pop": In(1),
                "group": In(range(max(self.groups, 2))),
                "is_wide": In(1),
                "accumulators": Out(data.ArrayLayout(signed(ACCUMULATOR_BITS), self.lanes)),
                **({"values": Out(values_layout(config.array.lanes))} if self.has_whole else {}),
                "overflows": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        valid, result_is_wide = (delay(m, self.result[name], 1, name=name) for name in ("valid", "is_wide"))
        depth = result_windows(self.config)
        produced, consumed = Signal(ceil_log2(depth)), Signal(ceil_log2(depth))
        waiting, available = Signal(range(depth + 1)), Signal()
        m.d.comb += [
            self.available.eq(available),
            # This holds if one leaves in the same cycle too: its accumulators are read in the next one.
            self.overflows.eq(valid & (waiting >= Mux(result_is_wide, RESULT_WINDOWS, depth))),
        ]
        m.d.sync += [
            # The address is given a cycle before the register at the memories' input, as the memories require.
            produced.eq(produced + self.result.valid),
            consumed.eq(consumed + self.pop),
            waiting.eq(counted(waiting, comes=valid, leaves=self.pop)),
            available.eq(remains(waiting, leaves=self.pop, comes=valid)),
        ]
        for lane in range(self.lanes):
            self._elaborate_lane(m, lane, produced, consumed)
        return m

    def _elaborate_lane(self, m: Module, lane: int, produced: Signal, consumed: Signal) -> None:
        """Build the accumulators of one lane of the requantiser, with address registers of its own beside it."""
        window, chosen, chosen_is_wide = (
            copy_of(value, lane % 2, name=f"{name}_{lane}", reset_less=True)
            for name, value in (("window", consumed), ("group", self.group), ("is_wide", self.is_wide))
        )
        m.d.sync += [window.eq(consumed), chosen.eq(self.group), chosen_is_wide.eq(self.is_wide)]
        low_held = self._elaborate_windows(m, lane, "low", place=produced, window=window)
        high_held = self._elaborate_windows(m, lane, "high", place=produced, window=window)
        later = delay(m, chosen, 1, name=f"group_{lane}")
        low, high = low_held[later], high_held[later]
        extends = ~delay(m, chosen_is_wide, 1, name=f"is_wide_{lane}")
        accumulator = Signal(signed(ACCUMULATOR_BITS), name=f"accumulator_{lane}", reset_less=True)
        m.d.sync += accumulator.eq(Cat(low, Mux(extends, low[-1].replicate(len(high)), high)))
        out = delay(m, accumulator, GROUP_LATENCY - 3, name=f"accumulator_{lane}")
        m.d.comb += self.accumulators[lane].eq(out)
        if self.has_whole:
            for place, value in enumerate(low_held):
                index = lane + place * self.lanes
                m.d.comb += self.values[index].eq(delay(m, value, GROUP_LATENCY - 2, name=f"value_{index}"))

    def _elaborate_windows(self, m: Module, lane: int, half: str, *, place: Value, window: Value) -> data.View:
        """Store these bits of a lane's accumulators, all groups of a result side by side, and read those of one
        result."""
        comes, depth = self.result.valid, result_windows(self.config)
        if half == "high":
            comes, depth = comes & self.result.is_wide, RESULT_WINDOWS
        own = [self.result[half][index] for index in range(lane, self.config.array.lanes, self.lanes)]
        shape = data.ArrayLayout(own[0].shape(), len(own))
        m.submodules[f"{half}_{lane}"] = windows = DistributedRam(shape, depth=depth, copy=lane % 2)
        m.d.comb += [
            windows.write_valid.eq(comes),
            windows.write_address.eq(place),
            windows.write_data.eq(delay(m, Cat(own), 1, name=f"{half}_result_{lane}")),
            windows.read_address.eq(window),
        ]
        # A register between the memory and the choice of a group: wires are long there.
        return delay(m, windows.read_data, 1, name=f"{half}_held_{lane}")


#: Cycles from the result of an engine to its first group, when nothing waits: a register, the result FIFO, and the
#: selection beside the parameters.
RESULTS_LATENCY = 2 + GROUP_LATENCY


class Results(wiring.Component):
    """Output one group of ``requant_lanes`` accumulators each cycle, ``RESULTS_LATENCY`` cycles after the engine when
    nothing waits.

    Results come without backpressure: :class:`~lutterfly.hdl.compute.windows.Windows` issues no window whose result
    could find the FIFO full. One that does is an error, OVERFLOW, because it would take another one's place.

    Parameters
    ----------
    config : Config

    Members
    -------
    context : In(stream of COMPUTE)
        The commands in the order in which they were issued.
    result : In(any_result_layout)
    halt : In(1)
        Output nothing more.
    parameter_write : Out(memory.WritePort.Signature)
        Words of 64 bits; the address is the parameter word times ``requant_lanes`` plus the lane.
    accumulators : Out(requant_lanes x signed(32))
    parameters : Out(requant_lanes x 64)
    settings : Out(settings_layout)
    values : Out(values_layout), if the configuration has a whole epilogue
        The values of all lanes, in the cycle of ``accumulators``.
    place : Out(GroupTarget)
    error : Out(ErrorReport)

    Raises
    ------
    ValueError
        If an engine of bursts has wide results, or one with a whole epilogue.
    """

    def __init__(self, config: Config):
        for code in config.engines:
            one = specification_of(code)
            if not COMPONENTS[code].is_narrow and (
                one.issue.is_burst or any(epilogue.is_whole for epilogue in one.epilogues)
            ):
                raise ValueError(f"{code.name} must have narrow results: it has bursts, or a whole epilogue")
        self.config = config
        self.has_whole = has_whole_epilogue(config)
        self.requant_lanes = config.array.requant_lanes
        super().__init__(
            {
                "context": In(stream.Signature(command_shape(isa.COMPUTE))),
                "result": In(any_result_layout(config)),
                "halt": In(1),
                "parameter_write": Out(
                    memory.WritePort.Signature(
                        addr_width=ceil_log2(config.parameter_words * self.requant_lanes), shape=8 * PARAMETER_BYTES
                    )
                ),
                "accumulators": Out(data.ArrayLayout(signed(ACCUMULATOR_BITS), self.requant_lanes)),
                "parameters": Out(data.ArrayLayout(unsigned(8 * PARAMETER_BYTES), self.requant_lanes)),
                "settings": Out(settings_layout(config)),
                **({"values": Out(values_layout(config.array.lanes))} if self.has_whole else {}),
                "place": Out(GroupTarget),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.walker = walker = GroupWalk(self.config)
        m.submodules.fifo = fifo = ResultFifo(self.config)
        wiring.connect(m, wiring.flipped(self.context), walker.context)

        # A group proceeds when its result has arrived.
        group, serve = walker.groups, Signal()
        part = group.payload.number[: ceil_log2(fifo.groups)] if fifo.groups > 1 else Const(0)
        m.d.comb += [
            fifo.result.eq(self.result),
            fifo.group.eq(part),
            fifo.is_wide.eq(group.payload.is_wide),
            group.ready.eq(fifo.available & ~self.halt),
            serve.eq(group.valid & group.ready),
            fifo.pop.eq(serve & group.payload.pops),
            self.accumulators.eq(fifo.accumulators),
            *([self.values.eq(fifo.values)] if self.has_whole else []),
        ]
        self._elaborate_parameters(m, group.payload.word)
        self._elaborate_errors(m, serve, group.payload, fifo.overflows)
        place = Signal(GroupTarget)
        m.d.comb += [
            place.eq(group.payload.place),
            place.valid.eq(serve),
            place.write.eq(serve & group.payload.place.write),
            place.finish.eq(serve & group.payload.place.finish),
            self.place.eq(delay(m, place, GROUP_LATENCY, name="place")),
            self.settings.eq(delay(m, group.payload.settings, GROUP_LATENCY, name="settings")),
        ]
        return m

    def _elaborate_parameters(self, m: Module, word: Value) -> None:
        lane_bits = ceil_log2(self.requant_lanes)
        # The parameters lie beside the requantisers, far from the walker and from one another.
        cycles = GROUP_LATENCY - RAM_LATENCY
        addresses = spread(m, word, self.requant_lanes, cycles=cycles, name="parameter_address")
        write = self.parameter_write
        written = delay(m, Cat(write.addr[lane_bits:], write.data), 1, name="written_parameter")
        for lane in range(self.requant_lanes):
            is_written = Signal(name=f"writes_{lane}", reset_less=True)
            m.d.sync += is_written.eq(write.en & (write.addr[:lane_bits] == lane))
            m.submodules[f"parameters_{lane}"] = ram = Ram(width=8 * PARAMETER_BYTES, depth=self.config.parameter_words)
            m.d.comb += [
                ram.read_address.eq(addresses[lane]),
                self.parameters[lane].eq(ram.read_data),
                Cat(ram.write_address, ram.write_data).eq(written),
                ram.write_enable.eq(is_written),
            ]

    def _elaborate_errors(self, m: Module, serve: Value, group: data.View, overflows: Value) -> None:
        """Report a parameter word that does not exist, and a result for which there is no place, which must never
        come."""
        # It takes a cycle to come from the walker, and one to compare.
        values = {"overflows": overflows, "serves": serve, "index": group.place.index, "word": group.word}
        late = {name: delay(m, value, 1, name=f"{name}_for_error") for name, value in values.items()}
        code = Mux(late["overflows"], ErrorCode.OVERFLOW, ErrorCode.ADDRESS_RANGE)
        is_outside = late["serves"] & is_beyond(late["word"], self.config.parameter_words)
        m.d.sync += [
            report_error(self.error, code, Unit.WRITE_BACK, late["index"], late["word"]),
            self.error.valid.eq(late["overflows"] | is_outside),
        ]


# The result of the selected engine.

#: Parts of a result that are chosen by registers of their own, because there are many bits to choose.
_CHOICES = 2


class ResultChoice(wiring.Component):
    """Choose between the results of all engines, of which only one at a time gives results.

    See :class:`~lutterfly.hdl.compute.windows.Windows`.

    Parameters
    ----------
    config : Config
    is_narrow : sequence of bool
        For each component, whether its results are narrow.

    Members
    -------
    steps : In(a bit for each component)
        The component has a step, long before the result.
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
    """Choose the value of the selected component by its place, or any value where that one has none. ``works`` leaves
    out the first."""
    (_, chosen), *others = values.items()
    for place, value in others:
        chosen = Mux(works[place - 1], value, chosen)
    return chosen
