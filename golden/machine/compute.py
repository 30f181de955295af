"""Execution of a COMPUTE command on memory images, and the checks that refuse it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..engines import specification_of
from ..engines.specification import TileWindows
from ..isa import TABLE_BYTES, Compute
from ..memories import LocalMemory
from ..numerics import windows
from ..units import ErrorCode, Unit
from .flights import CommandError
from .write_back import EarlyReads, is_packed_legally, pack_windows, shares_bytes, window_spans

# Reading the windows of a COMPUTE command from the feature memory.

UInt8 = npt.NDArray[np.uint8]
Int8 = npt.NDArray[np.int8]
Bool = npt.NDArray[np.bool_]


class WindowReader:
    """Reads the words of windows from the feature memory.

    Bytes that an earlier window of the same command writes are read as random ones, and so are bytes of earlier
    commands' results that may not be written back.

    Parameters
    ----------
    command : Compute
        A legal command, with the fields of its engine.
    feature : uint8[feature_bytes]
    offsets : int64[steps]
        Offsets of the command's steps.
    written : bool[feature_bytes]
        The bytes that the command writes.
    config : Config
    rng : numpy.random.Generator
    early : EarlyReads or None
        The bytes that it may read too early; None if there are none.

    Raises
    ------
    CommandError
        ADDRESS_RANGE if a step lies beyond the memory.
    """

    def __init__(
        self,
        command: Compute,
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
        self.reads = np.arange(len(offsets)) < specification_of(command.engine).issue.steps_read(command, config)
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
        """Return int8[..., steps, lanes] of the windows at ``bases``, those of one tile."""
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
        """Return whether windows of a tile may read other words than the windows of the tile before at the same
        addresses."""
        if self.early is None or self.races:
            return self.races
        return any(self.early.may_matter(self._numbers_of(one)) for one in (tile - 1, tile))

    def _numbers_of(self, tile: int) -> windows.Int64:
        """Return the numbers of a tile's windows, in the order of issue."""
        return np.asarray(self._window_numbers().take(tile, windows.tile_axis(self.command)))

    def _window_numbers(self) -> windows.Int64:
        shape = self.command.outer, self.command.middle, self.command.inner
        return np.arange(np.prod(shape)).reshape(shape)

    def _first_writers(self) -> windows.Int64:
        """Return, for each byte, the number of the first window whose result covers it."""
        first = np.full(len(self.feature), np.iinfo(np.int64).max)
        axis, numbers = windows.tile_axis(self.command), self._window_numbers()
        for tile, (starts, count) in enumerate(window_spans(self.command, self.config)):
            covered = starts[..., None] + np.arange(count)
            of_window = np.asarray(numbers.take(tile, axis))[..., None, None]
            np.minimum.at(first, covered, np.broadcast_to(of_window, covered.shape))
        return first


Memories = Mapping[LocalMemory, UInt8]


def check_fields(command: Compute, config: Config) -> None:
    """Check a command as the hardware does before the first step: counts, lanes, list, table, conditions of the engine.

    Raises
    ------
    ValueError
        If there is no such engine.
    CommandError
        ILLEGAL_FIELD.
    """
    engine = specification_of(command.engine)
    counts = command.outer, command.middle, command.inner, command.steps, command.lanes, command.last_lanes
    if (
        0 in counts
        or command.lanes > engine.most_results(config)
        or command.last_lanes > command.lanes
        or command.list + command.steps > config.memory.list_entries
        or command.table >= config.memory.tables
        or not engine.is_legal(command, config)
        or not is_packed_legally(command, config)
    ):
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.FETCH)


def written_bytes(command: Compute, config: Config) -> npt.NDArray[np.bool_]:
    """Find the bytes of the feature memory that the command writes.

    Returns
    -------
    bool[feature_bytes]

    Raises
    ------
    CommandError
        ILLEGAL_FIELD as in :func:`check_fields`; ADDRESS_RANGE if a piece of a result lies beyond the feature memory.
    """
    check_fields(command, config)
    size, at_once = config.memory.feature_bytes, _piece_bytes(command, config)
    written = np.zeros(size, np.bool_)
    for starts, count in window_spans(command, config):
        flat = starts.reshape(-1)
        # Results are written in pieces, each checked by its end.
        for piece in range(0, count, at_once):
            first = (flat + piece) % windows.LOCAL_SPACE
            outside = first[first + min(at_once, count - piece) > size]
            if outside.size:
                raise CommandError(ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK, int(outside[0]))
        written[flat[:, None] + np.arange(count)] = True
    return written


