"""Layers that move elements and compute nothing: arrangements, concatenations and slices."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ...golden.numerics.planes import from_planes, planes
from .boxes import MOST_PIECES, channel_runs, cost_of, pieces_of
from .geometry import WHOLE, ChannelRule, Int8, Phase, Selection, Shape, Tensor, ViewPlace, Views, Window, looked_up
from .layer import Layer

__all__ = [
    "MOST_PIECES",
    "Arrange",
    "Concat",
    "Rearrange",
    "Slice",
    "arrange",
    "crop",
    "depth_to_space",
    "nearest",
    "phases",
    "space_to_depth",
]


# Elements moved to other pixels and channels: upsampling, depth to space, crops, borders, shuffles, transposes.


@dataclass(frozen=True, eq=False)
class Rearrange(Layer):
    """Each element of the output is one of an input, or has a code of its own.

    Attributes
    ----------
    title : str
        The name of the kind.
    pieces : tuple of Selection
        Selections of elements, or of constant codes; together they are the output, each element once.
    """

    title: str
    pieces: tuple[Selection, ...]

    is_copy: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        return self.title

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        height, width, channels = tensors[self.output].shape
        given = [values[name] for name in self.inputs]
        stacks = [planes(codes) for codes in given]
        result = np.empty((channels, height, width, stacks[0].shape[3]), np.int8)
        for part in self.pieces:
            rows, columns = part.within(range(height), range(width))
            places = np.ix_(part.targets, part.written.rows(rows), part.written.columns(columns))
            if part.code is not None:
                result[places] = part.code
                continue
            row, column, channel = part.elements(rows, columns).transpose(0, 3, 1, 2)
            result[places] = looked_up(stacks[part.source][channel, row, column], part.table)
        return {self.output: from_planes(result, given[0].ndim)}

    def selections(self, tensors: Mapping[str, Tensor]) -> list[Selection]:
        return [*self.pieces]

    def _takes_all(self, part: Selection, tensors: Mapping[str, Tensor]) -> bool:
        """Return whether a piece is the whole of an input, including its last rows and columns."""
        height, width, channels = tensors[self.inputs[part.source]].shape
        rows, columns = part.within(*map(range, tensors[self.output].shape[:2]))
        is_whole = part.read == WHOLE and part.along is None and (len(rows), len(columns)) == (height, width)
        is_alike = part.spread == 1 and part.table is None and part.code is None
        return is_whole and is_alike and [*part.sources] == [*range(channels)]

    def with_selections(self, inputs: Sequence[str], selections: Sequence[Selection]) -> Rearrange:
        return dataclasses.replace(self, inputs=tuple(inputs), pieces=tuple(selections))

    def of_rows(self, rows: range, height: int) -> Rearrange | None:
        """Only whole windows can be taken apart, as each of their rows has a different source."""
        up = self.window.up[0]
        if rows.start % up or rows.stop % up:
            return None
        read = self.window.rows_read(rows, height)
        parts = [part.of_rows(rows, read) for part in self.pieces]
        pieces = tuple(part for part in parts if part is not None)
        return dataclasses.replace(self, window=self.window.of_rows(rows, height), pieces=pieces)

    def of_channels(self, channels: range, source: Tensor) -> tuple[Rearrange, range] | None:
        """Each channel is independent where no element changes its channel."""
        channels_of = {(part.first, part.target, part.channels, part.along) for part in self.pieces}
        if channels_of != {(0, 0, source.shape[2], None)}:
            return None
        pieces = tuple(dataclasses.replace(part, channels=len(channels)) for part in self.pieces)
        return dataclasses.replace(self, pieces=pieces), channels

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], ViewPlace]
    ) -> Iterator[Views]:
        """Inputs that no other layer reads may be stored in the output: there is no other pixel of theirs around
        theirs."""
        found: Views = {}
        for part in self.selections(tensors):
            name = self.inputs[part.source]
            is_alone = all(other is self for other in layers if name in other.inputs)
            if is_alone and self._takes_all(part, tensors):
                found.setdefault(name, ViewPlace(self.output).of(part.target, part.written))
        if found:
            yield found
        if len(found) > 1:
            yield from ({name: place} for name, place in found.items())


Channels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arrange(Rearrange):
    """A :class:`Rearrange` whose channels are free where elements of a piece have the same channel in every pixel."""

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Channels are free where no piece changes channels from pixel to pixel."""
        is_free = len(self.inputs) == 1 and not any(down[2] or across[2] for down, across, _ in self._vectors)
        return ChannelRule.MOVED if is_free else ChannelRule.FIXED

    @property
    def _vectors(self) -> Iterator[tuple]:
        return (part.vectors for part in self.pieces)

    @property
    def is_in_runs(self) -> bool:
        """Whether each piece has channels that are adjacent in input and output."""
        return all(part.channels == 1 or (part.spread, part.vectors[2]) == (1, (0, 0, 1)) for part in self.pieces)

    def _bundles(self) -> dict[tuple, tuple[Selection, dict[int, int]]]:
        """Merge pieces that differ in channels only; yield a piece, and the input channel for each output channel."""
        found: dict[tuple, tuple[Selection, dict[int, int]]] = {}
        for part in self.pieces:
            down, across, aside = part.vectors
            for number, target in enumerate(part.targets):
                row, column = part.read.row + number * aside[0], part.read.column + number * aside[1]
                key = row, column, down, across, part.written, part.size, part.image, part.code
                start = dataclasses.replace(part, read=part.read._replace(row=row, column=column))
                found.setdefault(key, (start, {}))[1][target] = part.first + number * aside[2]
        return found

    def order_in_runs(self, shape: Shape, outputs: Channels, inputs: Channels) -> Channels:
        """Channels are sorted by their place in the input, if that costs less."""
        places, found = np.argsort(inputs), {}
        # Constants take the places that are left.
        for start, channels in sorted(self._bundles().values(), key=lambda bundle: bundle[0].code is not None):
            by_place = None if start.code is not None else lambda target, channels=channels: places[channels[target]]
            for target in sorted(channels, key=by_place):
                found.setdefault(target)
        orders = outputs, np.array([*found])
        return min(orders, key=lambda order: cost_of(self.reordered(order, inputs).pieces, shape))

    def reordered(self, outputs: Channels, inputs: Channels) -> Arrange:
        """The pieces are split into runs of channels in the new order."""
        if self.channel_rule(None, None) is not ChannelRule.MOVED:
            return self
        places, sources, pieces = np.argsort(outputs), np.argsort(inputs), []
        for start, channels in self._bundles().values():
            # Constants are in runs where their places are.
            taken_at = {
                target: places[target] if start.code is not None else sources[channels[target]] for target in channels
            }
            moved = sorted((int(places[target]), int(place)) for target, place in taken_at.items())
            (down, across, _), is_plain = start.vectors, start.along is None
            for targets, taken in channel_runs(*np.array(moved).T):
                step = taken.step if is_plain else 1
                along = None if is_plain else (down, across, (0, 0, taken.step))
                first = taken[0] if start.code is None else 0
                new = {"first": first, "channels": len(targets), "target": targets[0], "step": step, "along": along}
                pieces.append(dataclasses.replace(start, **new, spread=targets.step))
        return dataclasses.replace(self, pieces=tuple(pieces))

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], ViewPlace]
    ) -> Iterator[Views]:
        """In addition, the output may be stored in the input, where it is a range of the input's channels."""
        yield from super().view_choices(layers, tensors, place_of)
        (part, *more), is_run = self.pieces, self.is_in_runs
        if not more and is_run and part.keeps_pixels and part.table is None and part.code is None:
            yield {self.output: ViewPlace(self.input, part.first)}


