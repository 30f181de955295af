"""Results: from windows that have ended to groups of accumulators beside their parameters and their place."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.engines.specifications import specification
from ...golden.fpc import VALUE_BITS
from ...golden.memories import PARAMETER_BYTES
from ...golden.packing import is_narrow, packs
from ...golden.timing import RESULT_WINDOWS, burst_results, result_windows
from ..engines import COMPONENTS
from ..engines.engine import ACCUMULATOR_BITS, NARROW_BITS, has_direct, is_direct, own_fields, take_fields
from ..parts.device import RAM_LATENCY, Ram
from ..parts.distributed_ram import DistributedRam
from ..parts.fifo import Fifo, Slot, remains
from ..parts.isa import INDEX_BITS, ErrorReport, command_shape, field_shape, report
from ..parts.lookahead import Lookahead
from ..parts.pipeline import copy_of, delay
from .loops import Loops

__all__ = [
    "COMMANDS_IN_FLIGHT",
    "RESULTS_LATENCY",
    "Place",
    "Results",
    "any_result_layout",
    "finish_flags",
    "settings_layout",
]

#: From the parameter word of a group to its parameters: a register on the way, the memory.
_PARAMETER_LATENCY = 1 + RAM_LATENCY

#: From the result of an engine to its first group, when nothing waits: a register, the result FIFO, and the selection
#: beside the parameters.
RESULTS_LATENCY = 2 + _PARAMETER_LATENCY

#: Commands that wait behind the one whose groups are walked, at least.
COMMANDS_IN_FLIGHT = 4

_COMMAND = command_shape(isa.COMPUTE)
_SETTINGS = ("zero_point", "low", "high", "table_enable", "table")


def finish_flags(config: Config) -> dict[int, str]:
    """A flag for each engine whose totals are finished in a way of their own, by its code."""
    engines = [specification(code) for code in config.engines]
    return {engine.engine: f"is_{engine.name}" for engine in engines if not engine.is_requantised}


def settings_layout(config: Config) -> data.StructLayout:
    """What a command says of requantisation and tables, and of its engine where that matters there."""
    common = {name: field_shape(isa.COMPUTE, name) for name in _SETTINGS}
    own = {**dict.fromkeys(finish_flags(config).values(), unsigned(1)), **own_fields(config.engines, "result_fields")}
    return data.StructLayout({**common, **own})


def direct_layout(config: Config) -> data.ArrayLayout:
    """The values of a direct result."""
    return data.ArrayLayout(signed(VALUE_BITS), config.array.lanes)


def any_result_layout(config: Config) -> data.StructLayout:
    """A result of the engine that works: of each lane the bits that every engine gives, and where it ``is_wide`` the
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


def _is_wide(command, config: Config):
    """Whether the results of a command have bits beyond those that every engine gives, as one bit."""
    return reduce(or_, (command.engine == code for code in config.engines if not COMPONENTS[code].is_narrow), Const(0))


class Place(data.Struct):
    """Where a group goes. Groups are collected to ``columns`` bytes; ``write`` marks the one that completes such a
    piece. A group of direct results is all lanes, and a piece.

    ``address`` and ``count`` are those of the piece, ``count`` in results; ``packed``: each of them is a bit. Where a
    piece is less than a byte of these, ``bit`` is where it begins in it. ``finish`` marks the last group of a command.
    """

    valid: unsigned(1)
    write: unsigned(1)
    finish: unsigned(1)
    is_direct: unsigned(1)
    packed: unsigned(1)
    bit: unsigned(3)
    slot: unsigned(6)
    address: unsigned(isa.LOCAL_BITS)
    count: unsigned(7)
    index: unsigned(INDEX_BITS)


