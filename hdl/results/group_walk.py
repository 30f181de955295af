"""Walk the groups of results ahead of the results themselves, and find their parameters and their destination."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.machine.write_back import packs, shares_bytes
from ...golden.timing.latencies import burst_results
from ..engines import COMPONENTS
from ..engines.engine import (
    built_epilogues,
    epilogue_fields,
    epilogue_flag,
    further_pitch,
    further_results,
    has_whole_epilogue,
    is_chosen,
    is_whole,
    most_further,
    take_fields,
)
from ..parts.fifo import Fifo, Lookahead, Slot
from ..parts.isa import INDEX_BITS, command_shape, field_shape
from ..parts.loops import Loops

__all__ = [
    "COMMANDS_IN_FLIGHT",
    "GroupTarget",
    "GroupWalk",
    "group_layout",
    "settings_layout",
    "take_settings",
]


# The destination of a group of results.


class GroupTarget(data.Struct):
    """The destination of a group. Groups are collected to ``columns`` bytes; ``write`` marks the one that completes
    such a piece. A group of a whole epilogue (``is_whole``) is all lanes, and a piece.

    ``address`` and ``count`` are those of the piece, ``count`` in results; ``packed``: each result is a bit. Where a
    piece is less than a byte, ``bit`` is its first bit in the byte. ``finish`` marks the last group of a command.
    """

    valid: unsigned(1)
    write: unsigned(1)
    finish: unsigned(1)
    is_whole: unsigned(1)
    packed: unsigned(1)
    bit: unsigned(3)
    slot: unsigned(6)
    address: unsigned(isa.LOCAL_BITS)
    count: unsigned(7)
    index: unsigned(INDEX_BITS)


# Settings of a command for the codes of its results, which travel with each group.

_COMMON = ("zero_point", "low", "high", "table_enable", "table")


def settings_layout(config: Config) -> data.StructLayout:
    """Return the layout of a command's settings: those of requantisation and tables; a flag for each epilogue with
    hardware of its own, set where the command has chosen it; and ``fields``, which these epilogues read."""
    common = {name: field_shape(isa.COMPUTE, name) for name in _COMMON}
    flags = {epilogue_flag(engine, epilogue): unsigned(1) for engine, epilogue in built_epilogues(config)}
    return data.StructLayout({**common, **flags, **epilogue_fields(config.engines)})


def take_settings(target: data.View, command: data.View, config: Config) -> list:
    """Assign the settings of a command."""
    return [
        *(target[name].eq(command[name]) for name in _COMMON),
        *(target[epilogue_flag(*built)].eq(is_chosen(command, *built)) for built in built_epilogues(config)),
        *take_fields(target, command),
    ]


#: Commands that can wait after the one whose groups are walked, at least.
COMMANDS_IN_FLIGHT = 4

_COMMAND = command_shape(isa.COMPUTE)


def group_layout(config: Config) -> data.StructLayout:
    """A group to come: its number in its window, whether it is the last one of a result and whether that is wide, its
    parameter word, its settings and its place."""
    groups = config.array.lanes // config.array.requant_lanes
    return data.StructLayout(
        {
            "number": range(max(burst_results(config) * groups, 2)),
            "pops": unsigned(1),
            "is_wide": unsigned(1),
            "word": unsigned(_COMMAND["parameter"].width + 1),
            "settings": settings_layout(config),
            "place": GroupTarget,
        }
    )


class GroupWalk(wiring.Component):
    """Generate the groups of the commands, one each cycle, with a pause between commands.

    Parameters
    ----------
    config : Config

    Members
    -------
    context : In(stream of COMPUTE)
        The commands in the order in which they were issued; up to ``COMMANDS_IN_FLIGHT`` wait here.
    groups : Out(stream of group_layout)
        Registered. ``valid`` of the place is left to the user.
    """

    def __init__(self, config: Config):
        self.config = config
        self.has_whole = has_whole_epilogue(config)
        self.count_bits = most_further(config).bit_length()
        self.has_bits = packs(config) and shares_bytes(config)
        self.requant_lanes = config.array.requant_lanes
        self.layout = group_layout(config)
        super().__init__(
            {"context": In(stream.Signature(_COMMAND)), "groups": Out(stream.Signature(group_layout(config)))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.lookahead = lookahead = Lookahead(self.layout, gated=["number", "pops", "is_wide"])
        m.submodules.contexts = contexts = Fifo(_COMMAND, depth=COMMANDS_IN_FLIGHT)
        m.submodules.next_context = next_context = Slot(_COMMAND)
        word_bits = self.layout["word"].width
        m.submodules.loops = loops = Loops(side="destination", word_bits=word_bits, count_bits=self.count_bits)
        wiring.connect(m, wiring.flipped(self.context), contexts.input)
        wiring.connect(m, contexts.output, next_context.input)
        wiring.connect(m, lookahead.output, wiring.flipped(self.groups))

        command, take = Signal(_COMMAND, reset_less=True), Signal()
        next_command = next_context.output.payload
        number, walk, last = Signal(self.layout["number"].shape), Signal(), Signal()
        # The complement moves the loops. It has a register of its own, since both have a large fan-out.
        rests = Signal(init=1)
        is_last = self._elaborate_last(m, next_command, number, take=take, walk=walk, last=last)
        m.d.comb += [
            last.eq(Mux(loops.last_tile, is_last["last_lanes"], is_last["lanes"])),
            loops.command.eq(command),
            loops.first.eq(next_command),
            loops.first_word.eq(next_command.parameter),
            loops.load.eq(take),
            loops.step.eq(~rests & ~command.parameter_shared),
            loops.advance.eq(~rests & last),
        ]
        self._elaborate_further(m, command, next_command)
        with m.If(take):
            m.d.sync += command.eq(next_command)
        with m.If(walk):
            m.d.sync += number.eq(Mux(last, 0, number + 1))
        self._elaborate_turns(m, take=take, walk=walk, rests=rests, ends=walk & last & loops.last)

        whole: Value = Const(0)
        if self.has_whole:
            whole = Signal(reset_less=True)
            with m.If(take):
                m.d.sync += whole.eq(is_whole(next_command, self.config))
        ends_piece = last | whole | number[: self._slot_bits].all()
        bits: Value = Const(0)
        if self.has_bits:
            begins_row = take | (walk & last & loops.row_ends)
            bits = self._elaborate_bits(m, begins_row, walk & ends_piece)
        found = Signal(self.layout, name="walked_group", reset_less=True)
        m.d.sync += [
            found.number.eq(number),
            found.pops.eq(last | self._ends_result(number, whole)),
            found.word.eq(loops.word),
            found.place.is_whole.eq(whole),
            found.place.slot.eq(Mux(whole, 0, number[: self._slot_bits])),
            found.place.write.eq(ends_piece),
            found.place.finish.eq(last & loops.last),
        ]
        self._elaborate_push(m, command, walk, found, bits)
        return m

    def _elaborate_turns(self, m: Module, *, take: Signal, walk: Signal, rests: Signal, ends: Value) -> None:
        """Compute whether a context is taken in the next cycle, and whether a group of the taken one is walked then."""
        contexts, next_context, lookahead = m.submodules.contexts, m.submodules.next_context, m.submodules.lookahead
        active = Signal()
        m.d.comb += next_context.output.ready.eq(~active)
        comes = Mux(next_context.output.valid, active, contexts.output.valid)
        goes_on = (active | take) & ~ends
        walks = goes_on & lookahead.next_room
        m.d.sync += [
            active.eq(goes_on),
            # The walk of the command before is over. Both are registers, since they have a large fan-out.
            take.eq(comes & ~goes_on),
            walk.eq(walks),
            rests.eq(~walks),
        ]

    def _elaborate_further(self, m: Module, command: data.View, next_command: data.View) -> None:
        """Give the loops the number of results of a window."""
        loops = m.submodules.loops
        if self.count_bits:
            m.d.comb += [
                loops.more.eq(further_results(command, self.config)),
                loops.first_more.eq(further_results(next_command, self.config)),
                loops.pitch.eq(further_pitch(command, self.config)),
            ]

    def _elaborate_last(
        self, m: Module, next_command: data.View, number: Signal, *, take: Signal, walk: Signal, last: Signal
    ) -> dict[str, Signal]:
        """Return whether the group is the last one of its window, computed for each size of which the loops choose
        one."""
        lane_bits, all_bits = ceil_log2(self.requant_lanes), ceil_log2(self.config.array.lanes)
        takes_all = is_whole(next_command, self.config)
        most = Mux(takes_all, self.config.array.lanes, self.requant_lanes)
        is_last = {"lanes": Signal(reset_less=True), "last_lanes": Signal(reset_less=True)}
        for field, flag in is_last.items():
            limit, is_single = Signal.like(number, name=f"last_of_{field}", reset_less=True), Signal(reset_less=True)
            after = next_command[field] - 1
            with m.If(take):
                m.d.sync += [
                    limit.eq(Mux(takes_all, after >> all_bits, after >> lane_bits)),
                    Cat(is_single, flag).eq((next_command[field] <= most).replicate(2)),
                ]
            with m.Elif(walk):
                m.d.sync += flag.eq(Mux(last, is_single, number + 1 == limit))
        return is_last

    def _ends_result(self, number: Signal, whole: Value) -> Value:
        """Return whether the group is the last one of a result of all lanes, of which a window of a burst has
        several."""
        if burst_results(self.config) == 1:
            return Const(0)
        result_groups = self.config.array.lanes // self.requant_lanes
        return whole | number[: ceil_log2(result_groups)].all()

    def _elaborate_push(self, m: Module, command: data.View, walk: Signal, found: data.View, bits: Value) -> None:
        """Pass the group that was found to the lookahead.

        A cycle after the walk the loops' pointer has arrived as well; the command is still the same then. The sums take
        one cycle more.
        """
        loops, lookahead = m.submodules.loops, m.submodules.lookahead
        walked, last_tile = Signal(), Signal(reset_less=True)
        pushed = Signal(self.layout, name="pushed", reset_less=True)
        wide = [code for code in self.config.engines if not COMPONENTS[code].is_narrow]
        m.d.sync += [walked.eq(walk), last_tile.eq(loops.last_tile)]
        m.d.sync += [
            pushed.eq(found),
            pushed.is_wide.eq(reduce(or_, (command.engine == code for code in wide), Const(0))),
            *take_settings(pushed.settings, command, self.config),
            *self._piece(pushed.place, found, command, loops.pointer, last_tile, bits),
            lookahead.input.valid.eq(walked),
        ]
        m.d.comb += [lookahead.reserve.eq(walk), lookahead.input.payload.eq(pushed)]

    def _elaborate_bits(self, m: Module, begins_row: Value, ends_piece: Value) -> Signal:
        """Count the bits of packed results that the windows of an inner loop have before a group's piece."""
        following = Signal(isa.LOCAL_BITS + 3, reset_less=True)
        bits = Signal.like(following, reset_less=True)
        m.d.sync += bits.eq(following)
        with m.If(begins_row):
            m.d.sync += following.eq(0)
        with m.Elif(ends_piece):
            m.d.sync += following.eq(following + self.config.array.columns)
        return bits

    def _piece(
        self, place: data.View, found: data.View, command: data.View, pointer: Value, last_tile: Value, bits: Value
    ) -> list:
        """Assign the beginning and the size of a group's piece."""
        columns, lanes = self.config.array.columns, self.config.array.lanes
        whole, packed = found.place.is_whole, command.packed if packs(self.config) else Const(0)
        start = Mux(whole, found.number * lanes, (found.number >> self._slot_bits) * columns)
        most = Mux(whole, lanes, columns)
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
    def _slot_bits(self) -> int:
        """The bits of a group's number within its piece."""
        return ceil_log2(self.config.array.columns // self.requant_lanes)
