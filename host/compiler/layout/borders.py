"""Padding: each tensor gets room for the largest border that one of its consumers reads, filled with its zero point.

A max pooling would need the least code there instead. It reads no border, but runs in border classes, see
:func:`~lutterfly.host.compiler.lower.windows.border_classes`. A binary tensor has no zero point: its border is +1 where
all consumers want that, and else -1, which the lowering of binary layers corrects for.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

import numpy as np

from ....golden.config import Config
from ....golden.elements import BINARY_BITS
from ....golden.timing.latencies import run_cycles
from ...graph import Layer, Reach, Tensor, Views, Window
from ..lower.copy import copies
from ..lower.operations import find_lowering, make_operation, planned_lowering
from ..network import Network
from ..operation import Operation
from ..plan import LaidOut
from ..storage import Fold, Storage
from .cuts import row_groups
from .placement import extent, lifetimes, place


def _reach_of(plan: Network, layer: Layer, place: int) -> Reach:
    """Return how far a layer reads beyond one of its inputs."""
    if not planned_lowering(plan, layer).reads_border:
        return Reach()
    return layer.window_of(place).reach(*plan.graph.tensors[layer.fetched[place]].shape[:2])


def plan_borders(plan: Network) -> LaidOut:
    """Choose the layout of every tensor in the feature memory."""
    tensors, inputs, storages = plan.graph.tensors, _inputs(plan), dict[str, Storage]()
    for name in plan.roots:
        height, width, channels = tensors[name].shape
        readers = [layer for layer, _ in inputs[name]]
        # No border is read at a view that does not begin where the tensor does.
        reaches = [_reach_of(plan, layer, place) for layer, place in inputs[name]]
        top, left, bottom, right = (
            max((getattr(need, side) for need in reaches), default=0) for side in ("top", "left", "bottom", "right")
        )
        # Two kernel rows must never read the same byte with two weights: no window may be wider than the row pitch.
        widest = max((layer.window.extent[1] for layer in readers), default=0)
        gap = max(left, right, widest - width)
        value = border_byte(tensors[name], readers)
        storages[name] = Storage(
            height, width, channels, top, left, bottom, right, gap=gap, value=value, bits=tensors[name].bits
        )
    _align_operands(plan, storages)
    return LaidOut.of(plan, storages=with_views(plan, storages))


def _inputs(plan: Network) -> defaultdict[str, list[tuple[Layer, int]]]:
    """Return, for each tensor that is no view, the layers that read it or a view of it, with the index of the input."""
    found = defaultdict(list)
    for layer in plan.graph.layers:
        for number, source in enumerate(layer.fetched):
            found[plan.root(source)].append((layer, number))
    return found


def border_byte(tensor: Tensor, readers: Sequence[Layer]) -> int:
    """Return the int8 code in the border of a tensor."""
    if tensor.bits != BINARY_BITS:
        return tensor.zero_point
    wanted = {layer.binary_border for layer in readers} - {None}
    return -1 if wanted == {1} else 0


def with_views(plan: Network, storages: Mapping[str, Storage]) -> dict[str, Storage]:
    """Return the storages of tensors that are no views, and those of every view within its tensor."""
    places = {name: plan.place_of(name) for name in plan.views}
    views = {name: storages[place.tensor].view(place, plan.graph.tensors[name].shape) for name, place in places.items()}
    return {**storages, **views}


def _align_operands(plan: Network, storages: dict[str, Storage]) -> None:
    """Give inputs that are read with one pitch equal distances of rows."""
    operands = [
        [*map(plan.root, layer.fetched)] for layer in plan.graph.layers if planned_lowering(plan, layer).has_one_pitch
    ]
    while True:
        changed = False
        for names in operands:
            gap = max(storages[name].gap for name in names)
            for name in names:
                changed |= storages[name].gap < gap
                storages[name] = dataclasses.replace(storages[name], gap=gap)
        if not changed:
            return


def check_borders(plan: LaidOut) -> None:
    """Check that every window lies within its input's storage."""
    for layer in plan.graph.layers:
        storage, shape = plan.storages[layer.input], plan.graph.tensors[layer.input].shape
        need = _reach_of(plan, layer, 0)
        assert all(getattr(storage, side) >= getattr(need, side) for side in ("left", "right")), layer.name
        assert storage.fold or (storage.top >= need.top and storage.bottom >= need.bottom), layer.name
        expected = layer.window.output_size(*shape[:2])
        assert plan.graph.tensors[layer.output].shape[:2] == tuple(expected), layer.name


