"""Streams: how the words of depthwise windows side by side follow one another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...graph import Window


@dataclass(frozen=True)
class Stream:
    """How words of windows side by side follow one another.

    Attributes
    ----------
    window : Window
        Of the layer.
    taps : int
        Columns of the array that chain.
    along : int
        The axis that windows of an inner loop follow one another on: 1 for a row of windows, 0 for a column.
    results : int
        Windows of the layer, neighbours across the stream, whose results one window of the stream has.
    """

    window: Window
    taps: int
    along: int
    results: int = 1

    @cached_property
    def columns(self) -> int:
        """Image columns, or rows if ``along`` is 0, that a window takes in: as many as array columns are used."""
        return min(self.window.kernel[self.along], self.taps)

    @cached_property
    def advance(self) -> int:
        """Of these, how many the next window takes that this one does not."""
        images, left_over = divmod(self.window.stride[self.along], self.window.dilation[self.along])
        return self.columns if left_over else min(images, self.columns)

    @cached_property
    def turns(self) -> int:
        """Image columns of which an array column takes words in turn."""
        return -(-self.window.kernel[self.along] // self.taps)

    @cached_property
    def across(self) -> tuple[int, ...]:
        """Where in an image column, in rows from the first one on, its words lie: what any of the results needs."""
        return tuple(sorted({self.row(result, element) for result in range(self.results) for element in self.elements}))

    @property
    def elements(self) -> range:
        """The elements of the kernel across the stream."""
        return range(self.window.kernel[1 - self.along])

    def row(self, result: int, element: int) -> int:
        """The row of an image column that a result takes with an element of the kernel."""
        axis = 1 - self.along
        return result * self.window.stride[axis] + element * self.window.dilation[axis]

    def nearest(self, results: int) -> tuple[int, ...]:
        """As :attr:`across`, for a window of which only the first results are wanted: no row after their last."""
        last = self.row(results - 1, self.elements[-1])
        return tuple(min(row, last) for row in self.across)

    @property
    def rows(self) -> int:
        """Words of an image column: the command's `rows`."""
        return self.turns * len(self.across)

    @property
    def steps(self) -> int:
        """Words of a window that begins an inner loop."""
        return self.columns * self.rows

    @property
    def skip(self) -> int:
        """Words that later windows need not read."""
        return (self.columns - self.advance) * self.rows

    def cycles(self, sizes: tuple[int, int], groups: int) -> int:
        """Cycles for an output of this many rows and columns, of which each result takes ``groups`` cycles."""
        inner, outer = sizes[self.along], sizes[1 - self.along]
        full, rest = divmod(outer, self.results)
        return full * self._row_cycles(inner, groups * self.results) + (rest > 0) * self._row_cycles(
            inner, groups * rest
        )

    def _row_cycles(self, inner: int, groups: int) -> int:
        return max(self.steps, groups) + (inner - 1) * max(self.advance * self.rows, groups)
