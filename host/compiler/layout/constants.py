"""Allocation of constants: those that are resident in their memories, and those that every inference loads again.

The weights and parameters of a layer are divided into segments of output tiles. Segments that do not fit are streamed
through a ring in the rest of the memory while the array works on other tiles. The ring holds two pieces, which leaves
most room for resident ones. Streamed pieces are chosen as evenly over the inference as the bus has time for them, those
that are loaded least often first.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....golden.config import Config
from ....golden.memories import LocalMemory, constant_memories
from ....golden.timing.overheads import OVERHEADS
from ..network import CompileError
from ..operation import Job, Stored
from ..plan import Addressed, Loaded, Placed, Segmented
from ..storage import NO_ADDRESSES, Addresses, Arrival, Segment, capacity, list_share, unit_bytes, unit_numbers
from .borders import head_start
from .cuts import Geometry, ranges
from .placement import aligned

#: Cycles of another job and another LOAD.
_JOB = 24
#: The memories whose constants may be streamed tile by tile.
TILED = (LocalMemory.WEIGHT, LocalMemory.PARAMETER)


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of constants that may be streamed.

    Attributes
    ----------
    size : int
        Size in units of its memory.
    loads : int
        Number of loads in an inference, if it is streamed.
    load : int
        Bus cycles of each load, plus the cycles by which the first layer begins later for it.
    time : int
        Array cycles in an inference that use it.
    """

    size: int
    loads: int
    load: int
    time: int

    @property
    def cost(self) -> int:
        """Bus cycles in an inference, if it is streamed."""
        return self.loads * self.load


def plan_segments(plan: Placed) -> Segmented:
    """Choose the segments of weights and of parameters that are streamed.

    Raises
    ------
    CompileError
        If the constants of one tile exceed their memory, together with those that all tiles of a layer share.
    """
    segments = {memory: _segments(plan, memory) for memory in TILED}
    segments[LocalMemory.LIST] = _apart(plan, LocalMemory.LIST, list_share(plan.config))
    segments[LocalMemory.TABLE] = _apart(plan, LocalMemory.TABLE, 1)
    return Segmented.of(plan, segments=segments)


def choose_streamed(items: Sequence[Item], excess: int) -> tuple[list[bool], float]:
    """Choose items of at least ``excess`` units in all, at an even pace.

    The bus earns credit while the array works on an item, and an item is streamed when there is enough credit for it.
    The pace is the least that streams enough.

    Returns
    -------
    list of bool
        Which of the items are streamed.
    float
        Bus cycles for each array cycle.
    """
    low, high = 0.0, 1.0
    while sum(item.size for item, chosen in zip(items, _paced(items, high), strict=True) if chosen) < excess:
        low, high = high, 2 * high
    for _ in range(20):
        pace = (low + high) / 2
        enough = sum(item.size for item, chosen in zip(items, _paced(items, pace), strict=True) if chosen) >= excess
        low, high = (low, pace) if enough else (pace, high)
    return _paced(items, high), high


def _paced(items: Sequence[Item], pace: float) -> list[bool]:
    credit, chosen = 0.0, []
    for item in items:
        credit += pace * item.time
        chosen.append(credit >= item.cost)
        if chosen[-1]:
            credit -= item.cost
    return chosen


