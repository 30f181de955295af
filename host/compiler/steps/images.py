"""Images: what operations need in the memories for constants, and how lists, tables and parameters lie there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....golden.config import Config
from ....golden.isa import LIST_CLEAR, LIST_COUNT_BITS, LIST_COUNT_LSB, LIST_FIRE
from ....golden.memories import LocalMemory
from ....golden.numerics.convolution import Int32
from ....golden.numerics.requant import pack_parameters
from ...graph import Layer
from ..data.constant import Constant
from ..data.errors import CompileError


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
