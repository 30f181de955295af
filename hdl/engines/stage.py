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

#: Bits of a product of two bytes.
PRODUCT_BITS = 16


def column_latency(lanes: int) -> int:
    """Return the cycles from a word to the total that it completes: multiply, one for each level of the adder tree,
    accumulate."""
    return MULTIPLIER_LATENCY + ceil_log2(lanes) + 1


class Total(NamedTuple):
    """The total of a column, and whether it is a result."""

    fired: Value
    total: Value


class LaneResults(NamedTuple):
    """Results of all lanes in one cycle: for each lane whether it has one, and its total."""

    fired: Sequence[Value]
    totals: Sequence[Value]


class ArrayStage:
    """The additions of one engine to the multiplier array. This class adds nothing, and serves MAC.

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
        The engine of the stage; None for a stage of no engine.

    Attributes
    ----------
    flag : str
        Flag of a step that is set for steps of the engine; empty if the engine needs none.
    waits : ArrayWaits
        Cycles that the stage takes at each point, for all engines, as the engine's configuration states.
    multiplies : bool
        Whether words of the engine go to the multipliers. If not, the stage masks them in front of these, and in a
        first column that is borrowed also while no engine is selected, as no mask for loans stands before its words.
    gives_lanes : bool
        Whether its results are those of :meth:`lane_results`; its steps make no totals of columns then.
    delays : bool
        Whether a column may see other words than the first one while the flag is set.
    word_bits, product_bits : int
        Bits of a lane of a word, and of its product with a weight behind :meth:`weights`.
    """

    flag: ClassVar[str] = ""
    waits: ClassVar[ArrayWaits] = ArrayWaits()
    multiplies: ClassVar[bool] = True
    gives_lanes: ClassVar[bool] = False
    delays: ClassVar[bool] = False
    word_bits: ClassVar[int] = CODE_BITS
    product_bits: ClassVar[int] = PRODUCT_BITS

    def __init__(self, config: Config, engine: Engine | None = None):
        self.config = config
        self.engine = engine

    @property
    def name(self) -> str:
        """The engine's name within names of signals."""
        return "" if self.engine is None else self.engine.name.lower()

    # The array.

    def latency(self, floorplan: Floorplan) -> int:
        """Return the cycles from a word of the engine to the result that it completes."""
        waits = floorplan.waits
        return waits.words + column_latency(self.config.array.lanes) + waits.totals + max(floorplan.hops)

    def members(self) -> dict[str, wiring.Member]:
        """Return further ports of the array."""
        return {}

    def words(
        self, m: Module, platform: object, array: MacArray, step: data.View, word: Value
    ) -> tuple[data.View, Value]:
        """Return the step and its word for the first column, ``waits.words`` cycles later."""
        return step, word

    def hop(self, m: Module, column: int, step: data.View, word: Value) -> Value:
        """Return the word that goes to a column, other than the first, with a step, in the same cycle."""
        return word

    def connect(self, m: Module, platform: object, array: MacArray, column: MacColumn) -> None:
        """Drive the ports that :meth:`column_members` gave a column."""

    def lane_results(
        self, m: Module, platform: object, array: MacArray, steps: list[data.View], products: list[list[Value]]
    ) -> LaneResults:
        """Return the results of lanes from the steps and products of all columns; for stages that give some."""
        raise NotImplementedError

    # A column.

    def column_members(self, column: int) -> dict[str, wiring.Member]:
        """Return further ports of a column."""
        return {}

    def masked(self, column: MacColumn) -> Value:
        """Return whether the stage masks all lanes of a column's words in this cycle."""
        return Const(0)

    def weights(self, m: Module, column: MacColumn, weights: data.View) -> data.View:
        """Return the weights, an array of lanes, ``waits.weights`` cycles later."""
        return weights

    def factors(self, m: Module, column: MacColumn, lane: int, a: Value, b: Value) -> tuple[Value, Value]:
        """Return both factors of a lane, from its word and its weight, in the same cycle."""
        return a, b

    def product(self, m: Module, column: MacColumn, lane: int, product: Value) -> None:
        """Use the product of a lane, which has as many bits as both factors, beside the adder tree."""

    def sums(
        self, m: Module, platform: object, column: MacColumn, weights: data.View, terms: list[Value]
    ) -> list[Value]:
        """Return the terms of the adder tree, one for each lane, in the same cycle: the products or their replacements.

        ``weights`` are the results of :meth:`weights`, ``MULTIPLIER_LATENCY`` cycles before the terms.
        """
        return terms

    def totals(self, m: Module, column: MacColumn, step: data.View, value: Value, before: Callable[[], Total]) -> Total:
        """Return the total after a step with the sum ``value``, ``waits.totals`` cycles after that of ``before``, which
        gives the accumulator's total or an earlier stage's."""
        return before()


def waits_before(stages: Sequence[ArrayStage], stage: ArrayStage) -> ArrayWaits:
    """Return the cycles that words, weights and totals spend in the stages before one."""
    return ArrayWaits.sum([ArrayWaits(), *(one.waits for one in stages[: stages.index(stage)])])


def waits_behind(stages: Sequence[ArrayStage], stage: ArrayStage) -> ArrayWaits:
    """Return the cycles that words, weights and totals spend in the stages after one."""
    return ArrayWaits.sum([ArrayWaits(), *(one.waits for one in stages[stages.index(stage) + 1 :])])
