"""Urgency: rows for which other cores wait are computed first, so that they are there when the rest is computed."""

from __future__ import annotations

from ....golden.timing.overheads import OVERHEADS
from ..data.plan import Plan

#: Cycles that one more job takes beside those of the array.
_JOB = 30
#: Cycles that an exchange takes less, beside its beats, where what is loaded arrives beside the last job of a layer.
_SAVED = OVERHEADS.read_latency + 30


def rows_in_order(plan: Plan, index: int) -> list[range]:
    """The rows of a layer's output in the order in which they are computed, in one job or several.

    Several, if other cores read some rows of it, and that they come first costs less than it saves.
    """
    layer, operation = plan.graph.layers[index], plan.operations[index]
    name, up = layer.output, layer.window.up[0]
    height, width, _ = plan.graph.tensors[name].shape
    exchange, own = plan.exchange_of(name), plan.excerpt_of(name).region
    if exchange is None or not exchange.leaves:
        return [range(height)]
    # Rows that have the same window stay together: some of them alone may be there already.
    found = {_widened(_within(region.rows, own.rows), up) for region in exchange.leaves}
    urgent = sorted(found, key=lambda rows: rows.start)
    edges = [0, *(edge for rows in urgent for edge in (rows.start, rows.stop)), height]
    rest = [range(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop]
    pieces = [*urgent, *rest]
    # Rows of two cores may be the same, or may be all.
    if not rest or sum(map(len, pieces)) != height:
        return [range(height)]
    tiles = range(operation.tiles)
    cycles = sum(operation.cycles(len(rows), width, tiles) + _JOB for rows in pieces) - _JOB
    return pieces if cycles < operation.cycles(height, width, tiles) + _SAVED else [range(height)]


def _within(rows: range, own: range) -> range:
    return range(max(rows.start, own.start) - own.start, min(rows.stop, own.stop) - own.start)


def _widened(rows: range, up: int) -> range:
    """Whole multiples of ``up`` that hold some rows."""
    return range(rows.start // up * up, -(-rows.stop // up) * up)
