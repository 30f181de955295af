"""Channels put side by side or taken apart: copies on the lane-wise maximum, through a table where scales differ."""
from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np

from ...golden.isa import Engine, LocalMemory, Opcode
from ...golden.timing import result_groups
from ..graph import Slice
from .operation import Constant, Job, Operation, identity_parameters, step_list
from .plan import Command, Plan
from .storage import Storage


class CopyOperation(Operation):
    """A concatenation of channels, or a slice of them. There is one tile: all channels."""

    def __init__(self, plan: Plan, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(plan, index, sources, target)
        layer, lanes = self.layer, self.config.array.lanes
        self.tile_channels = plan.graph.tensors[layer.output].shape[2]
        if isinstance(layer, Slice):
            self.sizes, self.source_channel, tables = [layer.channels], layer.first, (None,)
        else:
            self.sizes = [plan.graph.tensors[name].shape[2] for name in layer.inputs]
            self.source_channel, tables = 0, layer.tables
        images = [None if table is None else table.tobytes() for table in tables]
        self.images = list(dict.fromkeys(image for image in images if image is not None))
        #: Which of the layer's tables each input goes through.
        self.tables = [None if image is None else self.images.index(image) for image in images]
        self.fold = f"{min(*self.sizes, lanes)} of {lanes} lanes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The parameter that leaves codes as they are, a list of one step, and the tables."""
        tables = {LocalMemory.TABLE: Constant(b"".join(self.images))} if self.images else {}
        return {
            LocalMemory.PARAMETER: identity_parameters(self.config),
            LocalMemory.LIST: step_list(np.zeros(1, np.int64)),
            **tables,
        }

    def lower(self, job: Job) -> list[Command]:
        """One command for each input; its tiles are ``lanes`` channels of a pixel."""
        lanes, commands = self.config.array.lanes, []
        firsts = itertools.accumulate(self.sizes, initial=0)
        for source, size, first, table in zip(job.sources, self.sizes, firsts, self.tables, strict=False):
            tiles = -(-size // lanes)
            last_lanes = size - (tiles - 1) * lanes
            reads = source.addresses(job.rows, job.columns, range(self.source_channel, self.source_channel + size))
            writes = job.target.addresses(job.rows, job.columns, range(first, first + size))
            fields = {
                "engine": Engine.MAXIMUM,
                "steps": 1,
                "list": job.addresses[LocalMemory.LIST],
                "parameter": job.addresses[LocalMemory.PARAMETER], "parameter_shared": 1,
                "lanes": lanes if tiles > 1 else last_lanes, "last_lanes": last_lanes,
                "zero_point": 0, "low": -128, "high": 127,
                "table_enable": int(table is not None),
                "table": 0 if table is None else job.addresses[LocalMemory.TABLE] + table,
                "source": int(reads[0]), "destination": int(writes[0]),
                "outer": tiles, "middle": len(job.rows), "inner": len(job.columns),
                "source_outer": lanes, "source_middle": source.row_pitch, "source_inner": source.pixel_pitch,
                "destination_outer": lanes,
                "destination_middle": job.target.row_pitch,
                "destination_inner": job.target.pixel_pitch,
            }
            commands.append(Command(Opcode.COMPUTE, fields, self.index, reads, writes))
        return commands

    def steps(self, rows: int, columns: int, tiles: int) -> int:
        """Each word of each input."""
        return tiles * rows * columns * sum(-(-size // self.config.array.lanes) for size in self.sizes)

    def cycles(self, rows: int, columns: int, tiles: int) -> int:
        """A group of results a cycle."""
        lanes = self.config.array.lanes
        groups = sum(-(-size // lanes) * result_groups(self.config, min(size, lanes)) for size in self.sizes)
        return tiles * rows * columns * groups
