"""Copies of elements to other channels or pixels on the lane-wise maximum, through a table where scales differ."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ....golden.elements import BINARY_BITS, CODE_BITS, run_bytes
from ....golden.engines import MAXIMUM
from ....golden.memories import LocalMemory
from ....golden.timing.issue import result_groups
from ...graph import Arrange, Concat, Layer, Rearrange, Selection, Slice
from ..network import Network, check_begins_at_byte
from ..operation import Command, Constant, Job, Lowering, Operation
from ..storage import NO_ADDRESSES, Storage
from .fields import Codes, Loop, Tiles, compute_fields, identity_parameters, step_list


def copies(network: Network, layer: Layer) -> list[Selection]:
    """Return the selections of a copying layer that are not in place already.

    Raises
    ------
    CompileError
        If a selection begins within a byte, of input or output, or ends within one that holds further channels.
    """
    target = network.place_of(layer.output)

    def is_in_place(part: Selection) -> bool:
        source = network.place_of(layer.inputs[part.source])
        is_apart = max(part.step, part.spread) > 1 < part.channels
        return (
            part.table is None
            and part.code is None
            and part.along is None
            and not is_apart
            and source.of(part.first, part.read) == target.of(part.target, part.written)
        )

    parts = layer.selections(network.graph.tensors)
    for part in parts:
        _check_begins_at_bytes(network, layer, part)
    return [part for part in parts if not is_in_place(part)]


def _check_begins_at_bytes(network: Network, layer: Layer, part: Selection) -> None:
    source, end = layer.inputs[part.source], part.first + part.channels
    if part.code is None:
        check_begins_at_byte(network, layer, source, part.first)
        if end < network.graph.tensors[source].shape[2]:
            check_begins_at_byte(network, layer, source, end)
    check_begins_at_byte(network, layer, layer.output, part.target)


class CopyOperation(Operation):
    """A concatenation of channels, a slice of them, or another arrangement of elements.

    There is one tile of all channels. With more tables than their memory holds there are several tiles, so that one's
    tables are loaded while another is copied.
    """

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        self.tile_channels = self.output_channels
        self.output_size = network.graph.tensors[self.layer.output].shape[:2]
        self.copies = copies(network, self.layer)
        self.groups = _grouped(self.copies, self.config.memory.tables)
        self.tiles = len(self.groups)
        #: The tables of each group.
        self.tables = [[*dict.fromkeys(part.image for part in group if part.image)] for group in self.groups]
        self.bits = target.bits
        lanes = self.config.array.lanes
        least = min((min(self._bytes(part), self._run(part)) for part in self.copies), default=lanes)
        self.fold = f"copies {self.written_bytes:,} bytes, {least} of {lanes} lanes"

    def _bytes(self, part: Selection) -> int:
        return run_bytes(part.channels, self.bits)

    @property
    def written_bytes(self) -> int:
        """The bytes that are copied."""
        height, width = self.output_size
        return sum(_pixels(part, height, width) * self._bytes(part) for part in self.copies)

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The identity parameter, a list of one step, and the tables."""
        images = [b"".join(tables) for tables in self.tables]
        tables = {LocalMemory.TABLE: Constant(b"".join(images), tuple(map(len, images)))} if any(images) else {}
        return {
            LocalMemory.PARAMETER: identity_parameters(self.config),
            LocalMemory.LIST: step_list(np.zeros(1, np.int64)),
            **tables,
        }

    def lower(self, job: Job) -> list[Command]:
        """Return a command for each copy, whose tiles are ``lanes`` channels of a pixel."""
        # Tables may be streamed tile by tile.
        (tile,) = job.tiles
        tables = self.tables[tile]
        pixels = ((part, *part.within(job.rows, job.columns)) for part in self.groups[tile])
        return [
            self._copy(job, part, rows, columns, tables.index(part.image) if part.image else None)
            for part, rows, columns in pixels
            if rows and columns
        ]

    def _copy(self, job: Job, part: Selection, rows: range, columns: range, table: int | None) -> Command:
        """Return the command of a copy of some rows and columns; ``table`` counts from the job's first one."""
        source, target = job.sources[part.source], job.target
        writes = target.addresses(part.written.rows(rows), part.written.columns(columns), part.targets)
        below, beside = part.written.steps
        run = self._run(part)
        # Where no element is read, the clamp gives the code, whatever byte is read at the address 0 or elsewhere.
        reads, first, codes = NO_ADDRESSES, 0, Codes(low=part.code, high=part.code)
        down = across = along_tiles = 0
        if part.code is None:
            if part.along is None:
                reads = source.addresses(part.read.rows(rows), part.read.columns(columns), part.sources)
            else:
                reads = source.addresses_of(part.elements(rows, columns))
            first, codes = int(reads[0]), Codes(table=table)
            down, across, aside = (source.distance(vector) for vector in part.vectors)
            along_tiles = run * aside if run == 1 else run
        fields = compute_fields(
            job,
            MAXIMUM,
            steps=1,
            source=first,
            destination=int(writes[0]),
            tiles=Tiles(self._bytes(part), run, along_tiles, spread=part.spread),
            windows=(
                Loop(len(rows), down, below * target.row_pitch),
                Loop(len(columns), across, beside * target.pixel_pitch),
            ),
            codes=codes,
        )
        return Command(fields, self.index, reads, writes)

    def channels(self, tiles: range, total: int) -> range:
        """Return the channels from the first copy of each tile to that of the next one."""
        edges = [0, *(group[0].target for group in self.groups[1:]), total]
        return range(edges[tiles.start], edges[tiles.stop])

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Return a step for each word of each copy."""
        return sum(_pixels(part, rows, columns) * self._words(part) for part in self._parts(tiles))

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Return a cycle for each group of results."""
        return sum(
            _pixels(part, rows, columns)
            * self._words(part)
            * result_groups(self.config, min(self._bytes(part), self._run(part)))
            for part in self._parts(tiles)
        )

    def _parts(self, tiles: range) -> list[Selection]:
        return [part for tile in tiles for part in self.groups[tile]]

    def _run(self, part: Selection) -> int:
        """Return the bytes of a pixel that are copied at once."""
        return self.config.array.lanes if part.spread == 1 and part.vectors[2] == (0, 0, 1) else 1

    def _words(self, part: Selection) -> int:
        """Return the number of words of a pixel."""
        return -(-self._bytes(part) // self._run(part))


def _pixels(part: Selection, rows: int, columns: int) -> int:
    """Return the number of pixels of a copy in so many rows and columns of the output."""
    down, across = part.within(range(rows), range(columns))
    return len(down) * len(across)


def _grouped(parts: list[Selection], most: int) -> list[list[Selection]]:
    """Return one group of all parts if they have at most ``most`` tables, else groups of neighbours with half as
    many."""
    if len({part.image for part in parts} - {b""}) <= most:
        return [parts]
    groups: list[list[Selection]] = [[]]
    images: set[bytes] = set()
    for part in parts:
        if part.image and part.image not in images and len(images) == max(most // 2, 1):
            groups.append([])
            images = set()
        groups[-1].append(part)
        images |= {part.image} - {b""}
    return groups


def _takes(network: Network, layer: Layer) -> bool:
    names = (*layer.inputs, layer.output)
    return len({network.graph.tensors[name].bits for name in names}) == 1


LOWERING = Lowering(
    {Arrange: CopyOperation, Concat: CopyOperation, Rearrange: CopyOperation, Slice: CopyOperation},
    (MAXIMUM,),
    _takes,
    reads_border=False,
    bits=(CODE_BITS, BINARY_BITS),
)
