"""Memory: an address in the feature memory for every tensor; what lives at the same time does not overlap."""
from __future__ import annotations

import dataclasses

from .plan import CompileError, Plan


def lifetimes(plan: Plan) -> dict[str, tuple[int, int]]:
    """First and last layer, both included, during which each stored tensor is written or read.

    Inputs live from before the first layer (-1), outputs until behind the last one.
    """
    layers = plan.graph.layers
    spans = {name: [-1, -1] for name in plan.graph.inputs}
    for index, layer in enumerate(layers):
        spans.setdefault(layer.output, [index, index])
        for name in layer.inputs:
            spans[name][1] = index
    for name in plan.graph.outputs:
        spans[name][1] = len(layers)
    return {name: (first, last) for name, (first, last) in spans.items()}


def place(plan: Plan) -> dict[str, int]:
    """Addresses of all tensors, the most compact of a few first-fit placements.

    Returns
    -------
    dict of str to int
        Multiples of ``lanes``; they may go beyond the memory, see :func:`fits`.
    """
    spans = lifetimes(plan)
    sizes = {name: plan.storages[name].size_bytes for name in spans}
    orders = (
        lambda name: (-sizes[name], spans[name]),
        lambda name: (spans[name][0], -sizes[name]),
        lambda name: (-sizes[name] * (spans[name][1] - spans[name][0] + 1), spans[name]),
    )
    placements = [_first_fit(sorted(spans, key=order), spans, sizes, plan.config.array.lanes) for order in orders]
    return min(placements, key=lambda addresses: _extent(addresses, sizes))


def fits(plan: Plan, addresses: dict[str, int]) -> bool:
    """Whether tensors at these addresses lie within the feature memory."""
    sizes = {name: plan.storages[name].size_bytes for name in addresses}
    return _extent(addresses, sizes) <= plan.config.memory.feature_bytes


def plan_memory(plan: Plan) -> Plan:
    """Give every tensor its address.

    Raises
    ------
    CompileError
        If they do not fit.
    """
    addresses = place(plan)
    if not fits(plan, addresses):
        spans = lifetimes(plan)
        need = {
            index: sum(
                plan.storages[name].size_bytes for name, (first, last) in spans.items() if first <= index <= last
            )
            for index in range(len(plan.graph.layers))
        }
        worst = max(need, key=need.get, default=0)
        layer = plan.graph.layers[worst].name if plan.graph.layers else "network"
        extent = _extent(addresses, {name: plan.storages[name].size_bytes for name in addresses})
        raise CompileError(f"{layer}: network needs {extent} bytes of feature memory, the configuration has "
                           f"{plan.config.memory.feature_bytes}; choose a larger --config")
    for name, address in addresses.items():
        plan.storages[name] = dataclasses.replace(plan.storages[name], address=address)
    return plan


def check_memory(plan: Plan) -> None:
    """Tensors that live at the same time do not overlap, and all lie within the memory."""
    spans = sorted(lifetimes(plan).items())
    for index, (name, (first, last)) in enumerate(spans):
        storage = plan.storages[name]
        end = storage.address + storage.size_bytes
        assert end <= plan.config.memory.feature_bytes, name
        for other, (other_first, other_last) in spans[:index]:
            beside = plan.storages[other]
            apart = last < other_first or other_last < first
            assert apart or end <= beside.address or beside.address + beside.size_bytes <= storage.address, (
                name,
                other,
            )


def _first_fit(names: list[str], spans: dict[str, tuple[int, int]], sizes: dict[str, int], unit: int) -> dict[str, int]:
    addresses: dict[str, int] = {}
    for name in names:
        first, last = spans[name]
        taken = sorted((address, address + sizes[other]) for other, address in addresses.items()
                       if spans[other][0] <= last and first <= spans[other][1])
        address = 0
        for start, end in taken:
            if address + sizes[name] <= start:
                break
            address = max(address, -(-end // unit) * unit)
        addresses[name] = address
    return addresses


def _extent(addresses: dict[str, int], sizes: dict[str, int]) -> int:
    return max((address + sizes[name] for name, address in addresses.items()), default=0)
