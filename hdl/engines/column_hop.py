"""From one column of the array to the next: words, with delay lines for depthwise layers, and sums of products."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.engines import DEPTHWISE
from ..parts.device import MULTIPLIER_LATENCY
from ..parts.pipeline import delay
from .engine import ACCUMULATOR_BITS

__all__ = ["ColumnHop", "chain_results"]


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
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        word = self.word
        if self.has_line:
            rows = self.step.fields.depthwise.rows
            pointer = Signal(rows.shape())
            m.submodules.line = line = memory.Memory(shape=unsigned(self.word_bits), depth=1 << len(pointer), init=[])
            write, read = line.write_port(), line.read_port(domain="comb")
            next_pointer = pointer + self.step.valid
            # A cycle ahead, with the rows of the step before: a command's first step has nothing of its own to see.
            m.d.sync += [pointer.eq(next_pointer), read.addr.eq(next_pointer - rows)]
            m.d.comb += [
                write.addr.eq(pointer),
                write.data.eq(self.word),
                write.en.eq(self.step.valid),
            ]
            word = Mux(self.step.chain, read.data, self.word)
        m.d.comb += [
            self.next_step.eq(delay(m, self.step, 1, name="step")),
            self.next_word.eq(delay(m, word, 1, name="word")),
        ]
        return m


def chain_results(m: Module, config: Config, steps: list, products: list) -> tuple[Signal, list[Signal]]:
    """The results of all chains, of which those of a window come one after the other.

    ``steps`` and ``products`` are those of all columns.
    """
    taps, chains = config.engines[DEPTHWISE].taps, config.engines[DEPTHWISE].chains
    if chains == 1:
        return _chain(m, config, products, steps[taps - 1], 0)
    fired, chosen = (
        Signal(),
        [
            Signal(signed(ACCUMULATOR_BITS), name=f"chosen_{lane}", reset_less=True)
            for lane in range(config.array.lanes)
        ],
    )
    of_chains = []
    for chain in range(chains):
        first = chain * taps
        of_chains.append(_chain(m, config, products[first:], steps[first + taps - 1], chain))
    m.d.sync += fired.eq(Cat(own for own, _ in of_chains).any())
    for own, totals in of_chains:
        with m.If(own):
            m.d.sync += [result.eq(total) for result, total in zip(chosen, totals, strict=True)]
    return fired, chosen


def _chain(
    m: Module, config: Config, products: list, last_tap_step: data.View, chain: int
) -> tuple[Signal, list[Signal]]:
    """Add each lane's products up from column to column of a chain, and then over the steps of the window."""
    name = f"chain_{chain}" if chain else "chain"
    sums = list(products[0])
    for tap in range(1, config.engines[DEPTHWISE].taps):
        held = [delay(m, value, 1, name=f"{name}_{tap}_{lane}") for lane, value in enumerate(sums)]
        sums = [value + product for value, product in zip(held, products[tap], strict=True)]
    step = delay(m, last_tap_step, MULTIPLIER_LATENCY + 1, name=f"{name}_step")
    fired, totals = Signal(), []
    fires = step.valid & step.fire & step.chain
    m.d.sync += fired.eq(fires & (step.fields.depthwise.further >= chain) if chain else fires)
    for lane, value in enumerate(sums):
        settled = delay(m, value, 1, name=f"{name}_sum_{lane}")
        total = Signal(signed(ACCUMULATOR_BITS), name=f"{name}_total_{lane}", reset_less=True)
        with m.If(step.valid):
            m.d.sync += total.eq(Mux(step.clear, 0, total) + settled)
        totals.append(total)
    return fired, totals
