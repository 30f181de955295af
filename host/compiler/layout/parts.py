"""Parts: the pieces in which a layer is executed, and what of its tensors each of them reads and writes."""

from __future__ import annotations

import dataclasses
from functools import cached_property

from ...graph import Layer, Window
from ..data.job import Cut
from ..data.plan import Plan
from ..data.storage import Storage
from ..lower.operations import planned_lowering


def ranges(count: int, size: int) -> list[range]:
    """``range(count)`` in parts of ``size``."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


class Geometry:
    """What the parts of a layer read and write, for a given :class:`Cut`. Addresses are not considered.

    Parameters
    ----------
    plan : Plan
        With a layout for every tensor.
    index : int
        Of the layer.
    cut : Cut
    partial : frozenset of str
        Which tensors are not whole in the feature memory.

    Attributes
    ----------
    rows, columns, tiles : list of range
        Of the output, in the parts.
    """

    def __init__(self, plan: Plan, index: int, cut: Cut, partial: frozenset[str]):
        self.layer: Layer = plan.graph.layers[index]
        self.output = plan.graph.tensors[self.layer.output]
        self.shape = self.output.shape
        self.storages = plan.storages
        self.operation = plan.operations[index]
        self.reads_border = planned_lowering(plan, self.layer).reads_border
        self.cut = cut
        self.partial = partial
        self.rows = ranges(self.shape[0], cut.rows)
        self.columns = ranges(self.shape[1], cut.columns)
        self.tiles = ranges(self.operation.tiles, cut.tiles)
        # Inputs that are read together have their rows equally far apart, and no window is wider than that, see
        # borders.py.
        self.pitch = self.layer.window.extent[1]
        for place, name in enumerate(self.layer.fetched):
            whole = self.storages[name]
            if name not in partial:
                self.pitch = max(self.pitch, whole.width + whole.gap)
                continue
            for columns in self.columns:
                _, across = self._read(place, range(1), columns)
                width, inside = len(across), _inside(across, whole.width)
                self.pitch = max(self.pitch, width - min(inside.start - across.start, across.stop - inside.stop))

    def source(self, place: int, rows: range, columns: range, tiles: range) -> Storage:
        """What of an input the windows of some rows and columns of some tiles of the output read."""
        whole = self.storages[self.layer.fetched[place]]
        if self.operation.reads_own_channels and len(self.tiles) > 1:
            channels = self.operation.channels(tiles, self.shape[2])
            # Pixels lie equally far apart in all parts: there is one step list.
            pitch = whole.channel_offset(len(self.operation.channels(self._widest, self.shape[2])))
            whole = dataclasses.replace(whole, channel=channels.start, channels=len(channels), pixel_bytes=pitch)
        down, across = self._read(place, rows, columns)
        inside_rows, inside_columns = _inside(down, whole.height), _inside(across, whole.width)
        return dataclasses.replace(
            whole,
            row=inside_rows.start,
            height=len(inside_rows),
            top=inside_rows.start - down.start,
            bottom=down.stop - inside_rows.stop,
            column=inside_columns.start,
            width=len(inside_columns),
            left=inside_columns.start - across.start,
            right=across.stop - inside_columns.stop,
            gap=self.pitch - len(inside_columns),
        )

    def _read(self, place: int, rows: range, columns: range) -> tuple[range, range]:
        """Stored rows and columns of an input that are read for some of the output."""
        whole = self.storages[self.layer.fetched[place]]
        down, across = reached(self.layer.window_of(place), whole, rows, columns)
        if not self.reads_border:
            return _inside(down, whole.height), _inside(across, whole.width)
        return down, across

    @cached_property
    def _widest(self) -> range:
        """The tiles of the part that has most channels."""
        return max(self.tiles, key=lambda tiles: len(self.operation.channels(tiles, self.shape[2])))

    def _most_bytes(self, place: int, columns: range) -> int:
        """Bytes of the largest part of an input with these columns of the output.

        All parts but the last have as many rows, borders included; without them, any but the first may have as many.
        """
        part = self.source(place, self.rows[0], columns, self._widest)
        if self.reads_border:
            return part.size_bytes
        down, _ = reached(self.layer.window_of(place), part, self.rows[0], columns)
        height = self.storages[self.layer.fetched[place]].height
        return dataclasses.replace(part, height=min(len(down), height)).size_bytes

    def target(self, rows: range, columns: range, tiles: range) -> Storage:
        """The part of the output, without border."""
        channels = self.operation.channels(tiles, self.shape[2])
        return Storage(
            len(rows),
            len(columns),
            len(channels),
            row=rows.start,
            column=columns.start,
            channel=channels.start,
            bits=self.output.bits,
        )

    def storages_of(self, rows: range, columns: range, tiles: range) -> tuple[tuple[Storage, ...], Storage]:
        """Sources and target of a part: the whole tensor where that is in the feature memory."""
        sources = tuple(
            self.source(place, rows, columns, tiles) if name in self.partial else self.storages[name]
            for place, name in enumerate(self.layer.fetched)
        )
        output = self.layer.output
        return sources, self.target(rows, columns, tiles) if output in self.partial else self.storages[output]

    def buffers(self) -> dict[str, list[int]]:
        """Bytes of each buffer for each tensor that is not whole: one, if there is but one part."""
        parts, sizes = len(self.rows) * len(self.columns), {}
        # In the layer's order: that of a set differs from run to run, and with it would the program.
        for place, name in enumerate((*self.layer.fetched, self.layer.output)):
            if name not in self.partial or name in sizes:
                continue
            if name == self.layer.output:
                size, count = self.target(self.rows[0], self.columns[0], self._widest).size_bytes, len(self.tiles)
            else:
                size, count = max(self._most_bytes(place, columns) for columns in self.columns), 1
            sizes[name] = [size] * min(self.cut.buffers, parts * count)
        return sizes


def reached(window: Window, whole: Storage, rows: range, columns: range) -> tuple[range, range]:
    """Stored rows and columns that the windows of some rows and columns of the output reach, borders included."""
    fold, across = whole.fold, window.reached(1, columns)
    if fold is None:
        return window.reached(0, rows), across
    first, last = rows.start * window.stride[0], (rows.stop - 1) * window.stride[0]
    below = (-(-window.kernel[0] // fold.rows) - 1) * fold.rows * window.dilation[0]
    return range(first // fold.step, (last + below) // fold.step + 1), across


def _inside(reach: range, size: int) -> range:
    """What of ``reach`` lies within ``range(size)``; where nothing does, an empty range at the nearer end."""
    start = min(max(reach.start, 0), reach.stop)
    return range(start, max(min(reach.stop, size), start))
