"""Emit: lay out the arena and encode the program."""

from __future__ import annotations

from collections.abc import Iterator

from ....golden.isa import COMMAND_BYTES, END, LOAD
from ....golden.memories import LocalMemory
from ....golden.program.program import Program
from ....golden.program.queues import CoreProgram, QueueProgram, Queues
from ....golden.program.tensors import Port, SpilledTensor, WrittenTensor
from ....golden.units import Queue
from ...graph import Tensor
from ..data.plan import Plan
from ..layout.arena import ALIGNMENT, aligned
from ..schedule.observed import observed
from .outline import outline


def emit(plan: Plan, config_name: str) -> Program:
    """Encode a finished plan: inputs and outputs first in the arena, then constants, then commands."""
    graph, config = plan.graph, plan.config
    constants, address = bytearray(), plan.constants_address
    loads = []
    for memory, image in plan.images.items():
        if image:
            loads.append(
                LOAD.encode(
                    external=address + len(constants),
                    memory=memory,
                    row_pieces=1,
                    piece_bytes=len(image),
                    rows=1,
                    folds=1,
                )
            )
            constants += image + bytes(-len(image) % ALIGNMENT)
    constants += plan.streamed
    address += len(constants)

    # In this order in the arena, each with END after it.
    streams = [loads, [], *([command.encode() for command in plan.queue(queue)] for queue in Queue)]
    placed = []
    for stream in streams:
        placed.append(QueueProgram(b"".join((*stream, END.encode())), address))
        # Two commands are one burst of 64-bit beats if they begin at a multiple of its size.
        address += aligned(len(placed[-1].commands))
    core = CoreProgram(Queues(*placed[:2]), Queues(*placed[2:]), tuple(plan.predictions), tuple(_written(plan)))

    return Program(
        config_hash=config.hash,
        config_name=config_name,
        cores=(core,),
        arena_bytes=address,
        constants=bytes(constants),
        constants_address=plan.constants_address,
        inputs=tuple(_port(plan, graph.tensors[name]) for name in graph.inputs),
        outputs=tuple(_port(plan, graph.tensors[name]) for name in graph.outputs),
        spilled=tuple(_spilled(plan)),
        predicted_cycles=plan.predicted_cycles,
        outline=outline(plan),
        batch=graph.batch,
        head=graph.head.data,
        tail=graph.tail.data,
        model=graph.model.data,
    )


def check_program(plan: Plan, program: Program) -> None:
    """What only the encoded program can show: END last, everything within the arena."""
    for queues in (program.core.prologue, program.core.body):
        for queue in Queue:
            commands, start = queues[queue].commands, queues[queue].address
            assert commands[-COMMAND_BYTES:] == END.encode(), "a queue without END"
            assert start % COMMAND_BYTES == 0, "a queue that begins within a command"
            assert start + len(commands) <= program.arena_bytes, "a queue beyond the arena"
    ports = zip((*plan.graph.inputs, *plan.graph.outputs), (*program.inputs, *program.outputs), strict=True)
    for name, size in (
        *((name, port.size_bytes) for name, port in ports),
        *((tensor.name, tensor.size_bytes) for tensor in (*program.core.written, *program.spilled)),
    ):
        assert size == plan.graph.tensors[name].size_bytes, f"{name} of another element width"
    assert program.constants.endswith(plan.streamed), "streamed constants are not where they are looked for"
    for arrival in plan.arrivals:
        assert program.constants_address <= arrival.external, "streamed constants among other things"
    assert LocalMemory.FEATURE not in plan.images, "the feature memory has no constants"


def _port(plan: Plan, tensor: Tensor) -> Port:
    view = tensor.views[0]
    return Port(view.name, tensor.shape, plan.external[tensor.name], view.shape, view.axes, view.unsigned, tensor.bits)


def _spilled(plan: Plan) -> Iterator[SpilledTensor]:
    """The tensors that are never whole in the feature memory, and that the model has too."""
    for name, address in plan.external.items():
        tensor = plan.graph.tensors[name]
        if plan.root(name) not in plan.spans and name not in plan.graph.inputs and tensor.views:
            yield SpilledTensor(name, address, tensor.shape, tensor.bits, tensor.order)


def _written(plan: Plan) -> Iterator[WrittenTensor]:
    """The tensors that verification compares, each with the last command of its last writer."""
    for name, layer in observed(plan):
        tensor, storage = plan.graph.tensors[name], plan.storages[name]
        yield WrittenTensor(
            name,
            plan.predictions[layer].commands[-1],
            storage.origin,
            storage.row_pitch,
            storage.pixel_pitch,
            tensor.shape,
            tensor.bits,
            tensor.order,
        )