# Concatenations of channels.


@dataclass(frozen=True, eq=False)
class Concat(Layer):
    """The channels of all inputs, one input after the other.

    Attributes
    ----------
    tables : tuple of int8[256] or None
        The table of each input's codes; None where codes stay unchanged.
    """

    tables: tuple[Int8 | None, ...]

    is_copy: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        return "concatenation"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        parts = zip((values[name] for name in self.inputs), self.tables, strict=True)
        return {self.output: np.concatenate([looked_up(part, table) for part, table in parts], axis=-1)}

    @property
    def input_tables(self) -> tuple[Int8 | None, ...]:
        return self.tables

    def with_input_tables(self, inputs: Sequence[str], tables: Sequence[Int8 | None]) -> Concat:
        return dataclasses.replace(self, inputs=tuple(inputs), tables=tuple(tables))

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """The output's channels are those of the inputs."""
        return ChannelRule.JOINED

    def selections(self, tensors: Mapping[str, Tensor]) -> list[Selection]:
        sizes = [tensors[name].shape[2] for name in self.inputs]
        firsts = itertools.accumulate(sizes, initial=0)
        return [
            Selection(source, 0, size, first, table)
            for source, (size, first, table) in enumerate(zip(sizes, firsts, self.tables, strict=False))
        ]

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], ViewPlace]
    ) -> Iterator[Views]:
        """The output may be stored in a tensor in which all inputs are adjacent already; else inputs in the output."""
        parts = self.selections(tensors)
        places = [place_of(name) for name in self.inputs]
        first = places[0]
        if first.tensor != self.inputs[0] and places == [first.of(part.target) for part in parts]:
            yield {self.output: first}
        for part in parts:
            if part.table is None:
                yield {self.inputs[part.source]: ViewPlace(self.output, part.target)}


