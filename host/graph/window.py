"""Windows: which pixels of its input a layer reads for each pixel of its output."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Reach:
    """How far windows reach beyond a map on each side, in pixels."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0


@dataclass(frozen=True)
class Window:
    """Kernel geometry of a convolution or pooling; pairs are (vertical, horizontal).

    ``pads`` is (top, left, bottom, right). Below 0, so many rows and columns of the input are left out on that side.
    ``up`` is how many rows and columns of the result in a row have the same window.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    up: tuple[int, int] = (1, 1)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns from the first tap to the last, both included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def text(self) -> str:
        """For people: the kernel, and stride and dilation where they are not 1."""
        found = "x".join(map(str, self.kernel))
        if self.stride != (1, 1):
            found += " stride " + "x".join(map(str, self.stride))
        if self.dilation != (1, 1):
            found += " dilation " + "x".join(map(str, self.dilation))
        return found

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the result for an input of ``height`` x ``width``."""
        top, left, bottom, right = self.pads
        (eh, ew), (sh, sw) = self.extent, self.stride
        rows, columns = (height + top + bottom - eh) // sh + 1, (width + left + right - ew) // sw + 1
        return rows * self.up[0], columns * self.up[1]

    def reach(self, height: int, width: int) -> Reach:
        """How far windows reach beyond an input of ``height`` x ``width``; unused padding does not count."""
        rows, columns = self.output_size(height, width)
        top, left, _, _ = self.pads
        bottom = self.reached(0, range(rows)).stop - height
        right = self.reached(1, range(columns)).stop - width
        return Reach(top, left, max(bottom, 0), max(right, 0))

    def rows_read(self, rows: range, height: int) -> range:
        """Rows of an input of ``height`` that the windows of some rows of the result reach; none where these lie in the
        padding."""
        reach = self.reached(0, rows)
        first = max(reach.start, 0)
        return range(first, max(min(reach.stop, height), first))

    def of_rows(self, rows: range, height: int) -> Window:
        """The same windows of some rows of the result, where the input is no more than :meth:`rows_read`."""
        reach, read, (_, left, _, right) = self.reached(0, rows), self.rows_read(rows, height), self.pads
        return dataclasses.replace(self, pads=(read.start - reach.start, left, reach.stop - read.stop, right))

    def reached(self, axis: int, outputs: range) -> range:
        """Rows or columns from the first to the last that some of the result reach, padding included."""
        ends = outputs.start, outputs.stop - 1
        first, last = (end // self.up[axis] * self.stride[axis] - self.pads[axis] for end in ends)
        return range(first, last + self.extent[axis])

    def inside(self, axis: int, size: int, output: int) -> range:
        """The elements of the kernel along an axis that lie in an input of ``size``, for one row or column of the
        result."""
        start, dilation = output // self.up[axis] * self.stride[axis] - self.pads[axis], self.dilation[axis]
        first = max(-(start // dilation), 0)
        end = min(-((start - size) // dilation), self.kernel[axis])
        return range(first, end) if first < end else range(0)

    def counts(self, height: int, width: int) -> npt.NDArray[np.int64]:
        """How many elements of each window lie in an input of ``height`` x ``width``: int64[rows, columns]."""
        down, across = (
            [len(self.inside(axis, size, output)) for output in range(outputs)]
            for axis, (size, outputs) in enumerate(zip((height, width), self.output_size(height, width), strict=True))
        )
        return np.outer(down, across)


#: Of layers that read one pixel for each.
ONE_PIXEL = Window((1, 1))
