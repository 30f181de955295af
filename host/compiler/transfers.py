"""Transfers: commands of the DMA queue for inputs, borders and outputs, put among the COMPUTE commands."""
from __future__ import annotations

import itertools
import math

import numpy as np

from ...golden.isa import LocalMemory, Opcode
from ..graph import Window
from .folding import source_rows
from .plan import Command, Plan
from .storage import Storage, pieces

#: Inputs and outputs begin at a multiple of this, so that bursts of 16 beats of 16 bytes do not cross 4 KiB more often
#: than they must.
PORT_ALIGNMENT = 256


def plan_transfers(plan: Plan) -> Plan:
    """Put LOADs and FILLs before what needs them, and STOREs behind what they need.

    A border is filled while the layer that writes the interior runs, or earlier: its FILL stands before that layer and
    waits only until its bytes are free. So no layer that reads a border waits for it.
    """
    graph, address = plan.graph, 0
    for name in dict.fromkeys([*graph.inputs, *graph.outputs]):
        plan.ports[name] = address
        address += _port_room(plan, name)
    for name in graph.inputs:
        plan.commands += _fill_border(plan, name) + _load(plan, name)
        if name in graph.outputs:
            plan.commands += _store(plan, name)
    for index, layer in enumerate(graph.layers):
        computes = [computes for job, computes in zip(plan.jobs, plan.computes, strict=True) if job.index == index]
        plan.commands += _fill_border(plan, layer.output) + list(itertools.chain(*computes))
        if layer.output in graph.outputs:
            plan.commands += _store(plan, layer.output)
    return plan


def port_bytes(plan: Plan) -> int:
    """Bytes of the arena that inputs and outputs take, from its start on."""
    return sum(_port_room(plan, name) for name in plan.ports)


def _port_room(plan: Plan, name: str) -> int:
    return -(-math.prod(plan.graph.tensors[name].shape) // PORT_ALIGNMENT) * PORT_ALIGNMENT


def _fill_border(plan: Plan, name: str) -> list[Command]:
    """FILLs of everything around a tensor, and of the folds that lie in its padding."""
    storage, channels = plan.storages[name], plan.graph.tensors[name].shape[2]
    pitch, gap = storage.row_pitch, storage.gap * storage.channels
    row_bytes = storage.width * storage.channels
    end = storage.address + storage.size_bytes
    last_end = storage.origin + (storage.height - 1) * pitch + row_bytes
    fills = [
        (storage.address, storage.origin - storage.address, 1, 0),
        (storage.origin + row_bytes, gap, storage.height - 1, pitch),
        (last_end, end - last_end, 1, 0),
    ]
    if storage.fold:
        rows = source_rows(storage, plan.graph.tensors[name].shape[0])
        for row, first, last in _runs(rows < 0):
            at, size = storage.origin + row * pitch + first * channels, (last - first) * channels
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


def _load(plan: Plan, name: str) -> list[Command]:
    """LOADs of an input: one, or one for each row group of a first layer that begins early."""
    storage, (height, width, channels) = plan.storages[name], plan.graph.tensors[name].shape
    first = plan.graph.layers[0] if plan.graph.layers else None
    ends = [job.rows.stop for job in plan.jobs if job.index == 0]
    bounds = [storage.height]
    if len(ends) > 1 and first.input == name:
        bounds = [*(_rows_needed(first.window, storage, end) for end in ends[:-1]), storage.height]
    commands = []
    for start, end in itertools.pairwise([0, *bounds]):
        if start == end:
            continue
        if storage.fold:
            commands += _load_folds(plan.ports[name], storage, (height, width, channels), range(start, end))
            continue
        row_bytes = width * channels
        count, size = (end - start, row_bytes) if storage.gap else (1, (end - start) * row_bytes)
        fields = {"external": plan.ports[name] + start * row_bytes, "local": storage.origin + start * storage.row_pitch,
                  "memory": LocalMemory.FEATURE, "row_pieces": count, "piece_bytes": size, "rows": 1, "folds": 1,
                  "local_piece": storage.row_pitch}
        commands.append(Command(Opcode.LOAD, fields, writes=storage.addresses(range(start, end))))
    return commands


def _load_folds(port: int, storage: Storage, shape: tuple[int, int, int], stored: range) -> list[Command]:
    """LOADs of some stored rows of a folded input: one for each run of rows with the same folds in the source."""
    height, width, channels = shape
    fold, row_bytes = storage.fold, width * channels
    rows = source_rows(storage, height)[stored.start:stored.stop]
    commands = []
    for _, group in itertools.groupby(range(len(rows)), key=lambda index: tuple(rows[index] >= 0)):
        members = list(group)
        present = np.flatnonzero(rows[members[0]] >= 0)
        if not len(present):
            continue
        count, folds = len(members), len(present)
        local = storage.origin + (stored.start + members[0]) * storage.row_pitch + int(present[0]) * channels
        fields = {
            "external": port + int(rows[members[0], present[0]]) * row_bytes,
            "local": local,
            "memory": LocalMemory.FEATURE,
            "row_pieces": width,
            "piece_bytes": channels,
            "rows": count,
            "folds": folds,
            "external_row": fold.step * row_bytes,
            "external_fold": fold.dilation * row_bytes,
            "local_row": storage.row_pitch,
            "local_fold": channels,
            "local_piece": storage.channels,
        }
        row_writes = pieces(local, folds * channels, width, storage.channels)
        writes = (np.arange(count)[:, None] * storage.row_pitch + row_writes).reshape(-1)
        commands.append(Command(Opcode.LOAD, fields, writes=writes))
    return commands


def _store(plan: Plan, name: str) -> list[Command]:
    storage = plan.storages[name]
    row_bytes = storage.width * storage.channels
    rows, size = (storage.height, row_bytes) if storage.gap else (1, storage.height * row_bytes)
    fields = {"external": plan.ports[name], "local": storage.origin, "row_bytes": size, "rows": rows,
              "external_row": row_bytes, "local_row": storage.row_pitch}
    return [Command(Opcode.STORE, fields, reads=storage.addresses())]


def _rows_needed(window: Window, storage: Storage, output_rows: int) -> int:
    """Stored rows, from the first on, that the windows of so many output rows reach."""
    if storage.fold:
        stored_rows = -(-window.kernel[0] // storage.fold.rows)
        reached = (
            (output_rows - 1) * window.stride[0] + (stored_rows - 1) * storage.fold.rows * window.dilation[0]
        ) // storage.fold.step + 1
    else:
        reached = (output_rows - 1) * window.stride[0] + window.extent[0] - window.pads[0]
    return min(max(reached, 0), storage.height)


def _runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """(row, first, end) of each run of true elements along the rows of bool[rows, columns]."""
    runs = []
    for row, line in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], line.astype(np.int8), [0]))))
        runs += [(row, int(first), int(end)) for first, end in edges.reshape(-1, 2)]
    return runs

