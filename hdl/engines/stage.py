"""A stage of the multiplier array: what one engine adds to it. See ``docs/adding-an-engine.md``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from amaranth.hdl import Const, Module, Value
from amaranth.lib import data, wiring
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ...golden.elements import CODE_BITS
from ...golden.engines.engine import Engine
from ...golden.engines.floorplan import ArrayWaits, Floorplan
from ..parts.device import MULTIPLIER_LATENCY

if TYPE_CHECKING:
    from .mac_array import MacArray
    from .mac_column import MacColumn

__all__ = [
    "PRODUCT_BITS",
    "ArrayStage",
    "LaneResults",
    "Total",
    "column_latency",
    "waits_before",
    "waits_behind",
]

#: The bits of a product of two bytes.
PRODUCT_BITS = 16


def column_latency(lanes: int) -> int:
    """Cycles from a word to the total that it completes: multiply, one for each level of the adder tree, accumulate."""
    return MULTIPLIER_LATENCY + ceil_log2(lanes) + 1


class Total(NamedTuple):
    """The total of a column, and whether it is a result."""

    fired: Value
    total: Value


class LaneResults(NamedTuple):
    """Results of lanes: for each of them whether it has one, and what it is then; in the same cycle for all."""

    fired: Sequence[Value]
    totals: Sequence[Value]


class ArrayStage:
    """What an engine adds to the multiplier array. MAC adds nothing, as this class.

    A step and its word pass four points, where the array and its columns ask their stages one after the other:

    * words, before the first column (:meth:`words`) and from column to column (:meth:`hop`);
    * factors, before the multipliers of a column (:meth:`weights`, :meth:`factors`);
    * sums, after the multipliers (:meth:`product`, :meth:`sums`);
    * totals, after the adder tree (:meth:`totals`), or of lanes and several columns (:meth:`lane_results`).

    Each method adds its statements to the module that it is given, of the array or of a column. A stage takes steps of
    all engines of the array, one a cycle, and leaves those of others as they are. A stage that needs to know its own
    before they come asks the array which engine is ``selected``.

    Parameters
    ----------
    config : Config
    engine : Engine or None
        Whose stage it is.

    Attributes
    ----------
    flag : str
        The bit of a step that says that it is one of the engine; empty if nobody asks.
    waits : ArrayWaits
        Cycles that it takes at each point, for all engines: as the engine's configuration says.
    multiplies : bool
        Words of the engine go to the multipliers. If not, the stage masks them in front of these; in the first column,
        if it is borrowed, also while no engine is selected: there no mask for loans is in front of its words.
    gives_lanes : bool
        Its results are those of :meth:`lane_results`, and its steps make no totals of columns.
    delays : bool
        While its flag is set, a column may see other words than the first one.
    word_bits, weight_bits, product_bits : int
        Bits of a lane of a word, of a weight behind :meth:`weights`, and of their product.
    """

    flag: ClassVar[str] = ""
    waits: ClassVar[ArrayWaits] = ArrayWaits()
    multiplies: ClassVar[bool] = True
    gives_lanes: ClassVar[bool] = False
    delays: ClassVar[bool] = False
    word_bits: ClassVar[int] = CODE_BITS
    weight_bits: ClassVar[int] = CODE_BITS
    product_bits: ClassVar[int] = PRODUCT_BITS

    def __init__(self, config: Config, engine: Engine | None = None):
        self.config = config
        self.engine = engine

    @property
    def name(self) -> str:
        """The engine's, as it stands in names of signals."""
        return "" if self.engine is None else self.engine.name.lower()

    # The array.

    def latency(self, floorplan: Floorplan) -> int:
        """Return the cycles from a word of the engine to the result that it completes."""
        waits = floorplan.waits
        return waits.words + column_latency(self.config.array.lanes) + waits.totals + max(floorplan.hops)

    def members(self) -> dict[str, wiring.Member]:
        """Further ports of the array."""
        return {}

    def words(
        self, m: Module, platform: object, array: MacArray, step: data.View, word: Value
    ) -> tuple[data.View, Value]:
        """The step and its word on their way to the first column, ``waits.words`` cycles later."""
        return step, word

    def hop(self, m: Module, column: int, step: data.View, word: Value) -> Value:
        """The word that goes to a column, other than the first, with a step: in the same cycle."""
        return word

    def connect(self, m: Module, platform: object, array: MacArray, column: MacColumn) -> None:
        """Drive the ports that :meth:`column_members` gave a column."""

    def lane_results(
        self, m: Module, platform: object, array: MacArray, steps: list[data.View], products: list[list[Value]]
    ) -> LaneResults:
        """Results of lanes, if it ``gives_lanes``, of the steps and products of all columns."""
        raise NotImplementedError

    # A column.

    def factor_bits(self, column: int) -> tuple[int, int]:
        """Bits of both factors of the multipliers of a column."""
        return self.word_bits, self.weight_bits

    def column_members(self, column: int) -> dict[str, wiring.Member]:
        """Further ports of a column."""
        return {}

    def masked(self, column: MacColumn) -> Value:
        """Whether the stage keeps all lanes of the words of a column from its multipliers, now."""
        return Const(0)

    def weights(self, m: Module, column: MacColumn, weights: data.View) -> data.View:
        """The weights, an array of lanes, ``waits.weights`` cycles later."""
        return weights

    def factors(self, m: Module, column: MacColumn, lane: int, a: Value, b: Value) -> tuple[Value, Value]:
        """Both factors of a lane, of its word and its weight, in the same cycle."""
        return a, b

    def product(self, m: Module, column: MacColumn, lane: int, product: Value) -> None:
        """Give the product of a lane, of as many bits as both factors have, to others than the adder tree."""

    def sums(
        self, m: Module, platform: object, column: MacColumn, weights: data.View, terms: list[Value]
    ) -> list[Value]:
        """What is added up for each lane: the products, or what stands in their place, in the same cycle.

        ``weights`` are those behind :meth:`weights`, ``MULTIPLIER_LATENCY`` cycles before the terms.
        """
        return terms

    def totals(self, m: Module, column: MacColumn, step: data.View, value: Value, before: Callable[[], Total]) -> Total:
        """The total of a step and its sum ``value``, ``waits.totals`` cycles after what ``before`` makes of them: the
        accumulator, or a stage before."""
        return before()


def waits_before(stages: Sequence[ArrayStage], stage: ArrayStage) -> ArrayWaits:
    """Return the cycles that words, weights and totals spend in the stages before one."""
    return ArrayWaits.sum([ArrayWaits(), *(one.waits for one in stages[: stages.index(stage)])])


def waits_behind(stages: Sequence[ArrayStage], stage: ArrayStage) -> ArrayWaits:
    """Return the cycles that words, weights and totals spend in the stages after one."""
    return ArrayWaits.sum([ArrayWaits(), *(one.waits for one in stages[stages.index(stage) + 1 :])])