class Results(wiring.Component):
    """Give one group of ``requant_lanes`` accumulators each cycle, ``RESULTS_LATENCY`` cycles after the engine when
    nothing waits.

    Results come without backpressure: :class:`.windows.Windows` issues no window whose result could find
    the FIFO full. One that does is an error, OVERFLOW, because it would take another one's place. Of the high bits of
    wide results the FIFO holds as many as engines without bursts may have waiting.

    Parameters
    ----------
    config : Config

    Members
    -------
    context : In(stream of COMPUTE)
        The commands in the order in which they were issued; up to ``COMMANDS_IN_FLIGHT`` wait here.
    result : In(any_result_layout)
    halt : In(1)
        Give nothing more.
    parameter_write : Out(memory.WritePort.Signature)
        Words of 64 bits; the address is the parameter word times ``requant_lanes`` plus the lane.
    accumulators : Out(requant_lanes x signed(32))
    parameters : Out(requant_lanes x 64)
    settings : Out(settings_layout)
    direct_values : Out(lanes x signed(16)), if an engine of the configuration has direct results
        In the cycle of ``accumulators``.
    place : Out(Place)
    error : Out(ErrorReport)

    Raises
    ------
    ValueError
        If an engine of bursts has wide results.
    """

    def __init__(self, config: Config):
        wide = [code for code in config.engines if not COMPONENTS[code].is_narrow]
        if any(specification(code).is_burst for code in wide):
            raise ValueError("engines of bursts must have narrow results")
        self.config = config
        self.has_direct = has_direct(config)
        self.has_bits = packs(config) and is_narrow(config)
        self.requant_lanes = config.array.requant_lanes
        self.pointer_bits = _COMMAND["parameter"].width + 1
        super().__init__(
            {
                "context": In(stream.Signature(_COMMAND)),
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
                **({"direct_values": Out(direct_layout(config))} if self.has_direct else {}),
                "place": Out(Place),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.lookahead = lookahead = Lookahead(self._group_layout())
        self._elaborate_walk(m, lookahead)

        # A group goes on when its result is there.
        group, serve = lookahead.output, Signal()
        part = group.payload.number[: ceil_log2(self._result_groups)] if self._result_groups > 1 else Const(0)
        available, pop, overflows = self._elaborate_fifo(m, part, group.payload.is_wide)
        m.d.comb += [
            group.ready.eq(available & ~self.halt),
            serve.eq(group.valid & group.ready),
            pop.eq(serve & group.payload.pops),
        ]
        self._elaborate_parameters(m, group.payload.word)
        self._elaborate_errors(m, serve, group.payload, overflows)
        place = Signal(Place)
        m.d.comb += [
            place.eq(group.payload.place),
            place.valid.eq(serve),
            place.write.eq(serve & group.payload.place.write),
            place.finish.eq(serve & group.payload.place.finish),
            self.place.eq(delay(m, place, _PARAMETER_LATENCY, name="place")),
            self.settings.eq(delay(m, group.payload.settings, _PARAMETER_LATENCY, name="settings")),
        ]
        return m

    def _group_layout(self) -> data.StructLayout:
        """A group that will come: its number in its window, whether it is the last one of a result and whether that is
        wide, its parameter word."""
        return data.StructLayout(
            {
                "number": range(max(burst_results(self.config) * self._result_groups, 2)),
                "pops": unsigned(1),
                "is_wide": unsigned(1),
                "word": unsigned(self.pointer_bits),
                "settings": settings_layout(self.config),
                "place": Place,
            }
        )

    def _elaborate_walk(self, m: Module, lookahead: Lookahead) -> None:
        """Walk the groups of the commands, ahead of their results, with a pause between commands."""
        m.submodules.contexts = contexts = Fifo(_COMMAND, depth=COMMANDS_IN_FLIGHT)
        m.submodules.next_context = next_context = Slot(_COMMAND)
        m.submodules.loops = loops = Loops(side="destination", word_bits=self.pointer_bits)
        wiring.connect(m, wiring.flipped(self.context), contexts.input)
        wiring.connect(m, contexts.output, next_context.input)

        active, command, take = Signal(), Signal(_COMMAND, reset_less=True), Signal()
        next_command = next_context.output.payload
        number = Signal(self._group_layout()["number"].shape)
        walk, last = Signal(), Signal()
        # Whether the group is the last one of a window of each size, of which the loops tell one.
        lane_bits, all_bits = ceil_log2(self.requant_lanes), ceil_log2(self.config.array.lanes)
        takes_all = is_direct(next_command, self.config)
        is_last = {"lanes": Signal(reset_less=True), "last_lanes": Signal(reset_less=True)}
        for field, flag in is_last.items():
            limit, is_single = Signal.like(number, name=f"last_of_{field}", reset_less=True), Signal(reset_less=True)
            with m.If(take):
                m.d.sync += [
                    limit.eq(
                        Mux(takes_all, (next_command[field] - 1) >> all_bits, (next_command[field] - 1) >> lane_bits)
                    ),
                    Cat(is_single, flag).eq(
                        (next_command[field] <= Mux(takes_all, self.config.array.lanes, self.requant_lanes)).replicate(
                            2
                        )
                    ),
                ]
            with m.Elif(walk):
                m.d.sync += flag.eq(Mux(last, is_single, number + 1 == limit))
        m.d.comb += [
            next_context.output.ready.eq(~active),
            take.eq(next_context.output.valid & ~active),
            walk.eq(active & lookahead.room),
            last.eq(Mux(loops.last_tile, is_last["last_lanes"], is_last["lanes"])),
            loops.command.eq(command),
            loops.first.eq(next_command),
            loops.first_word.eq(next_command.parameter),
            loops.load.eq(take),
            loops.step.eq(walk & ~command.parameter_shared),
            loops.advance.eq(walk & last),
        ]
        with m.If(take):
            m.d.sync += [active.eq(1), command.eq(next_command)]
        with m.If(walk):
            m.d.sync += number.eq(Mux(last, 0, number + 1))
        with m.If(walk & last & loops.last):
            m.d.sync += active.eq(0)

        # A cycle later the loops' pointer has arrived as well; the command is still the same then. One more
        # for the sums.
        walked, last_tile = Signal(), Signal(reset_less=True)
        layout = self._group_layout()
        found, pushed = (Signal(layout, name=name, reset_less=True) for name in ("walked_group", "pushed"))
        slot, whole, ends_result = number[: self._slot_bits], Const(0), Const(0)
        if self.has_direct:
            whole = Signal(reset_less=True)
            with m.If(take):
                m.d.sync += whole.eq(takes_all)
        bits: Value = Const(0)
        if self.has_bits:
            ends_piece = last | whole | slot.all()
            bits = self._elaborate_bits(m, take, walk, ends_piece=ends_piece, ends_window=last, loops=loops)
        if burst_results(self.config) > 1:
            ends_result = whole | number[: ceil_log2(self._result_groups)].all()
        m.d.sync += [
            walked.eq(walk),
            last_tile.eq(loops.last_tile),
            found.number.eq(number),
            found.pops.eq(last | ends_result),
            found.word.eq(loops.word),
            found.place.is_direct.eq(whole),
            found.place.slot.eq(Mux(whole, 0, slot)),
            found.place.write.eq(last | whole | slot.all()),
            found.place.finish.eq(last & loops.last),
        ]
        m.d.sync += [
            pushed.eq(found),
            pushed.is_wide.eq(_is_wide(command, self.config)),
            *(pushed.settings[name].eq(command[name]) for name in _SETTINGS),
            *take_fields(pushed.settings, command),
            *(pushed.settings[flag].eq(command.engine == code) for code, flag in finish_flags(self.config).items()),
            *self._piece(pushed.place, found, command, loops.pointer, last_tile, bits),
            lookahead.input.valid.eq(walked),
        ]
        m.d.comb += [lookahead.reserve.eq(walk), lookahead.input.payload.eq(pushed)]

    def _elaborate_bits(self, m: Module, take, walk, *, ends_piece, ends_window, loops: Loops) -> Signal:
        """Count the bits of packed results that the windows of an inner loop have before a group's piece."""
        following = Signal(isa.LOCAL_BITS + 3, reset_less=True)
        bits = Signal.like(following, reset_less=True)
        m.d.sync += bits.eq(following)
        with m.If(take | (walk & ends_window & loops.row_ends)):
            m.d.sync += following.eq(0)
        with m.Elif(walk & ends_piece):
            m.d.sync += following.eq(following + self.config.array.columns)
        return bits

    def _piece(self, place, found, command, pointer, last_tile, bits: Value) -> list:
        """Assign where the piece of a group begins, and what of it there is."""
        columns, lanes = self.config.array.columns, self.config.array.lanes
        is_direct, packed = found.place.is_direct, command.packed if packs(self.config) else Const(0)
        start = Mux(is_direct, found.number * lanes, (found.number >> self._slot_bits) * columns)
        most = Mux(is_direct, lanes, columns)
        left = Mux(last_tile, command.last_lanes, command.lanes) - start
        byte = bits[3:] if self.has_bits else start >> 3
        return [
            place.address.eq(pointer + Mux(packed, byte, start)),
            *([place.packed.eq(packed)] if packs(self.config) else []),
            *([place.bit.eq(bits[:3])] if self.has_bits else []),
            place.count.eq(Mux(left > most, most, left)),
            place.index.eq(command.index),
        ]

    @property
    def _result_groups(self) -> int:
        """Groups of a result of all lanes."""
        return self.config.array.lanes // self.requant_lanes

    @property
    def _slot_bits(self) -> int:
        """Bits of a group's number within its piece."""
        return ceil_log2(self.config.array.columns // self.requant_lanes)

    def _elaborate_fifo(self, m: Module, part: Value, is_wide: Value) -> tuple:
        """The results that wait: whether there is one, the signal that drops the first, and whether one too many comes.

        Of that one, the accumulators of group ``part`` go out in step with the parameters.
        """
        valid, result_is_wide = (delay(m, self.result[name], 1, name=name) for name in ("valid", "is_wide"))
        depth = result_windows(self.config)
        produced, consumed = Signal(ceil_log2(depth)), Signal(ceil_log2(depth))
        waiting = Signal(range(depth + 1))
        pop, available, overflows = Signal(), Signal(), Signal()
        # Also if one leaves in the same cycle: its accumulators are read in the next one.
        m.d.comb += overflows.eq(valid & (waiting >= Mux(result_is_wide, RESULT_WINDOWS, depth)))
        m.d.sync += [
            # A cycle ahead of the register in front of the memories, as they ask for.
            produced.eq(produced + self.result.valid),
            consumed.eq(consumed + pop),
            waiting.eq(waiting + valid - pop),
            available.eq(remains(waiting, leaves=pop, comes=valid)),
        ]
        for lane in range(self.requant_lanes):
            # Each lane of the requantiser has its accumulators beside it, and registers of its own for what to read.
            window, chosen, chosen_is_wide = (
                copy_of(value, lane % 2, name=f"{name}_{lane}", reset_less=True)
                for name, value in (("window", consumed), ("group", part), ("is_wide", is_wide))
            )
            m.d.sync += [window.eq(consumed), chosen.eq(part), chosen_is_wide.eq(is_wide)]
            low_held = self._elaborate_windows(m, lane, "low", place=produced, window=window)
            high_held = self._elaborate_windows(m, lane, "high", place=produced, window=window)
            later = delay(m, chosen, 1, name=f"group_{lane}")
            low, high = low_held[later], high_held[later]
            extends = ~delay(m, chosen_is_wide, 1, name=f"is_wide_{lane}")
            accumulator = Signal(signed(ACCUMULATOR_BITS), name=f"accumulator_{lane}", reset_less=True)
            m.d.sync += accumulator.eq(Cat(low, Mux(extends, low[-1].replicate(len(high)), high)))
            out = delay(m, accumulator, _PARAMETER_LATENCY - 3, name=f"accumulator_{lane}")
            m.d.comb += self.accumulators[lane].eq(out)
            if self.has_direct:
                for place, value in enumerate(low_held):
                    index = lane + place * self.requant_lanes
                    direct = delay(m, value, _PARAMETER_LATENCY - 2, name=f"direct_{index}")
                    m.d.comb += self.direct_values[index].eq(direct)
        return available, pop, overflows

    def _elaborate_windows(self, m: Module, lane: int, half: str, *, place, window) -> data.View:
        """Keep these bits of a lane's accumulators, all groups of a result beside one another; read one result's."""
        comes, depth = self.result.valid, result_windows(self.config)
        if half == "high":
            comes, depth = comes & self.result.is_wide, RESULT_WINDOWS
        own = [self.result[half][index] for index in range(lane, self.config.array.lanes, self.requant_lanes)]
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

    def _elaborate_parameters(self, m: Module, word) -> None:
        lane_bits = ceil_log2(self.requant_lanes)
        # The parameters lie beside the requantisers, far from the walker.
        address = delay(m, word, _PARAMETER_LATENCY - RAM_LATENCY, name="parameter_address")
        for lane in range(self.requant_lanes):
            m.submodules[f"parameters_{lane}"] = ram = Ram(width=8 * PARAMETER_BYTES, depth=self.config.parameter_words)
            m.d.comb += [
                ram.read_address.eq(address),
                self.parameters[lane].eq(ram.read_data),
                ram.write_address.eq(self.parameter_write.addr[lane_bits:]),
                ram.write_data.eq(self.parameter_write.data),
                ram.write_enable.eq(self.parameter_write.en & (self.parameter_write.addr[:lane_bits] == lane)),
            ]

    def _elaborate_errors(self, m: Module, serve, group, overflows) -> None:
        """A parameter word that does not exist; a result for which there is no place, which must never come."""
        code = Mux(overflows, isa.ErrorCode.OVERFLOW, isa.ErrorCode.ADDRESS_RANGE)
        m.d.sync += [
            report(self.error, code, isa.Unit.WRITE_BACK, group.place.index, group.word),
            self.error.valid.eq(overflows | serve & (group.word >= self.config.parameter_words)),
        ]
