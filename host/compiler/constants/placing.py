"""Constants: where weights, parameters, tables and step lists lie, and when those that do not stay are loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....golden.memories import LocalMemory, constant_memories
from ..data.arrival import Arrival
from ..data.constant import Stored
from ..data.errors import CompileError
from ..data.job import Job
from ..data.plan import Plan
from ..data.storage import NO_ADDRESSES, Addresses
from ..data.units import capacity, unit_bytes, unit_numbers
from ..layout.arena import aligned
from .segments import TILED, Item, choose_streamed, load_cycles, segment_of


@dataclass(frozen=True, slots=True)
class _Piece:
    """What a job needs of one memory: an image, and how far into it."""

    image: bytes | Stored
    offset: int
    is_streamed: bool


def place_constants(plan: Plan) -> Plan:
    """Put the constants of all jobs into their memories, equal ones once, and tell every job where they are.

    Raises
    ------
    CompileError
        If what one job needs exceeds a memory.
    """
    plan.images, plan.arrivals = {}, []
    pieces = {memory: _pieces(plan, memory) for memory in constant_memories(plan.config)}
    residents = {memory: _residents(plan, memory, pieces[memory]) for memory in constant_memories(plan.config)}
    for memory, addresses in residents.items():
        plan.images[memory] = b"".join(addresses)
    places: list[dict[LocalMemory, int]] = [{} for _ in plan.jobs]
    streamed: list[list[Addresses]] = [[NO_ADDRESSES] for _ in plan.jobs]
    for memory in constant_memories(plan.config):
        ring = _Ring(plan, memory, plan.streamed_address + len(plan.streamed))
        for number, piece in pieces[memory].items():
            start = residents[memory].get(piece.image)
            if start is None:
                start = ring.take(number, piece.image)
                size = len(piece.image) // unit_bytes(plan.config, memory)
                streamed[number].append(unit_numbers(plan.config, memory, start, size))
            places[number][memory] = piece.offset + start
        plan.streamed += ring.images
    plan.jobs = [
        dataclasses.replace(job, addresses=addresses, streamed=np.concatenate(read))
        for job, addresses, read in zip(plan.jobs, places, streamed, strict=True)
    ]
    return plan


def check_constants(plan: Plan) -> None:
    """What stays and what comes and goes do not overlap, and both fit their memories."""
    for memory, image in plan.images.items():
        first = len(image) // unit_bytes(plan.config, memory)
        assert first <= capacity(plan.config, memory), memory.name
        for arrival in plan.arrivals:
            if arrival.memory is memory:
                assert first <= arrival.address, memory.name
                assert arrival.address + arrival.size <= capacity(plan.config, memory), memory.name
                assert arrival.release < arrival.deadline, memory.name


def _pieces(plan: Plan, memory: LocalMemory) -> dict[int, _Piece]:
    """What each job needs of a memory."""
    pieces, unit = {}, unit_bytes(plan.config, memory)
    parts: dict[tuple[int, range], bytes | Stored] = {}
    for number, job in enumerate(plan.jobs):
        operation = plan.operations[job.index]
        constant = (operation.constants | operation.job_constants(job)).get(memory)
        if constant is None:
            continue
        if not constant.tile_bytes:
            pieces[number] = _Piece(constant.image, 0, is_streamed=False)
            continue
        segment = segment_of(plan, memory, job)
        offset = constant.size(range(segment.tiles.start, job.tiles.start)) // unit
        # The jobs of a layer share what is large. Step lists may be each job's own.
        image = constant.part(segment.tiles)
        if memory in TILED:
            image = parts.setdefault((job.index, segment.tiles), image)
        pieces[number] = _Piece(image, offset, segment.is_streamed)
    return pieces


def _residents(plan: Plan, memory: LocalMemory, pieces: dict[int, _Piece]) -> dict[bytes, int]:
    """The images that stay in a memory, each with its first unit, in the order of their first use."""
    unit, room = unit_bytes(plan.config, memory), capacity(plan.config, memory)
    images = dict.fromkeys(piece.image for piece in pieces.values() if not piece.is_streamed)
    sizes = {image: len(image) // unit for image in images}
    streams = any(piece.is_streamed for piece in pieces.values())
    if not streams and sum(sizes.values()) > room:
        for image in _superfluous(plan, memory, pieces, sizes):
            del images[image]
    addresses, first = {}, 0
    for image in images:
        addresses[image] = first
        first += sizes[image]
    return addresses


def _superfluous(
    plan: Plan, memory: LocalMemory, pieces: dict[int, _Piece], sizes: dict[bytes, int]
) -> Iterator[bytes]:
    """The images of a memory that are streamed because not all of them fit."""
    room, most = capacity(plan.config, memory), max(sizes.values())
    if most > room:
        number = next(number for number, piece in pieces.items() if sizes[piece.image] == most)
        # The presets have the same, whatever their size.
        remedy = "a --config with more list_entries" if memory is LocalMemory.LIST else "a larger --config"
        raise CompileError(
            f"{plan.graph.layers[plan.jobs[number].index].name}: it needs {most * unit_bytes(plan.config, memory)} "
            f"bytes of {memory.title}, the configuration has {plan.config.size_bytes(memory)}; choose {remedy}"
        )
    loads, times, before = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0), None
    for number, piece in pieces.items():
        loads[piece.image] += piece.image is not before
        times[piece.image] += _cycles(plan, plan.jobs[number])
        before = piece.image
    items = [
        Item(size, loads[image], load_cycles(plan.config, memory, size), times[image]) for image, size in sizes.items()
    ]
    chosen, _ = choose_streamed(items, sum(sizes.values()) - max(room - 2 * most, 0))
    return (image for image, is_chosen in zip(sizes, chosen, strict=True) if is_chosen)


def _cycles(plan: Plan, job: Job) -> int:
    return plan.operations[job.index].cycles(len(job.rows), len(job.columns), job.tiles)


class _Ring:
    """What is streamed into the rest of a memory, one image after the other, over and over.

    Parameters
    ----------
    plan : Plan
        Its arrivals are added to.
    memory : LocalMemory
    external : int
        Where the images lie in the arena.

    Attributes
    ----------
    images : bytearray
        All that is streamed.
    """

    def __init__(self, plan: Plan, memory: LocalMemory, external: int):
        self.plan = plan
        self.memory = memory
        self.external = external
        self.unit = unit_bytes(plan.config, memory)
        self.start = len(plan.images[memory]) // self.unit
        self.end = capacity(plan.config, memory)
        self.next = self.start
        self.images = bytearray()
        self._external: dict[bytes, int] = {}
        self._here: dict[bytes | Stored, range] = {}
        #: The last job that uses what each unit holds.
        self._used = np.full(self.end, -1)

    def take(self, job: int, image: bytes | Stored) -> int:
        """The first unit of an image for the next job; it is loaded unless it is there."""
        if image not in self._here:
            self._load(job, image)
        place = self._here[image]
        self._used[place.start : place.stop] = job
        return place.start

    def _load(self, job: int, image: bytes | Stored) -> None:
        size = len(image) // self.unit
        if self.next + size > self.end:
            self.next = self.start
        place = range(self.next, self.next + size)
        self.next = place.stop
        self._here = {
            other: there
            for other, there in self._here.items()
            if there.stop <= place.start or place.stop <= there.start
        }
        self._here[image] = place
        release = int(self._used[place.start : place.stop].max())
        tensor = image.tensor if isinstance(image, Stored) else None
        self.plan.arrivals.append(Arrival(self.memory, place.start, size, self._address(image), release, job, tensor))

    def _address(self, image: bytes | Stored) -> int:
        """Where an image lies in the arena."""
        if isinstance(image, Stored):
            return self.plan.external[image.tensor] + image.first
        if image not in self._external:
            self._external[image] = self.external + len(self.images)
            self.images += image + bytes(aligned(len(image)) - len(image))
        return self._external[image]
