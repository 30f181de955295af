"""Operations: a layer as an engine executes it.

An :class:`Operation` knows a layer's windows, weights and cycles; there is a subclass for each kind of layer, in a file
of its own, and a :class:`Lowering` that says which layers it takes and which engines it needs. Operations turn jobs
(:mod:`.job`) into commands, and know nothing of tensors that lie in external memory, of strips, or of weights that come
and go.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from ...golden.config import Config
from ...golden.elements import CODE_BITS
from ...golden.engines import format_of
from ...golden.engines.engine import Engine
from ...golden.isa import CommandFields, Compute, Opcode
from ...golden.memories import LocalMemory
from ...golden.units import Queue
from ..graph import Layer
from .network import Network
from .storage import NO_ADDRESSES, Addresses, Storage

# Jobs: the parts in which layers are executed.
#
# A :class:`Job` says where a part's inputs lie, where its results go, which rows, columns and tiles of the output it
# computes, and where its constants are.


@dataclass(frozen=True, eq=False)
class Job:
    """Part of a layer's output, computed in one go.

    Attributes
    ----------
    index : int
        Of the layer.
    sources : tuple of Storage
        Where each input of the layer lies, or what the job reads of it.
    target : Storage
        Where the output goes, or what the job writes of it.
    rows, columns : range
        Of the output.
    tiles : range
        Output tiles, see :attr:`Operation.tiles`.
    tile_inner : bool
        Whether all tiles of a pixel are computed before the next pixel; else all pixels of a tile before the next tile.
    addresses : dict of LocalMemory to int
        Where the constants are, in the units of a COMPUTE command: those of the first tile, where each has its own.
    streamed : int64[...]
        Those of them that are loaded in every inference, as numbers of :mod:`.units`.
    """

    index: int
    sources: tuple[Storage, ...]
    target: Storage
    rows: range
    columns: range
    tiles: range
    tile_inner: bool = False
    addresses: dict[LocalMemory, int] = field(default_factory=dict)
    streamed: Addresses = field(default_factory=lambda: NO_ADDRESSES, repr=False)


@dataclass(frozen=True, slots=True)
class Cut:
    """The size of the parts in which a layer is executed; the last ones may be smaller.

    Attributes
    ----------
    rows, columns : int
        Of the output, in a part.
    tiles : int
        Output tiles in a part. The loop over these blocks of channels is the outermost one.
    buffers : int
        For the parts of each tensor that is not whole in the feature memory. With two, one is loaded or stored while
        the array works on the other.
    """

    rows: int
    columns: int
    tiles: int
    buffers: int


# Commands: what the core executes, before it is encoded.


class _Runs:
    """Addresses of a command, kept as runs of neighbouring ones: a network's commands touch hundreds of millions.

    The first address of each run and its length are stored, int32[2, runs]; they are read and given as int64[...], in
    their order and as often as they are there.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, command: Command | None, owner: type) -> Addresses:
        if command is None:
            return NO_ADDRESSES
        first, length = getattr(command, self._name)
        before = np.cumsum(length, dtype=np.int64) - length
        return np.repeat(first - before, length) + np.arange(length.sum())

    def __set__(self, command: Command, addresses: Addresses | _Runs) -> None:
        # A dataclass takes what describes the field as its default.
        numbers = NO_ADDRESSES if isinstance(addresses, _Runs) else addresses
        begin = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        length = np.diff(np.append(begin, len(numbers)))
        vars(command)[self._name] = np.array([numbers[begin], length], np.int32)


