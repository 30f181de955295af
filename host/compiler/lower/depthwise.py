"""Depthwise convolutions and average pooling: each lane a channel of its own, on the array's chained columns.

The columns of the array see neighbouring image columns: a stream of words runs along a row of windows, image column by
image column, and every column of the array is one image column after the one before. A window needs the words of the
image columns that the window before did not have, so that a 3x3 kernel takes 3 words for each output and not 9. Where
the kernel is wider than the chain, each image column's words are followed by those of image columns further to the
left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.config import Config
from ....golden.engines import DEPTHWISE
from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ....golden.timing.issue import result_groups
from ...graph import Product, Window
from ..data.command import Command
from ..data.constant import Constant
from ..data.job import Job
from ..data.network import Network
from ..data.operation import Lowering, Operation
from ..data.storage import Storage
from ..steps.fields import Codes, Loop, Tiles, compute_fields, only_table
from ..steps.images import channel_parameters, step_list, table_constants
from ..steps.windows import window_pitches
from .average import products

_MOST_ROWS = DEPTHWISE.format.field("rows").limits[1]


@dataclass(frozen=True)
class Stream:
    """How words of windows side by side follow one another.

    Attributes
    ----------
    along : int
        The axis that windows of an inner loop follow one another on: 1 for a row of windows, 0 for a column.
    columns : int
        Image columns, or rows if ``along`` is 0, that a window takes in: as many as array columns are used.
    advance : int
        Of these, how many the next window takes that this one does not.
    turns : int
        Image columns of which an array column takes words in turn.
    across : int
        Kernel elements across the stream.
    """

    along: int
    columns: int
    advance: int
    turns: int
    across: int

    @property
    def rows(self) -> int:
        """Words of an image column: the command's `rows`."""
        return self.turns * self.across

    @property
    def steps(self) -> int:
        """Words of a window that begins an inner loop."""
        return self.columns * self.rows

    @property
    def skip(self) -> int:
        """Words that later windows need not read."""
        return (self.columns - self.advance) * self.rows

    def cycles(self, sizes: tuple[int, int], groups: int) -> int:
        """Cycles for an output of this many rows and columns, of which each result takes ``groups`` cycles."""
        inner, outer = sizes[self.along], sizes[1 - self.along]
        return outer * (max(self.steps, groups) + (inner - 1) * max(self.advance * self.rows, groups))