def load_cycles(config: Config, memory: LocalMemory, units: int) -> int:
    """Return the bus cycles to load so many units of a memory."""
    return -(-units * unit_bytes(config, memory) // config.axi.data_bytes) + OVERHEADS.read_latency


def _segments(plan: Placed, memory: LocalMemory) -> dict[int, list[Segment]]:
    tile_units, room = _tile_units(plan, memory), capacity(plan.config, memory)
    stored = {index for index in tile_units if plan.operations[index].constants[memory].is_stored}
    whole = {index: [Segment(range(plan.operations[index].tiles), index in stored)] for index in tile_units}
    images = {
        constant.image: constant
        for operation in plan.operations
        for kind, constant in operation.constants.items()
        if kind is memory
    }
    if sum(map(len, images)) <= plan.config.size_bytes(memory) or not tile_units:
        return whole
    # Images without tiles of their own are resident.
    fixed = sum(len(image) for image, constant in images.items() if not constant.tile_bytes)
    fixed //= unit_bytes(plan.config, memory)
    best, least = None, 0.0
    size = 1 << max(room.bit_length() - 9, 0)
    # The ring holds two pieces. If there is room for one only, it is loaded while the array waits.
    while 2 * size <= room or (best is None and size <= room):
        pieces = {index: _pieces(plan, index, units, size) for index, units in tile_units.items()}
        items = {
            (index, tiles): _item(plan, memory, index, tiles, tile_units[index], len(pieces[index]))
            for index in tile_units
            for tiles in pieces[index]
        }
        # Constants that are known at run time only are always streamed, others only if they must be.
        always = {place: item for place, item in items.items() if place[0] in stored}
        movable = {place: item for place, item in items.items() if item.size <= size and place not in always}
        left = room - min(2 * size, room) - fixed
        left -= sum(item.size for place, item in items.items() if place not in movable | always)
        if left >= 0 and all(item.size <= min(2 * size, room) for item in always.values()):
            excess = sum(item.size for item in movable.values()) - left
            chosen, pace = choose_streamed([*movable.values()], excess)
            streamed = {place for place, is_chosen in zip(movable, chosen, strict=True) if is_chosen} | always.keys()
            cycles = _estimate([items[place] for place in streamed], pace, sum(item.time for item in items.values()))
            # The first piece of a layer comes while the layer before may need the bus itself.
            slowest: dict[int, int] = {}
            for place in streamed:
                slowest[place[0]] = max(slowest.get(place[0], 0), items[place].load)
            cycles += sum(slowest.values())
            if best is None or cycles < least:
                best, least = _merged(pieces, streamed), cycles
        size *= 2
    if best is None:
        unit, size = unit_bytes(plan.config, memory), plan.config.size_bytes(memory)
        index = max(tile_units, key=lambda index: max(tile_units[index]))
        needs = f"one tile of its output needs {max(tile_units[index]) * unit} bytes of {memory.title}"
        if fixed:
            needs += f" beside {fixed * unit} that tiles share"
        raise CompileError(
            f"{plan.graph.layers[index].name}: {needs}, the configuration has {size}; choose a larger --config"
        )
    return best


def _apart(plan: Placed, memory: LocalMemory, most: int) -> dict[int, list[Segment]]:
    """Return segments of ``most`` units of a memory with constants for each tile; streamed ones are chosen later."""
    return {
        index: [Segment(tiles, is_streamed=False) for tiles in _pieces(plan, index, units, most)]
        for index, units in _tile_units(plan, memory).items()
    }


def _tile_units(plan: Placed, memory: LocalMemory) -> dict[int, list[int]]:
    """Return the units of each tile, for layers with constants for each tile."""
    return {
        operation.index: [size // unit_bytes(plan.config, memory) for size in operation.constants[memory].tile_bytes]
        for operation in plan.operations
        if memory in operation.constants and operation.constants[memory].tile_bytes
    }


def _pieces(plan: Placed, index: int, units: Sequence[int], most: int) -> list[range]:
    """Return the tiles of a layer in pieces of ``most`` units, or of one tile, none across two blocks of the layer's
    cut."""
    block = plan.cuts[index][0].tiles if index in plan.cuts else len(units)
    found = []
    for tiles in ranges(len(units), block):
        start, size = tiles.start, 0
        for tile in tiles:
            if tile > start and size + units[tile] > most:
                found.append(range(start, tile))
                start, size = tile, 0
            size += units[tile]
        found.append(range(start, tiles.stop))
    return found


def _item(plan: Placed, memory: LocalMemory, index: int, tiles: range, units: Sequence[int], pieces: int) -> Item:
    operation = plan.operations[index]
    height, width, _ = plan.graph.tensors[operation.layer.output].shape
    parts = 1
    if index in plan.cuts:
        geometry = Geometry(plan, index, plan.cuts[index][0], plan.partial(index))
        parts = len(geometry.rows) * len(geometry.columns)
        # The only piece of a block stays in the ring for all parts.
        if pieces == len(geometry.tiles):
            parts = 1
    size = sum(units[tiles.start : tiles.stop])
    load = load_cycles(plan.config, memory, size) + (0 if index in plan.cuts else head_start(plan, operation))
    return Item(size, parts, load, operation.cycles(height, width, tiles))


def _estimate(streamed: Sequence[Item], pace: float, time: int) -> float:
    """Return the estimated cycles of an inference: the array waits where the bus is too slow, and each job costs
    some."""
    return time * max(pace, 1) + _JOB * sum(item.loads for item in streamed)


def _merged(pieces: dict[int, list[range]], streamed: set[tuple[int, range]]) -> dict[int, list[Segment]]:
    """Return the segments of all layers, with resident neighbours merged."""
    segments: dict[int, list[Segment]] = {}
    for index, layer_pieces in pieces.items():
        merged: list[Segment] = []
        for tiles in layer_pieces:
            if (index, tiles) not in streamed and merged and not merged[-1].is_streamed:
                merged[-1] = Segment(range(merged[-1].tiles.start, tiles.stop), is_streamed=False)
            else:
                merged.append(Segment(tiles, (index, tiles) in streamed))
        segments[index] = merged
    return segments


def segment_of(plan: Segmented, memory: LocalMemory, job: Job) -> Segment:
    """Return the segment that contains a job's tiles."""
    return next(segment for segment in plan.segments[memory][job.index] if job.tiles.start in segment.tiles)


def split(plan: Segmented, index: int, tiles: range) -> Iterator[range]:
    """Yield ``tiles`` of a layer in ranges, none across two segments."""
    edges = {tiles.start, tiles.stop}
    for segments in plan.segments.values():
        edges |= {segment.tiles.start for segment in segments.get(index, ()) if segment.tiles.start in tiles}
    ordered = sorted(edges)
    yield from (range(start, stop) for start, stop in itertools.pairwise(ordered))


# Constants get their addresses, and streamed ones the times of their loads.


@dataclass(frozen=True, slots=True)
class _Piece:
    """A job's constants in one memory: an image, and the job's offset into it."""

    image: bytes | Stored
    offset: int
    is_streamed: bool


def place_constants(plan: Addressed) -> Loaded:
    """Put the constants of all jobs into their memories, equal ones once, and set every job's addresses.

    Raises
    ------
    CompileError
        If the constants of one job exceed a memory.
    """
    memories = constant_memories(plan.config)
    pieces = {memory: _pieces_of_jobs(plan, memory) for memory in memories}
    residents = {memory: _residents(plan, memory, pieces[memory]) for memory in memories}
    images = {memory: b"".join(map(_known, residents[memory])) for memory in memories}
    places: list[dict[LocalMemory, int]] = [{} for _ in plan.jobs]
    read: list[list[Addresses]] = [[NO_ADDRESSES] for _ in plan.jobs]
    arrivals: list[Arrival] = []
    streamed = b""
    for memory in memories:
        ring = _Ring(plan, memory, len(images[memory]), plan.streamed_address + len(streamed))
        for number, piece in pieces[memory].items():
            start = residents[memory].get(piece.image)
            if start is None:
                start = ring.take(number, piece.image)
                size = len(piece.image) // unit_bytes(plan.config, memory)
                read[number].append(unit_numbers(plan.config, memory, start, size))
            places[number][memory] = piece.offset + start
        streamed += ring.images
        arrivals += ring.arrivals
    jobs = (
        dataclasses.replace(job, addresses=addresses, streamed=np.concatenate(units))
        for job, addresses, units in zip(plan.jobs, places, read, strict=True)
    )
    return Loaded.of(plan, jobs=tuple(jobs), images=images, arrivals=tuple(arrivals), streamed=streamed)


def check_constants(plan: Loaded) -> None:
    """Check that resident and streamed constants do not overlap, and that both fit their memories."""
    for memory, image in plan.images.items():
        first = len(image) // unit_bytes(plan.config, memory)
        assert first <= capacity(plan.config, memory), memory.name
        for arrival in plan.arrivals:
            if arrival.memory is memory:
                assert first <= arrival.address, memory.name
                assert arrival.address + arrival.size <= capacity(plan.config, memory), memory.name
                assert arrival.release < arrival.deadline, memory.name


def _known(image: bytes | Stored) -> bytes:
    assert isinstance(image, bytes), "what is known at run time only does not stay"
    return image


def _pieces_of_jobs(plan: Addressed, memory: LocalMemory) -> dict[int, _Piece]:
    """Return the constants of each job in a memory."""
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
        # The jobs of a layer share large images. Each job may have step lists of its own.
        image = constant.part(segment.tiles)
        if memory in TILED:
            image = parts.setdefault((job.index, segment.tiles), image)
        pieces[number] = _Piece(image, offset, segment.is_streamed)
    return pieces


def _residents(plan: Addressed, memory: LocalMemory, pieces: dict[int, _Piece]) -> dict[bytes | Stored, int]:
    """Return the resident images of a memory, each with its first unit, in the order of their first use."""
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
    plan: Addressed, memory: LocalMemory, pieces: dict[int, _Piece], sizes: dict[bytes | Stored, int]
) -> Iterator[bytes | Stored]:
    """Return the images of a memory that are streamed because not all of them fit."""
    room, most = capacity(plan.config, memory), max(sizes.values())
    if most > room:
        number = next(number for number, piece in pieces.items() if sizes[piece.image] == most)
        # All presets have the same number of list entries.
        remedy = "a --config with more list_entries" if memory is LocalMemory.LIST else "a larger --config"
        raise CompileError(
            f"{plan.graph.layers[plan.jobs[number].index].name}: it needs {most * unit_bytes(plan.config, memory)} "
            f"bytes of {memory.title}, the configuration has {plan.config.size_bytes(memory)}; choose {remedy}"
        )
    loads, times = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0)
    before: bytes | Stored | None = None
    for number, piece in pieces.items():
        loads[piece.image] += piece.image is not before
        times[piece.image] += _cycles(plan, plan.jobs[number])
        before = piece.image
    items = [
        Item(size, loads[image], load_cycles(plan.config, memory, size), times[image]) for image, size in sizes.items()
    ]
    chosen, _ = choose_streamed(items, sum(sizes.values()) - max(room - 2 * most, 0))
    return (image for image, is_chosen in zip(sizes, chosen, strict=True) if is_chosen)


