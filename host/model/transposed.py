"""Transposed convolutions as ordinary ones: every phase of the output is a convolution of the input."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


def uncut_size(size: int, kernel: int, stride: int, dilation: int, more: int) -> int:
    """Rows or columns that a ConvTranspose gives for ``size`` of its input before borders are cut off, ``more`` of them
    as its output_padding."""
    return stride * (size - 1) + more + dilation * (kernel - 1) + 1


@dataclass(frozen=True)
class Transposed:
    """Geometry of a ConvTranspose; pairs are (vertical, horizontal).

    Attributes
    ----------
    kernel, strides, dilations : tuple of int
    begin : tuple of int
        Rows and columns that are cut off above and to the left.
    source, target : tuple of int
        Rows and columns of input and output.
    groups : int
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    begin: tuple[int, int]
    source: tuple[int, int]
    target: tuple[int, int]
    groups: int = 1

    @property
    def phases(self) -> list[tuple[int, int]]:
        """Row and column of each phase of the output, row by row."""
        return [*itertools.product(*map(range, self.strides))]

    @property
    def phases_first(self) -> bool:
        """Whether the channels of a phase lie side by side, instead of the phases of a channel, as groups need."""
        return self.groups == 1

    @property
    def whole(self) -> tuple[int, int]:
        """Rows and columns of all phases together: as many as the output has, or a few more."""
        return tuple(self._count(axis) * self.strides[axis] for axis in range(2))

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """The border of the convolution: top, left, bottom, right."""
        (top, _, bottom), (left, _, right) = (self._along(axis) for axis in range(2))
        return top, left, bottom, right

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights [outputs of all phases, inputs / groups, rows, columns] of [inputs, outputs / groups, rows, columns].

        Elements of the window that a phase does not use are zero.
        """
        rows, columns = (self._along(axis)[1] for axis in range(2))
        inputs, of_group = weights.shape[0] // self.groups, weights.shape[1]
        result = np.zeros((len(self.phases), self.groups, of_group, inputs, rows, columns), weights.dtype)
        split = weights.reshape(self.groups, inputs, of_group, *self.kernel).transpose(0, 2, 1, 3, 4)
        for at, phase in enumerate(self.phases):
            for row, column in itertools.product(*map(range, self.kernel)):
                places = [self._place(axis, phase[axis], tap) for axis, tap in enumerate((row, column))]
                if None not in places:
                    result[at, ..., places[0], places[1]] = split[..., row, column]
        moved = result if self.phases_first else result.transpose(1, 2, 0, 3, 4, 5)
        return np.ascontiguousarray(moved).reshape(-1, inputs, rows, columns)

    def of_outputs(self, values: npt.NDArray) -> npt.NDArray:
        """What belongs to each output channel, for those of all phases."""
        phases = len(self.phases)
        return np.tile(values, phases) if self.phases_first else np.repeat(values, phases)

    def _count(self, axis: int) -> int:
        return -(-self.target[axis] // self.strides[axis])

    def _offset(self, axis: int, phase: int, tap: int) -> int | None:
        """Pixels of the input from an output's own to the one that it takes with an element of the kernel, if any."""
        distance = phase + self.begin[axis] - tap * self.dilations[axis]
        return None if distance % self.strides[axis] else distance // self.strides[axis]

    def _place(self, axis: int, phase: int, tap: int) -> int | None:
        """Where an element of the kernel is in the window of a phase, if it is there."""
        offset = self._offset(axis, phase, tap)
        return None if offset is None else offset + self._along(axis)[0]

    def _along(self, axis: int) -> tuple[int, int, int]:
        """Border before, size of the window, and border after."""
        taps = itertools.product(range(self.strides[axis]), range(self.kernel[axis]))
        offsets = [offset for one in taps if (offset := self._offset(axis, *one)) is not None]
        before = max(-min(offsets), 0)
        size = max(*offsets, 0) + before + 1
        after = self._count(axis) - self.source[axis] - before + size - 1
        # Where the last pixels of the input are not used, elements of zero reach them.
        return before, size - min(after, 0), max(after, 0)
