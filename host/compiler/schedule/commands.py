"""Commands: every job becomes COMPUTE commands."""

from __future__ import annotations

import numpy as np

from ....golden.engines import find_engine
from ....golden.memories import LocalMemory
from ..data.command import Command
from ..data.errors import CompileError
from ..data.plan import Plan
from ..data.units import capacity


def lower(plan: Plan) -> Plan:
    """Turn each job into its commands.

    Raises
    ------
    CompileError
        If a layer exceeds what one command can say.
    """
    for job in plan.jobs:
        operation = plan.operations[job.index]
        commands = operation.lower(job)
        for command in commands:
            _check_limits(operation.layer.name, command)
            if len(job.streamed):
                command.reads = np.concatenate([command.reads, job.streamed])
        plan.computes.append(commands)
    return plan


def check_lowered(plan: Plan) -> None:
    """Commands write all of their output and nothing else, and the lists that they name exist."""
    written = [0] * len(plan.graph.layers)
    entries = capacity(plan.config, LocalMemory.LIST)
    for job, commands in zip(plan.jobs, plan.computes, strict=True):
        name = plan.graph.layers[job.index].name
        for command in commands:
            writes = command.writes
            written[job.index] += len(writes)
            assert command.fields["list"] + command.fields["steps"] <= entries, name
            assert job.target.address <= writes.min(), name
            assert writes.max() < job.target.address + job.target.size_bytes, name
    for layer, operation, count in zip(plan.graph.layers, plan.operations, written, strict=True):
        assert count == operation.written_bytes, layer.name


def _check_limits(layer: str, command: Command) -> None:
    for field in find_engine(command.fields["engine"]).format.fields:
        value, (low, high) = command.fields.get(field.name, 0), field.limits
        if not low <= value <= high:
            raise CompileError(
                f"{layer}: {field.name} of its command must be between {low} and {high}, not {value}; "
                "split the layer into smaller ones"
            )
