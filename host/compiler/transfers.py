"""Transfers: commands of the DMA queue for a tensor, or a part of one, and its border."""

from __future__ import annotations

import itertools

import numpy as np

from ...golden.isa import LocalMemory, Opcode
from .folding import source_rows
from .plan import Command
from .storage import Storage, pieces

Shape = tuple[int, int, int]


def fill_border(storage: Storage, shape: Shape) -> list[Command]:
    """FILLs of everything around a tensor of ``shape``, and of the folds that lie in its padding."""
    pitch, row_bytes = storage.row_pitch, storage.width * storage.channels
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
        channels = shape[2]
        for row, first, last in _runs(source_rows(storage, shape[0]) < 0):
            at, size = storage.first + row * pitch + first * channels, (last - first) * channels
            whole = size == storage.channels
            fills.append((at, row_bytes, 1, 0) if whole else (at, size, storage.width, storage.channels))
    value = storage.value & 0xFF
    return [
        Command(
            Opcode.FILL,
            {"local": at, "piece_bytes": size, "rows": count, "local_row": row_pitch, "value": value},
            writes=pieces(at, size, count, row_pitch),
        )
        for at, size, count, row_pitch in fills
        if size and count
    ]


def load(storage: Storage, shape: Shape, external: int, rows: range) -> list[Command]:
    """LOADs of some stored rows of a tensor of ``shape``, which lies densely at ``external``."""
    if not rows or not storage.width:
        return []
    if storage.fold:
        return _load_folds(storage, shape, external, rows)
    _, width, channels = shape
    row_bytes = storage.width * channels
    local = storage.first + (rows.start - storage.row) * storage.row_pitch
    fields = {
        "external": external + (rows.start * width + storage.column) * channels,
        "local": local,
        "memory": LocalMemory.FEATURE,
        "rows": 1,
        "folds": 1,
    }
    if storage.width < width:
        fields |= {
            "row_pieces": 1,
            "piece_bytes": row_bytes,
            "rows": len(rows),
            "external_row": width * channels,
            "local_row": storage.row_pitch,
        }
    else:
        # One run; rows that lie side by side are one piece.
        count, size = (len(rows), row_bytes) if storage.gap else (1, len(rows) * row_bytes)
        fields |= {"row_pieces": count, "piece_bytes": size, "local_piece": storage.row_pitch}
    return [Command(Opcode.LOAD, fields, writes=storage.addresses(rows))]


def _load_folds(storage: Storage, shape: Shape, external: int, stored: range) -> list[Command]:
    """LOADs of some stored rows of a folded input: one for each run of rows with the same folds in the source."""
    height, width, channels = shape
    fold = storage.fold
    skipped = stored.start - storage.row
    rows = source_rows(storage, height)[skipped : skipped + len(stored)]
    commands = []
    for _, group in itertools.groupby(range(len(rows)), key=lambda index: tuple(rows[index] >= 0)):
        members = list(group)
        present = np.flatnonzero(rows[members[0]] >= 0)
        if not len(present):
            continue
        count, folds = len(members), len(present)
        local = storage.first + (skipped + members[0]) * storage.row_pitch + int(present[0]) * channels
        source = int(rows[members[0], present[0]]) * width + storage.column
        fields = {
            "external": external + source * channels,
            "local": local,
            "memory": LocalMemory.FEATURE,
            "row_pieces": storage.width,
            "piece_bytes": channels,
            "rows": count,
            "folds": folds,
            "external_row": fold.step * width * channels,
            "external_fold": fold.dilation * width * channels,
            "local_row": storage.row_pitch,
            "local_fold": channels,
            "local_piece": storage.channels,
        }
        row_writes = pieces(local, folds * channels, storage.width, storage.channels)
        writes = (np.arange(count)[:, None] * storage.row_pitch + row_writes).reshape(-1)
        commands.append(Command(Opcode.LOAD, fields, writes=writes))
    return commands


def store(storage: Storage, shape: Shape, external: int) -> list[Command]:
    """STOREs of what is stored of a tensor of ``shape`` to its dense copy at ``external``."""
    _, width, channels = shape
    start = external + (storage.row * width + storage.column) * channels + storage.channel
    if storage.channels < channels:
        # A row for every pixel; pixels of one command are equally far apart.
        if storage.width == width and not storage.gap:
            return [
                _store(
                    storage,
                    storage.rows,
                    storage.width * storage.height,
                    storage.channels,
                    storage.pixel_pitch,
                    start,
                    channels,
                )
            ]
        return [
            _store(
                storage,
                range(row, row + 1),
                storage.width,
                storage.channels,
                storage.pixel_pitch,
                start + (row - storage.row) * width * channels,
                channels,
            )
            for row in storage.rows
        ]
    row_bytes = storage.width * channels
    if storage.width == width and not storage.gap:
        return [_store(storage, storage.rows, 1, storage.height * row_bytes, 0, start, 0)]
    return [_store(storage, storage.rows, storage.height, row_bytes, storage.row_pitch, start, width * channels)]


def _store(
    storage: Storage, rows: range, count: int, size: int, pitch: int, external: int, external_row: int
) -> Command:
    """A STORE of ``count`` runs of ``size`` bytes, which are the given rows of the tensor."""
    reads = storage.addresses(rows)
    fields = {
        "external": external,
        "local": int(reads[0]),
        "row_bytes": size,
        "rows": count,
        "external_row": external_row,
        "local_row": pitch,
    }
    return Command(Opcode.STORE, fields, reads=reads)


def _runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """(row, first, end) of each run of true elements along the rows of bool[rows, columns]."""
    runs = []
    for row, line in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], line.astype(np.int8), [0]))))
        runs += [(row, int(first), int(end)) for first, end in edges.reshape(-1, 2)]
    return runs