def compute_results(
    command: Compute,
    memories: Memories,
    config: Config,
    rng: np.random.Generator,
    early: EarlyReads | None = None,
) -> Int8:
    """Compute the results of every window.

    Parameters
    ----------
    command : Compute
        A command with the fields of its engine, checked by :func:`check_fields`.
    memories : mapping of LocalMemory to uint8[size_bytes]
        All of them.
    config : Config
    rng : numpy.random.Generator
        Supplies the bytes that are undefined in the hardware: those that a window reads where an earlier window of the
        same command writes, those that may be read too early, and words from before an inner loop that depthwise
        columns multiply.
    early : EarlyReads or None
        The results of earlier commands that may be read too early; None if there are none.

    Returns
    -------
    int8[outer, middle, inner, results, lanes]
        In the last tile ``last_lanes`` of the lanes are results.

    Raises
    ------
    CommandError
        ADDRESS_RANGE if a step, a weight word or a parameter word lies beyond its memory; WATCHDOG if the list's flags
        do not frame one window.
    """
    size = config.memory.feature_bytes
    entries = memories[LocalMemory.LIST].view(np.uint32)
    if not windows.is_framed(command, entries, has_streams=specification_of(command.engine).issue.has_streams):
        raise CommandError(ErrorCode.WATCHDOG, Unit.FETCH)
    offsets = windows.step_offsets(command, entries, feature_bytes=size)
    bases = windows.loop_addresses(command, "source")
    written = written_bytes(command, config)
    fetch = WindowReader(command, memories[LocalMemory.FEATURE], offsets, written, config, rng, early)
    axis = windows.tile_axis(command)
    same_windows = (command.source_inner if axis == 2 else command.source_outer) == 0
    tiles = windows.tile_count(command)
    parts = []
    words = None
    for tile in range(tiles):
        if words is None or not same_windows or fetch.depends_on_time(tile):
            words = fetch(np.asarray(bases.take(tile, axis)), tile)
        parts.append(_tile_results(command, words, tile, memories, config, rng))
    return np.stack(parts, axis)


def write_results(command: Compute, results: Int8, feature: UInt8, config: Config) -> None:
    """Write results, int8[outer, middle, inner, results, lanes], in the order of the windows."""
    axis, written = windows.tile_axis(command), results.view(np.uint8)
    shape = [-1 if number == axis else 1 for number in range(5)]
    if command.packed:
        valid = np.arange(results.shape[-1]) < windows.lane_counts(command).reshape(shape)
        written = pack_windows(command, results, np.broadcast_to(valid, results.shape), config)
    spans = [*window_spans(command, config)]
    starts = np.stack([starts for starts, _ in spans], axis)
    counts = np.array([count for _, count in spans]).reshape(shape)
    place = np.arange(written.shape[-1])
    valid = np.broadcast_to(place < counts, written.shape)
    feature[(starts[..., None] + place)[valid]] = written[valid]


def _piece_bytes(command: Compute, config: Config) -> int:
    """Return the number of bytes that are written at a time."""
    if command.packed:
        return 1 if shares_bytes(config) else config.array.columns // 8
    is_whole = specification_of(command.engine).epilogue_of(command).is_whole
    return config.array.lanes if is_whole else config.array.columns


def _tile_results(
    command: Compute, words: Int8, tile: int, memories: Memories, config: Config, rng: np.random.Generator
) -> Int8:
    """Apply engine, epilogue and table to the windows of one tile: int8[..., results, lanes]."""
    lanes = command.lanes if tile < windows.tile_count(command) - 1 else command.last_lanes
    parameters = _tile_parameters(command, tile, lanes, memories, config)
    engine = specification_of(command.engine)
    weights = _tile_weights(command, tile, engine.issue.tile_weight_words(command), memories, config)
    totals = engine.totals(TileWindows(command, config, words, weights, memories, rng))
    if engine.issue.further is None:
        totals = totals[..., np.newaxis, :]
    results = engine.epilogue_of(command).codes(totals[..., :lanes], parameters, command)
    if command.table_enable:
        table = memories[LocalMemory.TABLE][command.table * TABLE_BYTES :][:TABLE_BYTES].view(np.int8)
        results = table[results.astype(np.int64) + 128]
    padded = np.zeros((*results.shape[:-1], command.lanes), np.int8)
    padded[..., :lanes] = results
    return padded


def _tile_weights(command: Compute, tile: int, count: int, memories: Memories, config: Config) -> Int8:
    """Return the weight words of a tile, int8[count, columns, lanes]."""
    first = command.weight + tile * count
    if count and first + count > config.weight_words:
        raise CommandError(ErrorCode.ADDRESS_RANGE, Unit.FETCH, max(first, config.weight_words))
    words = memories[LocalMemory.WEIGHT].view(np.int8).reshape(-1, config.array.columns, config.array.lanes)
    return words[first : first + count]


def _tile_parameters(
    command: Compute, tile: int, lanes: int, memories: Memories, config: Config
) -> npt.NDArray[np.uint64 | np.int16]:
    """Return the parameters of a tile's lanes, uint64[lanes]; for a whole epilogue int16[lanes]."""
    epilogue = specification_of(command.engine).epilogue_of(command)
    width = epilogue.at_once(config)
    groups, full_groups = -(-lanes // width), -(-command.lanes // width)
    words = (
        np.full(groups, command.parameter)
        if command.parameter_shared
        else command.parameter + tile * full_groups + np.arange(groups)
    )
    if words[-1] >= config.parameter_words:
        raise CommandError(ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK, int(max(words[0], config.parameter_words)))
    memory = memories[LocalMemory.PARAMETER].reshape(-1, config.parameter_word_bytes)
    values = memory.view(np.int16) if epilogue.is_whole else memory.view(np.uint64)
    return values[words, :width].reshape(-1)[:lanes]
