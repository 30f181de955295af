"""Execution of LOAD, FILL and STORE on memory images, and the checks that refuse them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ..engines import find_memory
from ..isa import EXTERNAL_BITS, LOCAL_BITS, Fill, Load, Store
from ..memories import LocalMemory
from ..units import ErrorCode, Unit
from .flights import CommandError


def load(command: Load, external: np.ndarray, memories: Mapping[LocalMemory, np.ndarray], *, lanes: int) -> None:
    """Execute a LOAD: interleave source rows into a local memory, in place.

    Parameters
    ----------
    command : Load
    external : uint8[arena_bytes]
        External memory from EXTERNAL_BASE on.
    memories : mapping of LocalMemory to uint8[size_bytes]
        All memories of the core; written in place.
    lanes : int
        Bytes of an activation word.

    Raises
    ------
    CommandError
        ILLEGAL_FIELD before anything is written, for a memory that is not there too; ADDRESS_RANGE at the first piece
        that does not lie in its memory, with its address, after the pieces before it are written; AXI_DECODE at the
        first run that does not lie in ``external``.
    TypeError
        If an array is not uint8.
    """
    _require_bytes(external=external, **{memory.name.lower(): array for memory, array in memories.items()})
    if command.memory not in memories:
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.LOAD)
    memory = find_memory(command.memory)
    pieces, size, rows, folds = command.row_pieces, command.piece_bytes, command.rows, command.folds
    run_bytes = pieces * size
    illegal = 0 in (pieces, size, rows, folds) or run_bytes >= 1 << EXTERNAL_BITS
    if memory is not LocalMemory.FEATURE:
        unit = memory.write_bytes(lanes)
        illegal |= (pieces, rows, folds) != (1, 1, 1) or command.local % unit != 0 or size % unit != 0
    if illegal:
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.LOAD)

    for row in range(rows):
        for fold in range(folds):
            source = command.external + row * command.external_row + fold * command.external_fold
            run = _external(external, source, run_bytes, Unit.LOAD)
            at = command.local + row * command.local_row + fold * command.local_fold
            _write_pieces(
                memories[memory], at + np.arange(pieces) * command.local_piece, run.reshape(pieces, size), Unit.LOAD
            )


def fill(command: Fill, feature: np.ndarray) -> None:
    """Execute a FILL: write one byte value into pieces of the feature memory, in place.

    Parameters
    ----------
    command : Fill
    feature : uint8[feature_bytes]
        The feature memory.

    Raises
    ------
    CommandError
        ILLEGAL_FIELD before anything is written; ADDRESS_RANGE as in :func:`load`.
    TypeError
        If ``feature`` is not uint8.
    """
    _require_bytes(feature=feature)
    rows, size = command.rows, command.piece_bytes
    if 0 in (rows, size):
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.FILL)
    values = np.broadcast_to(np.uint8(command.value), (rows, size))
    _write_pieces(feature, command.local + np.arange(rows) * command.local_row, values, Unit.FILL)


def store(command: Store, external: np.ndarray, feature: np.ndarray) -> None:
    """Execute a STORE: copy rows of the feature memory to external memory, in place.

    Parameters
    ----------
    command : Store
    external : uint8[arena_bytes]
        External memory from EXTERNAL_BASE on.
    feature : uint8[feature_bytes]
        The feature memory.

    Raises
    ------
    CommandError
        ILLEGAL_FIELD before anything is written; ADDRESS_RANGE at the first row that does not lie in the feature
        memory, with its address; AXI_DECODE at the first row that does not lie in ``external``. The rows before it are
        written.
    TypeError
        If an array is not uint8.
    """
    _require_bytes(external=external, feature=feature)
    rows, size = command.rows, command.row_bytes
    if 0 in (rows, size):
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.STORE)
    for row in range(rows):
        source = (command.local + row * command.local_row) % (1 << LOCAL_BITS)
        if source + size > len(feature):
            raise CommandError(ErrorCode.ADDRESS_RANGE, Unit.STORE, source)
        target = _external(external, command.external + row * command.external_row, size, Unit.STORE)
        target[:] = feature[source : source + size]


def _write_pieces(memory: np.ndarray, starts: np.ndarray, values: np.ndarray, unit: Unit) -> None:
    """Write ``values[piece, byte]`` at ``starts[piece]``; later pieces win where they overlap."""
    starts = starts % (1 << LOCAL_BITS)
    bad = np.flatnonzero(starts + values.shape[1] > len(memory))
    good = int(bad[0]) if len(bad) else len(starts)
    memory[starts[:good, None] + np.arange(values.shape[1])] = values[:good]
    if len(bad):
        raise CommandError(ErrorCode.ADDRESS_RANGE, unit, int(starts[good]))


def _external(external: np.ndarray, address: int, size: int, unit: Unit) -> np.ndarray:
    address %= 1 << EXTERNAL_BITS
    if address + size > len(external):
        raise CommandError(ErrorCode.AXI_DECODE, unit, address)
    return external[address : address + size]


def _require_bytes(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        if array.dtype != np.uint8:
            raise TypeError(f"{name} must be uint8, not {array.dtype}")


# Poison: bytes on which nobody may rely are changed.


def poison(image: npt.NDArray[np.uint8], where: npt.NDArray[np.bool_], rng: np.random.Generator) -> None:
    """Change every byte of ``image`` that the mask selects, in place."""
    image[where] ^= rng.integers(1, 256, np.count_nonzero(where), dtype=np.uint8)


# The arena as each core may rely on it: another core's stores count after a barrier that both have passed.

UInt8 = npt.NDArray[np.uint8]


class ArenaViews:
    """A copy of the arena for each core of a run; one core has the arena itself.

    From the beginning of a STORE on, its bytes are poison in the copies of all other cores. A barrier copies the latest
    bytes to all cores that meet there. Two cores that store the same byte with no barrier between leave poison.

    Parameters
    ----------
    arena : uint8[arena_bytes]
    cores : int
    rng : Generator
        Source of the poison.
    """

    def __init__(self, arena: UInt8, cores: int, rng: np.random.Generator):
        self._arena = arena
        self._rng = rng
        self._views = [arena] if cores == 1 else [arena.copy() for _ in range(cores)]
        # The number of the STORE that each byte of each copy comes from.
        self._stores = np.zeros((cores, len(arena)), np.int64) if cores > 1 else np.zeros((1, 0), np.int64)
        self._count = 0

    def __getitem__(self, core: int) -> UInt8:
        """Return the copy from which a core loads, uint8[arena_bytes]."""
        return self._views[core]

    def begin_store(self, where: npt.NDArray[np.bool_]) -> None:
        """Begin a core's store of these bytes: nobody may rely on them."""
        for view in self._views:
            poison(view, where, self._rng)

    def complete_store(self, core: int, where: npt.NDArray[np.bool_]) -> None:
        """Complete a core's store of these bytes in its own copy."""
        if len(self._views) == 1:
            return
        self._count += 1
        # Another core has stored these bytes, and this core cannot know it.
        newest = self._stores.max(axis=0)
        poison(self._views[core], where & (newest > self._stores[core]), self._rng)
        self._stores[core][where] = self._count

    def meet(self, group: Iterable[int]) -> None:
        """Let these cores pass a barrier."""
        members = list(group)
        latest = self._stores[members].argmax(axis=0)
        stores = self._stores[members].max(axis=0)
        for member in members:
            for position, other in enumerate(members):
                newer = (latest == position) & (stores > self._stores[member])
                self._views[member][newer] = self._views[other][newer]
        self._stores[members] = stores

    def finish(self) -> None:
        """End the run: the arena gets the bytes that were stored last."""
        if len(self._views) == 1:
            return
        latest = self._stores.argmax(axis=0)
        for core, view in enumerate(self._views):
            own = (latest == core) & (self._stores[core] > 0)
            self._arena[own] = view[own]