# Folds: the number of source rows that a stored row of the network's input interleaves.
#
# The DMA can write any layout of the input. Where a window's rows are side by side, fewer words cover it.


def fold_storage(window: Window, source: Tensor, rows: int) -> Storage:
    """Return the layout of the input of these windows with ``rows`` source rows in a stored row."""
    height, width, channels = source.shape
    need = window.reach(height, width)
    stored_rows_per_window = -(-window.kernel[0] // rows)
    advance = rows * window.dilation[0]
    # Stored rows begin where a window's first, second, ... stored row may begin. Where source rows overlap they are
    # stored again.
    step = window.stride[0] if stored_rows_per_window == 1 else math.gcd(window.stride[0], advance)
    output_rows = window.output_size(height, width)[0]
    stored = ((output_rows - 1) * window.stride[0] + (stored_rows_per_window - 1) * advance) // step + 1
    return Storage(
        stored,
        width,
        rows * channels,
        left=need.left,
        right=need.right,
        gap=max(need.left, need.right, window.extent[1] - width),
        value=source.zero_point,
        fold=Fold(rows, step, window.dilation[0], window.pads[0]),
        bits=source.bits,
    )


def source_rows(storage: Storage, height: int) -> np.ndarray:
    """Return the source row of each fold: int64[stored rows, folds], -1 where it is beyond the ``height`` source
    rows."""
    fold = storage.fold or Fold(1, 1, 1, 0)
    stored = np.arange(storage.row, storage.row + storage.height)
    row = stored[:, None] * fold.step + np.arange(fold.rows) * fold.dilation - fold.top
    return np.where((row >= 0) & (row < height), row, -1)


def load_estimate(storage: Storage, source: Tensor, config: Config) -> int:
    """Return the cycles to load an input into ``storage``: the DMA writes one piece, or one beat of it, a cycle."""
    height, width, _ = source.shape
    beat = config.axi.data_bytes
    if storage.fold is None:
        return height * math.ceil(source.row_bytes / beat) if storage.gap else math.ceil(source.size_bytes / beat)
    loaded = int(np.count_nonzero(source_rows(storage, height) >= 0))
    return loaded * max(width * math.ceil(source.pixel_bytes / beat), run_cycles(config, source.row_bytes))


def head_start(plan: LaidOut, operation: Operation) -> int:
    """Return the cycles that the first layer saves if it begins while its input arrives; zero for other layers.

    It cannot begin early if it has constants that are loaded in every inference: each group of rows would load them
    again.
    """
    layer = operation.layer
    if operation.index != 0 or layer.input not in plan.graph.inputs:
        return 0
    height, width, _ = plan.graph.tensors[layer.output].shape
    loading = load_estimate(plan.storages[layer.input], plan.graph.tensors[layer.input], plan.config)
    done, _ = row_groups(plan, operation, loading)
    return max(loading + operation.cycles(height, width, range(operation.tiles)) - int(done), 0)


def fold_choices(plan: LaidOut, name: str) -> list[Storage]:
    """Return layouts of a tensor with rows folded and without, the fastest first; none where it cannot be folded."""
    if name not in plan.graph.inputs or name in plan.graph.outputs:
        return []
    if any(name == place.tensor for place in plan.views.values()):
        return []
    consumers, source = plan.consumers(name), plan.graph.tensors[name]
    if len(consumers) != 1 or not planned_lowering(plan, consumers[0][1]).reads_folds:
        return []
    ((index, layer),), plain = consumers, plan.storages[name]
    window, target = layer.window, plan.storages[layer.output]
    height, width, _ = plan.graph.tensors[layer.output].shape
    choices = [plain, *(fold_storage(window, source, rows) for rows in range(2, min(window.kernel[0], 255) + 1))]

    def cost(storage: Storage) -> tuple[float, int]:
        loading = load_estimate(storage, source, plan.config)
        operation = planned_lowering(plan, layer).make(plan, index, (storage,), target)
        if index == 0:
            return row_groups(plan, operation, loading)[0], loading
        # This input arrives while other layers are computed.
        return max(loading, operation.cycles(height, width, range(operation.tiles))), loading

    return sorted(choices, key=cost)


def plan_folds(plan: LaidOut) -> LaidOut:
    """Fold each input in height as far as that makes its layer faster and as the memory has room."""
    for name in plan.graph.inputs:
        folded = (
            dataclasses.replace(plan, storages={**plan.storages, name: choice}) for choice in fold_choices(plan, name)
        )
        plan = next(filter(_fits, folded), plan)
    return plan


# Views replace copies: layers write their channels side by side instead of a concatenation, and read channels of a
# tensor instead of a slice.


def plan_views(plan: Network) -> Network:
    """Choose the tensors that are views of others, and leave out the layers that then have nothing to copy.

    A copy is kept where a view would cost more cycles than the copy (a convolution reads more words where pixels are
    further apart) or more memory than there is, where both operands of an addition need equal layouts, and for inputs
    and outputs of the network, which the DMA moves in runs. A network whose tensors do not all fit has no views.
    """
    best = _trial(plan, {})
    assert best is not None, "views that the plan began with are not possible"
    cycles = _cycles(best)
    if _fits(best):
        # The last concatenation comes first, as its output may contain that of an earlier one, in the same order.
        for layer in reversed(best.graph.layers):
            for more in layer.view_choices(best.graph.layers, best.graph.tensors, best.place_of):
                if more.keys() <= best.views.keys():
                    continue
                trial = _trial(best, more)
                if trial is None or not _fits(trial):
                    continue
                found = _cycles(trial, best, cycles)
                if _cost(found) <= _cost(cycles):
                    best, cycles = trial, found
    layers = [layer for layer in plan.graph.layers if not layer.is_copy or copies(best, layer)]
    return dataclasses.replace(plan, views=best.views, graph=dataclasses.replace(plan.graph, layers=layers))


def _trial(plan: Network, more: Views) -> LaidOut | None:
    """Return the plan with more views, if these are possible."""
    trial = dataclasses.replace(plan, views=more | plan.views)
    if not _is_sound(trial, more.keys() - plan.views.keys()):
        return None
    laid_out = plan_borders(trial)
    return laid_out if _lie_alike(laid_out) else None


def _is_sound(plan: Network, chosen: Set[str]) -> bool:
    """Return whether every view lies in a tensor that is no view and has the same border code, and none that is
    ``chosen`` is moved by the DMA."""
    graph = plan.graph
    moved = {*graph.inputs, *graph.outputs, *plan.matrices, *(name for name in chosen if plan.exchange_of(name))}
    if not moved.isdisjoint(chosen):
        return False
    for name in plan.views:
        seen, at = {name}, name
        while at in plan.views:
            at = plan.views[at].tensor
            if at in seen:
                return False
            seen.add(at)
        if graph.tensors[name].zero_point != graph.tensors[at].zero_point:
            return False
    return True


def _lie_alike(plan: LaidOut) -> bool:
    """Return whether inputs that are read with one pitch have equal distances of pixels."""
    operands = (
        [plan.storages[name].pixel_pitch for name in layer.fetched]
        for layer in plan.graph.layers
        if planned_lowering(plan, layer).has_one_pitch
    )
    return all(len(set(pitches)) == 1 for pitches in operands)


def _fits(plan: LaidOut) -> bool:
    spans = lifetimes(plan)
    sizes = {name: plan.storages[name].size_bytes for name in spans}
    return extent(place(spans, sizes, plan.config.array.lanes), sizes) <= plan.config.memory.feature_bytes


def _cost(cycles: list[float]) -> tuple[int, float]:
    """Return the key by which views are chosen: the number of layers without an engine, then cycles of the others."""
    return cycles.count(math.inf), sum(count for count in cycles if count < math.inf)


def _cycles(plan: LaidOut, before: LaidOut | None = None, known: Sequence[float] = ()) -> list[float]:
    """Return the array cycles of each layer; ``known`` are those of the plan ``before``, which are reused where nothing
    has changed.

    They are infinite where an engine is missing, as the copy may yet become a view.
    """
    cycles: list[float] = []
    for index, layer in enumerate(plan.graph.layers):
        names = (*layer.fetched, layer.output)
        if before and all(plan.storages[name] == before.storages[name] for name in names):
            cycles.append(known[index])
            continue
        if find_lowering(plan, layer) is None:
            is_in_place = layer.is_copy and not copies(plan, layer)
            cycles.append(0 if is_in_place else math.inf)
            continue
        height, width, _ = plan.graph.tensors[layer.output].shape
        operation = make_operation(plan, index)
        cycles.append(operation.cycles(height, width, range(operation.tiles)))
    return cycles
