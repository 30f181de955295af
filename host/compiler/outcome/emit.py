"""Emit: lay out the arena and encode the program."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from ....golden.isa import COMMAND_BYTES, END, LOAD
from ....golden.memories import LocalMemory
from ....golden.program.program import Program
from ....golden.program.queues import CoreProgram, QueueProgram, Queues
from ....golden.program.tensors import Port, SpilledTensor, WrittenTensor
from ....golden.units import Queue
from ...graph import Tensor
from ..data.plan import Plan
from ..data.spread import Spread
from ..layout.arena import ALIGNMENT, aligned
from ..schedule.observed import observed
from .outline import outline


def emit(spread: Spread, config_name: str) -> Program:
    """Encode a finished network: inputs and outputs first in the arena, then constants, then commands."""
    graph, config = spread.graph, spread.config
    constants = _constants(spread)
    address = min(plan.constants_address for plan in spread.plans) + len(constants)
    cores, verified = [], _verified(spread)
    for plan, (written, spilled) in zip(spread.plans, verified, strict=True):
        # In this order in the arena, each with END after it.
        streams = [_prologue(plan), [], *([command.encode() for command in plan.queue(queue)] for queue in Queue)]
        placed = []
        for stream in streams:
            placed.append(QueueProgram(b"".join((*stream, END.encode())), address))
            # Two commands are one burst of 64-bit beats if they begin at a multiple of its size.
            address += aligned(len(placed[-1].commands))
        cores.append(
            CoreProgram(
                Queues(*placed[:2]),
                Queues(*placed[2:]),
                tuple(plan.predictions),
                written,
                spilled,
            )
        )
    return Program(
        config_hash=config.hash,
        config_name=config_name,
        cores=tuple(cores),
        arena_bytes=address,
        constants=constants,
        constants_address=min(plan.constants_address for plan in spread.plans),
        inputs=tuple(_port(spread, graph.tensors[name]) for name in graph.inputs),
        outputs=tuple(_port(spread, graph.tensors[name]) for name in graph.outputs),
        predicted_cycles=spread.predicted_cycles,
        outline=outline(spread),
        batch=graph.batch * spread.shares,
        head=graph.head.data,
        tail=graph.tail.data,
        model=graph.model.data,
    )


def check_program(spread: Spread, program: Program) -> None:
    """What only the encoded program can show: END last, everything within the arena."""
    for core in program.cores:
        for queues in (core.prologue, core.body):
            for queue in Queue:
                commands, start = queues[queue].commands, queues[queue].address
                assert commands[-COMMAND_BYTES:] == END.encode(), "a queue without END"
                assert start % COMMAND_BYTES == 0, "a queue that begins within a command"
                assert start + len(commands) <= program.arena_bytes, "a queue beyond the arena"
    ports = zip((*spread.graph.inputs, *spread.graph.outputs), (*program.inputs, *program.outputs), strict=True)
    for name, port in ports:
        assert port.size_bytes == spread.graph.tensors[name].size_bytes, f"{name} of another element width"
    end = program.constants_address + len(program.constants)
    for plan in spread.plans:
        assert LocalMemory.FEATURE not in plan.images, "the feature memory has no constants"
        for arrival in plan.arrivals:
            own = range(program.constants_address) if arrival.tensor else range(program.constants_address, end)
            assert arrival.external in own, "streamed constants among other things"


def _constants(spread: Spread) -> bytes:
    """Those of all cores; cores that have the same ones share them."""
    start = min(plan.constants_address for plan in spread.plans)
    constants = bytearray()
    for plan in sorted(spread.plans, key=lambda plan: plan.constants_address):
        images = b"".join(image + bytes(-len(image) % ALIGNMENT) for image in plan.images.values())
        own, offset = images + plan.streamed, plan.constants_address - start
        assert constants[offset:] in (b"", own), "constants of two cores in one place"
        constants[offset:] = own
    return bytes(constants)


def _prologue(plan: Plan) -> list[bytes]:
    """The LOADs of what stays resident."""
    loads, address = [], plan.constants_address
    for memory, image in plan.images.items():
        if image:
            sizes = {"row_pieces": 1, "piece_bytes": len(image), "rows": 1, "folds": 1}
            loads.append(LOAD.encode(external=address, memory=memory, **sizes))
            address += aligned(len(image))
    return loads


def _port(spread: Spread, tensor: Tensor) -> Port:
    view, shares = tensor.views[0], spread.shares
    shape = (view.shape[0] * shares, *view.shape[1:])
    return Port(view.name, tensor.shape, spread.external[tensor.name], shape, view.axes, view.unsigned, tensor.bits)


def _verified(spread: Spread) -> list[tuple[tuple[WrittenTensor, ...], tuple[SpilledTensor, ...]]]:
    """What verification finds of each core: of tensors of which each part is on some core.

    A slice may be copied on one core, and on another one not.
    """
    found = [([*_written(plan)], [*_spilled(plan)]) for plan in spread.plans]
    sizes: Counter[str] = Counter()
    for written, spilled in found:
        for tensor in (*written, *spilled):
            sizes[tensor.name] += math.prod(tensor.shape)
    whole = {name for name, size in sizes.items() if size >= math.prod(spread.graph.tensors[name].shape)}
    return [
        (tuple(one for one in written if one.name in whole), tuple(one for one in spilled if one.name in whole))
        for written, spilled in found
    ]


def _spilled(plan: Plan) -> Iterator[SpilledTensor]:
    """The tensors that are never whole in the feature memory, and that the model has too."""
    for name, address in plan.external.items():
        tensor = plan.graph.tensors[name]
        if plan.root(name) not in plan.spans and name not in plan.graph.inputs and tensor.views:
            excerpt = plan.excerpt_of(name)
            row, channel = excerpt.region.rows.start, excerpt.region.channels.start
            is_dense = excerpt.tensor.pixel_bytes == tensor.pixel_bytes
            pitch = 0 if is_dense else excerpt.tensor.pixel_bytes
            yield SpilledTensor(
                excerpt.tensor.name, address, tensor.shape, tensor.bits, tensor.order, row, channel, pitch
            )


def _written(plan: Plan) -> Iterator[WrittenTensor]:
    """The tensors that verification compares, each with the last command of its last writer."""
    for name, layer in observed(plan):
        tensor, storage = plan.graph.tensors[name], plan.storages[name]
        excerpt = plan.excerpt_of(name)
        yield WrittenTensor(
            excerpt.tensor.name,
            plan.predictions[layer].commands[-1],
            storage.origin,
            storage.row_pitch,
            storage.pixel_pitch,
            tensor.shape,
            tensor.bits,
            tensor.order,
            excerpt.region.rows.start,
            excerpt.region.channels.start,
        )
