"""The multiply-accumulate array: ``lanes`` x ``columns`` multipliers, output-stationary."""

from __future__ import annotations

import itertools
from typing import ClassVar

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.engines import DEPTHWISE, MAC, WINOGRAD, XNOR
from ...golden.engines.floorplan import Floorplan
from ..parts.device import MULTIPLIER_LATENCY
from ..parts.pipeline import Assertions, delay, parts, platform_of, spread
from .engine import ACCUMULATOR_BITS, SELECT_LATENCY, EngineComponent, engine_members, step_layout
from .mac_column import UNCOUNTED_DELAY, MacColumn, column_latency
from .multipliers import ahead_columns, borrowed_columns, connect_pumped, lender_members, weighed_columns
from .winograd import WinogradWords

__all__ = [
    "ColumnHop",
    "MacArray",
    "chain_results",
]


# From one column of the array to the next: words, with delay lines for depthwise layers, and sums of products.

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


class MacArray(EngineComponent):
    """Multiply each activation word with one word of weights for each column, one word per cycle.

    Words travel from column to column, one column per cycle, so that a word is driven to one column's multipliers only
    and wires stay short. Each column adds its products up over lanes and steps: ``columns`` results, when the last
    column has its own. In chain mode, which is built if the configuration has DEPTHWISE, each lane adds its products up
    over the first ``taps`` columns and steps: ``lanes`` results. A step has two more members then: ``chain``, and
    ``fields.depthwise.rows``: every column sees the word of so many steps before the one that the column before it
    sees. With XNOR a word may be binary: each column adds up twice the bits in which words and weights agree, which it
    counts (:class:`.mac_column.Agreement`) in the time that a multiplication takes; ``keeps`` in a step says which
    bytes count. With WINOGRAD words pass :class:`~lutterfly.hdl.engines.winograd.WinogradWords` first. Bit-exact with
    the twins of its engines in ``golden/engines/``: ``mac``, ``depthwise`` and ``agreeing``.

    A window of one engine may follow one of another only when the results of the one before are out. Engines that
    borrow multipliers have their factors joined by an ``or`` in front of them: the idle side drives zeros.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, selected, result, borrowed_multipliers
        See :class:`.engine.EngineComponent`. The first ``columns`` lanes of the result are accumulators, in
        chain mode all.
    weights : In(columns x lanes x signed(8))
        Column j's come as late as their activation word (:attr:`~lutterfly.golden.engines.floorplan.Floorplan.hops`),
        or by ``weight_times``; those of :func:`.multipliers.ahead_columns` a cycle before.
    """

    # Others borrow of it, and what counts bits sleeps by itself.
    sleeps: ClassVar = False

    def __init__(self, config: Config):
        self.config = config
        self.lanes, self.columns = config.array.lanes, config.array.columns
        self.floorplan = Floorplan.of(config)
        self.hops, self.waits = self.floorplan.hops, self.floorplan.waits
        self.latencies = {MAC: self.waits.words + column_latency(self.lanes) + self.waits.totals + max(self.hops)}
        self.flags = {}
        self.is_winograd = WINOGRAD in config.engines
        if self.is_winograd:
            self.latencies[WINOGRAD] = self.latencies[MAC]
            self.flags["winograd"] = WINOGRAD
            self.weight_times = [self.waits.words + hops for hops in self.hops]
        self.is_chained = DEPTHWISE in config.engines
        self.taps = config.engines[DEPTHWISE].taps if self.is_chained else 0
        self.chains = config.engines[DEPTHWISE].chains if self.is_chained else 0
        if self.is_chained:
            self.latencies[DEPTHWISE] = self.waits.words + MULTIPLIER_LATENCY + self.taps + 2 + (self.chains > 1)
            self.flags["chain"] = DEPTHWISE
        self.is_binary = XNOR in config.engines
        if self.is_binary:
            self.latencies[XNOR] = self.latencies[MAC]
            self.flags["binary"] = XNOR
        self.step_layout = step_layout(config, self.latencies, self.flags)
        self.borrowed_columns, self.weighed_columns = borrowed_columns(config), weighed_columns(config)
        super().__init__(
            {
                **engine_members(config, self.latencies, self.flags),
                "weights": In(data.ArrayLayout(data.ArrayLayout(signed(8), self.lanes), self.columns)),
                **lender_members(self.borrowed_columns, self.lanes, self.weighed_columns),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        step, word, first_word, controls = self._elaborate_entry(m, platform)
        steps, words, uncounted_of = [step], [word], []
        columns: list[MacColumn] = []
        is_pumped, ahead = platform_of(platform).is_pumped and self.columns > 1, ahead_columns(self.config, platform)
        if self.is_binary:
            uncounted_of.append(self._uncounted(m, platform, step))
        for index in range(self.columns):
            own_word, own_controls, is_ahead = first_word, controls[:1], index in ahead
            if index:
                before = self.floorplan.before(index)
                m.submodules[f"hop_{index}"] = hop = ColumnHop(
                    word_bits=len(word), step=step.shape(), has_line=self.is_chained and index < self.taps
                )
                m.d.comb += [hop.step.eq(steps[before]), hop.word.eq(words[before])]
                steps.append(hop.next_step)
                words.append(hop.next_word)
                own_word = hop.coming_word if is_ahead else hop.next_word
                if self.is_winograd:
                    controls.append(delay(m, controls[before], 1, name=f"control_{index}"))
                    own_controls = [controls[before if is_ahead else index]]
                if self.is_binary:
                    uncounted_of.append(delay(m, uncounted_of[before], 1, name=f"uncounted_{index}"))
            is_borrowed = index < self.borrowed_columns
            m.submodules[f"column_{index}"] = column = MacColumn(
                lanes=self.lanes,
                step=step.shape(),
                is_borrowed=is_borrowed,
                is_weighed=index < self.weighed_columns,
                is_binary=self.is_binary,
                is_pumped=is_pumped,
                is_ahead=is_ahead,
            )
            if self.is_binary:
                # In front of the first column's multipliers is no register: there one mask stands for both.
                is_masked = self.selected.xnor if index or not is_borrowed else ~self._multiplies
                binary = spread(m, is_masked, self.lanes, cycles=SELECT_LATENCY, name=f"binary_{index}")
                m.d.comb += [column.binary.eq(Cat(binary)), column.uncounted.eq(uncounted_of[index])]
            if is_borrowed:
                self._lend(m, platform, index, column)
            m.d.comb += [
                column.step.eq(steps[index]),
                column.word.eq(own_word),
                column.weights.eq(self.weights[index]),
                *(column.control.eq(control) for control in own_controls),
            ]
            columns.append(column)
            if self.hops[index] == max(self.hops):
                column_fired = column.fired
        if is_pumped:
            # First columns are the borrowed ones: the second turn has a cycle to choose between lender and borrower.
            connect_pumped(m, [(columns[later].bank, columns[first].bank) for first, later in self.floorplan.pairs])
        products, totals = ([getattr(column, name) for column in columns] for name in ("products", "total"))
        self._elaborate_results(m, platform, steps, products, column_fired, totals)
        return m

    def _elaborate_entry(self, m: Module, platform) -> tuple[data.View, Value, Value, list[data.View]]:
        """The step and its word as the columns see them; the word of the first one, which masks it by itself; and what
        becomes of the first one's weights, where words of neighbouring steps are added."""
        step, word, controls = self.step, self.word, []
        if self.is_winograd:
            m.submodules.words = factors = WinogradWords(lanes=self.lanes, step=self.step_layout)
            m.d.comb += [factors.step.eq(self.step), factors.word.eq(self.word)]
            step, word, controls = factors.next_step, factors.next_word.as_value(), [factors.control]
        first_word = word
        if self.borrowed_columns:
            step, word = self._without_words(m, platform, step, word)
        return step, word, first_word if self.is_binary else word, controls

    def _uncounted(self, m: Module, platform, step: data.View) -> Value:
        """The bytes of the first column's words that do not count."""
        step = step if self.is_winograd else self.step
        counted = step.keeps & step.binary.replicate(self.lanes)
        uncounted = delay(m, ~counted, UNCOUNTED_DELAY, name="uncounted")
        settled = delay(m, self.selected.xnor, SELECT_LATENCY, name="binary_settled")
        Assertions(m, platform).never(
            self.step.valid & (settled != self.step.binary), "MAC array: a step of an engine that is not selected"
        )
        return uncounted

    def _elaborate_results(
        self, m: Module, platform, steps: list, products: list, column_fired: Signal, totals: list
    ) -> None:
        """Results when the last column has its own; those of lanes, where there are any."""
        if self.is_chained:
            fired, chain_totals = chain_results(m, platform, self.config, steps, products)
            self._elaborate_both_results(m, platform, column_fired, totals, fired, chain_totals)
            return
        m.d.comb += self.result.valid.eq(column_fired)
        for lane, total in enumerate(totals):
            later = delay(m, total, self._waits(lane), name=f"total_{lane}")
            m.d.comb += self.result.lanes[lane].eq(later)

    def _waits(self, column: int) -> int:
        """Cycles that the total of a column waits for that of the farthest one."""
        return max(self.hops) - self.hops[column]

    @property
    def _multiplies(self) -> Value:
        """Whether an engine is selected whose words the columns multiply."""
        return Cat(self.selected[name] for name in self.selected.shape().members if name != "xnor").any()

    def _without_words(self, m: Module, platform, step: data.View, word: Value) -> tuple[data.View, Value]:
        """The step and its word as the columns see them: no words while the array is idle, nor of the delay lines."""
        idle = spread(m, ~self.selected.as_value().any(), self.lanes, cycles=SELECT_LATENCY, name="idle")
        own = Signal.like(step, name="own_step")
        m.d.comb += own.eq(step)
        if self.is_chained:
            m.d.comb += own.chain.eq(step.chain & ~idle[0])
        Assertions(m, platform).never(self.step.valid & Cat(idle).any(), "MAC array: a step while it is not selected")
        return own, word & ~Cat(mask.replicate(len(word) // self.lanes) for mask in idle)

    def _lend(self, m: Module, platform, index: int, column: MacColumn) -> None:
        """Let a column multiply what its borrower gives."""
        port, own = self.borrowed_multipliers, column.borrowed_multipliers
        lent = port.factors[index].as_value().any()
        m.d.comb += [
            own.factors[0].eq(port.factors[index]),
            *(given.eq(found) for given, found in zip(port.products[index], own.products[0], strict=True)),
        ]
        if index < self.weighed_columns:
            m.d.comb += [own.weights[0].eq(port.weights[index]), own.weighs.eq(port.weighs)]
            lent |= port.weighs.any()
        checks = Assertions(m, platform)
        if checks.wanted:
            # Until words that were on their way have passed.
            last = SELECT_LATENCY + self.hops[index] + 1
            waited = Signal(range(last + 1))
            with m.If(self.selected.as_value().any()):
                m.d.sync += waited.eq(0)
            with m.Elif(waited != last):
                m.d.sync += waited.eq(waited + 1)
            settled = waited == last
            reach = column.word.any() & ~(column.binary.all() if self.is_binary and not index else Const(0))
            checks.never(settled & reach, f"MAC array: words in column {index}, which is idle")
            checks.never(column.step.valid & lent, f"MAC array: factors in column {index}, which is not idle")

    def _elaborate_both_results(
        self, m: Module, platform, column_fired: Signal, totals: list, chain_fired: list, chain_totals: list
    ) -> None:
        """Choose between the totals of columns and those of lanes."""
        chain_later = delay(m, chain_fired[0], 1, name="chain_fired")
        m.d.comb += self.result.valid.eq(column_fired | chain_later)
        for lane, (result, chained) in enumerate(zip(self.result.lanes, chain_totals, strict=True)):
            waits = self._waits(lane) if lane < self.columns else -1
            if waits < 0:
                total = delay(m, chained, 1, name=f"total_{lane}")
            elif waits:
                # While totals wait for that of the last column, there is a register to choose in front of.
                total = delay(m, totals[lane], waits - 1, name=f"total_{lane}")
                total = delay(m, Mux(chain_fired[lane], chained, total), 1, name=f"result_{lane}")
            else:
                total = Mux(chain_later, delay(m, chained, 1, name=f"total_{lane}"), totals[lane])
            m.d.comb += result.eq(total)
        Assertions(m, platform).never(column_fired & chain_later, "MAC array: results of both modes at once")
