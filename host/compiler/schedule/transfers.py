"""Transfers: commands of the DMA queue for a tensor, or a part of one, and its border."""

from __future__ import annotations

import itertools

import numpy as np

from ....golden.elements import BINARY_BITS
from ....golden.isa import LOAD, STORE, Opcode
from ....golden.memories import LocalMemory
from ...graph import Tensor
from ..data.command import Command
from ..data.storage import Addresses, Storage, pieces
from ..layout.folds import source_rows

#: Of one LOAD, and of one STORE.
_MOST_FOLDS, _MOST_ROWS = LOAD.field("folds").limits[1], STORE.field("rows").limits[1]


def fill_border(storage: Storage, tensor: Tensor) -> list[Command]:
    """FILLs of everything around a tensor, and of the folds that lie in its padding."""
    pitch, row_bytes = storage.row_pitch, storage.row_bytes
    end = storage.address + storage.size_bytes
    last_end = storage.first + (storage.height - 1) * pitch + row_bytes
    # Without a border at the sides nobody reads what lies between the rows.
    between = pitch - row_bytes if storage.left or storage.right else 0
    if storage.height == 0:
        fills = [(storage.address, storage.size_bytes, 1, 0)]
    else:
        fills = [
            (storage.address, storage.first - storage.address, 1, 0),
            (storage.first + row_bytes, between, storage.height - 1, pitch),
            (last_end, end - last_end, 1, 0),
        ]
    if storage.fold:
        fold_bytes = tensor.pixel_bytes
        for row, first, last in _runs(source_rows(storage, tensor.shape[0]) < 0):
            at, size = storage.first + row * pitch + first * fold_bytes, (last - first) * fold_bytes
            whole = size == storage.stored_bytes
            fills.append((at, row_bytes, 1, 0) if whole else (at, size, storage.width, storage.stored_bytes))
    fills = [fill for fill in fills if fill[1] and fill[2]]
    commands = [_fill(storage.value, *fill) for fill in fills]
    if storage.bits == BINARY_BITS and storage.value and storage.channels % 8:
        # Bits that are no channels are 0 everywhere.
        ones = (1 << storage.channels % 8) - 1
        commands += [_fill(ones, *last) for fill in fills for last in _last_bytes(storage.pixel_pitch, *fill)]
    return commands


def _fill(value: int, at: int, size: int, count: int, pitch: int) -> Command:
    """A FILL of ``count`` pieces of ``size`` bytes."""
    fields = {"local": at, "piece_bytes": size, "rows": count, "local_row": pitch, "value": value & 0xFF}
    return Command(Opcode.FILL, fields, writes=pieces(at, size, count, pitch))