@dataclass(frozen=True, eq=False)
class Command:
    """One command of the body, as an operation or a transfer makes it.

    Attributes
    ----------
    fields : CommandFields
        Its own: its tokens stand beside them until it is encoded.
    layer : int or None
        The layer that it belongs to: it computes the layer, loads its inputs, or stores its results.
    reads, writes : int64[...]
        Bytes of the feature memory whose contents matter to the command, and those that it changes; further numbers
        stand for constants that are loaded in every inference, see :func:`.storage.unit_numbers`.
    follows : Command or None
        An earlier command of the other queue that must be complete for another reason than these bytes.
    """

    fields: CommandFields
    layer: int | None = None
    reads: Addresses = field(default=cast(Addresses, _Runs()), repr=False)
    writes: Addresses = field(default=cast(Addresses, _Runs()), repr=False)
    follows: Command | None = field(default=None, repr=False)

    @classmethod
    def of(cls, command: Command, **decided: Any) -> Self:
        """Make a command of this class from another one, and from what has been decided since.

        They share their runs of addresses, which ``dataclasses.replace`` would spell out.
        """
        made = object.__new__(cls)
        vars(made).update(vars(command))
        for name, value in decided.items():
            object.__setattr__(made, name, value)
        return made

    def with_fields(self, **values: int) -> Self:
        """Return the same command with other values in some of its fields."""
        return self.of(self, fields=dataclasses.replace(self.fields, **values))

    @property
    def opcode(self) -> Opcode:
        """The kind of command."""
        return self.fields.opcode

    @property
    def queue(self) -> Queue:
        """The queue that executes it."""
        return Queue.COMPUTE if self.opcode is Opcode.COMPUTE else Queue.DMA


@dataclass(frozen=True, eq=False, kw_only=True)
class SyncedCommand(Command):
    """A command of which is known what it waits for.

    Attributes
    ----------
    after : bool
        Whether it begins only when every earlier command of its queue has completed.
    waits_for : int or None
        Index of the latest command of the other queue that must be complete, where no earlier wait says so already.
    signal : int
        Commands of the other queue that wait for this one.
    """

    after: bool
    waits_for: int | None
    signal: int

    def encode(self) -> bytes:
        """Return the 64 bytes of the command."""
        engine = self.fields.engine if isinstance(self.fields, Compute) else 0
        whole = dataclasses.replace(
            self.fields, after=int(self.after), wait=int(self.waits_for is not None), signal=self.signal
        )
        return format_of(self.opcode, engine).encode(**whole)


@dataclass(frozen=True, eq=False, kw_only=True)
class TimedCommand(SyncedCommand):
    """A command with its predicted cycles.

    Attributes
    ----------
    begin, end : int
        The cycle in which a unit gets a command of the DMA queue or in which a COMPUTE issues its first step, and that
        of its completion.
    """

    begin: int
    end: int


