"""Phases: every so-many-th row and column of a map."""

from __future__ import annotations

from typing import NamedTuple


class Phase(NamedTuple):
    """The rows and columns of a map that are so many steps apart, from one on.

    Attributes
    ----------
    row, column : int
        The first.
    steps : tuple of int
        Rows and columns of the map from one that is taken to the next.
    """

    row: int = 0
    column: int = 0
    steps: tuple[int, int] = (1, 1)

    def of(self, inner: Phase) -> Phase:
        """A phase of this phase, as one of the map."""
        down, across = self.steps
        steps = down * inner.steps[0], across * inner.steps[1]
        return Phase(self.row + down * inner.row, self.column + across * inner.column, steps)

    def within(self, rows: range, columns: range) -> tuple[range, range]:
        """Which rows and columns of the phase lie in some of the map: from the first to the last, counted in it."""
        starts, inside = (self.row, self.column), (rows, columns)
        return tuple(
            range(max(-((first - part.start) // step), 0), max(-((first - part.stop) // step), 0))
            for first, step, part in zip(starts, self.steps, inside, strict=True)
        )

    def rows(self, own: range) -> range:
        """Rows of the map that some rows of the phase are."""
        return _spread(own, self.row, self.steps[0])

    def columns(self, own: range) -> range:
        """Columns of the map that some columns of the phase are."""
        return _spread(own, self.column, self.steps[1])


def _spread(own: range, first: int, step: int) -> range:
    return range(first + own.start * step, first + own.stop * step, step)


#: All rows and columns.
WHOLE = Phase()
