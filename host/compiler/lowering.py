"""Lowering: every layer becomes COMPUTE commands, and its constants go to their memories."""
from __future__ import annotations

from ...golden.isa import COMPUTE, LIST_ENTRY_BYTES, LocalMemory
from ..graph import Convolution
from .folding import describe
from .lower_convolution import lower_convolution
from .lower_lanewise import lower_lanewise
from .plan import Command, CompileError, Plan


def lower(plan: Plan) -> Plan:
    """Turn each layer into its commands.

    Raises
    ------
    CompileError
        If a layer exceeds what one command can say, or the constants their memories.
    """
    for index, layer in enumerate(plan.graph.layers):
        channels = plan.graph.tensors[layer.input].shape[2]
        if isinstance(layer, Convolution):
            row_groups = plan.row_groups if index == 0 else ()
            commands = lower_convolution(plan, index, layer, row_groups)
            fold = describe(layer, channels, plan.storages[layer.input], plan.config.array.lanes)
        else:
            commands = lower_lanewise(plan, index, layer)
            fold = f"{commands[0].fields['lanes']} of {plan.config.array.lanes} lanes"
        for command in commands:
            _check_limits(layer.name, command)
        plan.computes.append(commands)
        plan.folds.append(fold)
    excess = plan.constants.excess()
    if excess:
        raise CompileError("; ".join(excess))
    return plan


def check_lowered(plan: Plan) -> None:
    """Every command writes only the interior of its output, and the lists and memories that it names exist."""
    sizes = {memory: len(image) for memory, image in plan.constants.images().items()}
    for layer, commands in zip(plan.graph.layers, plan.computes, strict=True):
        storage = plan.storages[layer.output]
        written = sum(len(command.writes) for command in commands)
        assert written == storage.height * storage.width * storage.channels, layer.name
        for command in commands:
            assert (command.fields["list"] + command.fields["steps"]) * LIST_ENTRY_BYTES <= sizes[LocalMemory.LIST], (
                layer.name
            )
            assert storage.address <= command.writes.min(), layer.name
            assert command.writes.max() < storage.address + storage.size_bytes, layer.name


def _check_limits(layer: str, command: Command) -> None:
    for field in COMPUTE.fields:
        value, (low, high) = command.fields.get(field.name, 0), field.limits
        if not low <= value <= high:
            raise CompileError(f"{layer}: {field.name} of its command must be between {low} and {high}, not {value}; "
                               "split the layer into smaller ones")
