"""Results: from windows that have ended to groups of accumulators beside their parameters and their place."""

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..golden import isa
from ..golden.config import Config
from ..golden.timing import RESULT_WINDOWS
from .device import RAM_LATENCY, Ram
from .engine import ACCUMULATOR_BITS, result_layout
from .isa import INDEX_BITS, ErrorReport, command_shape, field_shape, report
from .loops import Loops
from .pipeline import delay

__all__ = ["COMMANDS_IN_FLIGHT", "RESULTS_LATENCY", "Place", "Results", "Settings"]

#: From the result of an engine to its first group, when nothing waits: result FIFO, select, beside the parameter
#: memory.
RESULTS_LATENCY = 1 + RAM_LATENCY

#: Commands whose first step is issued and whose last result is not yet selected.
COMMANDS_IN_FLIGHT = 4

_COMMAND = command_shape(isa.COMPUTE)
_SETTINGS = ("zero_point", "low", "high", "table_enable", "table", "add_table")


class Settings(data.Struct):
    """What a command says of requantisation and tables."""

    zero_point: signed(8)
    low: signed(8)
    high: signed(8)
    table_enable: unsigned(1)
    table: field_shape(isa.COMPUTE, "table")
    is_add: unsigned(1)
    add_table: field_shape(isa.COMPUTE, "add_table")


class Place(data.Struct):
    """Where a group goes. Groups are collected to ``columns`` bytes; ``write`` marks the one that completes such a
    piece.

    ``address`` and ``count`` are those of the piece. ``finish`` marks the last group of a command.
    """

    valid: unsigned(1)
    write: unsigned(1)
    finish: unsigned(1)
    slot: unsigned(6)
    address: unsigned(isa.LOCAL_BITS)
    count: unsigned(7)
    index: unsigned(INDEX_BITS)


