"""What verification compares: the tensors that it reads in the feature memory, and after which command.

A byte that no layer reads, as a channel that a slice leaves or a column that a stride skips, is compared too. So it has
to stay until then, although no command waits for it otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....golden.isa import Opcode
from ..data.command import Command
from ..data.plan import Plan
from ..data.storage import NO_ADDRESSES, Addresses
from ..data.units import unit_count


def observed(plan: Plan) -> Iterator[tuple[str, int]]:
    """The model's tensors that are computed and lie whole in the feature memory, each with the last layer that writes
    it. What a slice finds in what another core has computed is not among them.
    """
    writers_of = plan.writers
    for name in dict.fromkeys([*plan.views, *(layer.output for layer in plan.graph.layers), *plan.roots]):
        tensor = plan.graph.tensors[name]
        place = plan.place_of(name)
        writers = [
            index
            for index in writers_of.get(place.tensor, ())
            for layer in [plan.graph.layers[index]]
            for other in [plan.place_of(layer.output)]
            if other.channel < place.channel + tensor.shape[2]
            and place.channel < other.channel + plan.graph.tensors[layer.output].shape[2]
        ]
        is_computed = writers and not any(plan.region_of(name).meet(part) for part in plan.arriving(place.tensor))
        if is_computed and place.tensor in plan.spans and tensor.views:
            yield name, writers[-1]


def observations(plan: Plan) -> dict[Command, Addresses]:
    """By command, the bytes of the feature memory that are compared when it has completed: int64[bytes]."""
    last = {command.layer: command for command in plan.commands if command.opcode is Opcode.COMPUTE}
    found: dict[Command, list[Addresses]] = {}
    for name, layer in observed(plan):
        found.setdefault(last[layer], []).append(plan.storages[name].addresses())
    return {command: np.concatenate(addresses) for command, addresses in found.items()}


def check_observed(plan: Plan) -> None:
    """The DMA overwrites no byte before it has been compared."""
    observers = observations(plan)
    #: The COMPUTE command after which each byte is compared, and the latest one that the DMA queue has waited for.
    observer, done, index = np.full(unit_count(plan.config), -1), -1, -1
    for command in plan.commands:
        writes = command.writes
        if command.opcode is Opcode.COMPUTE:
            index += 1
            observer[writes] = -1
            observer[observers.get(command, NO_ADDRESSES)] = index
            continue
        done = max(done, -1 if command.waits_for is None else command.waits_for)
        needed = int(observer[writes].max(initial=-1))
        assert needed <= done, f"{command} overwrites what is compared after COMPUTE {needed}"
        observer[writes] = -1
