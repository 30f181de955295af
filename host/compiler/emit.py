"""Emit: lay out the arena and encode the program."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from ...golden.isa import COMMAND_BYTES, END, LOAD
from ...golden.memories import LocalMemory
from ...golden.program.program import CoreProgram, Port, Program, QueueProgram, Queues, SpilledTensor, WrittenTensor
from ...golden.units import Queue
from ..graph import Tensor
from .layout.placement import ALIGNMENT, aligned
from .network import CompileError
from .outline import core_outline, network_outline
from .plan import Plan, Spread
from .schedule.tokens import observed


def emit(spread: Spread, config_name: str) -> Program:
    """Encode a finished network.

    In the arena lies first what an inference needs: its tensors, streamed constants, commands. Then comes what only the
    prologue needs, constants and commands.
    """
    graph, config = spread.graph, spread.config
    streamed, streamed_address = _streamed(spread), min(plan.streamed_address for plan in spread.plans)
    streams = [[[command.encode() for command in plan.queue(queue)] for queue in Queue] for plan in spread.plans]
    bodies, body_bytes = _placed(streams, streamed_address + len(streamed))
    constants, loads = _constants(spread, body_bytes)
    prologues, arena_bytes = _placed([[own, []] for own in loads], body_bytes + len(constants))
    return Program(
        config_hash=config.hash,
        config_name=config_name,
        cores=tuple(
            CoreProgram(prologue, body, plan.predictions, written, spilled, core_outline(plan))
            for plan, prologue, body, (written, spilled) in zip(
                spread.plans, prologues, bodies, _verified(spread), strict=True
            )
        ),
        arena_bytes=arena_bytes,
        body_bytes=body_bytes,
        constants=constants,
        constants_address=body_bytes,
        streamed=streamed,
        streamed_address=streamed_address,
        inputs=tuple(_port(spread, graph.tensors[name]) for name in graph.inputs),
        outputs=tuple(_port(spread, graph.tensors[name]) for name in graph.outputs),
        predicted_cycles=spread.predicted_cycles,
        outline=network_outline(spread),
        batch=graph.batch * spread.shares,
        head=graph.head.data,
        tail=graph.tail.data,
        model=graph.model.data,
    )


def check_program(spread: Spread, program: Program) -> None:
    """Assert that queues end with END, and that everything lies within the arena."""
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
    first = program.streamed_address
    for plan in spread.plans:
        assert LocalMemory.FEATURE not in plan.images, "the feature memory has no constants"
        for arrival in plan.arrivals:
            own = range(first) if arrival.tensor else range(first, first + len(program.streamed))
            assert arrival.external in own, "streamed constants among other things"


def _placed(streams: Sequence[Sequence[Sequence[bytes]]], address: int) -> tuple[list[Queues], int]:
    """Place the queues of each core, with END after their commands, from an address on; give the address after them."""
    queues = []
    for of_core in streams:
        placed = []
        for stream in of_core:
            placed.append(QueueProgram(b"".join((*stream, END.encode())), address))
            # Two commands are one burst of 64-bit beats if they begin at a multiple of its size.
            address += aligned(len(placed[-1].commands))
        queues.append(Queues(*placed))
    return queues, address


def _streamed(spread: Spread) -> bytes:
    """Join the constants that all cores load in every inference; cores with equal ones share them."""
    start = min(plan.streamed_address for plan in spread.plans)
    streamed = bytearray()
    for plan in sorted(spread.plans, key=lambda plan: plan.streamed_address):
        offset = plan.streamed_address - start
        assert streamed[offset:] in (b"", plan.streamed), "constants of two cores in one place"
        streamed[offset:] = plan.streamed
    return bytes(streamed)


def _constants(spread: Spread, address: int) -> tuple[bytes, list[list[bytes]]]:
    """Join the resident constants, equal images once, from an address on; give the LOADs of each core as well."""
    constants, places = bytearray(), dict[bytes, int]()
    loads = list[list[bytes]]()
    for plan in spread.plans:
        loads.append([])
        for memory, image in plan.images.items():
            if not image:
                continue
            if image not in places:
                places[image] = address + len(constants)
                constants += image + bytes(-len(image) % ALIGNMENT)
            sizes = {"row_pieces": 1, "piece_bytes": len(image), "rows": 1, "folds": 1}
            loads[-1].append(LOAD.encode(external=places[image], memory=memory, **sizes))
    return bytes(constants), loads


def _port(spread: Spread, tensor: Tensor) -> Port:
    view, shares = tensor.views[0], spread.shares
    shape = (view.shape[0] * shares, *view.shape[1:])
    return Port(view.name, tensor.shape, spread.external[tensor.name], shape, view.axes, view.unsigned, tensor.bits)


def _verified(spread: Spread) -> list[tuple[tuple[WrittenTensor, ...], tuple[SpilledTensor, ...]]]:
    """List what verification compares on each core: tensors of which each part is on some core.

    A slice may be copied on one core, and on another one not.
    """
    found = [([*_written(plan)], [*_spilled(plan)]) for plan in spread.plans]
    sizes: Counter[str] = Counter()
    for written, spilled in found:
        tensors: list[WrittenTensor | SpilledTensor] = [*written, *spilled]
        for tensor in tensors:
            sizes[tensor.name] += math.prod(tensor.shape)
    whole = {name for name, size in sizes.items() if size >= math.prod(spread.graph.tensors[name].shape)}
    return [
        (tuple(one for one in written if one.name in whole), tuple(one for one in spilled if one.name in whole))
        for written, spilled in found
    ]


def _spilled(plan: Plan) -> Iterator[SpilledTensor]:
    """List the tensors that are never whole in the feature memory, and that the model has too."""
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
    """List the tensors that verification compares, each with the last command of its last writer."""
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


# The arena on the chip: whether an inference fits it, and what takes how much of it.

#: The most layers that a message names.
_NAMED = 3


#: The remedy where a program does not fit; a board, which has its own configuration, is another's to name.
OTHER_CONFIG = "; choose a --config with larger memories or with external memory"


def check_room(spread: Spread, program: Program) -> None:
    """Refuse a program of which an inference does not fit the arena on the chip; the prologue comes in windows.

    Raises
    ------
    CompileError
        If it does not fit; the message says what takes how much, and which layers load constants in every inference.
    """
    room = spread.config.arena.on_chip_bytes
    if not room or program.body_bytes <= room:
        return
    parts = ", ".join(f"{size} for {what}" for what, size in _parts(spread, program) if size)
    raise CompileError(
        f"an inference needs {program.body_bytes} bytes of the arena ({parts}), the configuration has {room} on the "
        f"chip{OTHER_CONFIG}"
    )


def _parts(spread: Spread, program: Program) -> Iterator[tuple[str, int]]:
    commands = sum(len(core.body[queue].commands) for core in program.cores for queue in Queue)
    yield "inputs, outputs and what does not fit the feature memory", program.streamed_address
    yield f"constants of {_streaming(spread)} that do not stay on the chip", len(program.streamed)
    yield "commands", commands


def _streaming(spread: Spread) -> str:
    """Name the first layers whose constants are streamed, and count the others."""
    names = dict.fromkeys(
        plan.graph.layers[plan.jobs[arrival.deadline].index].name
        for plan in spread.plans
        for arrival in plan.arrivals
        if not arrival.tensor
    )
    shown = [*names][:_NAMED]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(shown)}{more}"
