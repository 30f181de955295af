"""Constants: where weights, parameters, tables and step lists lie; the prologue loads them, and they stay."""
from __future__ import annotations

import dataclasses

from ...golden.config import Config
from ...golden.isa import ADD_ENTRIES, ADD_ENTRY_BYTES, LIST_ENTRY_BYTES, TABLE_BYTES, LocalMemory
from ...golden.requant import PARAMETER_BYTES
from .operation import Job, Operation
from .plan import CompileError, Plan

_NAMES = {
    LocalMemory.WEIGHT: "weight memory",
    LocalMemory.PARAMETER: "parameter memory",
    LocalMemory.TABLE: "table memory",
    LocalMemory.LIST: "list memory",
    LocalMemory.ADD_TABLE: "Add tables",
}


def unit_bytes(config: Config, memory: LocalMemory) -> int:
    """What a COMPUTE command counts addresses of this memory in."""
    return {
        LocalMemory.WEIGHT: config.weight_word_bytes,
        LocalMemory.PARAMETER: config.parameter_word_bytes,
        LocalMemory.TABLE: TABLE_BYTES,
        LocalMemory.LIST: LIST_ENTRY_BYTES,
        LocalMemory.ADD_TABLE: ADD_ENTRIES * ADD_ENTRY_BYTES,
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
    plan.jobs = [
        dataclasses.replace(job, addresses=_place(job, plan.operations[job.index], images, known, plan.config))
        for job in plan.jobs
    ]
    plan.images = {memory: bytes(image) for memory, image in images.items()}
    excess = [
        f"network needs {len(image)} bytes of {_NAMES[memory]}, the configuration has "
        f"{plan.config.memory.size_bytes(memory)}; choose a larger --config"
        for memory, image in plan.images.items()
        if len(image) > plan.config.memory.size_bytes(memory)
    ]
    if excess:
        raise CompileError("; ".join(excess))
    tables = sum(LocalMemory.TABLE in operation.constants for operation in plan.operations)
    if tables:
        count = len(plan.images[LocalMemory.TABLE]) // TABLE_BYTES
        plan.graph.notes.append(f"{count} transfer tables for {tables} layers")
    return plan


def _place(
    job: Job,
    operation: Operation,
    images: dict[LocalMemory, bytearray],
    known: dict[tuple[LocalMemory, bytes], int],
    config: Config,
) -> dict[LocalMemory, int]:
    """Where a job's constants are, in the units of a COMPUTE command."""
    addresses = {}
    for memory, constant in (operation.constants | operation.job_constants(job)).items():
        key = memory, constant.image
        if key not in known:
            known[key] = len(images[memory])
            images[memory] += constant.image
        addresses[memory] = (known[key] + job.tiles.start * constant.tile_bytes) // unit_bytes(config, memory)
    return addresses


assert PARAMETER_BYTES == 8, "Config.parameter_word_bytes counts 8 bytes for each parameter"
