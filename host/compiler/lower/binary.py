"""Binary convolutions and fully connected layers on XNOR and population count, with eight channels in a byte.

A result of the engine is twice the bits that agree. With n values in a window it is the inner product plus n; the bias
subtracts n. The list holds the number of wanted bytes at the start of each word; the bytes after them are ignored. Bits
of a last byte that are no channels are 0 in activations and 1 in weights, and so never agree.

A border is stored as +1 or -1. Where a layer's padding has another value, all results of a border class are off by the
same number for each output channel, which the bias of that class subtracts as well.
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

#: Rows and columns of a kernel that lie within the input.
_Inside = tuple[range, range]


class BinaryConvolutionOperation(ConvolutionOperation):
    """A binary convolution of one group."""

    engine = XNOR
    macs_at_once = CODE_BITS // BINARY_BITS

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        self.input_size = network.graph.tensors[self.layer.input].shape[:2]
        #: The padding value less the stored border; results lack this times the sum of the weights in the border.
        self.missing = self.layer.pad - border_sign(sources[0])
        #: The parts of the kernel within the input, each with its class number; empty if the stored border is right.
        self.classes: dict[_Inside, int] = {}
        self.is_tile_major = False
        if self.missing:
            window = self.layer.window
            parts = border_classes(window, self.input_size, *map(range, window.output_size(*self.input_size)))
            for part in parts:
                self.classes.setdefault(_inside(part), len(self.classes))
            if len(parts) > 1:
                self.fold += f", {len(parts)} border classes"
            # Parameters in the order of classes are resident; a large number of them is ordered by tiles and may be
            # streamed.
            size = len(self.classes) * self.tiles * self.tile_channels * PARAMETER_BYTES
            binary = sum(layer.binary_border is not None for layer in network.graph.layers)
            self.is_tile_major = size > self.config.memory.parameter_bytes // (2 * binary)

    def _plan_runs(self) -> list[Run]:
        """Return one run, as all tiles read the same words: there is no weight of zero."""
        starts, self.counts = cover_runs(self.offsets, self.config.array.lanes)
        return [Run(range(self.tiles), 0, 0, starts)]

    @cached_property
    def _dense_steps(self) -> int:
        """The words of a window; no connection is missing."""
        return len(self.counts)

    def _describe(self, channels: int) -> str:
        """Return a text for people about the words of windows."""
        steps = len(self.counts)
        useful = self.layer.weights[0].size / (steps * self.config.array.lanes * 8)
        return f"{steps} words per window, {useful:.0%} useful"

    def _list(self, run: Run) -> Constant:
        return step_list(run.starts, counts=self.counts % self.config.array.lanes)

    def _packed_weights(self) -> npt.NDArray[np.int8]:
        """Return the packed weights, int8[outputs, kernel rows, kernel columns, bytes of the channels]."""
        unused = ~pack(np.ones(self.layer.weights.shape[3], np.int8))
        return (pack(self.layer.weights) | unused).view(np.int8)

    def _parameters(self) -> Constant:
        """Return the parameters of all output channels, for each border class."""
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
        """Return the parameters of all tiles, with a bias that is corrected by int32[outputs]."""
        layer: BinaryConvolution = self.layer
        bias = (layer.bias.astype(np.int64) - layer.weights[0].size + correction).astype(np.int32)
        return channel_parameters(layer, bias, layer.multiplier, self.tile_channels, self.config)

    def lower(self, job: Job) -> list[Command]:
        """Return the commands of a convolution, or those of each border class with the class's parameters."""
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
            # The index counts from the parameters without classes.
            ahead = (
                first * (len(self.classes) - 1) + number if self.is_tile_major else number * self.tiles + tiles.start
            )
            parameter = command.fields["parameter"] + ahead * groups
            commands.append(command.with_fields(parameter=parameter))
        return commands


def _inside(part: BorderClass) -> _Inside:
    return part.kernel_rows, part.kernel_columns


BINARY_CONVOLUTION = Lowering(
    {BinaryConvolution: BinaryConvolutionOperation},
    (XNOR,),
    takes=lambda _, layer: layer.groups == 1,
    bits=(BINARY_BITS, CODE_BITS),
)


# Sign layers convert codes to binary values, packed along channels, perhaps through a table.


class SignOperation(Operation):
    """The sign of every code. There is one tile of all channels."""

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        self.tile_channels = self.output_channels
        self.fold = f"{min(self.output_channels, self.config.array.lanes)} of {self.config.array.lanes} lanes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The identity parameter, a list of one step, and the table if there is one."""
        return {
            LocalMemory.PARAMETER: identity_parameters(self.config),
            LocalMemory.LIST: step_list(np.zeros(1, np.int64)),
            **table_constants(self.layer.table),
        }

    def lower(self, job: Job) -> list[Command]:
        """Return one command, whose tiles are ``lanes`` channels of a pixel."""
        (source,), target, lanes = job.sources, job.target, self.config.array.lanes
        reads, writes = (storage.addresses(job.rows, job.columns) for storage in (source, target))
        if shares_bytes(self.config):
            # The inner loop gathers a pixel's bits.
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
        """Return a step for each tile of a pixel."""
        return len(tiles) * rows * columns * -(-self.output_channels // self.config.array.lanes)

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Return a cycle for each group of results."""
        groups = result_groups(self.config, min(self.output_channels, self.config.array.lanes))
        return self.steps(rows, columns, tiles) * groups


def _takes(network: Network, layer: Pointwise) -> bool:
    return network.graph.tensors[layer.output].bits == BINARY_BITS


SIGNS = Lowering({Pointwise: SignOperation}, (MAXIMUM,), _takes, reads_border=False, bits=(CODE_BITS, BINARY_BITS))
