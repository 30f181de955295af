"""Convolutions, fully connected layers, averages and matrix products on the multiplier array."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.engines import MAC
from ....golden.memories import LIST_ENTRY_BYTES, LocalMemory
from ....golden.timing.issue import result_groups
from ....golden.timing.latencies import command_cycles
from ...graph import AveragePool, Convolution, Layer, MatrixProduct, Pad
from ..network import Network
from ..operation import Command, Connectivity, Constant, Job, Lowering, MakeOperation, Operation, Stored
from ..storage import Addresses, Storage, list_share
from .fields import Codes, Loop, Tiles, channel_parameters, compute_fields, only_table, step_list, table_constants
from .windows import Run, border_classes, cover, describe, places, plan_runs, tap_offsets, window_pitches

# The words that each tile of an operation on the array reads, and their cycles.

#: Cycles of another command, beside those in which it is read.
COMMAND_COST = 8


class ArrayOperation(Operation):
    """A product of one group. A tile is ``columns`` output channels, and at least a byte of binary ones.

    Attributes
    ----------
    array_tiles : int
        Number of passes of the array, of ``columns`` channels each, in a tile.
    origins : list of int
        Bytes from the layer's window to each tile's.
    offsets : int64[kernel rows, kernel columns, bytes of the channels]
        Offsets of the bytes of a tile's window.
    runs : list of Run
        The tiles of each command, and their words.
    """

    array_tiles = 1

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        self.outputs = len(self.kernel)
        self.zero_point = network.graph.tensors[self.layer.inner].zero_point
        height, width, _ = network.graph.tensors[self.layer.output].shape
        self.windows = self._windows_of(height, width)
        channels = self._plan_tiles()
        self.offsets = self._plan_offsets(channels)
        self.runs = self._plan_runs()
        self.tile_steps = np.concatenate([np.full(len(run.tiles), len(run.starts)) for run in self.runs])
        self.fold = self._describe(channels)

    @property
    def kernel(self) -> npt.NDArray[np.int8]:
        """The weights int8[outputs, kernel rows, kernel columns, channels], non-zero for each existing connection."""
        return self.layer.weights

    def _plan_tiles(self) -> int:
        """Choose the tiles; return the number of input channels that each of them reads."""
        columns = self.config.array.columns
        self.tile_channels = max(columns, 8 // self.target.bits)
        self.array_tiles = self.tile_channels // columns
        self.tiles = -(-self.outputs // self.tile_channels)
        self.origins = [0] * self.tiles
        return self.kernel.shape[3]

    def _plan_offsets(self, channels: int) -> Addresses:
        """Return the offsets of the bytes of a window that reads so many channels, see :attr:`offsets`."""
        return tap_offsets(self.layer.window, channels, self.sources[0])

    def _plan_runs(self) -> list[Run]:
        """Choose the words of each tile for the fewest cycles of the whole output."""
        groups, least = self._groups, command_cycles(self.config)

        def cost(tiles: int, steps: float) -> float:
            return max(tiles * self.windows * self.array_tiles * max(steps, groups), least) + COMMAND_COST

        runs = plan_runs(
            self.offsets.reshape(-1),
            self._tile_weights.any(axis=1),
            self.origins,
            lanes=self.config.array.lanes,
            cost=cost,
        )
        if self.array_tiles == 1:
            return runs
        # With several passes for a tile, the inner loop cannot move the windows from tile to tile.
        return [part for run in runs for part in run.without_pitch()]

    def _describe(self, channels: int) -> str:
        """Return a text for people about the words of windows."""
        least, most, whole = int(self.tile_steps.min()), int(self.tile_steps.max()), self._dense_steps
        if least == most == whole:
            return describe(self.layer.window, channels, self.sources[0], self.config.array.lanes)
        words = f"{least}" if least == most else f"{least} to {most}"
        return f"{words} of {whole} words per window, {self.tile_steps.sum() / (whole * self.tiles):.0%} of all"

    @cached_property
    def connectivity(self) -> Connectivity:
        """The existing connections of all possible ones, and the words that missing ones save."""
        live = self.kernel.any(axis=(1, 2))
        whole = self._dense_steps
        missing = (np.maximum(whole, self._groups) - np.maximum(self.tile_steps, self._groups)).sum()
        return Connectivity(
            live.size,
            int(np.count_nonzero(live)),
            whole * self.tiles,
            int(self.tile_steps.sum()),
            self.windows * self.array_tiles * int(missing),
        )

    @cached_property
    def _dense_steps(self) -> int:
        """The words of a window if no connection were missing."""
        return len(cover(self.offsets, self.config.array.lanes))

    @property
    def _groups(self) -> int:
        """The number of groups in which the results of a window are finished."""
        return result_groups(self.config, min(self.tile_channels // self.array_tiles, self.outputs))

    @cached_property
    def _tile_weights(self) -> npt.NDArray[np.int8]:
        """The weights int8[tiles, columns of a tile, elements of a window], zeros after the last output."""
        weights = self._packed_weights().reshape(self.outputs, -1)
        columns = self.array_tiles * self.config.array.columns
        filled = np.zeros((self.tiles * columns, weights.shape[1]), np.int8)
        filled[: self.outputs] = weights
        return filled.reshape(self.tiles, columns, -1)

    def _packed_weights(self) -> npt.NDArray[np.int8]:
        """Return the weights int8[outputs, kernel rows, kernel columns, bytes of the channels]."""
        return self.kernel

    @cached_property
    def _steps_before(self) -> list[int]:
        """The number of steps of all tiles before each, for sums over ranges of tiles."""
        return [0, *self.tile_steps.cumsum().tolist()]

    @cached_property
    def _cycles_before(self) -> list[int]:
        return [0, *np.maximum(self.tile_steps, self._groups).cumsum().tolist()]

    def _windows_of(self, rows: int, columns: int) -> int:
        """Return the number of windows of so many rows and columns of the output."""
        return rows * -(-columns // self.pixels)

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Return the steps of all these tiles for every window."""
        of_window = self._steps_before[tiles.stop] - self._steps_before[tiles.start]
        return self._windows_of(rows, columns) * self.array_tiles * of_window

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Return the cycles: a step or a group of results each cycle, whichever takes longer."""
        of_window = self._cycles_before[tiles.stop] - self._cycles_before[tiles.start]
        return self._windows_of(rows, columns) * self.array_tiles * of_window


class ConvolutionOperation(ArrayOperation):
    """A product of one group, with constants and commands.

    Attributes
    ----------
    engine : Engine
    """

    engine = MAC

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """Weights and parameters tile by tile, step lists, and the table if there is one."""
        return {
            LocalMemory.WEIGHT: self._weights(),
            LocalMemory.PARAMETER: self._parameters(),
            LocalMemory.LIST: self._lists(),
            **table_constants(self.layer.table),
        }

    def _weights(self) -> Constant:
        """Return the weight words of all tiles."""
        array, images = self.config.array, []
        for run in self.runs:
            # Windows and words of neighbouring tiles mostly have equal distances.
            ahead = {tile: self.origins[tile] - run.from_tile(tile) for tile in run.tiles}
            for shift, tiles in itertools.groupby(run.tiles, key=ahead.__getitem__):
                weights = self._tile_weights[list(tiles)].reshape(-1, self.offsets.size)
                words = weight_words(weights, self.offsets + shift, run.starts, array.lanes, array.columns)
                images.append(words.tobytes())
        sizes = self.array_tiles * self.tile_steps * self.config.weight_word_bytes
        return Constant(b"".join(images), tuple(sizes.tolist()))

    def _parameters(self) -> Constant:
        """Return the parameters of all output channels, tile by tile."""
        layer = self.layer
        return channel_parameters(layer, layer.bias, layer.multiplier, self.tile_channels, self.config)

    def _lists(self) -> Constant:
        """Return the step lists of all runs, equal ones once; or those of each tile, where they are many."""
        if self._has_tile_lists:
            images = [self._list(run).image for run in self.runs for _ in run.tiles]
            return Constant(b"".join(images), tuple(map(len, images)))
        return Constant(b"".join(self._distinct_lists))

    def _list(self, run: Run) -> Constant:
        return step_list(run.starts)

    @cached_property
    def _distinct_lists(self) -> dict[bytes, int]:
        """The distinct lists of all runs, each with the index of its first entry."""
        images = dict.fromkeys(self._list(run).image for run in self.runs)
        sizes = [len(image) // LIST_ENTRY_BYTES for image in images]
        return dict(zip(images, itertools.accumulate(sizes, initial=0), strict=False))

    @cached_property
    def _has_tile_lists(self) -> bool:
        """Whether every tile has a list of its own, so that lists can be streamed."""
        entries = sum(len(image) // LIST_ENTRY_BYTES for image in self._distinct_lists)
        return len(self.runs) > 1 and entries > list_share(self.config)

    def lower(self, job: Job) -> list[Command]:
        """Return a command for each run, whose three loops run over tiles, rows and columns.

        Where the array computes less than a byte at a time, the inner loop gathers a pixel's bits.
        """
        return self._commands(self._collecting(job), job.tiles)

    def _collecting(self, job: Job) -> Job:
        """Return the job with the order of loops in which a pixel's bits are gathered."""
        return job if self.array_tiles == 1 else dataclasses.replace(job, tile_inner=True)

    def _commands(self, job: Job, tiles: range) -> list[Command]:
        """Return the commands of some of a job's tiles."""
        parts = ((run, range(max(run.tiles.start, tiles.start), min(run.tiles.stop, tiles.stop))) for run in self.runs)
        return [self._command(job, run, part) for run, part in parts if part]

    def _command(self, job: Job, run: Run, tiles: range) -> Command:
        """Return the command of some tiles of a run."""
        layer, target = self.layer, job.target
        windows, below, beside = self._windows(job)
        channels = self.channels(tiles, self.outputs)
        at_once = self.tile_channels // self.array_tiles
        writes = target.addresses(job.rows, job.columns, channels)
        before = self._steps_before[tiles.start] - self._steps_before[job.tiles.start]
        fields = compute_fields(
            job,
            self.engine,
            steps=len(run.starts),
            source=int(windows[0, 0]) + run.from_tile(tiles.start),
            destination=int(writes[0]),
            tiles=Tiles(len(channels), at_once, run.pitch, bits=target.bits),
            windows=(
                Loop(len(job.rows), below, target.row_pitch),
                Loop(len(job.columns), beside, target.pixel_pitch * job.columns.step),
            ),
            codes=Codes(
                self.zero_point,
                layer.epilogue.low,
                layer.epilogue.high,
                parameter=(tiles.start - job.tiles.start) * result_groups(self.config, self.tile_channels),
                is_shared=False,
                table=only_table(job),
            ),
            entry=int(before) if self._has_tile_lists else self._distinct_lists[self._list(run).image],
            weight=job.addresses[LocalMemory.WEIGHT] + self.array_tiles * int(before),
        )
        reads = (windows[..., None] + self._used(run, tiles)).reshape(-1)
        return Command(fields, self.index, reads, writes)

    def _windows(self, job: Job) -> tuple[Addresses, int, int]:
        """Return the first bytes of a job's windows, int64[rows, columns], and the vertical and the horizontal pitch in
        bytes."""
        first, below, beside = window_pitches(self.layer.window, job.sources[0])
        rows, columns = job.rows, job.columns
        y, x = np.ogrid[rows.start : rows.stop, columns.start : columns.stop : columns.step]
        return first + y * below + x * beside, below, beside * columns.step

    def _used(self, run: Run, tiles: range) -> Addresses:
        """Return the offsets, from the layer's window, of the bytes that some tiles of a run need: int64[bytes]."""
        lanes, offsets = self.config.array.lanes, self.offsets.reshape(-1)
        if run.pitch == 0:
            # All tiles need the same bytes.
            offsets = offsets + self.origins[tiles.start]
            return offsets[places(offsets - run.source, run.starts, lanes)[1]]
        return np.concatenate(
            [
                offsets[places(offsets + self.origins[tile] - run.from_tile(tile), run.starts, lanes)[1]]
                + self.origins[tile]
                for tile in tiles
            ]
        )


