"""The engine DEPTHWISE: sums of products of each lane over chained columns of the multiplier array and over steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa import LOCAL_BITS, place_fields
from ..memories import LocalMemory
from ..numerics import windows
from ..records import LATER, check, check_integers
from .engine import Engine, EngineConfig
from .floorplan import Floorplan
from .mac import MULTIPLIER_LATENCY
from .specification import (
    Command,
    EngineSpecification,
    FurtherResults,
    Int8,
    Int32,
    Int64,
    Issue,
    RandomWindow,
    TileWindows,
    require_int8,
)

if TYPE_CHECKING:
    from ..config import Config
    from ..config_parts import ArrayConfig

#: The limit of chains: a window has a result for each, and the result FIFO has to hold those of several windows.
MOST_CHAINS = 6


@dataclass(frozen=True, slots=True)
class DepthwiseConfig(EngineConfig):
    """The configuration of DEPTHWISE.

    Attributes
    ----------
    taps : int
        Columns of the array in a chain (T).
    chains : int
        Number of chains, side by side; with several, the columns of the array are placed in rows of ``taps``.
    """

    taps: int = 3
    chains: int = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        check_integers(self, "taps", "chains")
        check(self.taps >= 1, "taps", "at least 1", self.taps)
        check(1 <= self.chains <= MOST_CHAINS, "chains", f"between 1 and {MOST_CHAINS}", self.chains)

    def check(self, config: Config) -> None:
        """Check that the array has as many columns as the chains."""
        columns = config.array.columns
        check(self.taps <= columns, "DEPTHWISE.taps", f"at most columns ({columns})", self.taps)
        most = columns // self.taps
        check(self.chains <= most, "DEPTHWISE.chains", f"at most columns / taps ({most})", self.chains)

    def absent_fields(self) -> tuple[str, ...]:
        """Return the fields for further chains if there is only one chain."""
        return () if self.chains > 1 else ("further", "destination_further")

    def row_columns(self, array: ArrayConfig) -> int:
        """Return the columns of a chain, if there are several chains."""
        return self.taps if self.chains > 1 else array.columns


FIELDS = place_fields(
    ("rows", 5, "Weight words of a tile, and steps by which each column's words follow those of the one before."),
    ("further", 3, "Results of a window beside the first one: those of as many chains after the first."),
    ("destination_further", -LOCAL_BITS, "Destination pitch of a window's results, in bytes."),
)


DEPTHWISE = Engine(2, "DEPTHWISE", configuration=DepthwiseConfig, fields=FIELDS)


def depthwise(words: Int8, weights: Int8, *, ends: Int64, count: int) -> Int32:
    """Return the sums of products of each lane over chained columns and steps.

    Parameters
    ----------
    words : int8[..., steps, lanes]
        A stream of words, one for each step; column j takes at every step the word of ``j * rows`` steps before.
    weights : int8[rows, columns, lanes]
        Weight words: the last ``rows`` steps of a window take one each, all steps before these the first one.
    ends : int64[windows]
        Last step of each window.
    count : int
        Steps that each window adds up; before the first of them the stream holds at least the words that the last
        column takes.

    Returns
    -------
    int32[..., windows, lanes]
        Modulo 2**32.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If a window would need words from before the stream, or lanes differ.
    """
    words, weights = np.asarray(words), np.asarray(weights)
    require_int8(words=words, weights=weights)
    rows, columns, lanes = weights.shape
    if words.shape[-1] != lanes:
        raise ValueError(f"words must have the {lanes} lanes of weights, not {words.shape[-1]}")
    steps = np.asarray(ends)[:, None] - count + 1 + np.arange(count)
    if steps.min() < (columns - 1) * rows:
        raise ValueError(f"ends must be at least {(columns - 1) * rows + count - 1}, not {min(ends)}")
    row = np.maximum(np.arange(count) - (count - rows), 0)
    total = np.zeros((*words.shape[:-2], len(steps), lanes), np.int64)
    for column in range(columns):
        if weights[:, column].any():
            taken = words[..., steps - column * rows, :]
            total += np.einsum("...wsl,sl->...wl", taken, weights[row, column], dtype=np.int64)
    return total.astype(np.int32)


def _totals(tile: TileWindows) -> Int32:
    """Return the totals of the chains that the command asks for, one after the other: int32[..., inner, results,
    lanes]."""
    command, taps = tile.command, tile.config.engines[DEPTHWISE].taps
    steps, skip, rows = command["steps"], command["skip"], command["rows"]
    issued = windows.in_issue_order(command, tile.words, axis=1)
    # Columns may multiply words from before the inner loop, which are arbitrary.
    after = (taps - 1) * rows
    before = tile.rng.integers(-128, 128, (len(issued), after, issued.shape[-1]), dtype=np.int8)
    ends = after + steps - 1 + np.arange(command["inner"]) * (steps - skip)
    start = windows.sum_start(command, tile.memories[LocalMemory.LIST].view(np.uint32))
    assert start is not None, "the list of a legal command frames one window"
    stream, count = np.concatenate([before, issued], axis=1), steps - start
    chains = [tile.weights[:, chain * taps : (chain + 1) * taps] for chain in range(1 + command.get("further", 0))]
    return np.stack([depthwise(stream, weights, ends=ends, count=count) for weights in chains], axis=-2)


def _latency(config: Config, command: Command) -> int:
    """Return the cycles to multiply, add from column to column, settle and accumulate, and to choose between chains."""
    own = config.engines[DEPTHWISE]
    return Floorplan.of(config).waits.words + MULTIPLIER_LATENCY + own.taps + 2 + (own.chains > 1)


def _most_further(config: Config) -> int:
    return config.engines[DEPTHWISE].chains - 1


def _conditions(command: Any, config: Config) -> list[Any]:
    return [
        ~command["tile_inner"],
        command["rows"].any(),
        command["skip"] + command["rows"] <= command["steps"],
        *(_within_chains(command, config) if _most_further(config) else ()),
    ]


def _within_chains(command: Any, config: Config) -> list[Any]:
    """Return the conditions that the chains exist, and that the results of a window are out before the next window's
    come."""
    return [command["further"] <= _most_further(config), command["further"] + 1 <= command["rows"]]


def _random_window(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    """Draw a window; half of them are as short as their rows allow, as in a layer with a 1x1 kernel."""
    is_one_column = bool(rng.integers(2))
    rows = int(rng.integers(1, 1 + min(2 if is_one_column else 5, size)))
    # With this start, the words of every column belong to the same inner loop.
    start = 0 if is_one_column else (config.engines[DEPTHWISE].taps - 1) * rows + int(rng.integers(3))
    steps = rows if is_one_column else max(start, rows) + int(rng.integers(1, 2 * rows + 1))
    skip = int(rng.integers(1 + min(start, steps - rows)))
    further = int(rng.integers(min(rows - 1, _most_further(config)), endpoint=True))
    fields = {"steps": steps, "rows": rows, "skip": skip, "tile_inner": 0, "further": further}
    return RandomWindow(fields, start, is_one_column)


SPECIFICATION = EngineSpecification(
    engine=DEPTHWISE,
    notes="Chains the products of a lane over the first DEPTHWISE_TAPS columns, and column j sees the word of "
    "`j * rows` steps before: with an image read column by column, `rows` words each, it sees the image column j "
    "before. Its last `rows` steps take one weight word each, those before the first of them (`weight_words` is "
    "`rows`); the flag `clear` may stand at any entry from `skip` on. There are DEPTHWISE_CHAINS such chains side by "
    "side, of the next columns each, which take the same words; a window has the results of the first chain and of "
    "`further` more, at a pitch of `destination_further`, all of the same parameters. `tile_inner`, `rows` of zero, "
    "`skip + rows` above `steps`, and `further` of `rows` or of DEPTHWISE_CHAINS or more are illegal.",
    results="array.lanes",
    totals=_totals,
    latency=_latency,
    random_window=_random_window,
    conditions=_conditions,
    issue=Issue(
        weight_words="rows",
        has_streams=True,
        further=FurtherResults(count="further", pitch="destination_further", most=_most_further),
        fields=("rows", "further"),
    ),
)
