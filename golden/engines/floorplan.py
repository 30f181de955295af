"""The floorplan of the multiplier array: the placement of its columns, and latencies that all of its engines share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..config import Config


class ArrayWaits(NamedTuple):
    """Cycles that the array takes longer for all of its engines, because one of them needs them.

    Attributes
    ----------
    words : int
        Cycles before a word goes through the columns.
    weights : int
        Cycles between a column's weights and its multipliers, a part of those of ``words``.
    totals : int
        Cycles between a column's sum of products and its total.
    """

    words: int = 0
    weights: int = 0
    totals: int = 0

    @classmethod
    def sum(cls, waits: list[ArrayWaits]) -> ArrayWaits:
        """Return the sum over several engines, whose stages follow one another."""
        return cls(*map(sum, zip(*waits, strict=True)))


@dataclass(frozen=True, slots=True)
class Floorplan:
    """The placement of an array's columns.

    Attributes
    ----------
    columns : int
        Number of columns of the array.
    row_columns : int
        Number of columns in a row.
    waits : ArrayWaits
        Cycles that the array takes longer than it would for MAC alone.
    """

    columns: int
    row_columns: int
    waits: ArrayWaits

    @classmethod
    def of(cls, config: Config) -> Floorplan:
        """Return the floorplan that the engines of a configuration ask for."""
        engines = config.engines.values()
        return cls(
            config.array.columns,
            min(own.row_columns(config.array) for own in engines),
            ArrayWaits.sum([own.array_waits() for own in engines]),
        )

    @property
    def hops(self) -> tuple[int, ...]:
        """Return, for each column, the hops of a word from the first column: along the first row, then from row to
        row."""
        return tuple(sum(divmod(column, self.row_columns)) for column in range(self.columns))

    def before(self, column: int) -> int:
        """Return the column from which a word hops to this one, which is not the first."""
        return column - (1 if column < self.row_columns else self.row_columns)
