"""The array's multipliers, shared with other engines, which borrow them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.elements import CODE_BITS, DIFFERENCE_BITS, NARROW_BITS
from ...golden.engines import specification_of
from ..parts.device import MultiplierColumns
from ..parts.pipeline import Assertions, spread
from .engine import SELECT_LATENCY, EngineComponent
from .stage import ArrayStage

if TYPE_CHECKING:
    from .mac_array import MacArray
    from .mac_column import MacColumn

__all__ = [
    "ColumnArbiter",
    "LoanStage",
    "borrowed_columns",
    "borrowed_multipliers",
    "borrower_members",
    "connect_multipliers",
    "lender_members",
    "weighed_columns",
]


def borrowed_columns(config: Config) -> int:
    """Return the number of columns of the array, the first ones, whose multipliers other engines borrow."""
    return max(specification_of(code).borrowed_columns(config) for code in config.engines)


def weighed_columns(config: Config) -> int:
    """Return the number of borrowed columns, the first ones, to which an engine may give weights of its own."""
    given = [specification_of(code) for code in config.engines]
    return max((one.borrowed_columns(config) for one in given if one.brings_weights), default=0)


def borrowed_multipliers(columns: int, lanes: int, weighed: int = 0) -> MultiplierColumns:
    """Return the interface to borrowed multipliers of the array. They multiply by the weights of their columns, or, the
    first ``weighed`` columns, by weights of the borrower."""
    b_width = DIFFERENCE_BITS if weighed else CODE_BITS
    return MultiplierColumns(columns, lanes, a_width=NARROW_BITS, b_width=b_width, weighed=weighed)


def borrower_members(columns: int, lanes: int, *, is_weighed: bool = False) -> dict[str, wiring.Member]:
    """Return the port of an engine that borrows ``columns`` columns, and gives them weights as well if it
    ``is_weighed``."""
    port = borrowed_multipliers(columns, lanes, columns * is_weighed)
    return {"borrowed_multipliers": Out(port)} if columns else {}


def lender_members(columns: int, lanes: int, weighed: int) -> dict[str, wiring.Member]:
    """Return the port of the array, of which ``columns`` columns are borrowed, and ``weighed`` of them with weights."""
    return {"borrowed_multipliers": In(borrowed_multipliers(columns, lanes, weighed))} if columns else {}


class LoanStage(ArrayStage):
    """Let the first columns multiply the factors of other engines; it is the last stage, directly in front of
    multipliers.

    Array and lent columns have the port ``borrowed_multipliers``. The array's words are zero while no engine of the
    array is selected, and the borrowers' factors are zero while one is. So factors are joined by ``or``; only weights
    need a choice.
    """

    def __init__(self, config: Config):
        super().__init__(config)
        self.columns, self.weighed = borrowed_columns(config), weighed_columns(config)

    def members(self) -> dict[str, wiring.Member]:
        """Return the borrowers' port."""
        return lender_members(self.columns, self.config.array.lanes, self.weighed)

    def words(
        self, m: Module, platform: object, array: MacArray, step: data.View, word: Value
    ) -> tuple[data.View, Value]:
        """Mask the words, and those of the delay lines, while the array is idle."""
        idle = spread(m, ~array.selected.as_value().any(), array.lanes, cycles=SELECT_LATENCY, name="idle")
        own = Signal.like(step, name="own_step")
        m.d.comb += own.eq(step)
        for flag in (stage.flag for stage in array.stages if stage.delays):
            m.d.comb += own[flag].eq(step[flag] & ~idle[0])
        Assertions(m, platform).never(array.step.valid & Cat(idle).any(), "MAC array: a step while it is not selected")
        return own, word & ~Cat(mask.replicate(len(word) // array.lanes) for mask in idle)

    def connect(self, m: Module, platform: object, array: MacArray, column: MacColumn) -> None:
        """Connect a column's factors, weights and products with the borrowers' port."""
        index = column.index
        if index >= self.columns:
            return
        port, own = array.borrowed_multipliers, column.borrowed_multipliers
        lent = port.factors[index].as_value().any()
        m.d.comb += [
            own.factors[0].eq(port.factors[index]),
            *(given.eq(found) for given, found in zip(port.products[index], own.products[0], strict=True)),
        ]
        if index < self.weighed:
            m.d.comb += [own.weights[0].eq(port.weights[index]), own.weighs.eq(port.weighs)]
            lent |= port.weighs.any()
        checks = Assertions(m, platform)
        if checks.wanted:
            # Words that were under way when the engine was deselected pass until then.
            last = SELECT_LATENCY + array.hops[index] + 1
            waited = Signal(range(last + 1))
            with m.If(array.selected.as_value().any()):
                m.d.sync += waited.eq(0)
            with m.Elif(waited != last):
                m.d.sync += waited.eq(waited + 1)
            settled = waited == last
            reach = column.word.any()
            if not index:
                reach &= ~reduce(or_, (stage.masked(column) for stage in array.stages))
            checks.never(settled & reach, f"MAC array: words in column {index}, which is idle")
            checks.never(column.step.valid & lent, f"MAC array: factors in column {index}, which is not idle")

    def column_members(self, column: int) -> dict[str, wiring.Member]:
        """Return the borrowers' port of a column."""
        return lender_members(int(column < self.columns), self.config.array.lanes, int(column < self.weighed))

    def factors(self, m: Module, column: MacColumn, lane: int, a: Value, b: Value) -> tuple[Value, Value]:
        """Return a borrower's factors or the column's own."""
        if column.index < self.columns:
            # One of both is zero, so that no choice is needed.
            a |= column.borrowed_multipliers.factors[0][lane]
        if column.index < self.weighed:
            b = Mux(column.borrowed_multipliers.weighs[lane], column.borrowed_multipliers.weights[0][lane], b)
        return a, b

    def product(self, m: Module, column: MacColumn, lane: int, product: Value) -> None:
        """Give borrowers the product as well."""
        if column.index < self.columns:
            m.d.comb += column.borrowed_multipliers.products[0][lane].eq(product)


class ColumnArbiter(wiring.Component):
    """Join the factors of several borrowers in front of the array, and give all of them its products.

    The factors of a borrower that is not selected are zero, so that an ``or`` joins them. Weights count while their
    borrower sets ``weighs``.

    Parameters
    ----------
    columns : sequence of int
        The number of columns that each borrower has, the first ones of the array.
    weighed : sequence of int
        The number of these columns for which it has weights: all or none.
    lanes : int

    Members
    -------
    borrower_0, borrower_1, ... : In(borrowed_multipliers)
    array : Out(borrowed_multipliers of the most columns)
    """

    def __init__(self, columns: list[int], weighed: list[int], lanes: int):
        self.columns = columns
        self.weighed = weighed
        self.lanes = lanes
        sizes = enumerate(zip(columns, weighed, strict=True))
        super().__init__(
            {
                **{f"borrower_{place}": In(borrowed_multipliers(count, lanes, own)) for place, (count, own) in sizes},
                "array": Out(borrowed_multipliers(max(columns), lanes, max(weighed))),
            }
        )

    @property
    def borrowers(self) -> list:
        """The ports of the borrowers."""
        return [getattr(self, f"borrower_{place}") for place in range(len(self.columns))]

    def elaborate(self, platform) -> Module:
        m = Module()
        for column in range(max(self.columns)):
            users = [port for port, count in zip(self.borrowers, self.columns, strict=True) if column < count]
            for lane in range(self.lanes):
                factors = [port.factors[column][lane].as_unsigned() for port in users]
                m.d.comb += self.array.factors[column][lane].eq(reduce(or_, factors).as_signed())
                # Each borrower takes as many bits of a product as its port has.
                m.d.comb += [port.products[column][lane].eq(self.array.products[column][lane]) for port in users]
        givers = [port for port, own in zip(self.borrowers, self.weighed, strict=True) if own]
        for column in range(max(self.weighed)):
            for lane in range(self.lanes):
                weights = [
                    port.weights[column][lane].as_unsigned() & port.weighs[lane].replicate(DIFFERENCE_BITS)
                    for port, own in zip(givers, filter(None, self.weighed), strict=True)
                    if column < own
                ]
                m.d.comb += self.array.weights[column][lane].eq(reduce(or_, weights).as_signed())
        if givers:
            m.d.comb += self.array.weighs.eq(reduce(or_, (port.weighs for port in givers)))
        asking: Value = Cat(port.factors.as_value().any() for port in self.borrowers)
        Assertions(m, platform).never((asking & (asking - 1)).any(), "column arbiter: factors of two borrowers at once")
        return m


def connect_multipliers(m: Module, engines: Sequence[EngineComponent], lanes: int) -> None:
    """Connect the engines that borrow multipliers with the array, if there are any."""
    name = "borrowed_multipliers"
    flows = {one: one.signature.members[name].flow for one in engines if name in one.signature.members}
    borrowers = [engine for engine, flow in flows.items() if flow == Out]
    if not borrowers:
        return
    (lender,) = (engine for engine, flow in flows.items() if flow == In)
    ports = [engine.borrowed_multipliers for engine in borrowers]
    columns = [len(port.factors) for port in ports]
    weighed = [len(port.weights) if "weights" in port.signature.members else 0 for port in ports]
    m.submodules.column_arbiter = arbiter = ColumnArbiter(columns, weighed, lanes)
    for port, engine in zip(arbiter.borrowers, borrowers, strict=True):
        wiring.connect(m, engine.borrowed_multipliers, port)
    wiring.connect(m, arbiter.array, lender.borrowed_multipliers)