def _cycles(plan: Addressed, job: Job) -> int:
    return plan.operations[job.index].cycles(len(job.rows), len(job.columns), job.tiles)


class _Ring:
    """A ring buffer in the rest of a memory, into which images are streamed in order.

    Parameters
    ----------
    plan : Addressed
    memory : LocalMemory
    resident_bytes : int
        Bytes of resident images, from the memory's start on.
    external : int
        Address of the images in the arena.

    Attributes
    ----------
    images : bytearray
        All streamed images.
    arrivals : list of Arrival
        The loads of every inference.
    """

    def __init__(self, plan: Addressed, memory: LocalMemory, resident_bytes: int, external: int):
        self.plan = plan
        self.memory = memory
        self.external = external
        self.unit = unit_bytes(plan.config, memory)
        self.start = resident_bytes // self.unit
        self.end = capacity(plan.config, memory)
        self.next = self.start
        self.images = bytearray()
        self.arrivals: list[Arrival] = []
        self._external: dict[bytes, int] = {}
        self._here: dict[bytes | Stored, range] = {}
        #: The last job that uses the contents of each unit.
        self._used = np.full(self.end, -1)

    def take(self, job: int, image: bytes | Stored) -> int:
        """Return the first unit of an image for the next job, after a load unless it is there."""
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
        self.arrivals.append(Arrival(self.memory, place.start, size, self._address(image), release, job, tensor))

    def _address(self, image: bytes | Stored) -> int:
        """Return the address of an image in the arena."""
        if isinstance(image, Stored):
            return self.plan.external[image.tensor] + image.first
        if image not in self._external:
            self._external[image] = self.external + len(self.images)
            self.images += image + bytes(aligned(len(image)) - len(image))
        return self._external[image]
