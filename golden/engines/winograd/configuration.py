"""What WINOGRAD is built with."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine import ArrayWaits, EngineConfig


@dataclass(frozen=True, slots=True)
class WinogradConfig(EngineConfig):
    """What WINOGRAD is built with: nothing of its own. It works in the array, and all of the array waits for it."""

    def array_waits(self) -> ArrayWaits:
        """Two words meet in front of the array, one is added to the other; weights likewise in front of each column;
        sums are doubled, and of two totals one is chosen."""
        return ArrayWaits(words=4, weights=1, totals=2)
