"""Storage: how a tensor, or a part of it, lies in the feature memory."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...golden.config import Config
from ...golden.elements import CODE_BITS, run_bytes
from ...golden.memories import LocalMemory, memories
from ..graph import Shape, ViewPlace

Addresses = npt.NDArray[np.int64]

NO_ADDRESSES: Addresses = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Fold:
    """Folds: a stored row holds several source rows, interleaved pixel by pixel.

    Row r of the stored map holds, as fold h, the source row ``r * step + h * dilation - top``.

    Attributes
    ----------
    rows : int
        Source rows in a stored row.
    step : int
        Source rows from a stored row to the next.
    dilation : int
        Source rows from a fold to the next.
    top : int
        Rows of padding above the source.
    """

    rows: int
    step: int
    dilation: int
    top: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Rows of pixels of channels with a border: a tensor, or the part of one that a job reads or writes.

    Whoever reads or writes addresses elements as those of the whole tensor, from ``origin`` on, and needs not know
    which part is there. The right border of a row is the left border of the next: ``gap`` pixels lie between two rows.

    Attributes
    ----------
    height, width, channels : int
        Of what is stored: of a folded tensor, stored rows and the channels of all its folds.
    top, left, bottom, right : int
        Border on each side, in pixels.
    gap : int
        Pixels between rows.
    value : int
        The byte in the border, as int8: a code; of a binary tensor 0 for -1, and -1, all ones, for +1.
    fold : Fold or None
    address : int
        Of the first byte, border included.
    row, column, channel : int
        Where the part begins in the tensor.
    pixel_bytes : int
        From pixel to pixel, where that is more than the channels: the tensor is a view.
    bits : int
        Of an element.
    row_stride : int
        Bytes from row to row, where these are not the pixels and the gap: the tensor is some rows and columns of
        another one.
    """

    height: int
    width: int
    channels: int
    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0
    gap: int = 0
    value: int = 0
    fold: Fold | None = None
    address: int = 0
    row: int = 0
    column: int = 0
    channel: int = 0
    pixel_bytes: int = 0
    bits: int = CODE_BITS
    row_stride: int = 0

    @property
    def row_pitch(self) -> int:
        """Bytes from row to row."""
        return self.row_stride or (self.width + self.gap) * self.pixel_pitch

    @property
    def pixel_pitch(self) -> int:
        """Bytes from pixel to pixel."""
        return self.pixel_bytes or self.stored_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of the channels of a pixel."""
        folds = self.fold.rows if self.fold else 1
        return folds * run_bytes(self.channels // folds, self.bits)

    @property
    def row_bytes(self) -> int:
        """Bytes of the pixels of a row, without what lies between the rows."""
        return self.width * self.pixel_pitch

    def channel_offset(self, channel: int) -> int:
        """Bytes from the first channel of a pixel to a later one, which must begin at a byte."""
        assert channel * self.bits % 8 == 0, f"channel {channel} of {self.bits} bits begins within a byte"
        return channel * self.bits // 8

    @property
    def first(self) -> int:
        """Address of the first byte after the border above and to the left."""
        return self.address + self.top * self.row_pitch + self.left * self.pixel_pitch

    @property
    def origin(self) -> int:
        """Where element (0, 0, 0) of the tensor lies, or would lie: it may be below the part, and even negative."""
        return (
            self.first - self.row * self.row_pitch - self.column * self.pixel_pitch - self.channel_offset(self.channel)
        )

    @property
    def size_bytes(self) -> int:
        """From the first byte of the border to its last."""
        rows = self.top + self.height + self.bottom - 1
        if rows < 0:
            return 0
        columns = self.left + self.width + self.right - 1
        return rows * self.row_pitch + columns * self.pixel_pitch + self.stored_bytes

    @property
    def rows(self) -> range:
        """Rows of the tensor that are stored."""
        return range(self.row, self.row + self.height)

    @property
    def columns(self) -> range:
        """Columns of the tensor that are stored."""
        return range(self.column, self.column + self.width)

    def view(self, place: ViewPlace, shape: Shape) -> Storage:
        """Some rows, columns and channels, of this shape, as a tensor of its own.

        The rows around neighbouring ones with all columns are its border; others have none.
        """
        if (place.column, *place.steps) != (0, 1, 1) or shape[1] != self.width:
            return self._phase(place, shape)
        return dataclasses.replace(
            self,
            address=self.address + self.channel_offset(place.channel),
            channels=shape[2],
            pixel_bytes=self.pixel_pitch,
            height=shape[0],
            top=self.top + place.row,
            bottom=self.bottom + self.height - place.row - shape[0],
        )

    def _phase(self, place: ViewPlace, shape: Shape) -> Storage:
        """Some rows and columns, each of them apart from the next."""
        first = self.first + place.row * self.row_pitch + place.column * self.pixel_pitch
        return Storage(
            *shape,
            address=first + self.channel_offset(place.channel),
            pixel_bytes=place.steps[1] * self.pixel_pitch,
            row_stride=place.steps[0] * self.row_pitch,
            bits=self.bits,
            value=self.value,
        )

    def part(self, rows: range, channels: range) -> Storage:
        """Some rows and channels of the tensor, all of which are stored."""
        whole = self.view(
            ViewPlace("", channels.start - self.channel, rows.start - self.row), (len(rows), self.width, len(channels))
        )
        return dataclasses.replace(whole, row=rows.start, channel=channels.start)

    def addresses(
        self, rows: range | None = None, columns: range | None = None, channels: range | None = None
    ) -> Addresses:
        """Where elements of these rows, columns and channels of the tensor lie, by default all that are stored.

        Returns
        -------
        int64[bytes]
        """
        rows, columns = rows or self.rows, columns or self.columns
        channels = channels or range(self.channel, self.channel + self.channels)
        first, size = self.channel_offset(channels.start), run_bytes(len(channels), self.bits)
        if self.fold:
            size = self.stored_bytes
        last = first + size * channels.step
        y, x, c = np.ogrid[
            rows.start : rows.stop : rows.step,
            columns.start : columns.stop : columns.step,
            first : last : channels.step,
        ]
        return (self.origin + y * self.row_pitch + x * self.pixel_pitch + c).reshape(-1)

    def addresses_of(self, elements: Addresses) -> Addresses:
        """Where codes lie, int64[3, ...], of which each has a row, a column and a channel: int64[bytes]."""
        distance = self.distance(elements)
        return np.asarray(self.origin + distance, np.int64).reshape(-1)

    def distance(self, vector: tuple[int, int, int] | Addresses) -> int | Addresses:
        """Bytes to what is so many rows, columns and channels from an element that begins at a byte."""
        row, column, channel = vector
        return row * self.row_pitch + column * self.pixel_pitch + channel * self.bits // 8


def border_sign(storage: Storage) -> int:
    """Return the value of a binary tensor's border, +1 or -1."""
    return 1 if storage.value else -1