class Results(wiring.Component):
    """Give one group of ``requant_lanes`` accumulators each cycle, ``RESULTS_LATENCY`` cycles after the engine when
    nothing waits.

    Results come without backpressure: :class:`~lutterfly.hdl.windows.Windows` issues no window whose result could find
    the FIFO full.

    Parameters
    ----------
    config : Config

    Members
    -------
    context : In(stream of COMPUTE)
        The commands in the order in which they were issued; up to ``COMMANDS_IN_FLIGHT`` wait here.
    result : In
        Of the engines.
    halt : In(1)
        Give nothing more.
    parameter_write_enable, parameter_write_address, parameter_write_data : In
        Words of 64 bits; the address is the parameter word times ``requant_lanes`` plus the lane.
    accumulators : Out(requant_lanes x signed(32))
    parameters : Out(requant_lanes x 64)
    settings : Out(Settings)
    place : Out(Place)
    error : Out(ErrorReport)
    """

    def __init__(self, config: Config):
        self.config = config
        self.requant_lanes = config.array.requant_lanes
        self.pointer_bits = _COMMAND["parameter"].width + 1
        super().__init__(
            {
                "context": In(stream.Signature(_COMMAND)),
                "result": In(result_layout(config)),
                "halt": In(1),
                "parameter_write_enable": In(1),
                "parameter_write_address": In(ceil_log2(config.parameter_words * self.requant_lanes)),
                "parameter_write_data": In(64),
                "accumulators": Out(data.ArrayLayout(signed(ACCUMULATOR_BITS), self.requant_lanes)),
                "parameters": Out(data.ArrayLayout(unsigned(64), self.requant_lanes)),
                "settings": Out(Settings),
                "place": Out(Place),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes, lane_bits = self.config.array.lanes, ceil_log2(self.requant_lanes)
        available, head, pop = self._elaborate_fifo(m)

        # The command whose results come now.
        m.submodules.contexts = contexts = SyncFIFO(width=_COMMAND.size, depth=COMMANDS_IN_FLIGHT)
        active, command, take = Signal(), Signal(_COMMAND, reset_less=True), Signal()
        next_command = data.View(_COMMAND, contexts.r_data)
        m.submodules.loops = loops = Loops(side="destination", word_bits=self.pointer_bits)
        serve, last_group = Signal(), Signal()
        group = Signal(range(max(lanes // self.requant_lanes, 2)))
        last_of_full, last_of_tail = Signal.like(group, reset_less=True), Signal.like(group, reset_less=True)
        m.d.comb += [
            self.context.ready.eq(contexts.w_rdy),
            contexts.w_en.eq(self.context.valid),
            contexts.w_data.eq(self.context.payload),
            contexts.r_en.eq(take),
            take.eq(contexts.r_rdy & (~active | (pop & loops.last))),
            loops.command.eq(command),
            loops.first.eq(next_command),
            loops.first_word.eq(next_command.parameter),
            loops.load.eq(take),
            loops.step.eq(serve & ~command.parameter_shared),
            loops.advance.eq(pop),
        ]
        with m.If(take):
            m.d.sync += [active.eq(1), command.eq(next_command)]
        with m.Elif(pop & loops.last):
            m.d.sync += active.eq(0)

        with m.If(take):
            m.d.sync += [
                last_of_full.eq((next_command.lanes - 1) >> lane_bits),
                last_of_tail.eq((next_command.last_lanes - 1) >> lane_bits),
            ]

        # Its current window, group by group.
        m.d.comb += [
            last_group.eq(group == Mux(loops.last_tile, last_of_tail, last_of_full)),
            serve.eq(available & active & ~self.halt),
            pop.eq(serve & last_group),
        ]
        with m.If(serve):
            m.d.sync += group.eq(Mux(last_group, 0, group + 1))

        self._elaborate_parameters(m, serve, loops.word, command.index)
        self._elaborate_accumulators(m, head, group)
        self._elaborate_place(m, group, serve, last_group, command, loops)
        return m

    def _elaborate_fifo(self, m: Module) -> tuple:
        """The results that wait: whether there is one, the first, and the signal that drops it."""
        wide = self.result.lanes.shape().size
        m.submodules.windows = windows = memory.Memory(shape=unsigned(wide), depth=RESULT_WINDOWS, init=[])
        write, read = windows.write_port(), windows.read_port(domain="comb")
        produced, consumed = Signal(ceil_log2(RESULT_WINDOWS)), Signal(ceil_log2(RESULT_WINDOWS))
        waiting = Signal(range(RESULT_WINDOWS + 1))
        pop, available = Signal(), Signal()
        m.d.comb += [
            write.addr.eq(produced),
            write.data.eq(self.result.lanes),
            write.en.eq(self.result.valid),
            read.addr.eq(consumed),
        ]
        m.d.sync += [
            produced.eq(produced + self.result.valid),
            consumed.eq(consumed + pop),
            waiting.eq(waiting + self.result.valid - pop),
            available.eq(self.result.valid | (waiting > pop)),
        ]
        return available, data.View(self.result.lanes.shape(), read.data), pop

    def _elaborate_parameters(self, m: Module, serve, word, index) -> None:
        lane_bits = ceil_log2(self.requant_lanes)
        for lane in range(self.requant_lanes):
            m.submodules[f"parameters_{lane}"] = ram = Ram(width=64, depth=self.config.parameter_words)
            m.d.comb += [
                ram.read_address.eq(word),
                self.parameters[lane].eq(ram.read_data),
                ram.write_address.eq(self.parameter_write_address[lane_bits:]),
                ram.write_data.eq(self.parameter_write_data),
                ram.write_enable.eq(self.parameter_write_enable & (self.parameter_write_address[:lane_bits] == lane)),
            ]
        m.d.sync += self.error.valid.eq(0)
        with m.If(serve & (word >= self.config.parameter_words)):
            m.d.sync += report(self.error, isa.ErrorCode.ADDRESS_RANGE, isa.Unit.WRITE_BACK, index, word)

    def _elaborate_accumulators(self, m: Module, head, group) -> None:
        """Select the group's accumulators, in step with the parameter memory."""
        selected = Signal(self.accumulators.shape(), reset_less=True)
        with m.Switch(group):
            for number in range(self.config.array.lanes // self.requant_lanes):
                with m.Case(number):
                    m.d.sync += [
                        selected[lane].eq(head[number * self.requant_lanes + lane])
                        for lane in range(self.requant_lanes)
                    ]
        m.d.comb += self.accumulators.eq(delay(m, selected, RAM_LATENCY - 1, name="selected"))

    def _elaborate_place(self, m: Module, group, serve, last_group, command, loops: Loops) -> None:
        """Work out where the group goes, in two stages beside the parameter memory."""
        columns = self.config.array.columns
        slot_bits = ceil_log2(columns // self.requant_lanes)
        slot = group[:slot_bits]
        piece_start = (group >> slot_bits) * columns

        place, settings = Signal(Place, reset_less=True), Signal(Settings, reset_less=True)
        offset, left = Signal(range(self.config.array.lanes), reset_less=True), Signal(signed(9), reset_less=True)
        m.d.sync += [
            place.valid.eq(serve),
            place.write.eq(serve & (last_group | slot.all())),
            place.finish.eq(serve & last_group & loops.last),
            place.slot.eq(slot),
            place.index.eq(command.index),
            offset.eq(piece_start),
            # What is left of the window from the start of the piece on.
            left.eq(Mux(loops.last_tile, command.last_lanes, command.lanes) - piece_start),
            settings.is_add.eq(command.engine == isa.Engine.ADD),
            *(settings[name].eq(command[name]) for name in _SETTINGS),
        ]
        placed = Signal(Place)
        m.d.comb += [
            placed.eq(place),
            # The pointer is as late as `place`.
            placed.address.eq(loops.pointer + offset),
            placed.count.eq(Mux(left > columns, columns, left)),
        ]
        m.d.comb += [
            self.place.eq(delay(m, placed, RAM_LATENCY - 1, name="place")),
            self.settings.eq(delay(m, settings, RAM_LATENCY - 1, name="settings")),
        ]
