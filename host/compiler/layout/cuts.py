"""Tiling of layers whose tensors are not all in the feature memory: a cut gives the sizes of the parts."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from operator import itemgetter

from ....golden.memories import LocalMemory
from ....golden.timing.latencies import run_cycles, stored_run_cycles
from ....golden.timing.overheads import OVERHEADS
from ...graph import Layer, Window
from ..lower.operations import planned_lowering
from ..network import CompileError, Network
from ..operation import Cut, Operation, Stored
from ..plan import Executed
from ..storage import Storage
from .placement import Gap, fit

# The parts of a layer, with the regions of its tensors that each of them reads and writes.


def ranges(count: int, size: int) -> list[range]:
    """Return ``range(count)`` in parts of ``size``."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


class Geometry:
    """The regions that the parts of a layer read and write, for a given :class:`Cut`; addresses are not considered.

    Parameters
    ----------
    plan : Executed
    index : int
        Index of the layer.
    cut : Cut
    partial : frozenset of str
        Tensors that are not whole in the feature memory.

    Attributes
    ----------
    rows, columns, tiles : list of range
        Ranges of the output in the parts.
    """

    def __init__(self, plan: Executed, index: int, cut: Cut, partial: frozenset[str]):
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
        # Inputs that are read together have equal distances of rows, at least the width of a window, see borders.py.
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
        """Return the region of an input under the windows of some rows, columns and tiles of the output."""
        whole = self.storages[self.layer.fetched[place]]
        if self.operation.reads_own_channels and len(self.tiles) > 1:
            channels = self.operation.channels(tiles, self.shape[2])
            # The distance of pixels is equal in all parts, which share a step list.
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
        """Return the stored rows and columns of an input that are read for a region of the output."""
        whole = self.storages[self.layer.fetched[place]]
        down, across = reached(self.layer.window_of(place), whole, rows, columns)
        if not self.reads_border:
            return _inside(down, whole.height), _inside(across, whole.width)
        return down, across

    @cached_property
    def _widest(self) -> range:
        """The tiles of the part with most channels."""
        return max(self.tiles, key=lambda tiles: len(self.operation.channels(tiles, self.shape[2])))

    def _most_bytes(self, place: int, columns: range) -> int:
        """Return the bytes of the largest part of an input with these columns of the output.

        All parts but the last have the same number of rows, borders included; without borders any but the first may be
        the largest.
        """
        part = self.source(place, self.rows[0], columns, self._widest)
        if self.reads_border:
            return part.size_bytes
        down, _ = reached(self.layer.window_of(place), part, self.rows[0], columns)
        height = self.storages[self.layer.fetched[place]].height
        return dataclasses.replace(part, height=min(len(down), height)).size_bytes

    def target(self, rows: range, columns: range, tiles: range) -> Storage:
        """Return the part of the output, without border."""
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
        """Return sources and target of a part: the whole tensor where that is in the feature memory."""
        sources = tuple(
            self.source(place, rows, columns, tiles) if name in self.partial else self.storages[name]
            for place, name in enumerate(self.layer.fetched)
        )
        output = self.layer.output
        return sources, self.target(rows, columns, tiles) if output in self.partial else self.storages[output]

    def buffers(self) -> dict[str, list[int]]:
        """Return the bytes of each buffer for each tensor that is not whole; there is one buffer for a single part,
        else two."""
        parts, sizes = len(self.rows) * len(self.columns), {}
        # The layer's order is used, as that of a set differs from run to run, and the program with it.
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
    """Return the stored rows and columns under the windows of some rows and columns of the output, borders included."""
    fold, across = whole.fold, window.reached(1, columns)
    if fold is None:
        return window.reached(0, rows), across
    first, last = rows.start * window.stride[0], (rows.stop - 1) * window.stride[0]
    below = (-(-window.kernel[0] // fold.rows) - 1) * fold.rows * window.dilation[0]
    return range(first // fold.step, (last + below) // fold.step + 1), across


def _inside(reach: range, size: int) -> range:
    """Return ``reach`` within ``range(size)``; if nothing is, an empty range at the nearer end."""
    start = min(max(reach.start, 0), reach.stop)
    return range(start, max(min(reach.stop, size), start))


#: Cycles in which neither bus nor array is busy: when the DMA changes from loads to stores, and when a command waits
#: for the other queue.
_TURN = 2 * OVERHEADS.read_latency
_COMMAND = 16


def smallest_cut(plan: Executed, index: int, partial: frozenset[str], room: int) -> Cut:
    """Return a cut with small parts for a layer.

    A part is a row of the output with all channels, in two buffers; or less of a row, if there is no more room beside
    the tensors that are whole. If there is not even room for an eighth of a row, it is a part that would fit if no
    tensor were whole: with one buffer, less of a row, or fewer channels.

    Parameters
    ----------
    plan : Executed
    index : int
        Index of the layer.
    partial : frozenset of str
        Its tensors that are not whole in the feature memory.
    room : int
        Bytes for buffers.

    Raises
    ------
    CompileError
        If not even the window of one pixel fits the memory.
    """
    layer, memory = plan.graph.layers[index], plan.config.memory.feature_bytes
    _, width, _ = plan.graph.tensors[layer.output].shape
    tiles = plan.operations[index].tiles
    for parts in (1, 2, 4, 8):
        cut = Cut(1, -(-width // parts), tiles, 2)
        if _need(plan, index, cut, partial) <= room:
            return cut
    everything = frozenset((*layer.fetched, layer.output))
    need = 0
    for block in _sizes(tiles):
        for columns, buffers in itertools.product(_sizes(width), (2, 1)):
            cut = Cut(1, columns, block, buffers)
            need = _need(plan, index, cut, everything)
            if need <= memory:
                return cut
    raise CompileError(
        f"{layer.name}: one pixel of its output and what it is computed from need {need} bytes of "
        f"feature memory, the configuration has {memory}; choose a larger --config"
    )


def _need(plan: Executed, index: int, cut: Cut, partial: frozenset[str]) -> int:
    """Return the bytes of all buffers."""
    lanes = plan.config.array.lanes
    buffers = Geometry(plan, index, cut, partial).buffers().values()
    return sum(-(-size // lanes) * lanes for sizes in buffers for size in sizes)


def exceeds_weight_memory(plan: Executed) -> bool:
    """Return whether the weights of all layers exceed their memory."""
    seen: set[bytes | Stored] = set()
    room = plan.config.memory.weight_bytes
    for operation in plan.operations:
        constant = operation.constants.get(LocalMemory.WEIGHT)
        if constant is not None and constant.image not in seen:
            seen.add(constant.image)
            room -= len(constant.image)
            # The weights of the first layers suffice for the answer.
            if room < 0:
                return True
    return False


def choose_cut(
    plan: Executed, index: int, partial: frozenset[str], gaps: list[Gap], *, streamed: bool
) -> tuple[Cut, dict[str, tuple[int, ...]], float] | None:
    """Choose the cut with which a layer takes the fewest cycles.

    Parameters
    ----------
    plan : Executed
    index : int
        Index of the layer.
    partial : frozenset of str
        Its tensors that are not whole in the feature memory.
    gaps : list of Gap
        Free address ranges for buffers.
    streamed : bool
        Whether its weights may have to be loaded in every inference.

    Returns
    -------
    cut : Cut
    buffers : dict of str to tuple of int
        Address of each buffer of each tensor in ``partial``.
    cycles : float
        Estimated cycles of the layer.
    None if nothing fits.
    """
    for cuts in _candidates(plan, index, streamed=streamed):
        fitting = []
        for cut in cuts:
            geometry = Geometry(plan, index, cut, partial)
            buffers = fit(geometry.buffers(), gaps, plan.config.array.lanes)
            if buffers is not None:
                fitting.append((cut, buffers, _estimate(plan, index, geometry, streamed=streamed)))
        if fitting:
            return min(fitting, key=lambda choice: choice[2])
    return None


def _candidates(plan: Executed, index: int, *, streamed: bool) -> Iterator[Iterator[Cut]]:
    """Yield lists of cuts that are worth a try; a list counts only if nothing of the lists before it fits."""
    height, width, _ = plan.graph.tensors[plan.graph.layers[index].output].shape
    tiles = _sizes(plan.operations[index].tiles)
    few = [-(-width // parts) for parts in (1, 2, 4, 8)]
    for buffers in (2, 1):
        # Blocks of channels load the input once for each block, but save loading the weights once for each part.
        yield (
            Cut(rows, columns, block, buffers)
            for columns in few
            for rows in _sizes(height)
            for block in (tiles if streamed else tiles[:1])
        )
        yield (Cut(rows, columns, block, buffers) for columns in _sizes(width) for rows in (1, 2) for block in tiles)


def _sizes(count: int) -> list[int]:
    """Return sizes of parts that are worth a try: equal parts of ``count``, from the whole to one."""
    few = {-(-count // parts) for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)}
    return sorted(few | {size for size in (1, 2, 3, 4, 6, 8) if size < count}, reverse=True)


def _estimate(plan: Executed, index: int, geometry: Geometry, *, streamed: bool) -> float:
    """Return the estimated cycles of a layer, with loads and stores in parallel with the array where there are two
    buffers."""
    config, cut, layer = plan.config, geometry.cut, geometry.layer
    parts, blocks = len(geometry.rows) * len(geometry.columns), len(geometry.tiles)
    beat = config.axi.data_bytes

    # Whether each block of channels reads other channels of the input.
    is_apart = geometry.operation.reads_own_channels and blocks > 1
    loading = storing = 0.0
    for name in geometry.partial - {layer.output}:
        place = layer.fetched.index(name)
        source = geometry.source(place, geometry.rows[0], geometry.columns[0], geometry.tiles[0])
        row_bytes = source.row_bytes
        if source.fold:
            row = source.fold.rows * source.width * -(-source.stored_bytes // source.fold.rows // beat)
        elif is_apart:
            row = source.width * run_cycles(config, source.stored_bytes)
        else:
            # A part whose windows lie in the border only reads nothing of the input.
            is_run = len(geometry.columns) > 1 and row_bytes
            row = max(-(-row_bytes // beat), run_cycles(config, row_bytes) if is_run else 0)
        loading += (source.top + source.height + source.bottom) * row
    if layer.output in geometry.partial:
        target = geometry.target(geometry.rows[0], geometry.columns[0], geometry.tiles[0])
        run = target.stored_bytes if blocks > 1 else target.row_bytes
        storing = target.size_bytes / run * max(stored_run_cycles(config, run), 4)
    # A part that is a whole input stays in its buffer for all blocks of channels.
    loading *= 1 if parts == 1 and not is_apart else parts * blocks
    storing *= parts * blocks
    weights = 0.0
    if streamed:
        size = sum(len(constant.image) for constant in geometry.operation.constants.values())
        stays = size / blocks <= config.memory.weight_bytes / 8
        weights = size / beat * (1 if stays else parts)
    # All parts count as large as the first, and each tile as the mean of all, as tiles may differ.
    rows, columns, every = len(geometry.rows[0]), len(geometry.columns[0]), range(geometry.operation.tiles)
    share = len(geometry.tiles[0]) / len(every)
    computing = (geometry.operation.cycles(rows, columns, every) * share + _COMMAND) * parts * blocks
    reading = (geometry.operation.steps(rows, columns, every) * share + _COMMAND) * parts * blocks
    writing = geometry.output.size_bytes / config.array.columns
    turns = parts * blocks * _TURN * bool(loading and storing)
    # Other cores are likely to use as much of a shared bus.
    bus = (loading + storing + weights) * config.cluster.sharing + turns
    if cut.buffers == 1:
        return computing + bus
    if parts == 1:
        return loading + max(computing, storing + weights, reading + storing)
    # Array and STORE share the read port of the feature memory; results and LOAD share its write port.
    cycles = max(computing, bus, reading + storing, writing + loading)
    cycles += (loading + storing) / (parts * blocks)
    # Whole rows, and all channels at once, take fewer commands.
    return cycles * (1 if len(geometry.columns) == 1 and not is_apart else 1.02)


# The first layer may begin while its input still arrives.

#: Most cycles of another command, to be decoded and to wait for its token.
COMMAND_COST = 8
MOST_GROUPS = 16


def row_groups(plan: Network, operation: Operation, input_cycles: int) -> tuple[float, tuple[int, ...]]:
    """Group the rows of the first layer, ``operation``, so that it begins while its input arrives in ``loading``
    cycles.

    Returns
    -------
    float
        Estimated time in cycles at which the layer has been computed.
    tuple of int
        Output rows of each job; each job has a LOAD, and a COMPUTE that waits for it.
    """
    first = operation.layer
    rows, width, _ = plan.graph.tensors[first.output].shape
    loading = input_cycles / rows
    computing = operation.cycles(rows, width, range(operation.tiles)) / rows
    # Results are written first, those of a window in a cycle; while the layer computes, the LOAD has the cycles that
    # they leave. Where the layer waits for the LOAD, both take as many cycles as both write.
    written = operation.tiles * -(-width // operation.pixels)
    loading_beside = min(loading * computing / max(computing - written, 1), loading + written)

    def cost(groups: tuple[int, ...]) -> float:
        """Return the time at which the last of ``groups`` has been computed."""
        loaded = computed = 0.0
        for count in groups:
            loaded += count * (loading_beside if loaded else loading)
            computed = max(loaded, computed) + count * computing
        return computed + COMMAND_COST * len(groups)

    candidates: list[tuple[int, ...]] = [(rows,)]
    if planned_lowering(plan, first).is_tile_inner and first.input in plan.graph.inputs:
        candidates = [groups for groups in _groupings(rows) if len(groups) <= MOST_GROUPS]
    return min(((cost(groups), groups) for groups in candidates), key=itemgetter(0))


@functools.cache
def _groupings(rows: int) -> tuple[tuple[int, ...], ...]:
    """Return ways to group output rows: in equal parts, and growing from a small first group."""
    ways: list[tuple[int, ...]] = [(rows,)]
    for size in sorted({1, 2} | {math.ceil(rows / parts) for parts in range(2, MOST_GROUPS + 1)}):
        ways.append(_groups(rows, itertools.repeat(size)))
        for growth in (1.25, 1.5, 2.0):
            ways.append(_groups(rows, (max(size, int(size * growth**n)) for n in itertools.count())))
    return tuple(ways)


def _groups(rows: int, sizes: Iterable[int]) -> tuple[int, ...]:
    groups: list[int] = []
    for size in sizes:
        if size >= rows:
            return (*groups, rows)
        groups.append(size)
        rows -= size
    raise AssertionError("sizes never end")