def pieces(start: int, size: int, count: int, pitch: int) -> Addresses:
    """Addresses of ``count`` pieces of ``size`` bytes: int64[count * size]."""
    return (start + np.arange(count)[:, None] * pitch + np.arange(size)).reshape(-1)


# Live ranges: what lies in the feature memory, and how long.


@dataclass(frozen=True, slots=True)
class Incoming:
    """A part of a tensor that the DMA loads.

    Attributes
    ----------
    job : int
        The first job that reads it.
    storage : Storage
        The tensor, or some channels of it.
    rows : range
        Stored rows.
    """

    job: int
    storage: Storage
    rows: range


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A part of a tensor that the DMA stores.

    Attributes
    ----------
    job : int
        The last job that writes it.
    storage : Storage
    """

    job: int
    storage: Storage


@dataclass(frozen=True, eq=False)
class LiveRange:
    """A tensor, or a part of one, in the feature memory, and the jobs for which it is there.

    Attributes
    ----------
    tensor : str
    storage : Storage
    first, last : int
        The first and the last job that touches it.
    border : int
        The first job that reads its border.
    arrivals : tuple of Incoming
        Empty if the tensor is computed.
    departures : tuple of Outgoing
        Empty if nothing of it is needed in external memory.
    """

    tensor: str
    storage: Storage
    first: int
    last: int
    border: int
    arrivals: tuple[Incoming, ...] = ()
    departures: tuple[Outgoing, ...] = ()


# Units: how a program counts what lies in the memories, and one numbering of all of it, for synchronisation.


def unit_bytes(config: Config, memory: LocalMemory) -> int:
    """Return the bytes of a unit in which COMPUTE commands count addresses of this memory."""
    return memory.unit_bytes(config)


def capacity(config: Config, memory: LocalMemory) -> int:
    """Units that a memory holds."""
    return config.size_bytes(memory) // unit_bytes(config, memory)


def list_share(config: Config) -> int:
    """Entries of the list memory that lie together at most, but for those of one tile."""
    return config.memory.list_entries // 4


def is_roomy(config: Config, entries: int, weight_words: int) -> bool:
    """Whether there is room for step lists of so many entries, and twice for so many weight words of a tile: one tile's
    can be streamed beside another's."""
    return 2 * weight_words * config.weight_word_bytes <= config.memory.weight_bytes and entries <= list_share(config)


def unit_numbers(config: Config, memory: LocalMemory, first: int, count: int) -> Addresses:
    """Numbers of some units of a memory: int64[count]. Those of the feature memory are its addresses."""
    return _starts(config)[memory] + first + np.arange(count)


def unit_count(config: Config) -> int:
    """How many units all memories hold."""
    return sum(capacity(config, memory) for memory in memories(config))


@lru_cache(maxsize=8)
def _starts(config: Config) -> dict[LocalMemory, int]:
    there = memories(config)
    assert there[0] is LocalMemory.FEATURE, "feature addresses are their own numbers"
    sizes = [capacity(config, memory) for memory in there]
    return dict(zip(there, itertools.accumulate(sizes, initial=0), strict=False))


# Arrivals: constants that stay, and those that are loaded in every inference.


@dataclass(frozen=True, slots=True)
class Segment:
    """Some output tiles of a layer whose constants lie together."""

    tiles: range
    is_streamed: bool


@dataclass(frozen=True, eq=False)
class Arrival:
    """Constants that the DMA loads in every inference.

    Attributes
    ----------
    memory : LocalMemory
    address, size : int
        Where, and how many, in its units.
    external : int
        Where they come from, in the arena.
    release : int
        The last job that uses what they replace; -1 if there is none.
    deadline : int
        The first job that uses them.
    tensor : str or None
        The tensor that they are of, which is stored there first; None of what is known.
    """

    memory: LocalMemory
    address: int
    size: int
    external: int
    release: int
    deadline: int
    tensor: str | None = None
