"""Jobs: the parts in which layers are executed.

A :class:`Job` says where a part's inputs lie, where its results go, which rows, columns and tiles of the output it
computes, and where its constants are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....golden.memories import LocalMemory
from .storage import NO_ADDRESSES, Addresses, Storage


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
