"""The choice of a lowering for every layer, by the configuration's engines."""

from __future__ import annotations

from ....golden.engines.engine import Engine
from ...graph import Layer
from ..network import CompileError, Network, check_begins_at_byte
from ..operation import Lowering, Operation
from ..plan import Executed, LaidOut
from ..storage import Storage
from . import binary, convolution, copy, depthwise, fast_pointwise, lanewise, pairs, wide_windows
from .fast_pointwise import missing_engines

#: All lowerings; a layer gets the first one that accepts it and has its engines.
LOWERINGS: tuple[Lowering, ...] = (
    depthwise.LOWERING,
    wide_windows.LOWERING,
    convolution.GROUPED,
    convolution.MATRIX_PRODUCT,
    fast_pointwise.LOWERING,
    lanewise.LOWERING,
    lanewise.BINARY_LOWERING,
    binary.BINARY_CONVOLUTION,
    binary.SIGNS,
    copy.LOWERING,
    pairs.ADD_LOWERING,
    pairs.MAXIMUM_LOWERING,
    pairs.MULTIPLY_LOWERING,
    pairs.VECTOR_LOWERING,
)


def plan_operations(plan: LaidOut) -> Executed:
    """Make the operation of every layer, for tensors that are whole in the feature memory.

    Raises
    ------
    CompileError
        If the configuration lacks the engines for a layer, or a layer's scales are out of range.
    """
    return Executed.of(plan, operations=tuple(make_operation(plan, index) for index in range(len(plan.graph.layers))))


def make_operation(
    plan: LaidOut, index: int, sources: tuple[Storage, ...] | None = None, target: Storage | None = None
) -> Operation:
    """Return the operation of a layer on these storages, by default those of the whole tensors.

    Raises
    ------
    CompileError
        If the configuration lacks the engines for the layer, or a tile of its output would begin within a byte.
    """
    layer = plan.graph.layers[index]
    lowering = find_lowering(plan, layer)
    if lowering is None:
        raise _missing(plan, layer)
    sources = sources or tuple(plan.storages[name] for name in layer.fetched)
    operation = lowering.make(plan, index, sources, target or plan.storages[layer.output])
    if operation.tiles > 1:
        check_begins_at_byte(plan, layer, layer.output, operation.tile_channels)
    return operation


def find_lowering(plan: Network, layer: Layer) -> Lowering | None:
    """Return the lowering that executes a layer; None if the configuration lacks the engines of all."""
    return next((one for one in _taking(plan, layer) if {*one.engines} <= {*plan.config.engines}), None)


def planned_lowering(plan: Network, layer: Layer) -> Lowering:
    """Return the lowering of a layer, in any configuration if necessary, as a copy that becomes a view needs no engine.

    Raises
    ------
    CompileError
        If no lowering takes the layer.
    """
    found = find_lowering(plan, layer) or next(iter(_taking(plan, layer)), None)
    if found is None:
        raise _missing(plan, layer)
    return found


def engines_of(layer: type[Layer]) -> list[tuple[Engine, ...]]:
    """Return the engines of every way to execute a kind of layer; each way needs all of its engines."""
    return list(dict.fromkeys(lowering.engines for lowering in LOWERINGS if layer in lowering.layers))


def _taking(plan: Network, layer: Layer) -> list[Lowering]:
    widths = _widths(plan, layer)
    return [
        lowering
        for lowering in LOWERINGS
        if type(layer) in lowering.layers and widths <= {*lowering.bits} and lowering.takes(plan, layer)
    ]


def _widths(plan: Network, layer: Layer) -> set[int]:
    """Return the bits of the elements that a layer reads and writes."""
    return {plan.graph.tensors[name].bits for name in (*layer.fetched, layer.output)}


def _missing(plan: Network, layer: Layer) -> CompileError:
    """Return the error for a layer that no lowering executes."""
    needed = [" and ".join(engine.name for engine in lowering.engines) for lowering in _taking(plan, layer)]
    if not needed:
        return CompileError(
            f"{layer.name}: layer must be one that a lowering takes, not {plan.graph.kind_of(layer)} on elements of "
            f"{' and '.join(map(str, sorted(_widths(plan, layer))))} bits; leave it to the host"
        )
    return CompileError(f"{layer.name}: {missing_engines(needed, plan.config)}")
