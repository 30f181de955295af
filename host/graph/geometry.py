"""Tensors of int8 codes in NHWC order, windows, phases, channel rules, and the epilogue of codes."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...golden.elements import CODE_BITS, run_bytes, tensor_bytes
from ...golden.transfer.tables import apply_table

Int8 = npt.NDArray[np.int8]

#: Height, width and channels.
Shape = tuple[int, int, int]


def own_name(wanted: str, *taken: Container[str]) -> str:
    """Return a name not in ``taken`` for a tensor that the model does not have, as names in a file may be any."""
    while any(wanted in names for names in taken):
        wanted += "'"
    return wanted


@dataclass(frozen=True)
class View:
    """An ONNX tensor that holds the same codes as a tensor of the graph.

    ``onnx = codes[height, width, channels].transpose(axes).reshape(shape)``, plus 128 as uint8 if ``unsigned``. Before,
    the codes are looked up in ``table`` int8[256] if there is one, and with ``pads`` (top, left, bottom, right) they
    get a border of the code ``border``. With an ``order``, they are ``codes.reshape(-1)[order]``, without
    transposing.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, int, int]
    unsigned: bool
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    border: int = 0
    table: Int8 | None = field(default=None, compare=False, repr=False)
    order: npt.NDArray[np.int64] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Tensor:
    """A quantised feature map.

    Attributes
    ----------
    name : str
        Unique in the graph: the name of the first ONNX tensor that it is.
    shape : tuple of int
        (height, width, channels).
    scale : float
        Scale of the ONNX tensor.
    zero_point : int
        The zero point as an int8 code.
    views : tuple of View
        The integer tensors of the ONNX file with the same codes; the first one gives it its name.
    bits : int
        Bits of an element: 8, or 1 for +1 and -1.
    order : tuple of int
        The channel of the model's tensor for each channel; empty where all are in the model's order.
    """

    name: str
    shape: tuple[int, int, int]
    scale: float
    zero_point: int
    views: tuple[View, ...]
    bits: int = CODE_BITS
    order: tuple[int, ...] = ()

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel, which begins at a byte and has adjacent channels."""
        return run_bytes(self.shape[2], self.bits)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of adjacent pixels."""
        return self.shape[1] * self.pixel_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor with adjacent rows, as in external memory."""
        return tensor_bytes(self.shape, self.bits)


# Elements of ONNX tensors, and the int8 codes that stand for them.


def from_codes(codes: Int8, dtype: np.dtype) -> np.ndarray:
    """Convert int8 ``codes`` to the int8 or uint8 elements that they stand for."""
    return codes if dtype == np.int8 else codes.view(np.uint8) ^ np.uint8(128)


def to_codes(array: np.ndarray) -> Int8:
    """Convert int8 or uint8 elements to int8 codes."""
    return array if array.dtype == np.int8 else (array ^ np.uint8(128)).view(np.int8)


# Windows: the input pixels that a layer reads for each output pixel.


@dataclass(frozen=True, slots=True)
class Reach:
    """Pixels by which windows reach beyond a map on each side."""

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
        """Describe the kernel, and stride and dilation where they are not 1."""
        found = "x".join(map(str, self.kernel))
        if self.stride != (1, 1):
            found += " stride " + "x".join(map(str, self.stride))
        if self.dilation != (1, 1):
            found += " dilation " + "x".join(map(str, self.dilation))
        return found

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of the result for an input of ``height`` x ``width``."""
        top, left, bottom, right = self.pads
        (eh, ew), (sh, sw) = self.extent, self.stride
        rows, columns = (height + top + bottom - eh) // sh + 1, (width + left + right - ew) // sw + 1
        return rows * self.up[0], columns * self.up[1]

    def reach(self, height: int, width: int) -> Reach:
        """Return how far windows reach beyond an input of ``height`` x ``width``; unused padding does not count."""
        rows, columns = self.output_size(height, width)
        top, left, _, _ = self.pads
        bottom = self.reached(0, range(rows)).stop - height
        right = self.reached(1, range(columns)).stop - width
        return Reach(top, left, max(bottom, 0), max(right, 0))

    def rows_read(self, rows: range, height: int) -> range:
        """Return the rows of an input of ``height`` that some rows of the result read; none where these are in the
        padding."""
        reach = self.reached(0, rows)
        first = max(reach.start, 0)
        return range(first, max(min(reach.stop, height), first))

    def of_rows(self, rows: range, height: int) -> Window:
        """Return the windows of some rows of the result, for an input that is only :meth:`rows_read`."""
        reach, read, (_, left, _, right) = self.reached(0, rows), self.rows_read(rows, height), self.pads
        return dataclasses.replace(self, pads=(read.start - reach.start, left, reach.stop - read.stop, right))

    def reached(self, axis: int, outputs: range) -> range:
        """Return the range of rows or columns that some of the result read, padding included."""
        ends = outputs.start, outputs.stop - 1
        first, last = (end // self.up[axis] * self.stride[axis] - self.pads[axis] for end in ends)
        return range(first, last + self.extent[axis])

    def inside(self, axis: int, size: int, output: int) -> range:
        """Return the kernel elements along an axis that are in an input of ``size``, for one row or column of the
        result."""
        start, dilation = output // self.up[axis] * self.stride[axis] - self.pads[axis], self.dilation[axis]
        first = max(-(start // dilation), 0)
        end = min(-((start - size) // dilation), self.kernel[axis])
        return range(first, end) if first < end else range(0)

    def counts(self, height: int, width: int) -> npt.NDArray[np.int64]:
        """Count the elements of each window that are in an input of ``height`` x ``width``: int64[rows, columns]."""
        down, across = (
            [len(self.inside(axis, size, output)) for output in range(outputs)]
            for axis, (size, outputs) in enumerate(zip((height, width), self.output_size(height, width), strict=True))
        )
        return np.outer(down, across)


#: The window of layers that read one pixel for each pixel.
ONE_PIXEL = Window((1, 1))


# Phases: every n-th row and column of a map.


class Phase(NamedTuple):
    """The rows and columns of a map at a fixed distance, from a first one on.

    Attributes
    ----------
    row, column : int
        The first row and column.
    steps : tuple of int
        Distance in rows and columns of the map from one to the next.
    """

    row: int = 0
    column: int = 0
    steps: tuple[int, int] = (1, 1)

    def of(self, inner: Phase) -> Phase:
        """Return a phase of this phase as a phase of the map."""
        down, across = self.steps
        steps = down * inner.steps[0], across * inner.steps[1]
        return Phase(self.row + down * inner.row, self.column + across * inner.column, steps)

    def within(self, rows: range, columns: range) -> tuple[range, range]:
        """Return the rows and columns of the phase that are in a part of the map, counted in the phase."""
        starts, inside = (self.row, self.column), (rows, columns)
        return tuple(
            range(max(-((first - part.start) // step), 0), max(-((first - part.stop) // step), 0))
            for first, step, part in zip(starts, self.steps, inside, strict=True)
        )

    def rows(self, own: range) -> range:
        """Return the rows of the map for rows of the phase."""
        return _spread(own, self.row, self.steps[0])

    def columns(self, own: range) -> range:
        """Return the columns of the map for columns of the phase."""
        return _spread(own, self.column, self.steps[1])


def _spread(own: range, first: int, step: int) -> range:
    return range(first + own.start * step, first + own.stop * step, step)


#: All rows and columns.
WHOLE = Phase()


# Dependencies of a layer's channels on those of its inputs, and the elements that copies select.


class ViewPlace(NamedTuple):
    """The place of a tensor in another one.

    Attributes
    ----------
    tensor : str
        The other one.
    channel, row : int
        The first channel and row of the other one.
    column : int
        The first column of the other one.
    steps : tuple of int
        Rows and columns of the other one from one of its own to the next.
    """

    tensor: str
    channel: int = 0
    row: int = 0
    column: int = 0
    steps: tuple[int, int] = (1, 1)

    @property
    def phase(self) -> Phase:
        """The phase of the other one."""
        return Phase(self.row, self.column, self.steps)

    def of(self, channel: int, phase: Phase = WHOLE) -> ViewPlace:
        """Return the place of a phase of the tensor, from a channel on."""
        own = self.phase.of(phase)
        return ViewPlace(self.tensor, self.channel + channel, own.row, own.column, own.steps)


#: int64[channels]: the channel at each place.
Order = npt.NDArray[np.int64]

#: Places of tensors in others.
Views = dict[str, ViewPlace]

#: Rows, columns and channels from one element to another.
Vector = tuple[int, int, int]


class ChannelRule(enum.Enum):
    """Rules by which the order of a layer's output channels depends on that of its input channels."""

    #: Both are free: every output depends on all inputs, with weights that can move, see :meth:`Layer.reordered`.
    FREE = enum.auto()
    #: Each output depends on the same channel of every input: where these move, it moves.
    TIED = enum.auto()
    #: The outputs are the channels of all inputs, one input after the other.
    JOINED = enum.auto()
    #: Both are free: each output is a copy of any input.
    MOVED = enum.auto()
    #: Neither may move.
    FIXED = enum.auto()


@dataclass(frozen=True, eq=False)
class Selection:
    """Elements of an input that become elements of the output: a box of rows, columns and channels.

    Attributes
    ----------
    source : int
        The index of the layer's input.
    first, channels : int
        The first channel of the input, and the number of channels.
    target : int
        First channel of the output.
    table : int8[256] or None
        The table for the codes.
    step : int
        Distance of the channels in the input.
    read, written : Phase
        The rows and columns of the input that are read, and those of the output that are written.
    size : tuple of int or None
        The number of rows and columns; None for those of the output.
    spread : int
        Distance of the channels in the output.
    along : tuple of Vector or None
        Distances in the input to the next row, column and channel of the output, where they are not the steps of
        ``read`` and ``step``, because elements change their axes.
    code : int or None
        The code of all elements, where they are constant.
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
        """The table's image in its memory; empty where there is none."""
        return b"" if self.table is None else self.table.tobytes()

    @property
    def vectors(self) -> tuple[Vector, Vector, Vector]:
        """Distances in the input to the next row, column and channel of the output."""
        (down, across), step = self.read.steps, self.step
        return self.along or ((down, 0, 0), (0, across, 0), (0, 0, step))

    @property
    def keeps_pixels(self) -> bool:
        """Whether every pixel of the output comes from the same pixel of the input."""
        return self.along is None and self.read == self.written == WHOLE and self.size is None

    def within(self, rows: range, columns: range) -> tuple[range, range]:
        """Return the rows and columns of the selection that are in a part of the output, from its first ones on."""
        found = self.written.within(rows, columns)
        if self.size is None:
            return found
        return tuple(
            range(min(part.start, size), min(part.stop, size)) for part, size in zip(found, self.size, strict=True)
        )

    def elements(self, rows: range, columns: range) -> npt.NDArray[np.int64]:
        """Return the elements of the input for rows and columns of the selection, for all channels.

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
        """Return the part in some rows of the output, from some rows of the input; None where there is none."""
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


# The epilogue of a layer's codes: a clamp and a table, or signs.


@dataclass(frozen=True, eq=False)
class CodeEpilogue:
    """The epilogue of codes. (:class:`~lutterfly.golden.numerics.fpc.FpcEpilogue` converts values to codes.)

    Attributes
    ----------
    low, high : int
        The clamp of a requantised code, after the zero point (fused Relu or Clip).
    table : int8[256] or None
        The table of the clamped code, indexed by the code plus 128.
    inner : str
        Name of the graph's tensor between clamp and table, or signs; empty where there is neither.
    """

    low: int = -128
    high: int = 127
    table: Int8 | None = None
    inner: str = ""

    def after(self, inner: str, table: Int8 | None) -> CodeEpilogue:
        """Return the epilogue with a table, or none, after the tensor ``inner``."""
        return dataclasses.replace(self, table=composed(self.table, table), inner=self.inner or inner)


def composed(first: Int8 | None, second: Int8 | None) -> Int8 | None:
    """Compose a table with another one after it; None where there is neither."""
    return second if first is None else looked_up(first, second)


def looked_up(codes: Int8, table: Int8 | None) -> Int8:
    """Look codes up in a table; return them where there is none."""
    return codes if table is None else apply_table(codes, table)
