"""Convolutions and fully connected layers: windows on the multiplier array."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.elements import BINARY_BITS, CODE_BITS
from ....golden.isa import Engine, LocalMemory, Opcode
from ....golden.timing import result_groups
from ...graph import Convolution, Layer
from ..operation import Constant, Job, Lowering, Operation, channel_parameters, step_list, table_constants
from ..plan import Command, Plan
from ..storage import Addresses, Storage
from ..windows import cover, describe, tap_offsets, window_pitches
from .average import with_averages
from .fields import Codes, Loop, Tiles, compute_fields, only_table


class ConvolutionOperation(Operation):
    """A convolution of one group. A tile is ``columns`` output channels; of binary ones at least a byte.

    Attributes
    ----------
    engine : Engine
    array_tiles : int
        What the array computes at a time, ``columns`` channels: so many are a tile.
    """

    engine = Engine.MAC
    array_tiles = 1

    def __init__(self, plan: Plan, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(plan, index, sources, target)
        layer, array = self.layer, self.config.array
        self.outputs, _, _, channels = layer.weights.shape
        self.tile_channels = max(array.columns, 8 // target.bits)
        self.array_tiles = self.tile_channels // array.columns
        self.tiles = -(-self.outputs // self.tile_channels)
        self.zero_point = plan.graph.tensors[layer.requantised or layer.output].zero_point
        self.offsets = tap_offsets(layer.window, channels, sources[0])
        self.starts = cover(self.offsets, array.lanes)
        self.fold = describe(layer.window, channels, sources[0], array.lanes)

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """Weights and parameters tile by tile, a step list, perhaps a table."""
        return {
            LocalMemory.WEIGHT: self._weights(),
            LocalMemory.PARAMETER: channel_parameters(self.layer, self.tile_channels, self.config),
            LocalMemory.LIST: step_list(self.starts),
            **table_constants(self.layer.table),
        }

    def _weights(self) -> Constant:
        """The weight words of all tiles."""
        array = self.config.array
        words = weight_words(self._tile_weights(), self.offsets, self.starts, array.lanes, array.columns)
        tile_bytes = self.array_tiles * len(self.starts) * self.config.weight_word_bytes
        # The last tile may have fewer than the others: nothing reads the rest.
        return Constant(words.tobytes().ljust(tile_bytes * self.tiles, b"\0"), (tile_bytes,) * self.tiles)

    def _tile_weights(self) -> npt.NDArray[np.int8]:
        """int8[outputs, kernel rows, kernel columns, input channels of a tile], ``columns`` outputs for each tile."""
        return self.layer.weights

    def lower(self, job: Job) -> list[Command]:
        """One command: its three loops run over tiles, rows and columns.

        Where the array computes less than a byte at a time, the inner loop collects a pixel's bits.
        """
        return [self._command(self._collecting(job), job.tiles)]

    def _collecting(self, job: Job) -> Job:
        """The job in the order in which it is computed."""
        return job if self.array_tiles == 1 else dataclasses.replace(job, tile_inner=True)

    def _command(self, job: Job, tiles: range, source_channel: int = 0, source_pitch: int = 0) -> Command:
        """The command of some tiles: the first one's windows begin at a channel, those of the others further on."""
        layer, (source,), target = self.layer, job.sources, job.target
        first, below, beside = window_pitches(layer.window, source)
        first += source_channel
        channels = self.channels(tiles, self.outputs)
        words = (tiles.start - job.tiles.start) * self.array_tiles * len(self.starts)
        groups = (tiles.start - job.tiles.start) * result_groups(self.config, self.tile_channels)
        at_once = self.tile_channels // self.array_tiles
        writes = target.addresses(job.rows, job.columns, channels)
        fields = compute_fields(
            job,
            self.engine,
            steps=len(self.starts),
            source=first + job.rows.start * below + job.columns.start * beside,
            destination=int(writes[0]),
            tiles=Tiles(len(channels), at_once, source_pitch, bits=target.bits),
            windows=(
                Loop(len(job.rows), below, target.row_pitch),
                Loop(len(job.columns), beside, target.pixel_pitch),
            ),
            codes=Codes(
                self.zero_point, layer.low, layer.high, parameter=groups, is_shared=False, table=only_table(job)
            ),
        )
        fields["weight"] = job.addresses[LocalMemory.WEIGHT] + words
        y, x = np.ogrid[job.rows.start : job.rows.stop, job.columns.start : job.columns.stop]
        windows = (first + y * below + x * beside)[..., None] + self.offsets.reshape(-1)
        reads = windows if source_pitch == 0 else windows[..., None] + np.arange(len(tiles)) * source_pitch
        return Command(Opcode.COMPUTE, fields, self.index, reads.reshape(-1), writes)

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """The same words for every tile of a pixel."""
        return rows * columns * len(tiles) * self.array_tiles * len(self.starts)

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """A step a cycle, or a group of results, whichever takes longer."""
        groups = result_groups(self.config, min(self.tile_channels // self.array_tiles, self.outputs))
        return rows * columns * len(tiles) * self.array_tiles * max(len(self.starts), groups)


def _takes(plan: Plan, layer: Layer) -> bool:
    return isinstance(layer, Convolution) and layer.groups == 1 and plan.graph.tensors[layer.input].bits == CODE_BITS


LOWERING = Lowering(
    _takes,
    (Engine.MAC,),
    with_averages(ConvolutionOperation),
    reads_folds=True,
    is_tile_inner=True,
    bits=(CODE_BITS, BINARY_BITS),
)


def weight_words(
    weights: npt.NDArray[np.int8], offsets: Addresses, starts: Addresses, lanes: int, columns: int
) -> npt.NDArray[np.int8]:
    """Weights in the order of use: each where its activation byte comes in, 0 at the bytes between.

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
    flat = offsets.reshape(-1)
    step = np.searchsorted(starts, flat, side="right") - 1
    words = np.zeros((tiles * columns, steps, lanes), np.int8)
    words[:outputs, step, flat - starts[step]] = weights.reshape(outputs, -1)
    return np.ascontiguousarray(words.reshape(tiles, columns, steps, lanes).transpose(0, 2, 1, 3)).reshape(
        -1, columns, lanes
    )