def _last_bytes(pixel: int, at: int, size: int, count: int, pitch: int) -> list[tuple[int, int, int, int]]:
    """The last byte of every pixel in such pieces, as pieces of one byte."""
    last = at + pixel - 1
    if count == 1:
        return [(last, 1, size // pixel, pixel)]
    return [(last + inner, 1, count, pitch) for inner in range(0, size, pixel)]


def load(storage: Storage, tensor: Tensor, external: int, rows: range) -> list[Command]:
    """LOADs of some stored rows of a tensor, which lies densely at ``external``."""
    if not rows or not storage.width:
        return []
    if storage.fold:
        return _load_folds(storage, tensor, external, rows)
    if storage.channels < tensor.shape[2]:
        return _load_channels(storage, tensor, external, rows)
    row_bytes = storage.row_bytes
    local = storage.first + (rows.start - storage.row) * storage.row_pitch
    fields = {
        "external": external + rows.start * tensor.row_bytes + storage.column * tensor.pixel_bytes,
        "local": local,
        "memory": LocalMemory.FEATURE,
        "rows": 1,
        "folds": 1,
    }
    if storage.width < tensor.shape[1]:
        fields |= {
            "row_pieces": 1,
            "piece_bytes": row_bytes,
            "rows": len(rows),
            "external_row": tensor.row_bytes,
            "local_row": storage.row_pitch,
        }
    else:
        # One run; rows that lie side by side are one piece.
        count, size = (len(rows), row_bytes) if storage.gap else (1, len(rows) * row_bytes)
        fields |= {"row_pieces": count, "piece_bytes": size, "local_piece": storage.row_pitch}
    return [Command(Opcode.LOAD, fields, writes=storage.addresses(rows))]


def _load_channels(storage: Storage, tensor: Tensor, external: int, rows: range) -> list[Command]:
    """LOADs of some channels: a run for every pixel, of as many columns as a command may have."""
    commands = []
    for first in range(0, storage.width, _MOST_FOLDS):
        columns = storage.columns[first : first + _MOST_FOLDS]
        fields = {
            "external": external
            + rows.start * tensor.row_bytes
            + columns.start * tensor.pixel_bytes
            + storage.channel_offset(storage.channel),
            "local": storage.first + (rows.start - storage.row) * storage.row_pitch + first * storage.pixel_pitch,
            "memory": LocalMemory.FEATURE,
            "row_pieces": 1,
            "piece_bytes": storage.stored_bytes,
            "rows": len(rows),
            "folds": len(columns),
            "external_row": tensor.row_bytes,
            "external_fold": tensor.pixel_bytes,
            "local_row": storage.row_pitch,
            "local_fold": storage.pixel_pitch,
        }
        commands.append(Command(Opcode.LOAD, fields, writes=storage.addresses(rows, columns)))
    return commands


def _load_folds(storage: Storage, tensor: Tensor, external: int, stored: range) -> list[Command]:
    """LOADs of some stored rows of a folded input: one for each run of rows with the same folds in the source."""
    fold, fold_bytes = storage.fold, tensor.pixel_bytes
    skipped = stored.start - storage.row
    rows = source_rows(storage, tensor.shape[0])[skipped : skipped + len(stored)]
    commands = []
    for _, group in itertools.groupby(range(len(rows)), key=lambda index: tuple(rows[index] >= 0)):
        members = list(group)
        present = np.flatnonzero(rows[members[0]] >= 0)
        if not len(present):
            continue
        count, folds = len(members), len(present)
        local = storage.first + (skipped + members[0]) * storage.row_pitch + int(present[0]) * fold_bytes
        source = int(rows[members[0], present[0]]) * tensor.row_bytes + storage.column * tensor.pixel_bytes
        fields = {
            "external": external + source,
            "local": local,
            "memory": LocalMemory.FEATURE,
            "row_pieces": storage.width,
            "piece_bytes": fold_bytes,
            "rows": count,
            "folds": folds,
            "external_row": fold.step * tensor.row_bytes,
            "external_fold": fold.dilation * tensor.row_bytes,
            "local_row": storage.row_pitch,
            "local_fold": fold_bytes,
            "local_piece": storage.stored_bytes,
        }
        row_writes = pieces(local, folds * fold_bytes, storage.width, storage.stored_bytes)
        writes = (np.arange(count)[:, None] * storage.row_pitch + row_writes).reshape(-1)
        commands.append(Command(Opcode.LOAD, fields, writes=writes))
    return commands


def store(storage: Storage, tensor: Tensor, external: int) -> list[Command]:
    """STOREs of what is stored of a tensor to its dense copy at ``external``."""
    start = external + storage.row * tensor.row_bytes + storage.column * tensor.pixel_bytes
    start += storage.channel_offset(storage.channel)
    is_dense = storage.width == tensor.shape[1] and not storage.gap
    if storage.channels < tensor.shape[2]:
        return _store_channels(storage, tensor, start, is_dense=is_dense)
    row_bytes = storage.row_bytes
    if is_dense:
        return [_store(storage.addresses(), start, storage.height * row_bytes, 1, (0, 0))]
    return [_store(storage.addresses(), start, row_bytes, storage.height, (tensor.row_bytes, storage.row_pitch))]


def _store_channels(storage: Storage, tensor: Tensor, start: int, *, is_dense: bool) -> list[Command]:
    """STOREs of some channels: a run for every pixel; those of one command are equally far apart."""
    size, reads = storage.stored_bytes, storage.addresses().reshape(storage.height, storage.width, -1)
    pixel, row = (tensor.pixel_bytes, storage.pixel_pitch), (tensor.row_bytes, storage.row_pitch)
    if is_dense and storage.height * storage.width <= _MOST_ROWS:
        return [_store(reads.reshape(-1), start, size, storage.height * storage.width, pixel)]
    # A row for each command, or a column, whichever are fewer.
    along, across = pixel, row
    if storage.width < storage.height:
        along, across, reads = row, pixel, reads.swapaxes(0, 1)
    return [
        _store(line.reshape(-1), start + number * across[0], size, len(line), along)
        for number, line in enumerate(reads)
    ]


def _store(reads: Addresses, external: int, size: int, count: int, pitches: tuple[int, int]) -> Command:
    """A STORE of ``count`` runs of ``size`` bytes at ``reads``; from one to the next, outside and in the memory."""
    fields = {
        "external": external,
        "local": int(reads[0]),
        "row_bytes": size,
        "rows": count,
        "external_row": pitches[0],
        "local_row": pitches[1],
    }
    return Command(Opcode.STORE, fields, reads=reads)


def _runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """(row, first, end) of each run of true elements along the rows of bool[rows, columns]."""
    runs = []
    for row, line in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], line.astype(np.int8), [0]))))
        runs += [(row, int(first), int(end)) for first, end in edges.reshape(-1, 2)]
    return runs