# Slices of channels.


@dataclass(frozen=True, eq=False)
class Slice(Layer):
    """The channels ``first`` to ``first + channels - 1`` of the input."""

    first: int
    channels: int

    is_copy: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        return "slice"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Some channels of its input."""
        return {self.output: values[self.input][..., self.first : self.first + self.channels]}

    def selections(self, tensors: Mapping[str, Tensor]) -> list[Selection]:
        return [Selection(0, self.first, self.channels, 0)]

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], ViewPlace]
    ) -> Iterator[Views]:
        """The output may be stored in the input. All slices of an input are tried together first, as an addition of two
        slices takes both as views or none."""
        yield {
            other.output: ViewPlace(other.input, other.first)
            for other in layers
            if isinstance(other, Slice) and other.input == self.input
        }
        yield {self.output: ViewPlace(self.input, self.first)}


# Arrangements of nearest upsampling, depth to space, space to depth and crops.


def phases(factors: tuple[int, int]) -> list[Phase]:
    """Return all phases of a map, row by row; each has every n-th row and column."""
    return [Phase(row, column, factors) for row, column in itertools.product(*map(range, factors))]


def nearest(name: str, source: str, output: str, shape: Shape, factors: tuple[int, int]) -> Rearrange:
    """Repeat every pixel of an input of ``shape``, by whole factors down and across."""
    pieces = tuple(Selection(0, 0, shape[2], 0, written=phase) for phase in phases(factors))
    return Rearrange(name, (source,), output, "nearest upsampling", pieces, window=Window((1, 1), up=factors))


def depth_to_space(
    name: str, source: str, output: str, shape: Shape, block: tuple[int, int], *, phases_first: bool
) -> Rearrange:
    """Move channels of an input of ``shape`` to pixels.

    Parameters
    ----------
    name, source, output : str
    shape : tuple of int
    block : tuple of int
        Rows and columns of the output for each row and column of the input.
    phases_first : bool
        Whether the channels of each pixel are adjacent (DCR), instead of the pixels of each channel (CRD).
    """
    found = phases(block)
    channels = shape[2] // len(found)
    pieces = tuple(
        Selection(0, number * channels, channels, 0, written=phase)
        if phases_first
        else Selection(0, number, channels, 0, step=len(found), written=phase)
        for number, phase in enumerate(found)
    )
    return Rearrange(name, (source,), output, "depth to space", pieces, window=Window((1, 1), up=block))


def space_to_depth(name: str, source: str, output: str, shape: Shape, block: tuple[int, int]) -> Rearrange:
    """Move pixels of an input of ``shape`` to channels, those of each pixel side by side."""
    pieces = tuple(
        Selection(0, 0, shape[2], number * shape[2], read=phase) for number, phase in enumerate(phases(block))
    )
    return Rearrange(name, (source,), output, "space to depth", pieces, window=Window(block, block))


def crop(name: str, source: str, output: str, shape: Shape, pads: tuple[int, int, int, int]) -> Rearrange:
    """Crop an input of ``shape`` by ``pads`` (top, left, bottom, right)."""
    window = Window((1, 1), pads=tuple(-side for side in pads))
    piece = Selection(0, 0, shape[2], 0, read=Phase(pads[0], pads[1]))
    return Rearrange(name, (source,), output, "crop", (piece,), window=window)


def arrange(
    name: str, title: str, sources: Sequence[str], output: str, shapes: Sequence[Shape], moved: npt.NDArray[np.int64]
) -> Arrange | None:
    """Create any arrangement of the elements of inputs; None where it takes too many pieces.

    Parameters
    ----------
    name, title : str
        The layer's name, and that of its kind, by default a shuffle where pixels keep their places.
    sources : sequence of str
    output : str
    shapes : sequence of tuple
        (height, width, channels) of each input.
    moved : int64[height, width, channels]
        The arrangement, see :func:`~lutterfly.host.graph.boxes.pieces_of`.
    """
    channels = _shuffled(shapes, moved)
    if channels is not None:
        runs = channel_runs(np.arange(len(channels)), channels)
        pieces = [
            Selection(0, taken[0], len(targets), targets[0], step=taken.step, spread=targets.step)
            for targets, taken in runs
        ]
        return Arrange(name, tuple(sources), output, title or "shuffle", tuple(pieces))
    pieces = pieces_of(shapes, moved)
    if pieces is None:
        return None
    window = _window(shapes, moved.shape, pieces)
    return Arrange(name, tuple(sources), output, title or "arrangement", tuple(pieces), window=window)


def _shuffled(shapes: Sequence[Shape], moved: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Return the input channel of each output channel, if there is one input and all pixels keep their places."""
    (height, width, channels), first = shapes[0], moved[0, 0]
    pixels = np.arange(height * width).reshape(height, width, 1) * channels
    is_inside = len(shapes) == 1 and moved.shape[:2] == (height, width) and first.min() >= 0 and first.max() < channels
    return first if is_inside and np.array_equal(moved, pixels + first) else None


