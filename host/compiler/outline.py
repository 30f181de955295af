"""The outline of a plan: layers, commands and memories, as reports and program files have them.

:mod:`lutterfly.golden.program.outline` has the records.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...golden.isa import Fill, Load, Opcode
from ...golden.memories import LocalMemory
from ...golden.program.outline import NONE, Block, CoreOutline, LayerOutline, Outline, PlacedTensor, QueueOutline, Row
from ...golden.timing.issue import issue_steps
from ...golden.units import Queue
from ..graph import ChannelRule, Layer
from ..graph.evaluate import describe
from ..program import bus_beats, bus_bytes
from .layout.constants import segment_of
from .network import Network
from .operation import Command, Constant, Job, Stored, SyncedCommand, TimedCommand
from .plan import Divided, Loaded, Placed, Plan, Scheduled, Spread
from .storage import LiveRange, unit_bytes

# Constants: where they lie in each memory, and which layers use them.


def constant_blocks(plan: Loaded) -> list[Block]:
    """List everything in the memories for constants: by memory, resident constants first, then by address."""
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
            image if memory is LocalMemory.TABLE and isinstance(image, bytes) else b"",
        )
        for memory, is_streamed, address, image, layers in sorted(blocks, key=lambda block: block[:3])
    ]


def _images(plan: Loaded, job: Job) -> Iterator[tuple[LocalMemory, bytes | Stored, int]]:
    """Give each image that a job uses, whole, and its address in bytes."""
    operation = plan.operations[job.index]
    for memory, constant in (operation.constants | operation.job_constants(job)).items():
        image, offset = _piece(plan, memory, constant, job)
        yield memory, image, job.addresses[memory] * unit_bytes(plan.config, memory) - offset


def _piece(plan: Loaded, memory: LocalMemory, constant: Constant, job: Job) -> tuple[bytes | Stored, int]:
    """Return the part of a constant that lies together with a job's first tile, and the bytes before that tile."""
    if not constant.tile_bytes:
        return constant.image, 0
    tiles = segment_of(plan, memory, job).tiles
    return constant.part(tiles), constant.size(range(tiles.start, job.tiles.start))


# Layers: their work, their predicted cycles, and their memory.


def layer_outlines(plan: Scheduled, issues: Sequence[tuple[int, int]]) -> tuple[LayerOutline, ...]:
    """Outline the layers of a core, in order of execution.

    Parameters
    ----------
    plan : Scheduled
    issues : sequence of tuple of int
        The predicted cycles of the first and of the last issue of each COMPUTE command.
    """
    indices: list[list[int]] = [[] for _ in plan.graph.layers]
    for number, command in enumerate(plan.queue(Queue.COMPUTE)):
        assert command.layer is not None, "every COMPUTE is of a layer"
        indices[command.layer].append(number)
    of_layer: list[list[SyncedCommand]] = [[] for _ in plan.graph.layers]
    for command in plan.commands:
        if command.layer is not None:
            of_layer[command.layer].append(command)
    weights, streamed_weights = Counter[int](), Counter[int]()
    for block in constant_blocks(plan):
        if block.memory == LocalMemory.WEIGHT.name:
            for index in block.layers:
                weights[index] += block.size_bytes
                streamed_weights[index] += block.size_bytes * block.is_streamed
    feature_bytes, found, before = _feature_bytes(plan), list[LayerOutline](), 0
    for index, (layer, own, commands) in enumerate(zip(plan.graph.layers, indices, of_layer, strict=True)):
        operation, ends, last = plan.operations[index], plan.graph.ends(layer), issues[own[-1]][1]
        connectivity, partial = operation.connectivity, plan.partial(index)
        array = sum(issues[number][1] - issues[number][0] + 1 for number in own)
        bus = sum(bus_beats(plan.config, command.fields) for command in commands)
        moved = Counter[Opcode]()
        for command in commands:
            moved[command.opcode] += bus_bytes(command.fields)
        outline = LayerOutline(
            name=layer.name,
            kind=_kind(plan, layer),
            operation=layer.describe(*ends),
            is_depthwise=layer.channel_rule(*ends) is ChannelRule.TIED,
            commands=tuple(own),
            macs=layer.macs(plan.graph.tensors[layer.output].shape),
            cycles=last - before,
            array_cycles=sum(issue_steps(command.fields) for command in commands if command.queue is Queue.COMPUTE),
            bus_cycles=bus,
            bound="bus" if bus > array else "array",
            fold=operation.fold,
            at_once=operation.macs_at_once,
            connections=connectivity.connections,
            live_connections=connectivity.live_connections,
            dense_words=connectivity.dense_words,
            model_words=connectivity.words,
            words=connectivity.words,
            dense_cycles=last - before + connectivity.saved_cycles,
            copied_bytes=operation.written_bytes if layer.is_copy else 0,
            loaded_bytes=moved[Opcode.LOAD],
            stored_bytes=moved[Opcode.STORE],
            weight_bytes=weights[index],
            streamed_weight_bytes=streamed_weights[index],
            feature_bytes=feature_bytes[index],
            in_parts=tuple(sorted(partial)),
            spilled=tuple(sorted(partial - {*plan.graph.inputs, *plan.graph.outputs})),
        )
        found.append(outline)
        before = last
    return tuple(found)


def _kind(plan: Network, layer: Layer) -> str:
    """Name a layer's kind, for people."""
    kind = plan.graph.kind_of(layer)
    return kind if layer.is_table or layer.table is None else f"{kind}, table"


def _feature_bytes(plan: Divided) -> list[int]:
    """Return the most bytes of the feature memory that are in use during a job of each layer."""
    change = [0] * (len(plan.jobs) + 1)
    for live_range in plan.live_ranges:
        change[max(live_range.first, 0)] += live_range.storage.size_bytes
        # Tensors for the host leave after the last job.
        change[min(live_range.last + 1, len(plan.jobs))] -= live_range.storage.size_bytes
    most = [0] * len(plan.graph.layers)
    for job, taken in zip(plan.jobs, itertools.accumulate(change), strict=False):
        most[job.index] = max(most[job.index], taken)
    return most


# Placed tensors: the contents of the feature memory in an inference, and the commands that touch each of them.


@dataclass(eq=False)
class _Touched:
    """A live range with the commands that move what lies there, and those that read it."""

    live_range: LiveRange
    moved: list[Command] = field(default_factory=list)
    read: list[Command] = field(default_factory=list)


def placed_tensors(plan: Scheduled) -> list[PlacedTensor]:
    """List every live range that some command touches, in the order of the first job that does."""
    found = [_Touched(live_range) for live_range in plan.live_ranges]
    _add_computes(plan, found)
    owners = _owners(plan)
    for command in plan.commands:
        if command in owners:
            found[owners[command]].moved.append(command)
    # A part that lies wholly in the border has no bytes.
    numbers = {id(command): number for queue in Queue for number, command in enumerate(plan.queue(queue))}
    return [_shown(plan, touched, numbers) for touched in found if touched.moved or touched.read]


def _add_computes(plan: Scheduled, found: Sequence[_Touched]) -> None:
    """Add the commands of each job to what it writes and to what it reads."""
    latest, begun = _nobody(plan), 0
    for number, (job, commands) in enumerate(zip(plan.jobs, plan.computes, strict=True)):
        while begun < len(found) and found[begun].live_range.first <= number:
            latest[_place(found[begun].live_range)] = begun
            begun += 1
        # Live ranges of one time do not overlap, and they are in the order of their first job.
        target, *sources = (int(latest[storage.address]) for storage in (job.target, *job.sources))
        here = {owner for owner in (target, *sources) if owner >= 0 and found[owner].live_range.last >= number}
        if target in here:
            found[target].moved.extend(commands)
        for owner in here - {target}:
            found[owner].read.extend(commands)


def _owners(plan: Scheduled) -> dict[Command, int]:
    """Number the live range whose bytes each command of the DMA queue moves, of all that use an address in turn.

    A command that writes serves the first live range that is still needed; one that stores serves the last that has
    begun. Both walks follow the order of the live ranges, so that each of them is taken once.
    """
    position: dict[Command, int] = {command: number for number, command in enumerate(plan.commands)}
    moving = [(command, address) for command in plan.commands if (address := _address(command)) is not None]
    owners: dict[Command, int] = {}

    def begin(live_range: LiveRange) -> int:
        return -1 if live_range.first < 0 else position[plan.computes[live_range.first][0]]

    def end(live_range: LiveRange) -> int:
        return len(position) if live_range.last >= len(plan.jobs) else position[plan.computes[live_range.last][-1]]

    latest, begun = _nobody(plan), 0
    for command, address in moving:
        if command.opcode is Opcode.STORE:
            while begun < len(plan.live_ranges) and begin(plan.live_ranges[begun]) < position[command]:
                latest[_place(plan.live_ranges[begun])] = begun
                begun += 1
            owners[command] = int(latest[address])
    ending = sorted(range(len(plan.live_ranges)), key=lambda number: end(plan.live_ranges[number]))
    earliest = np.full(plan.config.memory.feature_bytes, len(plan.live_ranges))
    for command, address in reversed(moving):
        if command.opcode is not Opcode.STORE:
            while ending and end(plan.live_ranges[ending[-1]]) > position[command]:
                number = ending.pop()
                place = _place(plan.live_ranges[number])
                earliest[place] = np.minimum(earliest[place], number)
            owners[command] = int(earliest[address])
    return owners


def _nobody(plan: Network) -> npt.NDArray[np.int64]:
    """Make an array with the number of a live range for each byte of the feature memory: that of none yet."""
    return np.full(plan.config.memory.feature_bytes, -1)


def _place(live_range: LiveRange) -> slice:
    """Return its bytes in the feature memory."""
    storage = live_range.storage
    return slice(storage.address, storage.address + storage.size_bytes)


def _shown(plan: Placed, touched: _Touched, numbers: Mapping[int, int]) -> PlacedTensor:
    name, storage = touched.live_range.tensor, touched.live_range.storage
    return PlacedTensor(
        name,
        storage.address,
        storage.size_bytes,
        is_whole=name in plan.spans and plan.storages[name] == storage,
        dma=tuple(numbers[id(command)] for command in touched.moved if command.queue is Queue.DMA),
        written=tuple(numbers[id(command)] for command in touched.moved if command.queue is Queue.COMPUTE),
        read=tuple(numbers[id(command)] for command in touched.read),
    )


def _address(command: Command) -> int | None:
    """Return an address of the feature memory that a command of the DMA queue writes or reads, None if it does not."""
    if command.opcode is Opcode.STORE:
        return int(command.reads[0])
    fields = command.fields
    is_feature = isinstance(fields, Fill) or (isinstance(fields, Load) and fields.memory == LocalMemory.FEATURE)
    return int(command.writes[0]) if is_feature else None


# The whole: of each core, and of the network.


def core_outline(plan: Plan) -> CoreOutline:
    """Outline the commands and the memories of a core."""
    return CoreOutline(
        dma=_queue(plan.queue(Queue.DMA)),
        compute=_queue(plan.queue(Queue.COMPUTE)),
        blocks=tuple(constant_blocks(plan)),
        placed=tuple(placed_tensors(plan)),
    )


def network_outline(spread: Spread) -> Outline:
    """Outline the network as a whole."""
    graph = spread.graph
    return Outline(
        rows=tuple(_rows(spread)),
        notes=tuple(graph.notes),
        transfer_functions=sum(
            table is not None for layer in graph.layers for table in (layer.table, *layer.input_tables)
        ),
        spilled_bytes=sum(map(_spilled_bytes, spread.plans)),
        tried=spread.tried,
    )


def _spilled_bytes(plan: Plan) -> int:
    names = {name for layer in plan.predictions for name in layer.spilled}
    return sum(plan.graph.tensors[name].size_bytes for name in names)


def _queue(commands: Sequence[TimedCommand]) -> QueueOutline:
    return QueueOutline(
        layers=tuple(_index(command.layer) for command in commands),
        waits_for=tuple(_index(command.waits_for) for command in commands),
        begins=tuple(int(command.begin) for command in commands),
        ends=tuple(int(command.end) for command in commands),
    )


def _index(value: int | None) -> int:
    return NONE if value is None else int(value)


def _rows(spread: Spread) -> Iterator[Row]:
    """List the network's operations, with those that the compiler has added, and the executed layers of each."""
    given, executed = spread.given, spread.graph
    planned = [row for row in describe(executed) if row.where == "accelerator"]
    numbers = [{layer.output: number for number, layer in enumerate(plan.graph.layers)} for plan in spread.plans]
    left = iter(zip(planned, executed.layers, strict=True))
    kept = {layer.output for layer in executed.layers}
    layers = iter(given.layers)
    nowhere = (NONE,) * len(numbers)
    for row in describe(given):
        layer = next(layers) if row.where == "accelerator" else None
        if layer is None or (layer.is_copy and layer.output not in kept):
            yield Row(row.layer, row.kind, row.where, row.input_shape, row.output_shape, nowhere)
            continue
        # The parts of a layer that is split end with the one that has its name.
        while True:
            found, own = next(left)
            places = tuple(of_core.get(own.output, NONE) for of_core in numbers)
            yield Row(found.layer, found.kind, found.where, found.input_shape, found.output_shape, places)
            if own.name == layer.name:
                break
