"""Placement: addresses in the feature memory for tensors and buffers with live ranges."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from ...graph import Tensor
from ..network import Excerpt, Network, Span
from ..plan import Addressed, Divided

#: First byte, and end (the byte after the last).
Gap = tuple[int, int]

Key = TypeVar("Key", bound=Hashable)


def lifetimes(plan: Network) -> dict[str, Span]:
    """Return the live range of each tensor that is no view: the first and the last layer that write or read it.

    Inputs are live from before the first layer (-1), outputs until after the last one.
    """
    graph = plan.graph
    spans = {name: [-1, -1] for name in graph.inputs}
    for index, layer in enumerate(graph.layers):
        for name in (layer.output, *layer.fetched):
            spans.setdefault(plan.root(name), [index, index])[1] = index
    for name in graph.outputs:
        spans[plan.root(name)][1] = len(graph.layers)
    return {name: (first, last) for name, (first, last) in spans.items()}


def place(spans: Mapping[Key, Span], sizes: Mapping[Key, int], unit: int) -> dict[Key, int]:
    """Return the most compact of :func:`placements`."""
    return min(placements(spans, sizes, unit), key=lambda addresses: extent(addresses, sizes))


def placements(spans: Mapping[Key, Span], sizes: Mapping[Key, int], unit: int) -> list[dict[Key, int]]:
    """Return a few first-fit placements in which items with overlapping live ranges have disjoint addresses.

    Items whose live ranges are not connected do not influence each other, so that they can be placed separately.

    Returns
    -------
    list of dict
        Addresses of each placement, multiples of ``unit``; they may exceed the memory, see :func:`extent`.
    """
    orders = (
        lambda key: (-sizes[key], spans[key]),
        lambda key: (spans[key][0], -sizes[key]),
        lambda key: (-sizes[key] * (spans[key][1] - spans[key][0] + 1), spans[key]),
    )
    return [_first_fit(sorted(spans, key=order), spans, sizes, unit) for order in orders]


def extent(addresses: Mapping[Key, int], sizes: Mapping[Key, int]) -> int:
    """Return the end of the last occupied byte range."""
    return max((address + sizes[key] for key, address in addresses.items()), default=0)


def free(taken: Sequence[Gap], size: int) -> list[Gap]:
    """Return the gaps in a memory of ``size`` bytes."""
    gaps, address = [], 0
    for start, end in sorted([*taken, (size, size)]):
        if start > address:
            gaps.append((address, start))
        address = max(address, end)
    return gaps


def fit(sizes: Mapping[Key, Sequence[int]], gaps: Sequence[Gap], unit: int) -> dict[Key, tuple[int, ...]] | None:
    """Put pieces into gaps, the largest first.

    Returns
    -------
    dict or None
        Addresses, multiples of ``unit``, of the pieces of each key; None if they do not fit.
    """
    left = list(gaps)
    found: dict[Key, tuple[int, ...]] = {}
    for key, pieces in sorted(sizes.items(), key=lambda item: -item[1][0]):
        addresses = []
        for size in pieces:
            for index, (start, end) in enumerate(left):
                address = -(-start // unit) * unit
                if address + size <= end:
                    addresses.append(address)
                    left[index] = address + size, end
                    break
            else:
                return None
        found[key] = tuple(addresses)
    return found


def _first_fit(names: list[Key], spans: Mapping[Key, Span], sizes: Mapping[Key, int], unit: int) -> dict[Key, int]:
    addresses: dict[Key, int] = {}
    # Live range and address range of each placed item.
    placed = np.zeros((4, len(names)), np.int64)
    for count, name in enumerate(names):
        first, last = spans[name]
        firsts, lasts, starts, ends = placed[:, :count]
        meets = (firsts <= last) & (first <= lasts)
        order = np.lexsort((ends[meets], starts[meets]))
        address = 0
        for start, end in zip(starts[meets][order].tolist(), ends[meets][order].tolist(), strict=True):
            if address + sizes[name] <= start:
                break
            address = max(address, -(-end // unit) * unit)
        addresses[name] = address
        placed[:, count] = first, last, address, address + sizes[name]
    return addresses


# The arena holds tensors in external memory.

#: All addresses are multiples of this, so that bursts of 16 beats of 16 bytes do not cross 4 KiB more often than they
#: must.
ALIGNMENT = 256


def plan_arena(plan: Divided) -> Addressed:
    """Give every input, output and spilled tensor its address, inputs and outputs first."""
    ends = [plan.graph.tensors[name] for name in (*plan.graph.inputs, *plan.graph.outputs)]
    (addressed,), _ = plan_arenas([plan], ends)
    return addressed


def plan_arenas(plans: Sequence[Divided], ports: Iterable[Tensor]) -> tuple[list[Addressed], dict[str, int]]:
    """Give every input, output, spilled and exchanged tensor an address that holds for the plans of all cores.

    Parameters
    ----------
    plans : sequence of Divided
    ports : iterable of Tensor
        Inputs and outputs of the network.

    Returns
    -------
    list of Addressed
        The plans, with streamed constants after all tensors.
    dict of str to int
        The address of each of the network's tensors in the arena.
    """
    moved = [
        [*plan.graph.inputs, *plan.graph.outputs, *(each.tensor for each in plan.live_ranges if each.departures)]
        for plan in plans
    ]
    excerpts = [[plan.excerpt_of(name) for name in names] for plan, names in zip(plans, moved, strict=True)]
    tensors = {
        tensor.name: tensor for tensor in (*ports, *(excerpt.tensor for of_plan in excerpts for excerpt in of_plan))
    }
    addresses, end = {}, 0
    for name, tensor in tensors.items():
        addresses[name] = end
        end += aligned(tensor.size_bytes)
    return [
        Addressed.of(plan, external=_external(plan, addresses), external_bytes=end, streamed_address=end)
        for plan in plans
    ], addresses


def _external(plan: Divided, addresses: Mapping[str, int]) -> dict[str, int]:
    """Return the addresses of a core's tensors in the arena."""
    # Tensors that a core only reads are stored by another one.
    names = [*plan.graph.inputs, *plan.graph.outputs, *(live_range.tensor for live_range in plan.live_ranges)]
    excerpts = {name: plan.excerpt_of(name) for name in names}
    return {
        name: addresses[excerpt.tensor.name] + _offset(excerpt)
        for name, excerpt in excerpts.items()
        if excerpt.tensor.name in addresses
    }


def _offset(excerpt: Excerpt) -> int:
    """Return the bytes from the first element of the network's tensor to that of an excerpt."""
    tensor, region = excerpt.tensor, excerpt.region
    return region.rows.start * tensor.row_bytes + region.channels.start * tensor.bits // 8


def aligned(size: int) -> int:
    """Return ``size``, rounded up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT
