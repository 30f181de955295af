"""Fields of COMPUTE commands, and images of constants, that operations of all engines have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....golden.config import Config
from ....golden.elements import BINARY_BITS, CODE_BITS
from ....golden.engines.engine import Engine
from ....golden.isa import LIST_CLEAR, LIST_COUNT_BITS, LIST_COUNT_LSB, LIST_FIRE, Compute
from ....golden.memories import LocalMemory
from ....golden.numerics.convolution import Int32
from ....golden.numerics.requant import pack_parameters
from ...graph import Layer
from ..network import CompileError
from ..operation import Constant, Job


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over windows.

    Attributes
    ----------
    count : int
    source, destination : int
        Bytes from one window to the next, and from one result to the next.
    """

    count: int
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """The results of windows at one position, divided into as many as the engine gives at a time.

    Attributes
    ----------
    results : int
        Number of all results, which are side by side.
    most : int
        Number of results of every tile but the last, which may have fewer.
    source : int
        Bytes from the windows of a tile to those of the next.
    bits : int
        Bits of a result.
    spread : int
        Bytes from one result to the next, where a tile has one result.
    """

    results: int
    most: int
    source: int = 0
    bits: int = CODE_BITS
    spread: int = 1

    @property
    def loop(self) -> Loop:
        """The loop over tiles; tiles of less than a byte are gathered in a byte."""
        return Loop(-(-self.results // self.most), self.source, self.most * self.bits // 8 * self.spread)

    @property
    def last(self) -> int:
        """The number of results of the last tile."""
        return self.results - (self.loop.count - 1) * self.most


@dataclass(frozen=True, slots=True)
class Codes:
    """Settings of the requantiser; by default results are codes already.

    Attributes
    ----------
    zero_point, low, high : int
        The addend after scaling, and the limits of the clamp after that.
    parameter : int
        Index of the first parameter word, from the job's first one.
    is_shared : bool
        Whether all results have one parameter word.
    table : int or None
        Index of the transfer table in which codes are looked up, from the job's first one; none by default.
    """

    zero_point: int = 0
    low: int = -128
    high: int = 127
    parameter: int = 0
    is_shared: bool = True
    table: int | None = None


def compute_fields(
    job: Job,
    engine: Engine,
    *,
    steps: int,
    source: int,
    destination: int,
    tiles: Tiles,
    windows: tuple[Loop, Loop],
    codes: Codes,
    entry: int = 0,
    **own: int,
) -> Compute:
    """Return the fields of a COMPUTE command.

    Parameters
    ----------
    job : Job
        The job, for its constants and its order of loops.
    engine : Engine
    steps : int
        Number of steps of a window.
    source, destination : int
        Addresses of the first window's first byte, and of its first result.
    tiles : Tiles
    windows : tuple of Loop
        Two loops, the outer one first.
    codes : Codes
    entry : int
        First entry of the step list, from the job's first one.
    own : int
        Other fields by name: ``weight``, and the engine's own.
    """
    loops = (*windows, tiles.loop) if job.tile_inner else (tiles.loop, *windows)
    outer, middle, inner = loops
    return engine.format.kind(
        engine=engine,
        outer=outer.count,
        middle=middle.count,
        inner=inner.count,
        tile_inner=int(job.tile_inner),
        steps=steps,
        list=job.addresses[LocalMemory.LIST] + entry,
        source=source,
        source_outer=outer.source,
        source_middle=middle.source,
        source_inner=inner.source,
        destination=destination,
        destination_outer=outer.destination,
        destination_middle=middle.destination,
        destination_inner=inner.destination,
        parameter=job.addresses[LocalMemory.PARAMETER] + codes.parameter,
        parameter_shared=int(codes.is_shared),
        lanes=tiles.most if tiles.loop.count > 1 else tiles.last,
        last_lanes=tiles.last,
        zero_point=codes.zero_point,
        low=codes.low,
        high=codes.high,
        table_enable=int(codes.table is not None),
        table=0 if codes.table is None else job.addresses[LocalMemory.TABLE] + codes.table,
        packed=int(tiles.bits == BINARY_BITS),
        **own,
    )


def only_table(job: Job) -> int | None:
    """Return the index of a job's only transfer table; None if it has none."""
    return 0 if LocalMemory.TABLE in job.addresses else None


# Images of constants: step lists, tables and parameters in the format of their memories.


def step_list(offsets: npt.NDArray[np.int64], start: int = 0, counts: npt.NDArray[np.int64] | None = None) -> Constant:
    """Return the step list with these offsets, int64[steps], whose sums begin at step ``start``.

    ``counts``, int64[steps], is the number of bytes of each word that count; by default all.
    """
    entries = offsets.astype("<u4")
    if counts is not None:
        entries |= (counts & (1 << LIST_COUNT_BITS) - 1).astype("<u4") << LIST_COUNT_LSB
    entries[start] |= LIST_CLEAR
    entries[-1] |= LIST_FIRE
    return Constant(entries.tobytes())


def table_constants(table: npt.NDArray[np.int8] | None) -> dict[LocalMemory, Constant]:
    """Return the transfer table int8[256] of a layer, if it has one."""
    return {} if table is None else {LocalMemory.TABLE: Constant(table.tobytes())}


def identity_parameters(config: Config) -> Constant:
    """Return the parameter word that does not change codes."""
    lanes = config.array.requant_lanes
    words = pack_parameters(np.zeros(lanes, np.int32), np.ones(lanes, np.float32))
    return Constant(words.astype("<u8").tobytes())


def channel_parameters(
    layer: Layer, bias: Int32, multiplier: npt.NDArray[np.float32], tile_channels: int, config: Config
) -> Constant:
    """Return the parameters of a layer's output channels; every tile begins a word.

    Parameters
    ----------
    layer : Layer
        The layer, for messages.
    bias : int32[outputs]
    multiplier : float32[outputs]
    tile_channels : int
    config : Config

    Raises
    ------
    CompileError
        If a scale is out of range.
    """
    try:
        words = pack_parameters(bias, multiplier).astype("<u8")
    except (TypeError, ValueError) as error:
        raise CompileError(f"{layer.name}: {error}") from error
    word_channels = config.array.requant_lanes
    padded = -(-tile_channels // word_channels) * word_channels
    tiles = -(-len(words) // tile_channels)
    image = np.zeros((tiles, padded), "<u8")
    for tile in range(tiles):
        of_tile = words[tile * tile_channels :][:tile_channels]
        image[tile, : len(of_tile)] = of_tile
    return Constant(image.tobytes(), (image[0].nbytes,) * tiles)
