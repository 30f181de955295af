"""The floorplan of the multiplier array: how its columns stand, and what all of its engines wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..config import Config


class ArrayWaits(NamedTuple):
    """Cycles that the array takes longer for all of its engines, because of what one of them needs.

    Attributes
    ----------
    words : int
        From a word to its way through the columns.
    weights : int
        From a column's weights to its multipliers: these of the cycles of ``words``.
    totals : int
        From a column's sum of products to its total.
    """

    words: int = 0
    weights: int = 0
    totals: int = 0

    @classmethod
    def sum(cls, waits: list[ArrayWaits]) -> ArrayWaits:
        """Those of several engines: their stages stand one behind the other."""
        return cls(*map(sum, zip(*waits, strict=True)))


@dataclass(frozen=True, slots=True)
class Floorplan:
    """How the columns of an array stand.

    Attributes
    ----------
    columns : int
        All that there are.
    row_columns : int
        Those of a row.
    waits : ArrayWaits
        Cycles that the array takes longer than it would for MAC alone.
    """

    columns: int
    row_columns: int
    waits: ArrayWaits

    @classmethod
    def of(cls, config: Config) -> Floorplan:
        """The floorplan that the engines of a configuration ask for."""
        engines = config.engines.values()
        return cls(
            config.array.columns,
            min(own.row_columns(config.array) for own in engines),
            ArrayWaits.sum([own.array_waits() for own in engines]),
        )

    @property
    def hops(self) -> tuple[int, ...]:
        """For each column, the hops of a word from the first one: along the first row, then from row to row."""
        return tuple(sum(divmod(column, self.row_columns)) for column in range(self.columns))

    def before(self, column: int) -> int:
        """From which column a word hops to another one than the first."""
        return column - (1 if column < self.row_columns else self.row_columns)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each two neighbouring columns, that one first whose words come first, for hardware which they have in common:
        from two rows, where there are some, so that a pair's words and sums all go to the same pairs."""
        columns, of_row = self.columns, self.row_columns
        pairs: list[tuple[int, int]] = []
        alone: list[int] = []
        for first in range(0, columns, 2 * of_row):
            upper, lower = (range(begin, min(begin + of_row, columns)) for begin in (first, first + of_row))
            pairs += zip(upper, lower, strict=False)
            alone += upper[len(lower) :]
        return (*pairs, *zip(alone[::2], alone[1::2], strict=True))
