"""Fields: what the COMPUTE commands of all engines say in the same way."""

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
    """The results of windows at one place, taken by as many as the engine gives at a time.

    Attributes
    ----------
    results : int
        In all: they lie side by side.
    most : int
        Of a tile: every one but the last has as many.
    source : int
        Bytes from the windows of a tile to those of the next.
    bits : int
        Of a result.
    spread : int
        Bytes from one result to the next, where a tile is one.
    """

    results: int
    most: int
    source: int = 0
    bits: int = CODE_BITS
    spread: int = 1

    @property
    def loop(self) -> Loop:
        """The loop over them; what is less than a byte is collected in one."""
        return Loop(-(-self.results // self.most), self.source, self.most * self.bits // 8 * self.spread)

    @property
    def last(self) -> int:
        """Results of the last one."""
        return self.results - (self.loop.count - 1) * self.most


@dataclass(frozen=True, slots=True)
class Codes:
    """What the requantiser makes of results: by default the code that each is.

    Attributes
    ----------
    zero_point, low, high : int
        What is added, and the clamp after it.
    parameter : int
        Words from those of the job to the ones that are used.
    is_shared : bool
        Whether all results have one parameter word.
    table : int or None
        The job's transfer table that the codes are looked up in, by its number; none by default.
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
    """The fields of a COMPUTE command.

    Parameters
    ----------
    job : Job
        Whose constants and order of loops count.
    engine : Engine
    steps : int
        Of a window.
    source, destination : int
        Address of the first window's first byte, and of its first result.
    tiles : Tiles
    windows : tuple of Loop
        Two loops, the outer one first.
    codes : Codes
    entry : int
        Of the job's step lists, the first that counts.
    own : int
        By name, fields that are not the same for all engines: the weights, and those of the engine's own.
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
    """The number of a job's transfer table; None where it has none."""
    return 0 if LocalMemory.TABLE in job.addresses else None


# Images: what operations need in the memories for constants, and how lists, tables and parameters lie there.


def step_list(offsets: npt.NDArray[np.int64], start: int = 0, counts: npt.NDArray[np.int64] | None = None) -> Constant:
    """The step list with these offsets, int64[steps], whose sums begin at step ``start``.

    Of each word ``counts`` bytes count, int64[steps], or all.
    """
    entries = offsets.astype("<u4")
    if counts is not None:
        entries |= (counts & (1 << LIST_COUNT_BITS) - 1).astype("<u4") << LIST_COUNT_LSB
    entries[start] |= LIST_CLEAR
    entries[-1] |= LIST_FIRE
    return Constant(entries.tobytes())


def table_constants(table: npt.NDArray[np.int8] | None) -> dict[LocalMemory, Constant]:
    """The transfer table int8[256] of a layer, if it has one."""
    return {} if table is None else {LocalMemory.TABLE: Constant(table.tobytes())}


def identity_parameters(config: Config) -> Constant:
    """The parameter word that leaves codes as they are."""
    lanes = config.array.requant_lanes
    words = pack_parameters(np.zeros(lanes, np.int32), np.ones(lanes, np.float32))
    return Constant(words.astype("<u8").tobytes())


def channel_parameters(
    layer: Layer, bias: Int32, multiplier: npt.NDArray[np.float32], tile_channels: int, config: Config
) -> Constant:
    """The parameters of a layer's output channels; every tile begins a word.

    Parameters
    ----------
    layer : Layer
        For messages.
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
