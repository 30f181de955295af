"""Binary convolutions and fully connected layers: windows on XNOR and population count, eight channels in a byte.

A result of the engine is twice the bits that agree. With n values in a window it is the inner product plus n, which the
bias takes away. Words hold runs of wanted bytes only, and the list says how many: what lies after them may be
anything. Bits of a last byte that are no channels are 0 in activations and 1 in weights, and so never agree.

A border is stored as +1 or -1. Where that is not what a layer's border counts as, all windows of a border class differ
from what they should be by one number for each output channel, which the bias of that class takes away as well.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.elements import BINARY_BITS, CODE_BITS
from ....golden.engines import MAXIMUM, XNOR
from ....golden.machine.write_back import shares_bytes
from ....golden.memories import PARAMETER_BYTES, LocalMemory
from ....golden.numerics.binary import pack
from ....golden.timing.issue import result_groups
from ...graph import BinaryConvolution, Pointwise
from ..network import Network
from ..operation import Command, Constant, Job, Lowering, Operation
from ..storage import Storage, border_sign
from .convolution import ConvolutionOperation
from .fields import (
    Codes,
    Loop,
    Tiles,
    channel_parameters,
    compute_fields,
    identity_parameters,
    only_table,
    step_list,
    table_constants,
)
from .windows import BorderClass, Run, border_classes, cover_runs

#: The elements of a kernel that lie in the input: rows and columns.
_Inside = tuple[range, range]


class BinaryConvolutionOperation(ConvolutionOperation):
    """A binary convolution of one group."""

    engine = XNOR
    macs_at_once = CODE_BITS // BINARY_BITS

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        self.input_size = network.graph.tensors[self.layer.input].shape[:2]
        #: What lacks where a part of a kernel is in the border, times its weights' sum.
        self.missing = self.layer.pad - border_sign(sources[0])
        #: The parts of the kernel that lie in the input, each with its number; none where the border is as stored.
        self.classes: dict[_Inside, int] = {}
        self.is_tile_major = False
        if self.missing:
            window = self.layer.window
            parts = border_classes(window, self.input_size, *map(range, window.output_size(*self.input_size)))
            for part in parts:
                self.classes.setdefault(_inside(part), len(self.classes))
            if len(parts) > 1:
                self.fold += f", {len(parts)} border classes"
            # Parameters that lie class by class stay in their memory; more than that may be streamed, tile by tile.
            size = len(self.classes) * self.tiles * self.tile_channels * PARAMETER_BYTES
            binary = sum(layer.binary_border is not None for layer in network.graph.layers)
            self.is_tile_major = size > self.config.memory.parameter_bytes // (2 * binary)

    def _plan_runs(self) -> list[Run]:
        """All tiles read the same words: there is no weight of zero."""
        starts, self.counts = cover_runs(self.offsets, self.config.array.lanes)
        return [Run(range(self.tiles), 0, 0, starts)]

    @cached_property
    def _dense_steps(self) -> int:
        """As many as there are: no connection is off. Other words would hold more, and bytes that count for nothing."""
        return len(self.counts)

    def _describe(self, channels: int) -> str:
        """How windows read their input, for people."""
        steps = len(self.counts)
        useful = self.layer.weights[0].size / (steps * self.config.array.lanes * 8)
        return f"{steps} words per window, {useful:.0%} useful"

    def _list(self, run: Run) -> Constant:
        return step_list(run.starts, counts=self.counts % self.config.array.lanes)

    def _packed_weights(self) -> npt.NDArray[np.int8]:
        """int8[outputs, kernel rows, kernel columns, bytes of the channels]."""
        unused = ~pack(np.ones(self.layer.weights.shape[3], np.int8))
        return (pack(self.layer.weights) | unused).view(np.int8)

    def _parameters(self) -> Constant:
        """Those of all output channels, for each border class."""
        if not self.classes:
            return self._class_parameters(np.zeros_like(self.layer.bias))
        taps = self.layer.weights.astype(np.int32).sum(axis=3)
        of_classes = [
            self._class_parameters(
                self.missing * (taps.sum(axis=(1, 2)) - taps[:, rows][:, :, columns].sum(axis=(1, 2)))
            )
            for rows, columns in self.classes
        ]
        if not self.is_tile_major:
            return Constant(b"".join(constant.image for constant in of_classes))
        tiles = [b"".join(one.part(range(tile, tile + 1)) for one in of_classes) for tile in range(self.tiles)]
        return Constant(b"".join(tiles), tuple(map(len, tiles)))

    def _class_parameters(self, correction: npt.NDArray[np.int32]) -> Constant:
        """Those of all tiles, with a bias that is corrected by int32[outputs]."""
        layer: BinaryConvolution = self.layer
        bias = (layer.bias.astype(np.int64) - layer.weights[0].size + correction).astype(np.int32)
        return channel_parameters(layer, bias, layer.multiplier, self.tile_channels, self.config)

    def lower(self, job: Job) -> list[Command]:
        """The commands of a convolution, or those of each border class with the class's parameters."""
        if not self.classes:
            return super().lower(job)
        parts = border_classes(self.layer.window, self.input_size, job.rows, job.columns)
        blocks = [range(tile, tile + 1) for tile in job.tiles] if self.is_tile_major else [job.tiles]
        commands, groups = [], result_groups(self.config, self.tile_channels)
        for tiles, part in itertools.product(blocks, parts):
            of_class = dataclasses.replace(job, rows=part.rows, columns=part.columns)
            (command,) = self._commands(self._collecting(of_class), tiles)
            number = self.classes[_inside(part)]
            first = tiles.start - job.tiles.start
            # From where it would be without classes.
            ahead = (
                first * (len(self.classes) - 1) + number if self.is_tile_major else number * self.tiles + tiles.start
            )
            parameter = command.fields["parameter"] + ahead * groups
            command.fields = dataclasses.replace(command.fields, parameter=parameter)
            commands.append(command)
        return commands


