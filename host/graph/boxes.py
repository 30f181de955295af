"""Decompose any arrangement of elements into a few boxes, each of which one command copies."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .geometry import Phase, Selection, Shape, Vector

# Runs of channels that are copied together, and an estimate of the cost of copies.

Channels = npt.NDArray[np.int64]

#: Distances between the channels of a run in the output that are tried.
SPREADS = (1, 2, 3, 4, 8)
#: An estimate for choices: the cycles of a command beside its steps, and the bytes that a step copies.
COMMAND, _BYTES = 30, 8


def channel_runs(targets: Channels, sources: Channels) -> list[tuple[range, range]]:
    """Group channels into the runs, equally spaced in input and output, that are copied in the fewest steps.

    Parameters
    ----------
    targets : int64[channels]
        Channels of the output, ascending.
    sources : int64[channels]
        The channel of the input for each of them.

    Returns
    -------
    list of (range, range)
        Channels of the output, and those of the input, which may be one for all.
    """
    ways = [[*_runs(targets, sources, spread)] for spread in SPREADS]
    return min(ways, key=lambda runs: sum(_cost(*run) for run in runs))


def cost_of(pieces: Sequence[Selection], shape: Shape) -> int:
    """Estimate the cycles that pieces take, for an output of a shape."""
    cost = 0
    for part in pieces:
        rows, columns = part.within(range(shape[0]), range(shape[1]))
        is_run = part.channels == 1 or (part.spread, part.vectors[2]) == (1, (0, 0, 1))
        cost += COMMAND + len(rows) * len(columns) * words(part.channels, is_run=is_run)
    return cost


def words(channels: int, *, is_run: bool) -> int:
    """Return the steps for a pixel: channels that are adjacent in input and output are copied together."""
    return -(-channels // _BYTES) if is_run else channels


def _cost(targets: range, sources: range) -> int:
    is_run = targets.step == 1 and (sources.step == 1 or len(targets) == 1)
    return COMMAND + words(len(targets), is_run=is_run)


def _runs(targets: Channels, sources: Channels, spread: int) -> Iterator[tuple[range, range]]:
    for first in range(spread):
        own = targets % spread == first
        places, taken = targets[own].tolist(), sources[own].tolist()
        start = 0
        while start < len(places):
            step = taken[start + 1] - taken[start] if start + 1 < len(taken) else 1
            end = start + 1
            while end < len(places) and step > 0 and _follow(places, taken, end) == (spread, step):
                end += 1
            count = end - start
            step = step if count > 1 else 1
            yield (
                range(places[start], places[start] + spread * count, spread),
                range(taken[start], taken[start] + step * count, step),
            )
            start = end


def _follow(places: list[int], taken: list[int], at: int) -> tuple[int, int]:
    return places[at] - places[at - 1], taken[at] - taken[at - 1]


Keys = npt.NDArray[np.int64]
Free = npt.NDArray[np.bool_]

#: The most pieces of an arrangement, each of which is a command.
MOST_PIECES = 512
#: Distances in rows, columns and channels between the elements of a piece in the output that are tried.
_STEPS = ((1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4, 5, 6, 7, 8), SPREADS)
#: The most phases of the output, in rows, columns and channels, that are tried.
_MOST_PHASES = 64


def pieces_of(shapes: Sequence[Shape], moved: npt.NDArray[np.int64]) -> list[Selection] | None:
    """Find selections that together are an arrangement; None where there would be more than :data:`MOST_PIECES`.

    Parameters
    ----------
    shapes : sequence of tuple
        (height, width, channels) of each input.
    moved : int64[height, width, channels]
        For each element of the output, the input element, counted from the first of the first input to the last of the
        last one. A number below 0 stands for the code -129 - ``moved``, so -1 for the code -128.
    """
    radix = _Radix(shapes)
    every = np.concatenate([radix.keys(at).reshape(-1) for at in range(len(shapes))])
    keys = np.where(moved < 0, radix.constant(-129 - moved), every[np.maximum(moved, 0)])
    wholes, free = [*_wholes(radix, keys)], np.ones(keys.shape, bool)
    for box in wholes:
        (down, across), channels = box.size, box.channels
        free[box.row : box.row + down, box.column : box.column + across, box.target : box.target + channels] = False
    boxes = _best(keys, free, MOST_PIECES, radix.source)
    return None if boxes is None else [radix.selection(box) for box in wholes + boxes]


@dataclasses.dataclass(frozen=True)
class _Box:
    """A box of elements of the output, and the distances of their keys."""

    key: int
    row: int
    column: int
    target: int
    steps: tuple[int, int]
    spread: int
    size: tuple[int, int]
    channels: int
    differences: tuple[int, int, int]

    def cost(self) -> int:
        """Estimate the cycles that it takes."""
        is_run = self.spread == 1 and self.differences[2] in (0, 1)
        return COMMAND + self.size[0] * self.size[1] * words(self.channels, is_run=is_run)


class _Radix:
    """Keys of elements: numbers whose differences give the distance in rows, columns and channels."""

    def __init__(self, shapes: Sequence[Shape]):
        height, width, channels = (2 * max(sizes) for sizes in zip(*shapes, strict=True))
        self.shapes = shapes
        self.row, self.column = width * channels, channels
        self.source = height * self.row

    def keys(self, source: int) -> Keys:
        """Return the keys of an input, int64[height, width, channels]."""
        row, column, channel = np.ogrid[tuple(map(slice, self.shapes[source]))]
        return source * self.source + row * self.row + column * self.column + channel

    def constant(self, codes: Keys) -> Keys:
        """Return keys of constant codes, as if each was an input of its own."""
        return (len(self.shapes) + codes + 128) * self.source

    def selection(self, box: _Box) -> Selection:
        """Convert a box to a selection."""
        source, rest = divmod(box.key, self.source)
        written = Phase(box.row, box.column, box.steps)
        if source >= len(self.shapes):
            code = source - len(self.shapes) - 128
            return Selection(
                0, 0, box.channels, box.target, written=written, size=box.size, spread=box.spread, code=code
            )
        row, rest = divmod(rest, self.row)
        column, channel = divmod(rest, self.column)
        counts = (*box.size, box.channels)
        plain = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
        vectors = tuple(
            self.vector(difference) if count > 1 else own
            for difference, count, own in zip(box.differences, counts, plain, strict=True)
        )
        (down, a, b), (c, across, d), (e, f, step) = vectors
        is_apart = (a, b, c, d, e, f) == (0,) * 6 and min(down, across, step) > 0
        return Selection(
            source,
            channel,
            box.channels,
            box.target,
            step=step if is_apart else 1,
            read=Phase(row, column, (down, across) if is_apart else (1, 1)),
            written=written,
            size=box.size,
            spread=box.spread,
            along=None if is_apart else vectors,
        )

    def vector(self, difference: int) -> Vector:
        """Split a difference into rows, columns and channels, each of which may be negative."""
        row, rest = _nearest(difference, self.row)
        column, channel = _nearest(rest, self.column)
        return row, column, channel


def _nearest(number: int, unit: int) -> tuple[int, int]:
    """Divide a number by a unit, to the nearest; return quotient and rest."""
    count = (2 * number + unit) // (2 * unit)
    return count, number - count * unit


def _wholes(radix: _Radix, keys: Keys) -> Iterator[_Box]:
    """Find inputs that are in the output as a whole: each may be stored there, see :meth:`Rearrange.view_choices`."""
    for source, (height, width, channels) in enumerate(radix.shapes):
        own = radix.keys(source)
        for row, column, target in np.argwhere(keys == own[0, 0, 0]).tolist():
            there = keys[row : row + height, column : column + width, target : target + channels]
            if np.array_equal(there, own):
                size = height, width
                yield _Box(
                    int(own[0, 0, 0]), row, column, target, (1, 1), 1, size, channels, (radix.row, radix.column, 1)
                )
                break


def _best(keys: Keys, free: Free, most: int, source: int) -> list[_Box] | None:
    """Find the cheapest boxes of free elements with equally spaced rows, columns and channels.

    None where there are always more than ``most``; ``source`` is the key distance from one input to the next.
    """
    found, least = None, np.iinfo(np.int64).max
    steps = ([step for step in tried if size % step == 0] for size, tried in zip(keys.shape, _STEPS, strict=True))
    for down, across, spread in sorted(itertools.product(*steps), key=np.prod):
        phases = down * across * spread
        if phases > _MOST_PHASES or COMMAND * phases >= least:
            break
        boxes, cost = _boxes(keys, free, (down, across), spread, least=least, most=most, source=source)
        if boxes is not None:
            found, least = boxes, cost
    return found


def _boxes(
    keys: Keys, free: Free, steps: tuple[int, int], spread: int, *, least: int, most: int, source: int
) -> tuple[list[_Box] | None, int]:
    """Return the boxes of all phases; none where they cost as much as ``least`` or are more than ``most``."""
    found: list[_Box] = []
    cost = 0
    for row, column, target in itertools.product(range(steps[0]), range(steps[1]), range(spread)):
        phase = np.s_[row :: steps[0], column :: steps[1], target::spread]
        for box in _dense(keys[phase], free[phase].copy(), source):
            i, j, k = box.row, box.column, box.target
            at = {"row": row + i * steps[0], "column": column + j * steps[1], "target": target + k * spread}
            found.append(dataclasses.replace(box, **at, steps=steps, spread=spread))
            cost += found[-1].cost()
            if cost >= least or len(found) > most:
                return None, cost
    return found, cost


def _dense(keys: Keys, free: Free, source: int) -> Iterator[_Box]:
    """Return boxes of free neighbours, each as large as possible from the first element on that is in none."""
    _, width, channels = keys.shape
    flat, at = free.reshape(-1), 0
    while True:
        at += int(np.argmax(flat[at:]))
        if not flat[at]:
            return
        row, rest = divmod(at, width * channels)
        column, channel = divmod(rest, channels)
        line = keys[row, column, channel:]
        count, inner = _run(line[:, None, None], free[row, column, channel:][:, None, None], source)
        part = slice(channel, channel + count)
        across, middle = _run(keys[row, column:, part][:, None], free[row, column:, part][:, None], source)
        columns = slice(column, column + across)
        down, outer = _run(keys[row:, columns, part], free[row:, columns, part], source)
        free[row : row + down, columns, part] = False
        yield _Box(
            int(keys[row, column, channel]),
            row,
            column,
            channel,
            (1, 1),
            1,
            (down, across),
            count,
            (outer, middle, inner),
        )


def _run(blocks: Keys, free: Free, source: int) -> tuple[int, int]:
    """Return how many blocks from the first on are equally spaced in all their elements, and their distance."""
    if len(blocks) == 1 or not free[1].all():
        return 1, 0
    difference = int(blocks[1].flat[0] - blocks[0].flat[0])
    if 2 * abs(difference) >= source:
        return 1, 0
    # A few are compared at first: where runs are short, most of the blocks need no comparison.
    for size in (2, 8, len(blocks)):
        steps = np.arange(min(size, len(blocks)))[:, None, None] * difference
        same = ((blocks[: len(steps)] == blocks[0] + steps) & free[: len(steps)]).all(axis=(1, 2))
        if not same.all():
            count = int(np.argmin(same))
            return count, difference if count > 1 else 0
    return len(blocks), difference
