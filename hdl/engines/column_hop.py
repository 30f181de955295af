"""From one column of the array to the next: words, with delay lines for depthwise layers, and sums of products."""

from __future__ import annotations

import itertools

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.engines import DEPTHWISE
from ..parts.assertions import Assertions
from ..parts.device import MULTIPLIER_LATENCY
from ..parts.pipeline import delay, parts, spread
from .engine import ACCUMULATOR_BITS

__all__ = ["ColumnHop", "chain_results"]

#: Cycles in which what a chain is told gets to its lanes.
_SPREADS = 3


class ColumnHop(wiring.Component):
    """Pass steps and words on to the next column, one per cycle, with a latency of one cycle.

    In chain mode, where steps have one, the word that leaves with a step is that of ``rows`` steps earlier, so that
    with words read column by column of an image, ``rows`` words each, the next array column sees the image column
    before.

    Parameters
    ----------
    word_bits : int
    step : StructLayout
        As the array's steps are.
    has_line : bool
        Whether the hop can delay; else chain mode passes words on like the other.

    Members
    -------
    step : In(step), word : In(word_bits)
    next_step : Out(step), next_word : Out(word_bits)
    coming_word : Out(word_bits)
        What ``next_word`` is a cycle later.
    """

    def __init__(self, *, word_bits: int, step: data.StructLayout, has_line: bool):
        self.word_bits = word_bits
        self.has_line = has_line
        super().__init__(
            {
                "step": In(step),
                "word": In(word_bits),
                "next_step": Out(step),
                "next_word": Out(word_bits),
                "coming_word": Out(word_bits),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        word = self.word
        if self.has_line:
            line = Cat(
                self._elaborate_line(m, number, self.word[bits]) for number, bits in enumerate(parts(self.word_bits))
            )
            word = Mux(self.step.chain, line, self.word)
        m.d.comb += [
            self.next_step.eq(delay(m, self.step, 1, name="step")),
            self.coming_word.eq(word),
            self.next_word.eq(delay(m, word, 1, name="word")),
        ]
        return m

    def _elaborate_line(self, m: Module, number: int, part: Value) -> Value:
        """A part of the word as it was ``rows`` steps ago."""
        rows = self.step.fields.depthwise.rows
        pointer, read_pointer = (
            Signal(rows.shape(), name=f"{name}_{number}", init=number) for name in ("pointer", "read_pointer")
        )
        m.submodules[f"line_{number}"] = line = memory.Memory(shape=len(part), depth=1 << len(pointer), init=[])
        write, read = line.write_port(), line.read_port(domain="comb")
        next_pointer = pointer + self.step.valid
        # A cycle ahead, with the rows of the step before: a command's first step has nothing of its own to see.
        m.d.sync += [pointer.eq(next_pointer), read_pointer.eq(next_pointer - rows)]
        m.d.comb += [
            write.addr.eq(pointer),
            write.data.eq(part),
            write.en.eq(self.step.valid),
            read.addr.eq(read_pointer),
        ]
        return read.data


def chain_results(
    m: Module, platform: object, config: Config, steps: list, products: list
) -> tuple[list[Value], list[Signal]]:
    """The results of all chains, of which those of a window come one after the other; and that they do, for each lane.

    ``steps`` and ``products`` are those of all columns.
    """
    taps, chains, lanes = config.engines[DEPTHWISE].taps, config.engines[DEPTHWISE].chains, config.array.lanes
    if chains == 1:
        return _chain(m, config, products, steps[taps - 1], 0)
    chosen = [Signal(signed(ACCUMULATOR_BITS), name=f"chosen_{lane}", reset_less=True) for lane in range(lanes)]
    fired = [Signal(name=f"fired_{lane}", reset_less=True) for lane in range(lanes)]
    of_chains = []
    for chain in range(chains):
        first = chain * taps
        of_chains.append(_chain(m, config, products[first:], steps[first + taps - 1], chain))
    m.d.sync += [here.eq(Cat(own[lane] for own, _ in of_chains).any()) for lane, here in enumerate(fired)]
    both = Cat(of_chains[one][0][0] & of_chains[other][0][0] for one, other in itertools.combinations(range(chains), 2))
    Assertions(m, platform).never(both.any(), "MAC array: two chains give a result at the same time")
    for own, totals in of_chains:
        for lane, total in enumerate(totals):
            with m.If(own[lane]):
                m.d.sync += chosen[lane].eq(total)
    return list(fired), chosen


def _chain(
    m: Module, config: Config, products: list, last_tap_step: data.View, chain: int
) -> tuple[list[Value], list[Signal]]:
    """Add each lane's products up from column to column of a chain, and then over the steps of the window."""
    name, engine, lanes = f"chain_{chain}" if chain else "chain", config.engines[DEPTHWISE], config.array.lanes
    sums = list(products[0])
    for tap in range(1, engine.taps):
        held = [delay(m, value, 1, name=f"{name}_{tap}_{lane}") for lane, value in enumerate(sums)]
        sums = [value + product for value, product in zip(held, products[tap], strict=True)]
    # Several chains lie far apart, and so do their lanes.
    spreads = _SPREADS if engine.chains > 1 else 0
    step = delay(m, last_tap_step, MULTIPLIER_LATENCY + 1 - spreads, name=f"{name}_step")
    of_all, totals = Signal(), []
    fires = step.valid & step.fire & step.chain
    if chain:
        fires &= step.fields.depthwise.further >= chain
    if spreads:
        fired = spread(m, fires, lanes, cycles=spreads + 1, name=f"{name}_fired")
    else:
        fired = [of_all] * lanes
        m.d.sync += of_all.eq(fires)
    valid = spread(m, step.valid, lanes, cycles=spreads, name=f"{name}_valid")
    clear = spread(m, step.clear, lanes, cycles=spreads, name=f"{name}_clear")
    for lane, value in enumerate(sums):
        settled = delay(m, value, 1, name=f"{name}_sum_{lane}")
        total = Signal(signed(ACCUMULATOR_BITS), name=f"{name}_total_{lane}", reset_less=True)
        with m.If(valid[lane]):
            m.d.sync += total.eq(Mux(clear[lane], 0, total) + settled)
        totals.append(total)
    return fired, totals
