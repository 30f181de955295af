"""Grouped convolutions that the chained columns cannot compute: tiles of whole groups on the multiplier array."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.engines import MAC
from ..data.operation import Lowering
from .average import products
from .convolution import ConvolutionOperation


class GroupedConvolutionOperation(ConvolutionOperation):
    """A convolution of several groups.

    A tile is as many groups as ``columns`` output channels hold, with zeros for the weights between a group's outputs
    and another's inputs; or, where a group has more outputs, an even part of a group.
    """

    def _plan_tiles(self) -> int:
        """Choose the tiles; input channels that each of them reads."""
        layer, columns = self.layer, self.config.array.columns
        group_outputs, inputs = self.outputs // layer.groups, layer.weights.shape[3]
        self.tile_groups = min(max(columns // group_outputs, 1), layer.groups)
        parts = next(
            parts
            for parts in range(1, group_outputs + 1)
            if group_outputs % parts == 0 and group_outputs // parts <= columns
        )
        self.tile_channels = self.tile_groups * group_outputs // parts
        self.tiles = -(-self.outputs // self.tile_channels)
        self.origins = [tile // parts * self.tile_groups * inputs for tile in range(self.tiles)]
        return self.tile_groups * inputs

    def _describe(self, channels: int) -> str:
        """How windows read their input, for people."""
        return f"{self.layer.groups} groups, {super()._describe(channels)}"

    @cached_property
    def _tile_weights(self) -> npt.NDArray[np.int8]:
        """int8[tiles, columns, elements of a window], zero between the groups."""
        layer, (outputs, rows, columns, inputs) = self.layer, self.layer.weights.shape
        weights = np.zeros((self.tiles, self.config.array.columns, rows, columns, self.tile_groups * inputs), np.int8)
        for output in range(outputs):
            tile, column = divmod(output, self.tile_channels)
            first = output // (outputs // layer.groups) % self.tile_groups * inputs
            weights[tile, column, ..., first : first + inputs] = layer.weights[output]
        return weights.reshape(self.tiles, self.config.array.columns, -1)


LOWERING = Lowering(products(GroupedConvolutionOperation), (MAC,), takes=lambda _, layer: layer.groups > 1)
