"""Arena: where tensors lie in external memory."""

from __future__ import annotations

from ..data.plan import Plan

#: Everything begins at a multiple of this, so that bursts of 16 beats of 16 bytes do not cross 4 KiB more often than
#: they must.
ALIGNMENT = 256


def plan_arena(plan: Plan) -> Plan:
    """Give every input, output and spilled tensor its address: inputs and outputs first, constants after all."""
    spilled = [residence.tensor for residence in plan.residences if residence.leaves is not None]
    for name in dict.fromkeys([*plan.graph.inputs, *plan.graph.outputs, *spilled]):
        plan.external[name] = plan.external_bytes
        plan.external_bytes += aligned(plan.graph.tensors[name].size_bytes)
    plan.constants_address = plan.external_bytes
    return plan


def aligned(size: int) -> int:
    """``size`` rounded up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT
