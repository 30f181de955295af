"""The outline of a finished plan: what reports say of a program and its commands do not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ....golden.isa import Fill, Load, Opcode
from ....golden.memories import LocalMemory
from ....golden.program import outline
from ....golden.program.outline import NONE, Block, CoreOutline, LayerOutline, Outline, QueueOutline, Row
from ....golden.units import Queue
from ...graph import ChannelRule
from ...graph.evaluate import describe
from ...program.body import bus_bytes
from ..layout.constants import segment_of
from ..operation import Command, Constant, Job, Stored
from ..plan import Plan, Spread
from ..storage import Residence, unit_bytes

# Memory map: what a finished plan keeps in each memory, layer by layer, for people.


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
            image if memory is LocalMemory.TABLE and isinstance(image, bytes) else b"",
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
            moved[command.layer][command.opcode] += bus_bytes(command.fields)
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


# Residences as reports show them: what lies in the feature memory in an inference, and which commands touch it.


@dataclass(eq=False)
class _Touched:
    """A residence with the commands that move what lies there, and those that read it."""

    residence: Residence
    moved: list[Command] = field(default_factory=list)
    read: list[Command] = field(default_factory=list)


def residences_of(plan: Plan) -> list[outline.Residence]:
    """Every residence of a finished plan that some command touches, in the order of the first job that does."""
    found = [_Touched(residence) for residence in plan.residences]
    _add_computes(plan, found)
    owners = _owners(plan)
    for command in plan.commands:
        if command in owners:
            found[owners[command]].moved.append(command)
    # A part that lies wholly in the border has no bytes.
    numbers = {id(command): number for queue in Queue for number, command in enumerate(plan.queue(queue))}
    return [_shown(plan, touched, numbers) for touched in found if touched.moved or touched.read]


def _add_computes(plan: Plan, found: Sequence[_Touched]) -> None:
    """Add the commands of each job to what it writes and to what it reads."""
    latest, begun = _nobody(plan), 0
    for number, (job, commands) in enumerate(zip(plan.jobs, plan.computes, strict=True)):
        while begun < len(found) and found[begun].residence.first <= number:
            latest[_place(found[begun].residence)] = begun
            begun += 1
        # What is there at one time does not overlap, and residences are in the order of their first job.
        target, *sources = (int(latest[storage.address]) for storage in (job.target, *job.sources))
        here = {owner for owner in (target, *sources) if owner >= 0 and found[owner].residence.last >= number}
        if target in here:
            found[target].moved.extend(commands)
        for owner in here - {target}:
            found[owner].read.extend(commands)


def _owners(plan: Plan) -> dict[Command, int]:
    """Whose bytes each command of the DMA queue moves, of all that lie at an address one after the other.

    What is written is for the first that is still needed, what is stored is of the last that has begun. Both are walked
    in the order in which residences come to be asked about, so that each of them is taken once.
    """
    position = {command: number for number, command in enumerate(plan.commands)}
    moving = [(command, address) for command in plan.commands if (address := _address(command)) is not None]
    owners: dict[Command, int] = {}

    def begin(residence: Residence) -> int:
        return -1 if residence.first < 0 else position[plan.computes[residence.first][0]]

    def end(residence: Residence) -> int:
        return len(position) if residence.last >= len(plan.jobs) else position[plan.computes[residence.last][-1]]

    latest, begun = _nobody(plan), 0
    for command, address in moving:
        if command.opcode is Opcode.STORE:
            while begun < len(plan.residences) and begin(plan.residences[begun]) < position[command]:
                latest[_place(plan.residences[begun])] = begun
                begun += 1
            owners[command] = int(latest[address])
    ending = sorted(range(len(plan.residences)), key=lambda number: end(plan.residences[number]))
    earliest = np.full(plan.config.memory.feature_bytes, len(plan.residences))
    for command, address in reversed(moving):
        if command.opcode is not Opcode.STORE:
            while ending and end(plan.residences[ending[-1]]) > position[command]:
                number = ending.pop()
                place = _place(plan.residences[number])
                earliest[place] = np.minimum(earliest[place], number)
            owners[command] = int(earliest[address])
    return owners


def _nobody(plan: Plan) -> npt.NDArray[np.int64]:
    """The number of a residence for each byte of the feature memory: of none yet."""
    return np.full(plan.config.memory.feature_bytes, -1)


def _place(residence: Residence) -> slice:
    """Its bytes in the feature memory."""
    storage = residence.storage
    return slice(storage.address, storage.address + storage.size_bytes)


def _shown(plan: Plan, touched: _Touched, numbers: Mapping[int, int]) -> outline.Residence:
    name, storage = touched.residence.tensor, touched.residence.storage
    return outline.Residence(
        name,
        storage.address,
        storage.size_bytes,
        is_whole=name in plan.spans and plan.storages[name] == storage,
        dma=tuple(numbers[id(command)] for command in touched.moved if command.queue is Queue.DMA),
        written=tuple(numbers[id(command)] for command in touched.moved if command.queue is Queue.COMPUTE),
        read=tuple(numbers[id(command)] for command in touched.read),
    )


def _address(command: Command) -> int | None:
    """An address of the feature memory that a command of the DMA queue writes or reads; None where it does not."""
    if command.opcode is Opcode.STORE:
        return int(command.reads[0])
    fields = command.fields
    is_feature = isinstance(fields, Fill) or (isinstance(fields, Load) and fields.memory == LocalMemory.FEATURE)
    return int(command.writes[0]) if is_feature else None


def outline_of(spread: Spread) -> Outline:
    """What the compiler has decided, for reports."""
    cores = tuple(_core(plan) for plan in spread.plans)
    graph = spread.graph
    return Outline(
        cores=cores,
        rows=tuple(_rows(spread)),
        notes=tuple(graph.notes),
        transfer_functions=sum(
            table is not None for layer in graph.layers for table in (layer.table, *layer.input_tables)
        ),
        spilled_bytes=sum(map(_spilled_bytes, spread.plans, cores)),
        tried=spread.tried,
    )


def _spilled_bytes(plan: Plan, core: CoreOutline) -> int:
    names = {name for layer in core.layers for name in layer.spilled}
    return sum(plan.graph.tensors[name].size_bytes for name in names)


def _core(plan: Plan) -> CoreOutline:
    return CoreOutline(
        dma=_queue(plan.queue(Queue.DMA)),
        compute=_queue(plan.queue(Queue.COMPUTE)),
        layers=tuple(layer_outlines(plan)),
        blocks=tuple(constant_blocks(plan)),
        residences=tuple(residences_of(plan)),
    )


def _queue(commands: list[Command]) -> QueueOutline:
    return QueueOutline(
        layers=tuple(_index(command.layer) for command in commands),
        waits_for=tuple(_index(command.waits_for) for command in commands),
        begins=tuple(int(command.begin) for command in commands),
        ends=tuple(int(command.end) for command in commands),
    )


def _index(value: int | None) -> int:
    return NONE if value is None else int(value)


def _rows(spread: Spread) -> Iterator[Row]:
    """The network's operations, with those that the compiler has added, and the executed layers that each one is."""
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
        # What a layer is split into ends with the one that has its name.
        while True:
            found, own = next(left)
            places = tuple(of_core.get(own.output, NONE) for of_core in numbers)
            yield Row(found.layer, found.kind, found.where, found.input_shape, found.output_shape, places)
            if own.name == layer.name:
                break
