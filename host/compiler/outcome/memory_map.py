"""Memory map: what a finished plan keeps in each memory, layer by layer, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ..constants.segments import segment_of
from ..data.command import Command
from ..data.constant import Constant
from ..data.job import Job
from ..data.plan import Plan
from ..data.units import unit_bytes


@dataclass(frozen=True, slots=True)
class Block:
    """Constants that lie together in their memory.

    Attributes
    ----------
    memory : LocalMemory
    address : int
        Where, in bytes; for what is streamed, the first time that it is loaded.
    image : bytes
    layers : tuple of int
        The layers that use it, in order: several share what is equal.
    is_streamed : bool
        Whether it is loaded in every inference.
    """

    memory: LocalMemory
    address: int
    image: bytes = field(repr=False)
    layers: tuple[int, ...]
    is_streamed: bool

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return len(self.image)


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """The memory that one layer needs.

    Attributes
    ----------
    weight_bytes, streamed_weight_bytes : int
        Of its weights as they lie in the weight memory, and of these what is loaded in every inference.
    feature_bytes : int
        Taken in the feature memory while it runs, at most: its own tensors and those that wait for later layers.
    in_parts, spilled : tuple of str
        Tensors that it reads or writes which are not whole in the feature memory while it runs, and those of them that
        go through external memory only because of that: they are neither inputs nor outputs of the accelerator.
    loaded_bytes, stored_bytes : int
        What LOADs and STOREs move for it over the bus in an inference.
    """

    weight_bytes: int
    streamed_weight_bytes: int
    feature_bytes: int
    in_parts: tuple[str, ...]
    spilled: tuple[str, ...]
    loaded_bytes: int
    stored_bytes: int


def constant_blocks(plan: Plan) -> list[Block]:
    """Everything in the memories for constants: by memory, what stays first, then by address."""
    users: dict[tuple[LocalMemory, bytes], list[int]] = {}
    places: dict[tuple[LocalMemory, bytes], int] = {}
    for job in plan.jobs:
        for memory, image, address in _images(plan, job):
            places.setdefault((memory, image), address)
            layers = users.setdefault((memory, image), [])
            if job.index not in layers:
                layers.append(job.index)
    blocks = [
        Block(memory, address, image, tuple(users[memory, image]), address >= len(plan.images[memory]))
        for (memory, image), address in places.items()
    ]
    return sorted(blocks, key=lambda block: (block.memory, block.is_streamed, block.address))


def layer_memory(plan: Plan) -> list[LayerMemory]:
    """The memory that each layer needs, in the order of the layers."""
    blocks = [block for block in constant_blocks(plan) if block.memory is LocalMemory.WEIGHT]
    moved = [{Opcode.LOAD: 0, Opcode.STORE: 0} for _ in plan.graph.layers]
    for command in plan.commands:
        if command.layer is not None and command.opcode in moved[command.layer]:
            moved[command.layer][command.opcode] += bus_bytes(command)
    return [
        LayerMemory(
            weight_bytes=sum(block.size_bytes for block in blocks if index in block.layers),
            streamed_weight_bytes=sum(
                block.size_bytes for block in blocks if index in block.layers and block.is_streamed
            ),
            feature_bytes=_feature_bytes(plan, index),
            in_parts=tuple(sorted(plan.partial(index))),
            spilled=tuple(sorted(plan.partial(index) - {*plan.graph.inputs, *plan.graph.outputs})),
            loaded_bytes=moved[index][Opcode.LOAD],
            stored_bytes=moved[index][Opcode.STORE],
        )
        for index in range(len(plan.graph.layers))
    ]


def bus_bytes(command: Command) -> int:
    """Bytes that a command moves over the bus; 0 for FILL and COMPUTE."""
    fields = command.fields
    if command.opcode is Opcode.LOAD:
        return fields["rows"] * fields["folds"] * fields["row_pieces"] * fields["piece_bytes"]
    return fields["rows"] * fields["row_bytes"] if command.opcode is Opcode.STORE else 0


def _images(plan: Plan, job: Job) -> Iterator[tuple[LocalMemory, bytes, int]]:
    """Each image that a job uses, whole, and its address in bytes."""
    operation = plan.operations[job.index]
    for memory, constant in (operation.constants | operation.job_constants(job)).items():
        image, offset = _piece(plan, memory, constant, job)
        yield memory, image, job.addresses[memory] * unit_bytes(plan.config, memory) - offset


def _piece(plan: Plan, memory: LocalMemory, constant: Constant, job: Job) -> tuple[bytes, int]:
    """The part of a constant that lies together with a job's first tile, and the bytes before that tile."""
    if not constant.tile_bytes:
        return constant.image, 0
    tiles = segment_of(plan, memory, job).tiles
    return constant.part(tiles), constant.size(range(tiles.start, job.tiles.start))


def _feature_bytes(plan: Plan, index: int) -> int:
    jobs = [number for number, job in enumerate(plan.jobs) if job.index == index]
    return max(
        sum(part.storage.size_bytes for part in plan.residences if part.first <= number <= part.last) for number in jobs
    )
