"""Depthwise convolution in the array: words are delayed from column to column, and each lane adds its products up."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory

from ...golden.engines import DEPTHWISE
from ...golden.engines.floorplan import Floorplan
from ..parts.device import MULTIPLIER_LATENCY
from ..parts.pipeline import Assertions, delay, parts, spread
from .engine import ACCUMULATOR_BITS
from .stage import ArrayStage, LaneResults

if TYPE_CHECKING:
    from .mac_array import MacArray

__all__ = ["DepthwiseStage"]

#: Cycles until a control signal of a chain has reached its lanes.
_SPREADS = 3


class DepthwiseStage(ArrayStage):
    """Let each lane add its products up over the first ``taps`` columns and steps: ``lanes`` results.

    A step has ``fields.depthwise.rows``: the word that leaves a column of the first chain with a step is that of
    ``rows`` steps earlier, so that with words read column by column of an image, ``rows`` words each, the next array
    column sees the image column before. With several chains their results come in successive cycles. Bit-exact with
    :func:`lutterfly.golden.engines.depthwise.depthwise`.
    """

    flag: ClassVar = "chain"
    gives_lanes: ClassVar = True
    delays: ClassVar = True

    @property
    def taps(self) -> int:
        """The columns of a chain."""
        return self.config.engines[DEPTHWISE].taps

    @property
    def chains(self) -> int:
        """The number of chains."""
        return self.config.engines[DEPTHWISE].chains

    def latency(self, floorplan: Floorplan) -> int:
        """Return the cycles to multiply, add from column to column, settle and accumulate, and to choose between
        chains."""
        return floorplan.waits.words + MULTIPLIER_LATENCY + self.taps + 2 + (self.chains > 1)

    # Words.

    def hop(self, m: Module, column: int, step: data.View, word: Value) -> Value:
        """Return the word for a column; a column of the first chain gets the word of ``rows`` steps before."""
        if column >= self.taps:
            return word
        line = Cat(_elaborate_line(m, step, number, word[bits]) for number, bits in enumerate(parts(len(word))))
        return Mux(step.chain, line, word)

    # Totals.

    def lane_results(
        self, m: Module, platform: object, array: MacArray, steps: list[data.View], products: list[list[Value]]
    ) -> LaneResults:
        """Return the results of all chains; the chains' results of one window come one after the other."""
        taps, chains, lanes = self.taps, self.chains, array.lanes
        if chains == 1:
            return self._chain(m, products, steps[taps - 1], 0)
        chosen = [Signal(signed(ACCUMULATOR_BITS), name=f"chosen_{lane}", reset_less=True) for lane in range(lanes)]
        fired = [Signal(name=f"fired_{lane}", reset_less=True) for lane in range(lanes)]
        of_chains = []
        for chain in range(chains):
            first = chain * taps
            of_chains.append(self._chain(m, products[first:], steps[first + taps - 1], chain))
        m.d.sync += [here.eq(Cat(own[lane] for own, _ in of_chains).any()) for lane, here in enumerate(fired)]
        both = Cat(
            of_chains[one][0][0] & of_chains[other][0][0] for one, other in itertools.combinations(range(chains), 2)
        )
        Assertions(m, platform).never(both.any(), "MAC array: two chains give a result at the same time")
        for own, totals in of_chains:
            for lane, total in enumerate(totals):
                with m.If(own[lane]):
                    m.d.sync += chosen[lane].eq(total)
        return LaneResults(fired, chosen)

    def _chain(self, m: Module, products: list[list[Value]], last_tap_step: data.View, chain: int) -> LaneResults:
        """Add each lane's products up from column to column of a chain, and then over the steps of the window."""
        name, lanes = f"chain_{chain}" if chain else "chain", self.config.array.lanes
        sums = list(products[0])
        for tap in range(1, self.taps):
            held = [delay(m, value, 1, name=f"{name}_{tap}_{lane}") for lane, value in enumerate(sums)]
            sums = [value + product for value, product in zip(held, products[tap], strict=True)]
        # Chains, and with them their lanes, lie far apart if there are several.
        spreads = _SPREADS if self.chains > 1 else 0
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
        return LaneResults(fired, totals)


def _elaborate_line(m: Module, step: data.View, number: int, part: Value) -> Value:
    """Return a part of the word as it was ``rows`` steps ago."""
    rows = step.fields.depthwise.rows
    pointer, read_pointer = (
        Signal(rows.shape(), name=f"{name}_{number}", init=number) for name in ("pointer", "read_pointer")
    )
    m.submodules[f"line_{number}"] = line = memory.Memory(shape=len(part), depth=1 << len(pointer), init=[])
    write, read = line.write_port(), line.read_port(domain="comb")
    next_pointer = pointer + step.valid
    # The address is computed a cycle ahead, from the rows of the step before: a command's first step reads nothing of
    # its own command.
    m.d.sync += [pointer.eq(next_pointer), read_pointer.eq(next_pointer - rows)]
    m.d.comb += [
        write.addr.eq(pointer),
        write.data.eq(part),
        write.en.eq(step.valid),
        read.addr.eq(read_pointer),
    ]
    return read.data
