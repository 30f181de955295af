"""Which bytes of the feature memory a COMPUTE command may read too early: bytes of results that may not have landed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..engines import specification_of
from ..numerics import windows
from ..timing.landing import Issued, Timeline
from .packing import written_span

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

#: The cycle of a step that comes when all has landed.
_LATE = np.iinfo(np.int64).max


def window_spans(command: Mapping[str, int], config: Config) -> Iterator[tuple[Int64, int]]:
    """Where each result of a tile's windows is written first, and how many bytes of it, tile by tile."""
    offsets = specification_of(command["engine"]).issue.result_offsets(command)
    destinations = windows.loop_addresses(command, "destination")[..., None] + np.array(offsets)
    for tile, results in enumerate(windows.lane_counts(command)):
        first, count = written_span(command, tile, int(results), config)
        yield (destinations.take(tile, windows.tile_axis(command)) + first) % windows.LOCAL_SPACE, count


@dataclass(frozen=True, eq=False)
class EarlyReads:
    """What a command may read too early.

    Attributes
    ----------
    landings : int64[feature_bytes] or None
        For each byte the first cycle in which a step may read it; None if all has landed when the command begins.
    begins : int64[windows]
        The cycle of the first step of each window; of windows that come when all has landed any later one.
    """

    landings: Int64 | None
    begins: Int64

    @property
    def windows(self) -> Int64:
        """The windows that begin before all has landed."""
        return np.flatnonzero(self.begins != _LATE)

    def may_matter(self, number: Int64) -> bool:
        """Whether one of some windows begins before all has landed."""
        return self.landings is not None and bool((self.begins[number] != _LATE).any())

    def cycles(self, command: Mapping[str, int], number: Int64) -> Int64:
        """The cycle of each step of some windows, int64[..., steps]; of steps that are left out any later one."""
        steps = np.arange(command["steps"])
        skipped = np.where(number % command["inner"], command["skip"], 0)[..., None]
        cycles = np.minimum(self.begins[number], _LATE - len(steps))[..., None] + steps - skipped
        return np.where(steps < skipped, _LATE, cycles)

    def too_early(self, addresses: Int64, cycles: Int64) -> Bool:
        """Which bytes are read too early: ``addresses`` int64[..., lanes] of words in ``cycles`` int64[...]."""
        if self.landings is None:
            return np.zeros(addresses.shape, np.bool_)
        return self.landings[addresses] > cycles[..., None]


class Landings:
    """When the results of a queue's COMPUTE commands land, byte by byte, on the timeline of what may be relied on.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config):
        self.config = config
        self._timeline = Timeline(config)
        self._landings = np.full(config.memory.feature_bytes, -1, np.int64)
        self._landed = 0

    def foresee(self, command: Mapping[str, int], *, after: bool) -> tuple[Issued, EarlyReads]:
        """The next command, legal and within its memories, and what it may read too early."""
        issued = self._timeline.foresee(command, after=after)
        begins = np.full(command["outer"] * command["middle"] * command["inner"], _LATE, np.int64)
        if self._landed <= issued.begin:
            return issued, EarlyReads(None, begins)
        for number, begin in issued.first_windows(self._landed):
            begins[number] = begin
        return issued, EarlyReads(self._landings.copy(), begins)

    def issue(self, command: Mapping[str, int], issued: Issued) -> None:
        """Go on after a command that was foreseen."""
        self._timeline.issue(command, issued)
        self._landed = issued.landed
        shape = tuple(command[name] for name in ("outer", "middle", "inner"))
        axis, spans = windows.tile_axis(command), list(window_spans(command, self.config))
        for number, landing in issued.last_windows():
            place = [int(index) for index in np.unravel_index(number, shape)]
            starts, count = spans[place.pop(axis)]
            for start in starts[tuple(place)].tolist():
                self._landings[start : start + count] = landing