def stream_of(window: Window, taps: int, along: int) -> Stream:
    """The stream of a window through ``taps`` array columns, along one axis."""
    columns = min(window.kernel[along], taps)
    images, left_over = divmod(window.stride[along], window.dilation[along])
    advance = columns if left_over else min(images, columns)
    return Stream(along, columns, advance, -(-window.kernel[along] // taps), window.kernel[1 - along])


def best_stream(window: Window, config: Config, sizes: tuple[int, int], groups: int) -> Stream | None:
    """The faster one of the two axes; None if one command cannot say either."""
    # Whether the engine could, is asked where there is none too: of one that is built as by default.
    taps = config.engines.get(DEPTHWISE, DEPTHWISE.configuration()).taps
    streams = [stream_of(window, taps, along) for along in (1, 0)]
    possible = [stream for stream in streams if stream.rows <= _MOST_ROWS]
    return min(possible, key=lambda stream: stream.cycles(sizes, groups), default=None)


def _takes(network: Network, layer: Product) -> bool:
    """Whether the chained columns can compute a layer."""
    outputs, _, _, inputs = layer.weights.shape
    if not 1 < layer.groups == outputs or inputs != 1:
        return False
    # There is a step for each element of the kernel, and all are in the list memory.
    if layer.window.kernel[0] * layer.window.kernel[1] > network.config.memory.list_entries:
        return False
    sizes = network.graph.tensors[layer.output].shape[:2]
    return _is_unit(layer, sizes) or best_stream(layer.window, network.config, sizes, 1) is not None


def _is_unit(layer: Product, sizes: tuple[int, int]) -> bool:
    """Whether one weight word serves every step: equal weights, and no window beside another."""
    return sizes == (1, 1) and len(np.unique(layer.weights)) == 1


class DepthwiseOperation(Operation):
    """A convolution with as many groups as channels, one output channel each. A tile is ``lanes`` channels."""

    reads_own_channels = True

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        layer, lanes = self.layer, self.config.array.lanes
        self.channels_in_all = len(layer.weights)
        self.tile_channels = lanes
        self.tiles = -(-self.channels_in_all // lanes)
        self.zero_point = network.graph.tensors[layer.inner].zero_point
        self.groups = result_groups(self.config, min(lanes, self.channels_in_all))
        sizes = network.graph.tensors[layer.output].shape[:2]
        self.is_unit = _is_unit(layer, sizes)
        if self.is_unit:
            elements = layer.window.kernel[0] * layer.window.kernel[1]
            self.stream = Stream(1, elements, elements, 1, 1)
        else:
            self.stream = best_stream(layer.window, self.config, sizes, self.groups)
        self.taps = tap_addresses(layer.window, sources[0])
        words_per_window = self.stream.advance * self.stream.rows
        self.fold = f"{words_per_window} words per window, {min(lanes, self.channels_in_all)} of {lanes} lanes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """Weights and parameters tile by tile, a step list, perhaps a table."""
        if self.is_unit:
            start, words, taken = 0, self._unit_words(), np.arange(self.stream.steps)
        else:
            start = self.stream.steps - self.stream.rows
            words, taken = self._stream_words()
        row, column = np.divmod(taken, self.layer.window.kernel[1])
        offsets = np.where(taken >= 0, self.taps[row, column], 0)
        return {
            LocalMemory.WEIGHT: Constant(words.tobytes(), (words[0].nbytes,) * self.tiles),
            LocalMemory.PARAMETER: channel_parameters(
                self.layer, self.layer.bias, self.layer.multiplier, self.tile_channels, self.config
            ),
            LocalMemory.LIST: step_list(offsets, start),
            **table_constants(self.layer.table),
        }

    def _kernel(self) -> npt.NDArray[np.int8]:
        """int8[tiles, kernel rows, kernel columns, lanes], zero beyond the last channel."""
        kernel = np.zeros((self.tiles * self.tile_channels, *self.layer.weights.shape[1:3]), np.int8)
        kernel[: self.channels_in_all] = self.layer.weights[..., 0]
        return kernel.reshape(self.tiles, self.tile_channels, *kernel.shape[1:]).transpose(0, 2, 3, 1)

    def _unit_words(self) -> npt.NDArray[np.int8]:
        """One word for each tile, int8[tiles, 1, columns, lanes]: the first array column's weights."""
        words = np.zeros((self.tiles, 1, self.config.array.columns, self.tile_channels), np.int8)
        words[:, 0, 0] = self._kernel()[:, 0, 0]
        return words

    def _stream_words(self) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]:
        """The weight words int8[tiles, rows, columns, lanes], and for each step the kernel element that it is read for.

        An element is its row times the kernel's columns plus its column; -1 where the word is beyond the kernel.
        """
        stream, kernel_columns = self.stream, self.layer.window.kernel[1]
        kernel = self._kernel()
        if stream.along == 0:
            kernel = kernel.transpose(0, 2, 1, 3)
        across, length = kernel.shape[1:3]
        words = np.zeros((self.tiles, stream.rows, self.config.array.columns, self.tile_channels), np.int8)
        taken = np.full((stream.columns, stream.turns, across), -1, np.int64)
        for turn in range(stream.turns):
            for column in range(stream.columns):
                # The array's first column has the newest image column of its turn, the last one the oldest.
                position = length - 1 - column - turn * self.config.engines[DEPTHWISE].taps
                if position < 0:
                    continue
                rows = slice(turn * across, (turn + 1) * across)
                words[:, rows, column] = kernel[:, :, position]
                element = (position, np.arange(across))
                row, beside = element if stream.along == 0 else element[::-1]
                taken[stream.columns - 1 - column, turn] = row * kernel_columns + beside
        return words, taken.reshape(-1)

    def lower(self, job: Job) -> list[Command]:
        """One command: tiles, then the windows across the stream, then those along it."""
        layer, (source,), target, stream = self.layer, job.sources, job.target, self.stream
        first, *pitches = window_pitches(layer.window, source)
        channels = self.channels(job.tiles, self.channels_in_all)
        start = first + job.rows.start * pitches[0] + job.columns.start * pitches[1]
        writes = target.addresses(job.rows, job.columns, channels)
        pixels = (
            Loop(len(job.rows), pitches[0], target.row_pitch),
            Loop(len(job.columns), pitches[1], target.pixel_pitch),
        )
        fields = compute_fields(
            job,
            DEPTHWISE,
            steps=stream.steps,
            source=start + channels.start,
            destination=int(writes[0]),
            tiles=Tiles(len(channels), self.tile_channels, self.tile_channels),
            windows=(pixels[1 - stream.along], pixels[stream.along]),
            codes=Codes(self.zero_point, layer.finish.low, layer.finish.high, is_shared=False, table=only_table(job)),
        )
        fields |= {"weight": job.addresses[LocalMemory.WEIGHT], "rows": stream.rows, "skip": stream.skip}
        y, x = np.ogrid[: len(job.rows), : len(job.columns)]
        windows = (start + y * pitches[0] + x * pitches[1])[..., None] + self.taps.reshape(-1)
        reads = windows[..., None] + np.arange(channels.start, channels.stop)
        return [Command(Opcode.COMPUTE, fields, self.index, reads.reshape(-1), writes)]

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """What of a window the one before has not read."""
        return len(tiles) * self.stream.cycles((rows, columns), 0)

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """A step a cycle, or a group of results, whichever takes longer."""
        return len(tiles) * self.stream.cycles((rows, columns), self.groups)


LOWERING = Lowering(products(DepthwiseOperation), (DEPTHWISE,), _takes)


def tap_addresses(window: Window, storage: Storage) -> npt.NDArray[np.int64]:
    """Where a channel's elements of a window lie, from the first one on: int64[kernel rows, kernel columns]."""
    row, column = np.ogrid[: window.kernel[0], : window.kernel[1]]
    return row * window.dilation[0] * storage.row_pitch + column * window.dilation[1] * storage.pixel_pitch
