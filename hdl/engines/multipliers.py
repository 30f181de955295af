"""The multipliers of the array, which other engines borrow: what both sides see, and whose factors they take; and
those that two of its columns have in common."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.elements import CODE_BITS, DIFFERENCE_BITS, NARROW_BITS
from ...golden.engines import specification_of
from ...golden.engines.floorplan import Floorplan
from ..parts.device import DOUBLE, MultiplierColumns, PumpedMultipliers, Turn
from ..parts.pipeline import Assertions, platform_of
from .engine import EngineComponent

__all__ = [
    "ColumnArbiter",
    "ahead_columns",
    "borrowed_columns",
    "borrowed_multipliers",
    "borrower_members",
    "connect_multipliers",
    "connect_pumped",
    "lender_members",
    "weighed_columns",
]


def borrowed_columns(config: Config) -> int:
    """Columns of the array, the first ones, whose multipliers other engines of the configuration borrow."""
    return max(specification_of(code).borrowed_columns(config) for code in config.engines)


def weighed_columns(config: Config) -> int:
    """Those of them, the first ones, to which an engine may give weights of its own."""
    given = [specification_of(code) for code in config.engines]
    return max((one.borrowed_columns(config) for one in given if one.brings_weights), default=0)


def ahead_columns(config: Config, platform: object) -> frozenset[int]:
    """Columns whose words and weights come a cycle before they are wanted, because registers of the faster clock take
    them: of two that have multipliers in common the one that has the first turn, unless it is borrowed."""
    if not platform_of(platform).is_pumped or config.array.columns == 1:
        return frozenset()
    return frozenset(later for _, later in Floorplan.of(config).pairs if later >= borrowed_columns(config))


def borrowed_multipliers(columns: int, lanes: int, weighed: int = 0) -> MultiplierColumns:
    """Multipliers of the array, which multiply by the weights of their columns, or, the first ``weighed``, by what the
    borrower gives."""
    b_width = DIFFERENCE_BITS if weighed else CODE_BITS
    return MultiplierColumns(columns, lanes, a_width=NARROW_BITS, b_width=b_width, weighed=weighed)


def borrower_members(columns: int, lanes: int, *, is_weighed: bool = False) -> dict[str, wiring.Member]:
    """The member of an engine that borrows so many columns, and gives them weights as well if it ``is_weighed``."""
    port = borrowed_multipliers(columns, lanes, columns * is_weighed)
    return {"borrowed_multipliers": Out(port)} if columns else {}


def lender_members(columns: int, lanes: int, weighed: int) -> dict[str, wiring.Member]:
    """The member of the array, of which so many columns are borrowed, and ``weighed`` with weights."""
    return {"borrowed_multipliers": In(borrowed_multipliers(columns, lanes, weighed))} if columns else {}


class ColumnArbiter(wiring.Component):
    """Join the factors of several borrowers in front of the array, and give all of them its products.

    Nothing is chosen: the factors of a borrower that is not selected are zero, so that an ``or`` joins them. Weights
    count while their borrower says so.

    Parameters
    ----------
    columns : sequence of int
        How many columns each borrower has, the first ones of the array.
    weighed : sequence of int
        For how many of them it has weights: all or none.
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
                # Of as many bits as each knows of.
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


def connect_pumped(m: Module, pairs: Sequence[tuple[wiring.PureInterface, wiring.PureInterface]]) -> None:
    """Give each pair of columns, of which these are the banks, multipliers that work twice a cycle."""
    m.submodules.turn = turn = Turn()
    is_second = turn.is_second
    for number, banks in enumerate(pairs):
        m.submodules[f"pumped_{number}"] = pumped = PumpedMultipliers(tuple(bank.signature for bank in banks))
        wiring.connect(m, banks[0], pumped.bank_0)
        wiring.connect(m, banks[1], pumped.bank_1)
        m.d.comb += pumped.is_second.eq(is_second)
        is_second = pumped.next_is_second
        # To columns that may be far off, in steps of half a cycle; after two it is the same one's turn. They begin with
        # what they would have after a while, as all that inverts it does.
        for step, first in enumerate((1, 0)):
            later = Signal(name=f"turn_{number}_{step}", init=first, reset_less=True)
            m.d[DOUBLE] += later.eq(is_second)
            is_second = later
