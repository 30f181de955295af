"""Grouped convolutions that the chained columns cannot compute: tiles of whole groups on the multiplier array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....golden.isa import Engine
from ...graph import Convolution
from ..operation import Job, Lowering, Operation
from ..plan import Command, Plan
from ..storage import Storage
from ..windows import cover, tap_offsets
from .average import with_averages
from .convolution import ConvolutionOperation


class GroupedConvolutionOperation(ConvolutionOperation):
    """A convolution of several groups.

    A tile is as many groups as ``columns`` output channels hold, with zeros for the weights between a group's outputs
    and another's inputs; or, where a group has more outputs, an even part of a group.
    """

    def __init__(self, plan: Plan, index: int, sources: tuple[Storage, ...], target: Storage):
        Operation.__init__(self, plan, index, sources, target)
        layer, array = self.layer, self.config.array
        self.outputs, _, _, self.group_inputs = layer.weights.shape
        group_outputs = self.outputs // layer.groups
        self.tile_groups = max(array.columns // group_outputs, 1)
        self.group_tiles = next(
            parts
            for parts in range(1, group_outputs + 1)
            if group_outputs % parts == 0 and group_outputs // parts <= array.columns
        )
        self.tile_channels = self.tile_groups * group_outputs // self.group_tiles
        self.tiles = -(-self.outputs // self.tile_channels)
        self.zero_point = plan.graph.tensors[layer.requantised or layer.output].zero_point
        self.offsets = tap_offsets(layer.window, self.tile_groups * self.group_inputs, sources[0])
        self.starts = cover(self.offsets, array.lanes)
        useful = layer.weights[0].size / (len(self.starts) * array.lanes)
        self.fold = f"{layer.groups} groups, {len(self.starts)} words per window, {useful:.0%} useful"

    def _tile_weights(self) -> npt.NDArray[np.int8]:
        """int8[tiles * columns, kernel rows, kernel columns, input channels of a tile], zero between the groups."""
        layer, inputs = self.layer, self.group_inputs
        weights = np.zeros(
            (self.tiles, self.config.array.columns, *layer.weights.shape[1:3], self.tile_groups * inputs), np.int8
        )
        for output in range(self.outputs):
            tile, column = divmod(output, self.tile_channels)
            first = output // (self.outputs // layer.groups) % self.tile_groups * inputs
            weights[tile, column, ..., first : first + inputs] = layer.weights[output]
        return weights.reshape(-1, *weights.shape[2:])

    def lower(self, job: Job) -> list[Command]:
        """One command; or one for each group, where a group has several tiles."""
        if self.group_tiles == 1:
            pitch = self.tile_groups * self.group_inputs
            return [self._command(job, job.tiles, job.tiles.start * pitch, pitch)]
        commands = []
        for group in range(job.tiles.start // self.group_tiles, -(-job.tiles.stop // self.group_tiles)):
            tiles = range(
                max(group * self.group_tiles, job.tiles.start), min((group + 1) * self.group_tiles, job.tiles.stop)
            )
            commands.append(self._command(job, tiles, group * self.group_inputs))
        return commands


LOWERING = Lowering(
    lambda _, layer: isinstance(layer, Convolution) and layer.groups > 1,
    (Engine.MAC,),
    with_averages(GroupedConvolutionOperation),
)
