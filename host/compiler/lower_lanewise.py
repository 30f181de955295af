"""Max pooling and pointwise tables: windows on the lane-wise maximum, each lane a byte of its own."""
from __future__ import annotations

from functools import cached_property

import numpy as np

from ...golden.isa import Engine, LocalMemory, Opcode
from ...golden.timing import result_groups
from .folding import window_pitches
from .operation import Constant, Job, Operation, identity_parameters, step_list, table_constants
from .plan import Command, Plan, window_of
from .storage import Storage


class LanewiseOperation(Operation):
    """A max pooling, or a table on every code (a window of one element). There is one tile: all channels."""

    def __init__(self, plan: Plan, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(plan, index, sources, target)
        (source,) = sources
        self.window = window_of(self.layer)
        self.tile_channels = target.channels
        row, column = np.ogrid[:self.window.kernel[0], :self.window.kernel[1]]
        self.taps = (row * self.window.dilation[0] * source.row_pitch
                     + column * self.window.dilation[1] * source.pixel_pitch).reshape(-1)
        self.is_dense = source.gap == target.gap == 0
        lanes = self.config.array.lanes
        run, _, _ = self._loops(target.height, target.width, is_dense=self.is_dense)
        self.fold = f"{min(run, lanes)} of {lanes} lanes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The parameter that leaves codes as they are, a step list, perhaps a table."""
        return {
            LocalMemory.PARAMETER: identity_parameters(self.config),
            LocalMemory.LIST: step_list(self.taps),
            **table_constants(self.layer.table),
        }

    def _loops(self, rows: int, columns: int, *, is_dense: bool) -> tuple[int, int, int]:
        """Bytes of a run of results, and the runs in the middle and the inner loop.

        Where windows lie side by side, a row of results is one run of bytes whatever the channels, and a whole map is
        one if its rows lie side by side too. Else a run is the channels of a pixel.
        """
        window, channels = self.window, self.tile_channels
        if window.stride[1] > 1:
            return channels, rows, columns
        if is_dense and window.kernel[1] == 1 and window.stride[0] == 1:
            return rows * columns * channels, 1, 1
        return columns * channels, 1, rows

    def lower(self, job: Job) -> list[Command]:
        """One command; its tiles are ``lanes`` bytes of a run."""
        (source,), target, lanes = job.sources, job.target, self.config.array.lanes
        rows, columns = len(job.rows), len(job.columns)
        row_bytes = columns * self.tile_channels
        run, middle, inner = self._loops(rows, columns, is_dense=source.row_pitch == target.row_pitch == row_bytes)
        tiles = -(-run // lanes)
        last_lanes = run - (tiles - 1) * lanes
        first, below, beside = window_pitches(self.window, source)
        first += job.rows.start * below + job.columns.start * beside
        pixels_inside = self.window.stride[1] > 1
        writes = target.addresses(job.rows, job.columns)
        fields = {
            "engine": Engine.MAXIMUM, "tile_inner": 0,
            "outer": tiles, "middle": middle, "inner": inner,
            "steps": len(self.taps),
            "list": job.addresses[LocalMemory.LIST],
            "source": first,
            "source_outer": lanes, "source_middle": below, "source_inner": beside if pixels_inside else below,
            "destination": int(writes[0]),
            "destination_outer": lanes, "destination_middle": target.row_pitch,
            "destination_inner": target.pixel_pitch if pixels_inside else target.row_pitch,
            "parameter": job.addresses[LocalMemory.PARAMETER], "parameter_shared": 1,
            "lanes": lanes if tiles > 1 else last_lanes, "last_lanes": last_lanes,
            "zero_point": 0, "low": -128, "high": 127,
            "table_enable": int(LocalMemory.TABLE in job.addresses), "table": job.addresses.get(LocalMemory.TABLE, 0),
        }
        y, x, channel = np.ogrid[:rows, :columns, :self.tile_channels]
        windows = first + y * below + x * beside + channel
        return [Command(Opcode.COMPUTE, fields, self.index, (windows[..., None] + self.taps).reshape(-1), writes)]

    def steps(self, rows: int, columns: int, tiles: int) -> int:
        """A word for each element of a window."""
        run, middle, inner = self._loops(rows, columns, is_dense=self.is_dense)
        return tiles * -(-run // self.config.array.lanes) * middle * inner * len(self.taps)

    def cycles(self, rows: int, columns: int, tiles: int) -> int:
        """A step a cycle, or a group of results, whichever takes longer."""
        run, middle, inner = self._loops(rows, columns, is_dense=self.is_dense)
        lanes = self.config.array.lanes
        groups = result_groups(self.config, min(run, lanes))
        return tiles * -(-run // lanes) * middle * inner * max(len(self.taps), groups)
