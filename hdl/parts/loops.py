"""The nested loops of a COMPUTE command: a pointer over bytes, and one over words that follows the tiles."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from .isa import command_shape

__all__ = ["Loops"]

_COMMAND = command_shape(isa.COMPUTE)


class _Loop:
    """One loop over windows: the iterations that are left, and the conditions of its next move, from registers.

    Attributes
    ----------
    left, at_end, near_end
        Iterations after the current one; whether there are none; whether there is one.
    """

    def __init__(self, name: str):
        self.name = name
        self.left = Signal(_COMMAND[name].shape, name=f"{name}_left", reset_less=True)
        self.at_end, self.near_end, self.has_one, self.has_two = (
            Signal(name=f"{name}_{flag}", reset_less=True) for flag in ("end", "near_end", "has_one", "has_two")
        )

    @property
    def ends_next(self) -> Value:
        """Compute whether the loop is at its end after the next move; after its end it begins again."""
        return Mux(self.at_end, self.has_one, self.near_end)

    def move_on(self, command: data.View) -> list:
        """Go to the next iteration."""
        return [
            self.left.eq(Mux(self.at_end, command[self.name], self.left) - 1),
            self.at_end.eq(self.ends_next),
            self.near_end.eq(Mux(self.at_end, self.has_two, self.left == 2)),
        ]

    def begin(self, command: data.View) -> list:
        """Go to the first iteration of a command."""
        count = command[self.name]
        return [
            self.left.eq(count - 1),
            Cat(self.at_end, self.has_one).eq((count == 1).replicate(2)),
            Cat(self.near_end, self.has_two).eq((count == 2).replicate(2)),
        ]


class Loops(wiring.Component):
    """Walk the windows of a command, one per ``advance``, without a cycle between windows or commands.

    The inputs that describe the command are held by the parent while the command is walked; ``load`` takes their first
    values from the parent's next command, so that the first window follows the last one of the command before. All
    outputs are registered. The byte pointer is one cycle late, so that what decides over an advance does not have to
    reach its adders in the same cycle.

    Parameters
    ----------
    side : str
        ``"source"`` or ``"destination"``: whose pitches the byte pointer follows.
    word_bits : int
        Width of the word pointer.
    count_bits : int
        Width of the count of an innermost loop over the results of a window, all of which take the same words; 0 if
        there is none.

    Members
    -------
    load : In(1)
        Begin the command in ``first``; together with the last ``advance`` of the command before, or later.
    first : In(command)
        The command that ``load`` begins.
    command : In(command)
        The command that is walked: what ``first`` was when it was loaded.
    first_word : In(word_bits)
        Word pointer at which ``first`` begins.
    more, pitch : In(count_bits), In(24), if there is a loop over results
        For ``command``, the iterations after the first one, and its pitch.
    first_more : In(count_bits), if there is one
        The iterations after the first one, for ``first``.
    step : In(1)
        Move the word pointer by one.
    advance : In(1)
        Go to the next window; together with the last ``step`` of a window, if it has any.
    pointer : Out(24)
        Byte pointer of the window that was the current one a cycle ago.
    word : Out(word_bits)
        Word pointer.
    row_ends : Out(1)
        The current window is the last one of an inner loop.
    last_tile : Out(1)
        The current window belongs to the last output tile.
    last : Out(1)
        The current window is the last one.
    """

    def __init__(self, *, side: str, word_bits: int, count_bits: int = 0):
        if side not in ("source", "destination"):
            raise ValueError(f"side must be 'source' or 'destination', not {side!r}")
        self.side = side
        self.word_bits = word_bits
        self.count_bits = count_bits
        of_results = {"more": In(count_bits), "first_more": In(count_bits), "pitch": In(signed(isa.LOCAL_BITS))}
        super().__init__(
            {
                "load": In(1),
                "first": In(_COMMAND),
                "command": In(_COMMAND),
                "first_word": In(word_bits),
                **(of_results if count_bits else {}),
                "step": In(1),
                "advance": In(1),
                "pointer": Out(isa.LOCAL_BITS),
                "word": Out(word_bits),
                "row_ends": Out(1),
                "last_tile": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        loops = {name: _Loop(name) for name in ("outer", "middle", "inner")}
        end_middle, end_inner = (loops[name].at_end for name in ("middle", "inner"))
        leaves, window_ends = self._elaborate_results(m)

        # The word pointer runs through a tile's words for each of its windows, and on to the next tile's.
        tile = Signal(self.word_bits, reset_less=True)
        start = Signal(self.word_bits, reset_less=True)
        next_word = Signal(self.word_bits)
        # With `word + step` the sum would wait for the step.
        m.d.comb += next_word.eq(Mux(self.step, self.word + 1, self.word))
        m.d.sync += self.word.eq(next_word)
        if self.count_bits:
            # The results of a window have the same words.
            with m.If(self.advance & ~window_ends):
                m.d.sync += self.word.eq(tile)
        ends, tile_ends = self._elaborate_loops(m, loops, leaves)
        with m.If(leaves):
            with m.If(tile_ends):
                m.d.sync += tile.eq(next_word)
            with m.Elif(self.command.tile_inner):
                m.d.sync += [self.word.eq(start), tile.eq(start)]
            with m.Else():
                m.d.sync += self.word.eq(tile)
        with m.If(self.load):
            m.d.sync += [self.word.eq(self.first_word), tile.eq(self.first_word), start.eq(self.first_word)]

        self._elaborate_pointer(m, end_inner, end_middle, leaves, window_ends)
        m.d.comb += [
            self.row_ends.eq(end_inner & window_ends if self.count_bits else end_inner),
            self.last.eq(ends & window_ends if self.count_bits else ends),
        ]
        return m

    def _elaborate_loops(self, m: Module, loops: dict[str, _Loop], leaves: Value) -> tuple[Signal, Signal]:
        """Move the innermost loop, and where a loop was at its end the next one as well; return whether all are at
        their ends, and whether the next window is of another tile."""
        ends, tile_ends = Signal(reset_less=True), Signal(reset_less=True)

        def tell(command: data.View, at_end: dict[str, Value]) -> list:
            """Compute the outputs from the flags of the loops at their ends."""
            inner, tile_inner = at_end["inner"], command.tile_inner
            return [
                ends.eq(Cat(at_end.values()).all()),
                tile_ends.eq(Mux(tile_inner, ~inner, inner & at_end["middle"])),
                self.last_tile.eq(Mux(tile_inner, inner, at_end["outer"])),
            ]

        with m.If(leaves):
            moves, ends_next = Const(1), {}
            for name in reversed(loops):
                with m.If(moves):
                    m.d.sync += loops[name].move_on(self.command)
                ends_next[name] = Mux(moves, loops[name].ends_next, loops[name].at_end)
                moves &= loops[name].at_end
            m.d.sync += tell(self.command, ends_next)
        with m.If(self.load):
            are_single = {name: self.first[name] == 1 for name in loops}
            m.d.sync += [loop.begin(self.first) for loop in loops.values()]
            m.d.sync += tell(self.first, are_single)
        return ends, tile_ends

    def _elaborate_results(self, m: Module) -> tuple[Value, Value]:
        """Build the loop over the results of a window; return whether its last one is left, and whether it is the
        current one."""
        if not self.count_bits:
            return self.advance, Const(1)
        results_left, is_last = Signal(self.count_bits, reset_less=True), Signal(name="is_last_result")
        leaves = Signal()
        m.d.comb += leaves.eq(self.advance & is_last)
        with m.If(self.load):
            m.d.sync += [results_left.eq(self.first_more), is_last.eq(self.first_more == 0)]
        with m.Elif(leaves):
            m.d.sync += [results_left.eq(self.more), is_last.eq(self.more == 0)]
        with m.Elif(self.advance):
            m.d.sync += [results_left.eq(results_left - 1), is_last.eq(results_left == 1)]
        return leaves, is_last

    def _elaborate_pointer(self, m: Module, end_inner, end_middle, leaves: Value, window_ends: Value) -> None:
        """Build one pointer for each loop: the beginning of its current iteration.

        An advance moves the innermost loop that is not at its end and starts the loops inside it there, so that one
        adder does for all pointers.
        """
        names = ("outer", "middle", "inner", *(["result"] if self.count_bits else []))
        base = {name: Signal(isa.LOCAL_BITS, name=f"{name}_base", reset_less=True) for name in names}
        pitch = {name: self.pitch if name == "result" else self.command[f"{self.side}_{name}"] for name in names}
        starts = {name: Signal(name=f"{name}_starts", reset_less=True) for name in names}
        leaving = {"outer": leaves & end_inner & end_middle, "middle": leaves & end_inner, "inner": leaves}
        moving, by = Signal(range(len(names)), reset_less=True), Signal(signed(isa.LOCAL_BITS), reset_less=True)
        moves = Mux(end_inner, ~end_middle, 2)
        if self.count_bits:
            leaving["result"] = self.advance
            moves = Mux(window_ends, moves, 3)
        m.d.sync += [starts[name].eq(self.load | leaving[name]) for name in names]
        m.d.sync += [moving.eq(moves), by.eq(Array(pitch.values())[moves])]
        moved = Signal(isa.LOCAL_BITS)
        m.d.comb += moved.eq(Array(base.values())[moving] + by)
        for name in names:
            with m.If(starts[name]):
                m.d.sync += base[name].eq(moved)
        # A command's first pointer is a pitch added to zero, so that no choice follows the sum, and no more precede it.
        with m.If(self.load):
            m.d.sync += [moving.eq(0), by.eq(self.first[self.side]), base["outer"].eq(0)]
        m.d.comb += self.pointer.eq(base[names[-1]])
