"""By sample: every core has samples of its own, and all the weights."""

from __future__ import annotations

import dataclasses

from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ..data.command import Command
from ..data.plan import Plan
from ..data.spread import Spread


def spread_by_sample(plan: Plan) -> Spread:
    """The same plan for every core, with tensors in places of its own in the arena; constants are there once.

    Parameters
    ----------
    plan : Plan
        Of one core, with its commands.
    """
    cores = plan.config.cores
    plans = [_moved(plan, number, cores) for number in range(cores)]
    ends = (*plan.graph.inputs, *plan.graph.outputs)
    return Spread(plan.graph, plans, {name: tuple(own.external[name] for own in plans) for name in ends})


def _moved(plan: Plan, number: int, cores: int) -> Plan:
    """The plan of one of the cores: tensors of all cores lie one after the other, then what is streamed."""
    tensors, streamed = number * plan.external_bytes, (cores - 1) * plan.external_bytes
    moved = {command: _copy(command, tensors, streamed, plan.external_bytes) for command in plan.commands}
    return dataclasses.replace(
        plan,
        external={name: address + tensors for name, address in plan.external.items()},
        external_bytes=cores * plan.external_bytes,
        streamed_address=plan.streamed_address + streamed,
        arrivals=[
            dataclasses.replace(arrival, external=arrival.external + (tensors if arrival.tensor else streamed))
            for arrival in plan.arrivals
        ],
        computes=[[moved[command] for command in of_job] for of_job in plan.computes],
        commands=list(moved.values()),
        predictions=[],
    )


def _copy(command: Command, tensors: int, streamed: int, external_bytes: int) -> Command:
    if command.opcode not in (Opcode.LOAD, Opcode.STORE):
        return dataclasses.replace(command)
    external = command.fields["external"]
    is_tensor = external < external_bytes
    moves_tensors = command.opcode is Opcode.STORE or command.fields["memory"] == LocalMemory.FEATURE
    assert is_tensor or not moves_tensors, "a tensor among the constants of the arena"
    return dataclasses.replace(
        command, fields={**command.fields, "external": external + (tensors if is_tensor else streamed)}
    )