def _window(shapes: Sequence[Shape], target: Shape, pieces: Sequence[Selection]) -> Window:
    """Return the window from which rows and columns of the output are computed: neighbours, or all where that is not
    less."""
    sizes = [max(shape[axis] for shape in shapes) for axis in range(2)]
    if any(shape[:2] != shapes[0][:2] for shape in shapes):
        found = [_Side(size, 1, 0, target[axis]) for axis, size in enumerate(sizes)]
    else:
        found = [_side(axis, size, target, pieces) for axis, size in enumerate(sizes)]
    before = [side.before for side in found]
    after = [
        (target[axis] // side.up - 1) * side.stride + side.kernel - shapes[0][axis] - side.before
        for axis, side in enumerate(found)
    ]
    kernel, stride, up = (tuple(sides) for sides in zip(*(side[:2] + side[3:] for side in found), strict=True))
    return Window(kernel, stride, pads=(*before, *after), up=up)


class _Side(NamedTuple):
    """A window along one axis."""

    kernel: int
    stride: int
    before: int
    up: int


def _side(axis: int, size: int, target: Shape, pieces: Sequence[Selection]) -> _Side:
    """Find the smallest kernel whose windows reach the sources of each row or column of the output."""
    outputs = target[axis]
    least, most = np.full(outputs, size), np.full(outputs, -1)
    for part in pieces:
        if part.code is not None:
            continue
        rows, columns = part.within(range(target[0]), range(target[1]))
        found = part.elements(rows, columns)[axis]
        others = tuple(other for other in range(3) if other != axis)
        whole = np.broadcast_to(found, (len(rows), len(columns), part.channels))
        own = [part.written.rows(rows), part.written.columns(columns)][axis]
        least[own] = np.minimum(least[own], whole.min(axis=others))
        most[own] = np.maximum(most[own], whole.max(axis=others))
    best, taken = _Side(size, 1, 0, outputs), np.flatnonzero(most >= 0)
    if not taken.size:
        return best
    for stride, up in ((1, 1), (max(size // outputs, 1), 1), (1, max(outputs // size, 1))):
        at = np.arange(outputs) // up * stride
        first, last = int((least - at)[taken].min()), int((most - at)[taken].max())
        if outputs % up == 0 and last - first + 1 < best.kernel:
            best = _Side(last - first + 1, stride, -first, up)
    return best
