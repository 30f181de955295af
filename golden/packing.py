"""Packed results: a bit for each code, 1 where it is not negative, as the hardware collects and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .config import Config
from .elements import BINARY_BITS, run_bytes
from .engines import specification
from .engines.engine import as_numpy

Int8 = npt.NDArray[np.int8]
UInt8 = npt.NDArray[np.uint8]

_BYTE_BITS = 8


def packs(config: Config) -> bool:
    """Whether the hardware of a configuration can pack results: where one of its engines takes binary values."""
    return any(specification(code).is_binary for code in config.engines)


def packing_conditions(command: Any, config: Config) -> list[Any]:
    """What a command whose results are packed must meet, in expressions that mean the same for NumPy integers and for
    Amaranth values, as those of :attr:`.engines.engine.EngineSpecification.conditions`."""
    packed, conditions = command["packed"].any(), []
    if not packs(config):
        return [~packed]
    for code in config.engines:
        if (direct := specification(code).direct) is not None:
            conditions.append(~packed | (command["engine"] != code) | ~command[direct].any())
    columns = config.array.columns
    if columns < _BYTE_BITS:
        few = command["lanes"] <= columns
        conditions += [
            ~packed | command["tile_inner"].any(),
            ~packed | ~few | (command["inner"] <= _BYTE_BITS // columns),
            ~packed | few | (command["inner"] <= max(_BYTE_BITS // config.array.lanes, 1)),
        ]
    return conditions


def is_packed_legally(command: Mapping[str, int], config: Config) -> bool:
    """Whether a command of plain integers meets those conditions."""
    return all(map(bool, packing_conditions(as_numpy(command), config)))


def written_size(command: Mapping[str, int], results: int) -> int:
    """Bytes that so many results of a window take."""
    return run_bytes(results, BINARY_BITS) if command["packed"] else results


def pack_windows(command: Mapping[str, int], results: Int8, valid: npt.NDArray[np.bool_], config: Config) -> UInt8:
    """The bytes that windows write.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.COMPUTE`, ``packed`` among them.
    results : int8[outer, middle, inner, lanes]
    valid : bool[outer, middle, inner, lanes]
        Which of them are results.
    config : Config

    Returns
    -------
    uint8[outer, middle, inner, bytes]
    """
    bits = (results >= 0) & valid
    columns, inner = config.array.columns, command["inner"]
    if columns >= _BYTE_BITS or inner == 1:
        return np.packbits(bits, axis=-1, bitorder="little")
    tile_bits = -(-command["lanes"] // columns) * columns
    window_bytes = np.packbits(bits, axis=-1, bitorder="little")[..., :1]
    moved = window_bytes << (np.arange(inner, dtype=np.uint8) * tile_bits).astype(np.uint8)[:, None]
    return np.bitwise_or.accumulate(moved, axis=2)