# Constants: what an operation needs in a memory.


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of a tensor as it lies in external memory, in the place of an image that is known.

    Attributes
    ----------
    tensor : str
    first, size : int
        The first byte, and how many.
    """

    tensor: str
    first: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> Stored:
        start, stop, _ = part.indices(self.size)
        return Stored(self.tensor, self.first + start, stop - start)


@dataclass(frozen=True, eq=False)
class Constant:
    """The constants of an operation in one of their memories.

    Attributes
    ----------
    image : bytes or Stored
        From the first unit of the memory on that holds it.
    tile_bytes : tuple of int
        Bytes of each output tile, which lie one after the other. Empty where all tiles share the image.
    """

    image: bytes | Stored = field(repr=False)
    tile_bytes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert not self.tile_bytes or sum(self.tile_bytes) == len(self.image), "an image of other tiles"

    @property
    def is_stored(self) -> bool:
        """Whether it is known at run time only."""
        return isinstance(self.image, Stored)

    def size(self, tiles: range) -> int:
        """Bytes of some tiles."""
        return sum(self.tile_bytes[tiles.start : tiles.stop])

    def part(self, tiles: range) -> bytes | Stored:
        """Return the bytes that some tiles need; all of them where the tiles share them."""
        if not self.tile_bytes:
            return self.image
        start = self.size(range(tiles.start))
        return self.image[start : start + self.size(tiles)]


@dataclass(frozen=True, slots=True)
class Connectivity:
    """How many of a layer's connections there are, and of its words; for a layer with all of them, nothing.

    See :class:`~lutterfly.golden.program.outline.LayerOutline`; ``saved_cycles`` are the steps that there are not.
    """

    connections: int = 0
    live_connections: int = 0
    dense_words: int = 1
    words: int = 1
    saved_cycles: int = 0


class Operation(ABC):
    """A layer as an engine executes it.

    Parameters
    ----------
    network : Network
    index : int
        Of the layer.
    sources : tuple of Storage
        Of each input, as all jobs read it: its pitches and its fold count, where it lies does not.
    target : Storage
        Of the output, likewise.

    Attributes
    ----------
    layer : Layer
    tiles : int
        Parts of the output's channels that need constants of their own, and can be computed apart.
    tile_channels : int
        Output channels of every tile but the last.
    fold : str
        How the input is read, for people.
    macs_at_once : int
        Multiply-accumulates in the place of one multiplier.
    pixels, along : int
        Neighbouring pixels of the output that one window computes: 1 those of a row, 0 those of a column.
    reads_own_channels : bool
        Whether output channels are computed from the same channels of the input alone.
    connectivity : Connectivity
    """

    layer: Layer
    tiles: int = 1
    macs_at_once: int = 1
    pixels: int = 1
    along: int = 1
    reads_own_channels: bool = False
    connectivity = Connectivity()
    tile_channels: int
    fold: str

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        self.index = index
        self.layer = network.graph.layers[index]
        self.config: Config = network.config
        output = network.graph.tensors[self.layer.output]
        self.output_channels, self.output_bytes = output.shape[2], output.size_bytes
        self.sources = sources
        self.target = target

    @cached_property
    @abstractmethod
    def constants(self) -> dict[LocalMemory, Constant]:
        """The constants of all jobs, by their memory.

        Raises
        ------
        CompileError
            If a scale is out of range.
        """

    @abstractmethod
    def lower(self, job: Job) -> list[Command]:
        """The COMPUTE commands of a job, with the bytes of the feature memory that they read and write."""

    @abstractmethod
    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Cycles that the array needs for so many rows and columns of some tiles, apart from waiting."""

    @abstractmethod
    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Cycles of these in which the array reads the feature memory."""

    @property
    def written_bytes(self) -> int:
        """Bytes of the output that it writes: all, unless some are written in place by other layers."""
        return self.output_bytes

    def job_constants(self, job: Job) -> dict[LocalMemory, Constant]:
        """Further constants, which depend on where a job's inputs lie."""
        return {}

    def channels(self, tiles: range, total: int) -> range:
        """The output channels of some tiles, of ``total`` channels in all."""
        return range(tiles.start * self.tile_channels, min(tiles.stop * self.tile_channels, total))


#: Makes the operation of a layer from what :class:`Operation` takes.
MakeOperation = Callable[[Network, int, tuple[Storage, ...], Storage], Operation]


@dataclass(frozen=True, slots=True)
class Lowering:
    """A way to execute layers.

    Attributes
    ----------
    layers : dict of type to callable
        The kinds of layers that it executes, and what makes the operation of each. A kind that is not named is none of
        its: what is derived from a kind is another one.
    engines : tuple of Engine
        All that the commands of its operations name.
    takes : callable
        Whether it can execute a layer of these kinds, if its engines are there: by default every one.
    reads_border : bool
        Whether its windows read what is stored around an input; else what they reach of the input alone.
    reads_folds : bool
        Whether its windows may find their rows interleaved.
    is_tile_inner : bool
        Whether it can compute all tiles of a pixel before the next pixel.
    has_one_pitch : bool
        Whether the rows and pixels of all its inputs have to be equally far apart.
    bits : tuple of int
        Of the elements that it reads and writes.
    """

    layers: Mapping[type[Layer], MakeOperation]
    engines: tuple[Engine, ...]
    takes: Callable[[Network, Layer], bool] = lambda network, layer: True
    reads_border: bool = True
    reads_folds: bool = False
    is_tile_inner: bool = False
    has_one_pitch: bool = False
    bits: tuple[int, ...] = (CODE_BITS,)

    def make(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage) -> Operation:
        """The operation of a layer that it takes, see :class:`Operation`."""
        return self.layers[type(network.graph.layers[index])](network, index, sources, target)
