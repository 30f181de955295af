"""Border classes: parts of a map whose windows take the same elements, where they need not count a border."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ...graph import Window


@dataclass(frozen=True, slots=True)
class BorderClass:
    """Neighbouring windows that lie in the input with the same elements of the kernel.

    Attributes
    ----------
    rows, columns : range
        Of the output.
    kernel_rows, kernel_columns : range
        Of the kernel: those that lie in the input. Empty where a window is wholly in the border.
    """

    rows: range
    columns: range
    kernel_rows: range
    kernel_columns: range

    @property
    def is_empty(self) -> bool:
        """Whether the windows have no element of the input."""
        return not (self.kernel_rows and self.kernel_columns)


def border_classes(window: Window, size: tuple[int, int], rows: range, columns: range) -> list[BorderClass]:
    """The classes of some rows and columns of the output, for an input of ``size`` rows and columns.

    Nine, where a window reaches no further into the border than it moves from one output to the next: corners, edges
    and the interior. One, where no window reaches into the border.
    """
    (vertical, horizontal) = (
        _axis_classes(window, axis, size[axis], outputs) for axis, outputs in enumerate((rows, columns))
    )
    return [
        BorderClass(outputs_down, outputs_across, down, across)
        for (outputs_down, down), (outputs_across, across) in itertools.product(vertical, horizontal)
    ]


def _axis_classes(window: Window, axis: int, size: int, outputs: range) -> list[tuple[range, range]]:
    """Outputs along one axis with the same elements of the kernel inside, and these elements."""
    return [
        (range(members[0], members[-1] + 1), inside)
        for inside, group in itertools.groupby(outputs, lambda output: window.inside(axis, size, output))
        for members in [list(group)]
    ]
