"""What the windows of a COMPUTE command read from the feature memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..engines import specification_of
from ..numerics import windows
from ..units import ErrorCode, Unit
from .command_error import CommandError
from .landings import EarlyReads, window_spans

UInt8 = npt.NDArray[np.uint8]
Int8 = npt.NDArray[np.int8]
Bool = npt.NDArray[np.bool_]
Command = Mapping[str, int]


class Fetch:
    """Reads the words of windows from the feature memory.

    What a window reads that an earlier window of the same command writes is random, and so is what it may read too
    early of earlier commands' results.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.COMPUTE`, legal ones.
    feature : uint8[feature_bytes]
    offsets : int64[steps]
        Of the command's steps.
    written : bool[feature_bytes]
        What it writes.
    config : Config
    rng : numpy.random.Generator
    early : EarlyReads or None
        What it may read too early, if that is not nothing.

    Raises
    ------
    CommandError
        ADDRESS_RANGE if a step lies beyond the memory.
    """

    def __init__(
        self,
        command: Command,
        feature: UInt8,
        offsets: windows.Int64,
        written: Bool,
        config: Config,
        rng: np.random.Generator,
        early: EarlyReads | None = None,
    ):
        self.command = command
        self.config = config
        self.feature = feature.view(np.int8)
        self.offsets = offsets
        self.lane = np.arange(config.array.lanes)
        self.rng = rng
        self.early = early
        self.reads = np.arange(len(offsets)) < specification_of(command["engine"]).issue.steps_read(command, config)
        starts = (windows.loop_addresses(command, "source")[..., None] + offsets) % windows.LOCAL_SPACE
        starts, reads = (
            windows.in_issue_order(command, of_steps, axis=2)
            for of_steps in (starts, np.broadcast_to(self.reads, starts.shape))
        )
        starts = np.unique(starts[reads])
        if starts[-1] >= len(feature):
            raise CommandError(ErrorCode.ADDRESS_RANGE, Unit.FETCH, int(starts[np.searchsorted(starts, len(feature))]))
        self.races = bool(written[(starts[:, None] + self.lane) % len(feature)].any())
        if self.races:
            self.first_writer = self._first_writers()

    def __call__(self, bases: windows.Int64, tile: int) -> Int8:
        """int8[..., steps, lanes] of the windows at ``bases``, those of one tile."""
        starts = (bases[..., None] + self.offsets) % windows.LOCAL_SPACE
        addresses = (starts[..., None] + self.lane) % len(self.feature)
        words = self.feature[addresses]
        if self.races:
            raced = self.first_writer[addresses] < self._numbers_of(tile)[..., None, None]
            words[raced] = self.rng.integers(-128, 128, np.count_nonzero(raced), dtype=np.int8)
        if self.early is not None:
            cycles = self.early.cycles(self.command, self._numbers_of(tile))
            late = self.early.too_early(addresses, cycles)
            words[late] = self.rng.integers(-128, 128, np.count_nonzero(late), dtype=np.int8)
        null = words[..., ~self.reads, :]
        words[..., ~self.reads, :] = self.rng.integers(-128, 128, null.shape, dtype=np.int8)
        return words

    def depends_on_time(self, tile: int) -> bool:
        """Whether windows of a tile may read other words than those of the tile before which lie at the same place."""
        if self.early is None or self.races:
            return self.races
        return any(self.early.may_matter(self._numbers_of(one)) for one in (tile - 1, tile))

    def _numbers_of(self, tile: int) -> windows.Int64:
        """The windows of a tile, in the order of issue."""
        return np.asarray(self._window_numbers().take(tile, windows.tile_axis(self.command)))

    def _window_numbers(self) -> windows.Int64:
        shape = tuple(self.command[name] for name in ("outer", "middle", "inner"))
        return np.arange(np.prod(shape)).reshape(shape)

    def _first_writers(self) -> windows.Int64:
        """For each byte, the number of the first window whose result covers it."""
        first = np.full(len(self.feature), np.iinfo(np.int64).max)
        axis, numbers = windows.tile_axis(self.command), self._window_numbers()
        for tile, (starts, count) in enumerate(window_spans(self.command, self.config)):
            covered = starts[..., None] + np.arange(count)
            of_window = np.asarray(numbers.take(tile, axis))[..., None, None]
            np.minimum.at(first, covered, np.broadcast_to(of_window, covered.shape))
        return first
