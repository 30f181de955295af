"""Packed results: a bit for each code, 1 where it is not negative, as the hardware collects and writes them.

With eight columns or more a piece of results is whole bytes. If a byte takes several pieces, the windows of an inner
loop of tiles write one string of bits: each piece is written together with the earlier bits of its byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..elements import BINARY_BITS, run_bytes
from ..engines import find_engine, specification_of
from ..engines.specification import as_numpy

Int8 = npt.NDArray[np.int8]
UInt8 = npt.NDArray[np.uint8]

_BYTE_BITS = 8


def packs(config: Config) -> bool:
    """Whether the hardware of a configuration can pack results: if one of its engines takes binary values."""
    return any(specification_of(code).is_binary for code in config.engines)


def shares_bytes(config: Config) -> bool:
    """Whether a piece of packed results is less than a byte."""
    return config.array.columns < _BYTE_BITS


def packing_conditions(command: Any, config: Config) -> list[Any]:
    """The conditions of a command whose results are packed, in expressions that mean the same for NumPy integers and
    for Amaranth values, as those of :attr:`.engines.specification.EngineSpecification.conditions`."""
    packed = command["packed"].any()
    if not packs(config):
        return [~packed]
    return [~packed | command["tile_inner"].any()] if shares_bytes(config) else []


def is_packed_legally(command: Mapping[str, int], config: Config) -> bool:
    """Whether a command of plain integers meets those conditions."""
    fields = as_numpy(command, find_engine(command["engine"]))
    return all(map(bool, packing_conditions(fields, config)))


def written_span(command: Mapping[str, int], tile: int, results: int, config: Config) -> tuple[int, int]:
    """Where a window of a tile writes its results: its first byte, counted from its destination, and its bytes."""
    if not command["packed"]:
        return 0, results
    if not shares_bytes(config):
        return 0, run_bytes(results, BINARY_BITS)
    start = tile * _window_bits(command["lanes"], config)
    first = start // _BYTE_BITS
    return first, run_bytes(start + _window_bits(results, config), BINARY_BITS) - first


def pack_windows(command: Mapping[str, int], results: Int8, valid: npt.NDArray[np.bool_], config: Config) -> UInt8:
    """The bytes that windows write.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.COMPUTE`, ``packed`` among them.
    results : int8[outer, middle, inner, results, lanes]
    valid : bool[outer, middle, inner, results, lanes]
        Which of them are results.
    config : Config

    Returns
    -------
    uint8[outer, middle, inner, results, bytes]
        From the first byte of each on, see :func:`written_span`.
    """
    bits = (results >= 0) & valid
    if not shares_bytes(config):
        return np.packbits(bits, axis=-1, bitorder="little")
    # No engine packs several results of a window and has tiles in the inner loop.
    bits = bits.squeeze(axis=3)
    *outside, inner, lanes = bits.shape
    pitch = _window_bits(lanes, config)
    apart = np.zeros((*outside, inner, pitch), np.bool_)
    apart[..., :lanes] = bits
    string = np.packbits(apart.reshape(*outside, -1), axis=-1, bitorder="little")
    number = np.arange(inner)[:, None]
    # A window of a few bits may end in the next byte.
    byte = number * pitch // _BYTE_BITS + np.arange(run_bytes(pitch, BINARY_BITS) + 1)
    # For each byte, the bits of earlier windows.
    known = np.clip((number + 1) * pitch - byte * _BYTE_BITS, 0, _BYTE_BITS)
    mask = ((1 << known) - 1).astype(np.uint8)
    found: UInt8 = string[..., np.minimum(byte, string.shape[-1] - 1)] & mask
    return found[..., np.newaxis, :]


def _window_bits(results: int, config: Config) -> int:
    """Bits from one window to the next: its results, rounded up to whole pieces."""
    return -(-results // config.array.columns) * config.array.columns
