"""Memory map: what a finished plan keeps in each memory, layer by layer, for people."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ....golden.program.outline import Block, LayerOutline
from ...graph import ChannelRule
from ...program.body import bus_bytes
from ..constants.segments import segment_of
from ..data.constant import Constant, Stored
from ..data.job import Job
from ..data.plan import Plan
from ..data.units import unit_bytes


def constant_blocks(plan: Plan) -> list[Block]:
    """Everything in the memories for constants: by memory, what stays first, then by address."""
    users: dict[tuple[LocalMemory, bytes | Stored], dict[int, None]] = {}
    places: dict[tuple[LocalMemory, bytes | Stored], int] = {}
    for job in plan.jobs:
        for memory, image, address in _images(plan, job):
            places.setdefault((memory, image), address)
            users.setdefault((memory, image), {})[job.index] = None
    blocks = [
        (memory, address >= len(plan.images[memory]), address, image, tuple(users[memory, image]))
        for (memory, image), address in places.items()
    ]
    return [
        Block(
            memory.name,
            address,
            len(image),
            layers,
            is_streamed,
            image if memory is LocalMemory.TABLE else b"",
        )
        for memory, is_streamed, address, image, layers in sorted(blocks, key=lambda block: block[:3])
    ]


def layer_outlines(plan: Plan) -> list[LayerOutline]:
    """What each layer is and the memory that it needs, in the order of the layers."""
    weights, streamed_weights = Counter[int](), Counter[int]()
    for block in constant_blocks(plan):
        if block.memory == LocalMemory.WEIGHT.name:
            for index in block.layers:
                weights[index] += block.size_bytes
                streamed_weights[index] += block.size_bytes * block.is_streamed
    feature_bytes = _feature_bytes(plan)
    moved = [{Opcode.LOAD: 0, Opcode.STORE: 0} for _ in plan.graph.layers]
    for command in plan.commands:
        if command.layer is not None and command.opcode in moved[command.layer]:
            moved[command.layer][command.opcode] += bus_bytes(command.opcode, command.fields)
    return [
        LayerOutline(
            operation=layer.describe(*plan.graph.ends(layer)),
            is_depthwise=layer.channel_rule(*plan.graph.ends(layer)) is ChannelRule.TIED,
            weight_bytes=weights[index],
            streamed_weight_bytes=streamed_weights[index],
            feature_bytes=feature_bytes[index],
            in_parts=tuple(sorted(plan.partial(index))),
            spilled=tuple(sorted(plan.partial(index) - {*plan.graph.inputs, *plan.graph.outputs})),
            loaded_bytes=moved[index][Opcode.LOAD],
            stored_bytes=moved[index][Opcode.STORE],
        )
        for index, layer in enumerate(plan.graph.layers)
    ]


def _images(plan: Plan, job: Job) -> Iterator[tuple[LocalMemory, bytes | Stored, int]]:
    """Each image that a job uses, whole, and its address in bytes."""
    operation = plan.operations[job.index]
    for memory, constant in (operation.constants | operation.job_constants(job)).items():
        image, offset = _piece(plan, memory, constant, job)
        yield memory, image, job.addresses[memory] * unit_bytes(plan.config, memory) - offset


def _piece(plan: Plan, memory: LocalMemory, constant: Constant, job: Job) -> tuple[bytes | Stored, int]:
    """The part of a constant that lies together with a job's first tile, and the bytes before that tile."""
    if not constant.tile_bytes:
        return constant.image, 0
    tiles = segment_of(plan, memory, job).tiles
    return constant.part(tiles), constant.size(range(tiles.start, job.tiles.start))


def _feature_bytes(plan: Plan) -> list[int]:
    """The most bytes of the feature memory that are taken during a job of each layer."""
    change = [0] * (len(plan.jobs) + 1)
    for residence in plan.residences:
        change[max(residence.first, 0)] += residence.storage.size_bytes
        # What stays for the host leaves after the last job.
        change[min(residence.last + 1, len(plan.jobs))] -= residence.storage.size_bytes
    most = [0] * len(plan.graph.layers)
    for job, taken in zip(plan.jobs, itertools.accumulate(change), strict=False):
        most[job.index] = max(most[job.index], taken)
    return most
