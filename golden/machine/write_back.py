"""Bytes of the feature memory that a COMPUTE command may read too early: results that may not be written back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..elements import BINARY_BITS, run_bytes
from ..engines import find_engine, specification_of
from ..engines.specification import as_numpy
from ..numerics import windows
from ..timing.write_back import Issued, Timeline

# Packed results: a bit for each code, 1 where it is not negative, as the hardware collects and writes them.
#
# With eight columns or more a piece of results is whole bytes. If a byte takes several pieces, the windows of an inner
# loop of tiles write one string of bits: each piece is written together with the earlier bits of its byte.

Int8 = npt.NDArray[np.int8]
UInt8 = npt.NDArray[np.uint8]

_BYTE_BITS = 8


def packs(config: Config) -> bool:
    """Return whether the hardware of a configuration packs results: whether one of its engines takes binary values."""
    return any(specification_of(code).is_binary for code in config.engines)


def shares_bytes(config: Config) -> bool:
    """Return whether a piece of packed results is less than a byte."""
    return config.array.columns < _BYTE_BITS


def packing_conditions(command: Any, config: Config) -> list[Any]:
    """Return the conditions of a command whose results are packed.

    Like :attr:`.engines.specification.EngineSpecification.conditions` they are expressions that mean the same for NumPy
    integers and for Amaranth values.
    """
    packed = command["packed"].any()
    if not packs(config):
        return [~packed]
    return [~packed | command["tile_inner"].any()] if shares_bytes(config) else []


def is_packed_legally(command: Mapping[str, int], config: Config) -> bool:
    """Return whether a command of plain integers meets those conditions."""
    fields = as_numpy(command, find_engine(command["engine"]))
    return all(map(bool, packing_conditions(fields, config)))


def written_span(command: Mapping[str, int], tile: int, results: int, config: Config) -> tuple[int, int]:
    """Return where a window of a tile writes its results: the first byte, from the window's destination, and the
    size."""
    if not command["packed"]:
        return 0, results
    if not shares_bytes(config):
        return 0, run_bytes(results, BINARY_BITS)
    start = tile * _window_bits(command["lanes"], config)
    first = start // _BYTE_BITS
    return first, run_bytes(start + _window_bits(results, config), BINARY_BITS) - first


def pack_windows(command: Mapping[str, int], results: Int8, valid: npt.NDArray[np.bool_], config: Config) -> UInt8:
    """Pack the results of windows into the bytes that they write.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.COMPUTE`, ``packed`` among them.
    results : int8[outer, middle, inner, results, lanes]
    valid : bool[outer, middle, inner, results, lanes]
        Whether each element is a result.
    config : Config

    Returns
    -------
    uint8[outer, middle, inner, results, bytes]
        The bytes of each window from its first one on, see :func:`written_span`.
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
    """Return the bits from one window to the next: its results, rounded up to whole pieces."""
    return -(-results // config.array.columns) * config.array.columns


Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

#: The cycle of a step that comes after all results are written back.
_LATE = np.iinfo(np.int64).max


def window_spans(command: Mapping[str, int], config: Config) -> Iterator[tuple[Int64, int]]:
    """Yield, tile by tile, the first byte and the size of each result of the tile's windows."""
    offsets = specification_of(command["engine"]).issue.result_offsets(command)
    destinations = windows.loop_addresses(command, "destination")[..., None] + np.array(offsets)
    for tile, results in enumerate(windows.lane_counts(command)):
        first, count = written_span(command, tile, int(results), config)
        yield (destinations.take(tile, windows.tile_axis(command)) + first) % windows.LOCAL_SPACE, count


@dataclass(frozen=True, eq=False)
class EarlyReads:
    """The bytes that a command may read too early.

    Attributes
    ----------
    readable_from : int64[feature_bytes] or None
        For each byte the first cycle in which a step may read it; None if all is written back when the command begins.
    begins : int64[windows]
        The cycle of the first step of each window; any later one for windows that come after the last write-back.
    """

    readable_from: Int64 | None
    begins: Int64

    @property
    def windows(self) -> Int64:
        """The number of windows that begin before all results are written back."""
        return np.flatnonzero(self.begins != _LATE)

    def may_matter(self, number: Int64) -> bool:
        """Return whether one of these windows begins before all results are written back."""
        return self.readable_from is not None and bool((self.begins[number] != _LATE).any())

    def cycles(self, command: Mapping[str, int], number: Int64) -> Int64:
        """Return the cycle of each step of some windows, int64[..., steps]; any later one for steps that are left
        out."""
        steps = np.arange(command["steps"])
        skipped = np.where(number % command["inner"], command["skip"], 0)[..., None]
        cycles = np.minimum(self.begins[number], _LATE - len(steps))[..., None] + steps - skipped
        return np.where(steps < skipped, _LATE, cycles)

    def too_early(self, addresses: Int64, cycles: Int64) -> Bool:
        """Return whether each byte is read too early: ``addresses`` int64[..., lanes] of words in ``cycles``
        int64[...]."""
        if self.readable_from is None:
            return np.zeros(addresses.shape, np.bool_)
        return self.readable_from[addresses] > cycles[..., None]


class WriteBacks:
    """The cycle in which each byte of a queue's results is written back, on the timeline on which a program may rely.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config):
        self.config = config
        self._timeline = Timeline(config)
        self._readable_from = np.full(config.memory.feature_bytes, -1, np.int64)
        self._written_back = 0

    def foresee(self, command: Mapping[str, int], *, after: bool) -> tuple[Issued, EarlyReads]:
        """Return the next command, legal and within its memories, on the timeline, and the bytes it may read too
        early."""
        issued = self._timeline.foresee(command, after=after)
        begins = np.full(command["outer"] * command["middle"] * command["inner"], _LATE, np.int64)
        if self._written_back <= issued.begin:
            return issued, EarlyReads(None, begins)
        for number, begin in issued.first_windows(self._written_back):
            begins[number] = begin
        return issued, EarlyReads(self._readable_from.copy(), begins)

    def issue(self, command: Mapping[str, int], issued: Issued) -> None:
        """Continue after a command that :meth:`foresee` returned."""
        self._timeline.issue(command, issued)
        self._written_back = issued.written_back
        shape = tuple(command[name] for name in ("outer", "middle", "inner"))
        axis, spans = windows.tile_axis(command), list(window_spans(command, self.config))
        for number, readable in issued.last_windows():
            place = [int(index) for index in np.unravel_index(number, shape)]
            starts, count = spans[place.pop(axis)]
            for start in starts[tuple(place)].tolist():
                self._readable_from[start : start + count] = readable
