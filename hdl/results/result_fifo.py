"""The results that wait for the requantiser, and of the first one the accumulators of one group after the other."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ...golden.elements import NARROW_BITS
from ...golden.timing.latencies import RESULT_WINDOWS, result_windows
from ..engines.engine import ACCUMULATOR_BITS
from ..engines.finish import has_whole_finish, values_layout
from ..parts.device import RAM_LATENCY
from ..parts.distributed_ram import DistributedRam
from ..parts.fifo import counted, remains
from ..parts.pipeline import copy_of, delay

__all__ = ["GROUP_LATENCY", "ResultFifo", "any_result_layout"]

#: From the choice of a group to its accumulators, as long as its parameters take: a register on the way, the memory.
GROUP_LATENCY = 1 + RAM_LATENCY


def any_result_layout(config: Config) -> data.StructLayout:
    """A result of the selected engine: of each lane the bits that every engine gives, and where it ``is_wide`` the
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
    """Keep results in their order, and give one group of the first one each cycle.

    Results come without backpressure. Of the high bits of wide results there are as many places as engines without
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
        Drop the first one, whose last group goes out.
    group : In, is_wide : In(1)
        Which group of the first result goes out, and whether that result has high bits.
    accumulators : Out(requant_lanes x signed(32))
        ``GROUP_LATENCY`` cycles later.
    values : Out(values_layout), if the configuration has a whole finish
        The low bits of all lanes of that result, with them.
    overflows : Out(1)
        A result came that found no place: it has taken another one's.
    """

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.requant_lanes
        self.groups = config.array.lanes // self.lanes
        self.has_whole = has_whole_finish(config)
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
            # Also if one leaves in the same cycle: its accumulators are read in the next one.
            self.overflows.eq(valid & (waiting >= Mux(result_is_wide, RESULT_WINDOWS, depth))),
        ]
        m.d.sync += [
            # A cycle ahead of the register in front of the memories, as they ask for.
            produced.eq(produced + self.result.valid),
            consumed.eq(consumed + self.pop),
            waiting.eq(counted(waiting, comes=valid, leaves=self.pop)),
            available.eq(remains(waiting, leaves=self.pop, comes=valid)),
        ]
        for lane in range(self.lanes):
            self._elaborate_lane(m, lane, produced, consumed)
        return m

    def _elaborate_lane(self, m: Module, lane: int, produced: Signal, consumed: Signal) -> None:
        """The accumulators of one lane of the requantiser, beside it, with registers of its own for what to read."""
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
        """Keep these bits of a lane's accumulators, all groups of a result beside one another; read one result's."""
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
