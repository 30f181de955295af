"""How a layer's channels depend on those of its inputs, and which of them, and of which pixels, it copies."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .phase import WHOLE, Phase
from .tensor import Int8


class Place(NamedTuple):
    """Where a tensor lies in another one.

    Attributes
    ----------
    tensor : str
        The other one.
    channel, row : int
        Of that, the first.
    column : int
        Likewise.
    steps : tuple of int
        Rows and columns of that from one of its own to the next.
    """

    tensor: str
    channel: int = 0
    row: int = 0
    column: int = 0
    steps: tuple[int, int] = (1, 1)

    @property
    def phase(self) -> Phase:
        """The rows and columns of the other one."""
        return Phase(self.row, self.column, self.steps)

    def of(self, channel: int, phase: Phase = WHOLE) -> Place:
        """Where a phase of what lies here is, from a channel on."""
        own = self.phase.of(phase)
        return Place(self.tensor, self.channel + channel, own.row, own.column, own.steps)


#: int64[channels]: which channel lies at each place.
Order = npt.NDArray[np.int64]

#: Tensors that lie in others.
Views = dict[str, Place]

#: Rows, columns and channels from one element to another.
Vector = tuple[int, int, int]


class ChannelRule(enum.Enum):
    """How the order of a layer's output channels depends on that of its input channels."""

    #: Both are free: every output is computed of all inputs, with weights that can move, see :meth:`Layer.reordered`.
    FREE = enum.auto()
    #: Each output is computed of the same channel of every input: where these move, it moves.
    TIED = enum.auto()
    #: The outputs are the channels of all inputs, one input after the other.
    JOINED = enum.auto()
    #: Both are free: each output is one of the inputs, whichever.
    MOVED = enum.auto()
    #: Neither may move.
    FIXED = enum.auto()


@dataclass(frozen=True, eq=False)
class Selection:
    """Elements of an input that become elements of the output: a box of rows, columns and channels.

    Attributes
    ----------
    source : int
        Which of the layer's inputs.
    first, channels : int
        Of the input.
    target : int
        First channel of the output.
    table : int8[256] or None
        What the codes are looked up in.
    step : int
        Channels of the input from one to the next.
    read, written : Phase
        The rows and columns of the input, and those of the output that they become.
    size : tuple of int or None
        How many rows and columns; None for as many as the output has.
    spread : int
        Channels of the output from one to the next.
    along : tuple of Vector or None
        How far it is in the input to the next row, column and channel of the output, where that is not the steps of
        ``read`` and ``step``: elements change their axes then.
    code : int or None
        What all elements are, where none is taken of an input.
    """

    source: int
    first: int
    channels: int
    target: int
    table: Int8 | None = None
    step: int = 1
    read: Phase = WHOLE
    written: Phase = WHOLE
    size: tuple[int, int] | None = None
    spread: int = 1
    along: tuple[Vector, Vector, Vector] | None = None
    code: int | None = None

    @property
    def sources(self) -> range:
        """The channels of the input, where elements keep their axes."""
        return range(self.first, self.first + self.channels * self.step, self.step)

    @property
    def targets(self) -> range:
        """The channels of the output."""
        return range(self.target, self.target + self.channels * self.spread, self.spread)

    @property
    def image(self) -> bytes:
        """The table as it lies in its memory; nothing where there is none."""
        return b"" if self.table is None else self.table.tobytes()

    @property
    def vectors(self) -> tuple[Vector, Vector, Vector]:
        """How far it is in the input to the next row, column and channel of the output."""
        (down, across), step = self.read.steps, self.step
        return self.along or ((down, 0, 0), (0, across, 0), (0, 0, step))

    @property
    def keeps_pixels(self) -> bool:
        """Whether every pixel of the output is of the same pixel of the input."""
        return self.along is None and self.read == self.written == WHOLE and self.size is None

    def within(self, rows: range, columns: range) -> tuple[range, range]:
        """Which of its rows and columns lie in some of the output, from its first ones on."""
        found = self.written.within(rows, columns)
        if self.size is None:
            return found
        return tuple(
            range(min(part.start, size), min(part.stop, size)) for part, size in zip(found, self.size, strict=True)
        )

    def elements(self, rows: range, columns: range) -> npt.NDArray[np.int64]:
        """Which elements of the input some of its own rows and columns are, of all channels.

        Returns
        -------
        int64[3, rows, columns, channels]
            Row, column and channel of each.
        """
        counts = (np.asarray(rows), np.asarray(columns), np.arange(self.channels))
        start = np.array([self.read.row, self.read.column, self.first]).reshape(3, 1, 1, 1)
        grid = np.meshgrid(*counts, indexing="ij", sparse=True)
        ways = zip(grid, self.vectors, strict=True)
        return start + sum(np.array(way).reshape(3, 1, 1, 1) * count for count, way in ways)

    def of_rows(self, rows: range, read: range) -> Selection | None:
        """The part in some rows of the output, of some rows of the input; None where there is none."""
        own, _ = self.within(rows, range(self.written.column, self.written.column + 1))
        if not own:
            return None
        row = self.written.row + own.start * self.written.steps[0] - rows.start
        part = dataclasses.replace(
            self,
            written=Phase(row, self.written.column, self.written.steps),
            size=None if self.size is None else (len(own), self.size[1]),
        )
        if self.code is not None:
            return part
        start = np.array([self.read.row - read.start, self.read.column, self.first]) + own.start * np.array(
            self.vectors[0]
        )
        return dataclasses.replace(part, read=Phase(int(start[0]), int(start[1]), self.read.steps), first=int(start[2]))