def _inside(part: BorderClass) -> _Inside:
    return part.kernel_rows, part.kernel_columns


BINARY_CONVOLUTION = Lowering(
    {BinaryConvolution: BinaryConvolutionOperation},
    (XNOR,),
    takes=lambda _, layer: layer.groups == 1,
    bits=(BINARY_BITS, CODE_BITS),
)


# Signs: codes become binary values, packed along channels, perhaps through a table.


class SignOperation(Operation):
    """The sign of every code. There is one tile: all channels."""

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        self.tile_channels = self.output_channels
        self.fold = f"{min(self.output_channels, self.config.array.lanes)} of {self.config.array.lanes} lanes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The parameter that leaves codes as they are, a list of one step, perhaps a table."""
        return {
            LocalMemory.PARAMETER: identity_parameters(self.config),
            LocalMemory.LIST: step_list(np.zeros(1, np.int64)),
            **table_constants(self.layer.table),
        }

    def lower(self, job: Job) -> list[Command]:
        """One command; its tiles are ``lanes`` channels of a pixel."""
        (source,), target, lanes = job.sources, job.target, self.config.array.lanes
        reads, writes = (storage.addresses(job.rows, job.columns) for storage in (source, target))
        if shares_bytes(self.config):
            # The inner loop collects a pixel's bits.
            job = dataclasses.replace(job, tile_inner=True)
        fields = compute_fields(
            job,
            MAXIMUM,
            steps=1,
            source=int(reads[0]),
            destination=int(writes[0]),
            tiles=Tiles(self.output_channels, lanes, lanes, bits=BINARY_BITS),
            windows=(
                Loop(len(job.rows), source.row_pitch, target.row_pitch),
                Loop(len(job.columns), source.pixel_pitch, target.pixel_pitch),
            ),
            codes=Codes(table=only_table(job)),
        )
        if shares_bytes(self.config):
            fields = dataclasses.replace(fields, destination_inner=0)
        return [Command(fields, self.index, reads, writes)]

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """A word for each tile of a pixel."""
        return len(tiles) * rows * columns * -(-self.output_channels // self.config.array.lanes)

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """A group of results a cycle."""
        groups = result_groups(self.config, min(self.output_channels, self.config.array.lanes))
        return self.steps(rows, columns, tiles) * groups


def _takes(network: Network, layer: Pointwise) -> bool:
    return network.graph.tensors[layer.output].bits == BINARY_BITS


SIGNS = Lowering({Pointwise: SignOperation}, (MAXIMUM,), _takes, reads_border=False, bits=(CODE_BITS, BINARY_BITS))
