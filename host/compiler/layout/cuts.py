"""Cuts: choose the parts in which a layer is executed whose tensors are not all in the feature memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ....golden.memories import LocalMemory
from ....golden.timing.latencies import run_cycles, stored_run_cycles
from ....golden.timing.overheads import OVERHEADS
from ..data.constant import Stored
from ..data.errors import CompileError
from ..data.job import Cut
from ..data.plan import Plan
from .parts import Geometry
from .placement import Gap, fit

#: Cycles in which neither bus nor array moves anything: where the DMA turns from loading to storing, and where a
#: command waits for the other queue.
_TURN = 2 * OVERHEADS.read_latency
_COMMAND = 16


def smallest_cut(plan: Plan, index: int, partial: frozenset[str], room: int) -> Cut:
    """Small parts for a layer.

    A row of the output with all channels and two buffers. Less of a row, if no more has room beside the tensors that
    are whole. If not even an eighth of it has, what would fit if no tensor was whole: with one buffer, or less of a
    row, or less than all channels.

    Parameters
    ----------
    plan : Plan
    index : int
        Of the layer.
    partial : frozenset of str
        Which of its tensors are not whole in the feature memory.
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


def _need(plan: Plan, index: int, cut: Cut, partial: frozenset[str]) -> int:
    """Bytes of all buffers."""
    lanes = plan.config.array.lanes
    buffers = Geometry(plan, index, cut, partial).buffers().values()
    return sum(-(-size // lanes) * lanes for sizes in buffers for size in sizes)


def exceeds_weight_memory(plan: Plan) -> bool:
    """Whether the weights of all layers are more than their memory holds."""
    seen: set[bytes | Stored] = set()
    room = plan.config.memory.weight_bytes
    for operation in plan.operations:
        constant = operation.constants.get(LocalMemory.WEIGHT)
        if constant is not None and constant.image not in seen:
            seen.add(constant.image)
            room -= len(constant.image)
            # Those of the first layers say it already.
            if room < 0:
                return True
    return False


def choose_cut(
    plan: Plan, index: int, partial: frozenset[str], gaps: list[Gap], *, streamed: bool
) -> tuple[Cut, dict[str, tuple[int, ...]], float] | None:
    """The cut with which a layer takes the fewest cycles.

    Parameters
    ----------
    plan : Plan
    index : int
        Of the layer.
    partial : frozenset of str
        Which of its tensors are not whole in the feature memory.
    gaps : list of Gap
        Where buffers may lie.
    streamed : bool
        Whether its weights may have to be loaded in every inference.

    Returns
    -------
    cut : Cut
    buffers : dict of str to tuple of int
        Address of each buffer of each tensor in ``partial``.
    cycles : float
        An estimate.
    None where nothing fits.
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


def _candidates(plan: Plan, index: int, *, streamed: bool) -> Iterator[Iterator[Cut]]:
    """Cuts worth a try, the ones that promise more first: the others only count where none of these fits."""
    height, width, _ = plan.graph.tensors[plan.graph.layers[index].output].shape
    tiles = _sizes(plan.operations[index].tiles)
    few = [-(-width // parts) for parts in (1, 2, 4, 8)]
    for buffers in (2, 1):
        # Blocks of channels load the input again for each; they save loading weights again for each part.
        yield (
            Cut(rows, columns, block, buffers)
            for columns in few
            for rows in _sizes(height)
            for block in (tiles if streamed else tiles[:1])
        )
        yield (Cut(rows, columns, block, buffers) for columns in _sizes(width) for rows in (1, 2) for block in tiles)


def _sizes(count: int) -> list[int]:
    """Sizes of parts worth a try: equal parts of ``count``, from the whole to one."""
    few = {-(-count // parts) for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)}
    return sorted(few | {size for size in (1, 2, 3, 4, 6, 8) if size < count}, reverse=True)


def _estimate(plan: Plan, index: int, geometry: Geometry, *, streamed: bool) -> float:
    """Cycles of a layer, with loads and stores beside the array as far as there are two buffers."""
    config, cut, layer = plan.config, geometry.cut, geometry.layer
    parts, blocks = len(geometry.rows) * len(geometry.columns), len(geometry.tiles)
    beat = config.axi.data_bytes

    # Whether each block of channels has its own of the input.
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
            # A part that lies in the border only has none of the input.
            is_run = len(geometry.columns) > 1 and row_bytes
            row = max(-(-row_bytes // beat), run_cycles(config, row_bytes) if is_run else 0)
        loading += (source.top + source.height + source.bottom) * row
    if layer.output in geometry.partial:
        target = geometry.target(geometry.rows[0], geometry.columns[0], geometry.tiles[0])
        run = target.stored_bytes if blocks > 1 else target.row_bytes
        storing = target.size_bytes / run * max(stored_run_cycles(config, run), 4)
    # A part that is all of an input stays for all blocks of channels.
    loading *= 1 if parts == 1 and not is_apart else parts * blocks
    storing *= parts * blocks
    weights = 0.0
    if streamed:
        size = sum(len(constant.image) for constant in geometry.operation.constants.values())
        stays = size / blocks <= config.memory.weight_bytes / 8
        weights = size / beat * (1 if stays else parts)
    # All parts are counted as large as the first, and each tile as the mean of all: tiles may differ.
    size, every = (len(geometry.rows[0]), len(geometry.columns[0])), range(geometry.operation.tiles)
    share = len(geometry.tiles[0]) / len(every)
    computing = (geometry.operation.cycles(*size, every) * share + _COMMAND) * parts * blocks
    reading = (geometry.operation.steps(*size, every) * share + _COMMAND) * parts * blocks
    writing = geometry.output.size_bytes / config.array.columns
    turns = parts * blocks * _TURN * bool(loading and storing)
    # The other cores are likely to want as much of a bus that they share.
    bus = (loading + storing + weights) * config.cluster.sharing + turns
    if cut.buffers == 1:
        return computing + bus
    if parts == 1:
        return loading + max(computing, storing + weights, reading + storing)
    # Array and STORE share the feature memory's reads; results and LOAD its writes.
    cycles = max(computing, bus, reading + storing, writing + loading)
    cycles += (loading + storing) / (parts * blocks)
    # Whole rows, and all channels at once, take fewer commands.
    return cycles * (1 if len(geometry.columns) == 1 and not is_apart else 1.02)
