"""Average pooling whose border does not count: a convolution that divides by as many elements as lie in the map.

The border holds the zero point, which adds nothing to a sum. So all windows are those of the convolution, and a border
class differs from the others in its scale alone.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from ....golden.memories import LocalMemory
from ...graph import AveragePool, Convolution, Layer, Pad
from ..data.command import Command
from ..data.constant import Constant
from ..data.job import Job
from ..data.network import Network
from ..data.operation import MakeOperation, Operation
from ..data.storage import Storage
from ..steps.border_classes import border_classes
from ..steps.images import channel_parameters


class BorderedAverage(Operation):
    """An average pooling with several multipliers.

    Parameters
    ----------
    network : Network
    whole : Operation
        Of the same layer, as if all windows had one multiplier.
    """

    def __init__(self, network: Network, whole: Operation):
        super().__init__(network, whole.index, whole.sources, whole.target)
        self.whole = whole
        self.tiles, self.tile_channels = whole.tiles, whole.tile_channels
        self.reads_own_channels, self.pixels = whole.reads_own_channels, whole.pixels
        window, self.input_size = self.layer.window, network.graph.tensors[self.layer.input].shape[:2]
        #: Elements of a window in the map, in the order of the parameters.
        self.counts = tuple(self.layer.multipliers)
        classes = border_classes(window, self.input_size, *map(range, window.output_size(*self.input_size)))
        self.fold = f"{whole.fold}, {len(classes)} border classes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """Those of the convolution, with a parameter word for each number of elements: all channels share it."""
        lanes = self.config.array.requant_lanes
        bias = np.full(lanes, self.layer.offset, np.int32)
        words = b"".join(
            channel_parameters(self.layer, bias, np.full(lanes, multiplier), lanes, self.config).image
            for multiplier in self.layer.multipliers.values()
        )
        return self.whole.constants | {LocalMemory.PARAMETER: Constant(words)}

    def lower(self, job: Job) -> list[Command]:
        """The convolution's commands for each class, with the class's parameters."""
        commands = []
        for part in border_classes(self.layer.window, self.input_size, job.rows, job.columns):
            place = self.counts.index(len(part.kernel_rows) * len(part.kernel_columns))
            of_class = self.whole.lower(dataclasses.replace(job, rows=part.rows, columns=part.columns))
            for command in of_class:
                command.fields |= {"parameter": job.addresses[LocalMemory.PARAMETER] + place, "parameter_shared": 1}
            commands += of_class
        return commands

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Those of the convolution."""
        return self.whole.steps(rows, columns, tiles)

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Those of the convolution."""
        return self.whole.cycles(rows, columns, tiles)


def products(make: MakeOperation) -> dict[type[Layer], MakeOperation]:
    """Make operations of all kinds of products of codes: of averages whose border does not count with all their
    multipliers."""

    def make_average(network: Network, index: int, sources: tuple[Storage, ...], target: Storage) -> Operation:
        operation = make(network, index, sources, target)
        return BorderedAverage(network, operation) if operation.layer.multipliers else operation

    return {Convolution: make, Pad: make, AveragePool: make_average}
