"""Results: from windows that have ended to groups of accumulators beside their parameters and their place."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.engines import specification_of
from ...golden.memories import PARAMETER_BYTES
from ...golden.units import ErrorCode, Unit
from ..engines import COMPONENTS
from ..engines.engine import ACCUMULATOR_BITS
from ..engines.finish import has_whole_finish, values_layout
from ..parts.device import RAM_LATENCY, Ram
from ..parts.isa import ErrorReport, command_shape, is_beyond, report_error
from ..parts.pipeline import delay, spread
from .group_walk import GroupWalk
from .place import Place
from .result_fifo import GROUP_LATENCY, ResultFifo, any_result_layout
from .settings import settings_layout

__all__ = ["RESULTS_LATENCY", "Results"]

#: From the result of an engine to its first group, when nothing waits: a register, the result FIFO, and the selection
#: beside the parameters.
RESULTS_LATENCY = 2 + GROUP_LATENCY


class Results(wiring.Component):
    """Give one group of ``requant_lanes`` accumulators each cycle, ``RESULTS_LATENCY`` cycles after the engine when
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
        Give nothing more.
    parameter_write : Out(memory.WritePort.Signature)
        Words of 64 bits; the address is the parameter word times ``requant_lanes`` plus the lane.
    accumulators : Out(requant_lanes x signed(32))
    parameters : Out(requant_lanes x 64)
    settings : Out(settings_layout)
    values : Out(values_layout), if the configuration has a whole finish
        Of all lanes, in the cycle of ``accumulators``.
    place : Out(Place)
    error : Out(ErrorReport)

    Raises
    ------
    ValueError
        If an engine of bursts has wide results, or one with a whole finish.
    """

    def __init__(self, config: Config):
        for code in config.engines:
            one = specification_of(code)
            if not COMPONENTS[code].is_narrow and (
                one.issue.is_burst or any(finish.is_whole for finish in one.finishes)
            ):
                raise ValueError(f"{code.name} must have narrow results: it has bursts, or a whole finish")
        self.config = config
        self.has_whole = has_whole_finish(config)
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
                "place": Out(Place),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.walker = walker = GroupWalk(self.config)
        m.submodules.fifo = fifo = ResultFifo(self.config)
        wiring.connect(m, wiring.flipped(self.context), walker.context)

        # A group goes on when its result is there.
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
        place = Signal(Place)
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
        """A parameter word that does not exist; a result for which there is no place, which must never come."""
        # A cycle to come from the walker, and one to compare.
        values = {"overflows": overflows, "serves": serve, "index": group.place.index, "word": group.word}
        late = {name: delay(m, value, 1, name=f"{name}_for_error") for name, value in values.items()}
        code = Mux(late["overflows"], ErrorCode.OVERFLOW, ErrorCode.ADDRESS_RANGE)
        is_outside = late["serves"] & is_beyond(late["word"], self.config.parameter_words)
        m.d.sync += [
            report_error(self.error, code, Unit.WRITE_BACK, late["index"], late["word"]),
            self.error.valid.eq(late["overflows"] | is_outside),
        ]
