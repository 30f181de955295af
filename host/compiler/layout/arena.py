"""Arena: where tensors lie in external memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...graph import Tensor
from ..data.exchange import Excerpt
from ..data.plan import Plan

#: Everything begins at a multiple of this, so that bursts of 16 beats of 16 bytes do not cross 4 KiB more often than
#: they must.
ALIGNMENT = 256


def plan_arena(plan: Plan) -> Plan:
    """Give every input, output and spilled tensor its address: inputs and outputs first."""
    plan_arenas([plan], [plan.graph.tensors[name] for name in (*plan.graph.inputs, *plan.graph.outputs)])
    return plan


def plan_arenas(plans: Sequence[Plan], ports: Iterable[Tensor]) -> dict[str, int]:
    """Give every input, output, spilled and exchanged tensor an address that holds for the plans of all cores.

    Parameters
    ----------
    plans : sequence of Plan
    ports : iterable of Tensor
        Inputs and outputs of the network.

    Returns
    -------
    dict of str to int
        The address of each of the network's tensors that lie in the arena.
    """
    moved = [
        [*plan.graph.inputs, *plan.graph.outputs, *(each.tensor for each in plan.residences if each.departures)]
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
    for plan in plans:
        plan.external_bytes = plan.streamed_address = end
        # What a core only reads, another one has stored.
        names = [*plan.graph.inputs, *plan.graph.outputs, *(residence.tensor for residence in plan.residences)]
        for name in dict.fromkeys(names):
            excerpt = plan.excerpt_of(name)
            if excerpt.tensor.name in addresses:
                plan.external[name] = addresses[excerpt.tensor.name] + _offset(excerpt)
    return addresses


def _offset(excerpt: Excerpt) -> int:
    """Bytes from the first element of the network's tensor to that of an excerpt."""
    tensor, region = excerpt.tensor, excerpt.region
    return region.rows.start * tensor.row_bytes + region.channels.start * tensor.bits // 8


def aligned(size: int) -> int:
    """``size`` rounded up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT
