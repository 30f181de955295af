"""The multipliers of the array, which other engines borrow: what both sides see, and whose factors they take."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.elements import NARROW_BITS
from ...golden.engines.specifications import specification
from ..parts.assertions import Assertions
from ..parts.device import MultiplierColumns
from .engine import EngineComponent

__all__ = [
    "ColumnArbiter",
    "borrowed_columns",
    "borrowed_multipliers",
    "borrower_members",
    "connect_multipliers",
    "lender_members",
]


def borrowed_columns(config: Config) -> int:
    """Columns of the array, the first ones, whose multipliers other engines of the configuration borrow."""
    return max(specification(code).borrowed_columns(config) for code in config.engines)


def borrowed_multipliers(columns: int, lanes: int) -> MultiplierColumns:
    """Multipliers of the array, which multiply by the weights of their columns."""
    return MultiplierColumns(columns, lanes, a_width=NARROW_BITS, b_width=8)


def borrower_members(columns: int, lanes: int) -> dict[str, wiring.Member]:
    """The member of an engine that borrows so many columns."""
    return {"borrowed_multipliers": Out(borrowed_multipliers(columns, lanes))} if columns else {}


def lender_members(columns: int, lanes: int) -> dict[str, wiring.Member]:
    """The member of the array, of which so many columns are borrowed."""
    return {"borrowed_multipliers": In(borrowed_multipliers(columns, lanes))} if columns else {}


class ColumnArbiter(wiring.Component):
    """Join the factors of several borrowers in front of the array, and give all of them its products.

    Nothing is chosen: the factors of a borrower that is not selected are zero, so that an ``or`` joins them.

    Parameters
    ----------
    columns : sequence of int
        How many columns each borrower has, the first ones of the array.
    lanes : int

    Members
    -------
    borrower_0, borrower_1, ... : In(borrowed_multipliers)
    array : Out(borrowed_multipliers of the most columns)
    """

    def __init__(self, columns: list[int], lanes: int):
        self.columns = columns
        self.lanes = lanes
        super().__init__(
            {
                **{f"borrower_{place}": In(borrowed_multipliers(count, lanes)) for place, count in enumerate(columns)},
                "array": Out(borrowed_multipliers(max(columns), lanes)),
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
            m.d.comb += [port.products[column].eq(self.array.products[column]) for port in users]
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
    columns = [len(engine.borrowed_multipliers.factors) for engine in borrowers]
    m.submodules.column_arbiter = arbiter = ColumnArbiter(columns, lanes)
    for port, engine in zip(arbiter.borrowers, borrowers, strict=True):
        wiring.connect(m, engine.borrowed_multipliers, port)
    wiring.connect(m, arbiter.array, lender.borrowed_multipliers)
