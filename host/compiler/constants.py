"""Constants: where weights, parameters, tables and step lists lie; the prologue loads them, and they stay."""
from __future__ import annotations

import dataclasses

from ...golden.config import Config
from ...golden.isa import LIST_ENTRY_BYTES, TABLE_BYTES, LocalMemory
from ...golden.requant import PARAMETER_BYTES
from .operation import Operation
from .plan import CompileError, Plan

_NAMES = {
    LocalMemory.WEIGHT: "weight memory",
    LocalMemory.PARAMETER: "parameter memory",
    LocalMemory.TABLE: "table memory",
    LocalMemory.LIST: "list memory",
}


def unit_bytes(config: Config, memory: LocalMemory) -> int:
    """What a COMPUTE command counts addresses of this memory in."""
    return {
        LocalMemory.WEIGHT: config.weight_word_bytes,
        LocalMemory.PARAMETER: config.parameter_word_bytes,
        LocalMemory.TABLE: TABLE_BYTES,
        LocalMemory.LIST: LIST_ENTRY_BYTES,
    }[memory]


def memory_bytes(config: Config, memory: LocalMemory) -> int:
    """Size of a memory for constants."""
    return {
        LocalMemory.WEIGHT: config.memory.weight_bytes,
        LocalMemory.PARAMETER: config.memory.parameter_bytes,
        LocalMemory.TABLE: config.memory.tables * TABLE_BYTES,
        LocalMemory.LIST: config.memory.list_entries * LIST_ENTRY_BYTES,
    }[memory]


def place_constants(plan: Plan) -> Plan:
    """Put the constants of all operations into their memories, equal ones once, and tell every job where they are.

    Raises
    ------
    CompileError
        If a memory is too small.
    """
    images = {memory: bytearray() for memory in _NAMES}
    known: dict[tuple[LocalMemory, bytes], int] = {}
    bases = [_place(operation, images, known) for operation in plan.operations]
    plan.images = {memory: bytes(image) for memory, image in images.items()}
    excess = [
        f"network needs {len(image)} bytes of {_NAMES[memory]}, the configuration has "
        f"{memory_bytes(plan.config, memory)}; choose a larger --config"
        for memory, image in plan.images.items()
        if len(image) > memory_bytes(plan.config, memory)
    ]
    if excess:
        raise CompileError("; ".join(excess))
    plan.jobs = [
        dataclasses.replace(job, addresses={
            memory: (base + job.tiles.start * plan.operations[job.index].constants[memory].tile_bytes)
            // unit_bytes(plan.config, memory)
            for memory, base in bases[job.index].items()
        })
        for job in plan.jobs
    ]
    tables = sum(LocalMemory.TABLE in operation.constants for operation in plan.operations)
    if tables:
        count = len(plan.images[LocalMemory.TABLE]) // TABLE_BYTES
        plan.graph.notes.append(f"{count} transfer tables for {tables} layers")
    return plan


def _place(
    operation: Operation, images: dict[LocalMemory, bytearray], known: dict[tuple[LocalMemory, bytes], int]
) -> dict[LocalMemory, int]:
    """First byte of each constant of an operation in its memory."""
    addresses = {}
    for memory, constant in operation.constants.items():
        key = memory, constant.image
        if key not in known:
            known[key] = len(images[memory])
            images[memory] += constant.image
        addresses[memory] = known[key]
    return addresses


assert PARAMETER_BYTES == 8, "Config.parameter_word_bytes counts 8 bytes for each parameter"
