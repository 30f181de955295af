"""Operations: a layer as an engine executes it.

An :class:`Operation` knows a layer's windows, weights and cycles; there is a subclass for each kind of layer, in a file
of its own, and a :class:`Lowering` that says which layers it takes and which engines it needs. Operations turn jobs
(:mod:`.job`) into commands, and know nothing of tensors that lie in external memory, of strips, or of weights that come
and go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ....golden.config import Config
from ....golden.elements import CODE_BITS
from ....golden.engines.engine import Engine
from ....golden.memories import LocalMemory
from ...graph import Layer
from .command import Command
from .constant import Constant
from .job import Job
from .network import Network
from .storage import Storage


@dataclass(frozen=True, slots=True)
class Connectivity:
    """How many of a layer's connections there are, and of its words; for a layer with all of them, nothing.

    See :class:`~lutterfly.golden.program.outline.LayerPrediction`; ``saved_cycles`` are the steps that there are
    not.
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
        """What all jobs need in the memories for constants.

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
