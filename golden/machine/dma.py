"""What LOAD, FILL and STORE do to memory images, and when they are refused."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..engines import find_memory
from ..isa import EXTERNAL_BITS, LOCAL_BITS
from ..memories import LocalMemory
from ..units import ErrorCode, Unit
from .command_error import CommandError


def load(
    command: Mapping[str, int], external: np.ndarray, memories: Mapping[LocalMemory, np.ndarray], *, lanes: int
) -> None:
    """Execute a LOAD: interleave source rows into a local memory, in place.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.LOAD`, as ``isa.LOAD.decode`` gives them.
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
    if command["memory"] not in memories:
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.LOAD)
    memory = find_memory(command["memory"])
    pieces, size, rows, folds = (command[name] for name in ("row_pieces", "piece_bytes", "rows", "folds"))
    run_bytes = pieces * size
    illegal = 0 in (pieces, size, rows, folds) or run_bytes >= 1 << EXTERNAL_BITS
    if memory is not LocalMemory.FEATURE:
        unit = memory.write_bytes(lanes)
        illegal |= (pieces, rows, folds) != (1, 1, 1) or command["local"] % unit != 0 or size % unit != 0
    if illegal:
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.LOAD)

    for row in range(rows):
        for fold in range(folds):
            source = command["external"] + row * command["external_row"] + fold * command["external_fold"]
            run = _external(external, source, run_bytes, Unit.LOAD)
            at = command["local"] + row * command["local_row"] + fold * command["local_fold"]
            _write_pieces(
                memories[memory], at + np.arange(pieces) * command["local_piece"], run.reshape(pieces, size), Unit.LOAD
            )


def fill(command: Mapping[str, int], feature: np.ndarray) -> None:
    """Execute a FILL: write one byte value into pieces of the feature memory, in place.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.FILL`.
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
    rows, size = command["rows"], command["piece_bytes"]
    if 0 in (rows, size):
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.FILL)
    values = np.broadcast_to(np.uint8(command["value"]), (rows, size))
    _write_pieces(feature, command["local"] + np.arange(rows) * command["local_row"], values, Unit.FILL)


def store(command: Mapping[str, int], external: np.ndarray, feature: np.ndarray) -> None:
    """Execute a STORE: copy rows of the feature memory to external memory, in place.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.STORE`.
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
    rows, size = command["rows"], command["row_bytes"]
    if 0 in (rows, size):
        raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.STORE)
    for row in range(rows):
        source = (command["local"] + row * command["local_row"]) % (1 << LOCAL_BITS)
        if source + size > len(feature):
            raise CommandError(ErrorCode.ADDRESS_RANGE, Unit.STORE, source)
        target = _external(external, command["external"] + row * command["external_row"], size, Unit.STORE)
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
