"""The arena as each core may rely on it: what another core has stored counts behind a barrier that both have passed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from .poison import poison

UInt8 = npt.NDArray[np.uint8]


class ArenaViews:
    """A copy of the arena for each core of a run; one core has the arena itself.

    From the beginning of a STORE on, its bytes are poison in the copies of all other cores. A barrier hands what is
    latest on to all that meet there. Two cores that store the same byte with no barrier between leave poison.

    Parameters
    ----------
    arena : uint8[arena_bytes]
    cores : int
    rng : Generator
        For the poison.
    """

    def __init__(self, arena: UInt8, cores: int, rng: np.random.Generator):
        self._arena = arena
        self._rng = rng
        self._views = [arena] if cores == 1 else [arena.copy() for _ in range(cores)]
        # The number of the STORE that each byte of each copy comes from.
        self._stores = np.zeros((cores, len(arena)), np.int64) if cores > 1 else np.zeros((1, 0), np.int64)
        self._count = 0

    def __getitem__(self, core: int) -> UInt8:
        """What a core loads, uint8[arena_bytes]."""
        return self._views[core]

    def begin_store(self, where: npt.NDArray[np.bool_]) -> None:
        """Some core begins to store these bytes: nobody may rely on them."""
        for view in self._views:
            poison(view, where, self._rng)

    def complete_store(self, core: int, where: npt.NDArray[np.bool_]) -> None:
        """A core has stored these bytes, in its own copy."""
        if len(self._views) == 1:
            return
        self._count += 1
        # Somebody else has stored them, and this core cannot know it.
        newest = self._stores.max(axis=0)
        poison(self._views[core], where & (newest > self._stores[core]), self._rng)
        self._stores[core][where] = self._count

    def meet(self, group: Iterable[int]) -> None:
        """These cores pass a barrier."""
        members = list(group)
        latest = self._stores[members].argmax(axis=0)
        stores = self._stores[members].max(axis=0)
        for member in members:
            for position, other in enumerate(members):
                newer = (latest == position) & (stores > self._stores[member])
                self._views[member][newer] = self._views[other][newer]
        self._stores[members] = stores

    def finish(self) -> None:
        """The run has ended: the arena holds what was stored last."""
        if len(self._views) == 1:
            return
        latest = self._stores.argmax(axis=0)
        for core, view in enumerate(self._views):
            own = (latest == core) & (self._stores[core] > 0)
            self._arena[own] = view[own]