def weight_words(
    weights: npt.NDArray[np.int8], offsets: Addresses, starts: Addresses, lanes: int, columns: int
) -> npt.NDArray[np.int8]:
    """Return weights in the order of use: each in the lane of its activation byte, 0 in lanes of unused bytes.

    Weights of bytes that are in no word are left out.

    Parameters
    ----------
    weights : int8[outputs, kernel rows, kernel columns, channels]
    offsets : int64[kernel rows, kernel columns, channels]
    starts : int64[steps]
        First byte of each word, see :func:`~.windows.cover`.
    lanes, columns : int

    Returns
    -------
    int8[tiles * steps, columns, lanes]
    """
    outputs, steps = len(weights), len(starts)
    tiles = -(-outputs // columns)
    step, inside = places(offsets.reshape(-1), starts, lanes)
    words = np.zeros((tiles * columns, steps, lanes), np.int8)
    byte = offsets.reshape(-1) - starts[step]
    words[:outputs, step[inside], byte[inside]] = weights.reshape(outputs, -1)[:, inside]
    return np.ascontiguousarray(words.reshape(tiles, columns, steps, lanes).transpose(0, 2, 1, 3)).reshape(
        -1, columns, lanes
    )


# A matrix product of two activations is a convolution whose weights are stored by another layer.


class MatrixOperation(ConvolutionOperation):
    """A convolution with a kernel of 1x1; :mod:`..rewrite.matrices` has put the matrix in the order of its words."""

    @property
    def kernel(self) -> npt.NDArray[np.int8]:
        """All ones, as any weight may be non-zero."""
        return np.ones((*self.layer.order.shape[:1], 1, 1, *self.layer.order.shape[1:]), np.int8)

    def _weights(self) -> Constant:
        """Return the words of all tiles, which the layer before has written."""
        sizes = (self.tile_steps * self.config.weight_word_bytes).tolist()
        return Constant(Stored(self.layer.inputs[1], 0, sum(sizes)), tuple(sizes))

    def _parameters(self) -> Constant:
        """Return parameters with one scale, and no bias."""
        bias, multiplier = np.zeros(self.outputs, np.int32), np.full(self.outputs, self.layer.multiplier)
        return channel_parameters(self.layer, bias, multiplier, self.tile_channels, self.config)


MATRIX_PRODUCT = Lowering({MatrixProduct: MatrixOperation}, (MAC,), is_tile_inner=True)


# Average pooling that excludes its padding is a convolution that divides by the number of elements within the map.
#
# The border holds the zero point, which adds nothing to a sum. So all windows are those of the convolution, and only
# the scale depends on the border class.


class BorderedAverage(Operation):
    """An average pooling with several multipliers.

    Parameters
    ----------
    network : Network
    whole : Operation
        The operation of the layer as if all windows had one multiplier.
    """

    def __init__(self, network: Network, whole: Operation):
        super().__init__(network, whole.index, whole.sources, whole.target)
        self.whole = whole
        self.tiles, self.tile_channels = whole.tiles, whole.tile_channels
        self.reads_own_channels, self.pixels = whole.reads_own_channels, whole.pixels
        window, self.input_size = self.layer.window, network.graph.tensors[self.layer.input].shape[:2]
        #: Numbers of elements of a window within the map, in the order of the parameters.
        self.counts = tuple(self.layer.multipliers)
        classes = border_classes(window, self.input_size, *map(range, window.output_size(*self.input_size)))
        self.fold = f"{whole.fold}, {len(classes)} border classes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The convolution's constants, with a parameter word for each number of elements, which all channels share."""
        lanes = self.config.array.requant_lanes
        bias = np.full(lanes, self.layer.offset, np.int32)
        words = b"".join(
            channel_parameters(self.layer, bias, np.full(lanes, multiplier), lanes, self.config).image
            for multiplier in self.layer.multipliers.values()
        )
        return self.whole.constants | {LocalMemory.PARAMETER: Constant(words)}

    def lower(self, job: Job) -> list[Command]:
        """Return the convolution's commands for each border class, with the class's parameters."""
        commands = []
        for part in border_classes(self.layer.window, self.input_size, job.rows, job.columns):
            place = self.counts.index(len(part.kernel_rows) * len(part.kernel_columns))
            of_class = self.whole.lower(dataclasses.replace(job, rows=part.rows, columns=part.columns))
            parameter = job.addresses[LocalMemory.PARAMETER] + place
            commands += [command.with_fields(parameter=parameter, parameter_shared=1) for command in of_class]
        return commands

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Return those of the convolution."""
        return self.whole.steps(rows, columns, tiles)

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Return those of the convolution."""
        return self.whole.cycles(rows, columns, tiles)


def products(make: MakeOperation) -> dict[type[Layer], MakeOperation]:
    """Return, for each kind of product, the function that makes its operation by ``make``; averages that exclude their
    padding get all their multipliers."""

    def make_average(network: Network, index: int, sources: tuple[Storage, ...], target: Storage) -> Operation:
        operation = make(network, index, sources, target)
        return BorderedAverage(network, operation) if operation.layer.multipliers else operation

    return {Convolution: make, Pad: make, AveragePool: make_average}


# Grouped convolutions that the chained columns cannot compute have tiles of whole groups on the multiplier array.


class GroupedConvolutionOperation(ConvolutionOperation):
    """A convolution of several groups.

    A tile is as many groups as fit ``columns`` output channels, with zeros for the weights between a group's outputs
    and another's inputs; or, where a group has more outputs, an even part of a group.
    """

    def _plan_tiles(self) -> int:
        """Choose the tiles; return the number of input channels that each of them reads."""
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
        """Return a text for people about the words of windows."""
        return f"{self.layer.groups} groups, {super()._describe(channels)}"

    @cached_property
    def _tile_weights(self) -> npt.NDArray[np.int8]:
        """The weights int8[tiles, columns, elements of a window], zero between the groups."""
        layer, (outputs, rows, columns, inputs) = self.layer, self.layer.weights.shape
        weights = np.zeros((self.tiles, self.config.array.columns, rows, columns, self.tile_groups * inputs), np.int8)
        for output in range(outputs):
            tile, column = divmod(output, self.tile_channels)
            first = output // (outputs // layer.groups) % self.tile_groups * inputs
            weights[tile, column, ..., first : first + inputs] = layer.weights[output]
        return weights.reshape(self.tiles, self.config.array.columns, -1)


GROUPED = Lowering(products(GroupedConvolutionOperation), (MAC,), takes=lambda _, layer: layer.groups > 1)
