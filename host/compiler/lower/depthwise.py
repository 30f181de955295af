"""Depthwise convolutions and average pooling on the array's chained columns, with a channel for each lane.

The columns of the array see neighbouring image columns: a stream of words runs along a row of windows, image column by
image column, and every column of the array is one image column after the one before. A window needs the words of the
image columns that the window before did not have, so that a 3x3 kernel takes 3 words for each output and not 9. Where
the kernel is wider than the chain, each image column's words are followed by those of image columns further to the
left.

With several chains a window has results of neighbouring rows, which share most of their words: 5 words for three
outputs of a 3x3 kernel. Each chain has the weights of its row at the words that are its own, and zeros at the others.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.config import Config
from ....golden.engines import DEPTHWISE
from ....golden.memories import LocalMemory
from ....golden.timing.issue import result_groups
from ...graph import ProductLayer, Window
from ..network import Network
from ..operation import Command, Constant, Job, Lowering, Operation
from ..storage import Storage, is_roomy
from .convolution import products
from .fields import Codes, Loop, Tiles, channel_parameters, compute_fields, only_table, step_list, table_constants
from .windows import Stream, window_pitches

_MOST_ROWS = DEPTHWISE.format.field("rows").limits[1]


def best_stream(window: Window, config: Config, sizes: tuple[int, int], groups: int) -> Stream | None:
    """Return the fastest stream over both axes and all numbers of results; None if no command can express one.

    Of equally fast streams it is the one with the fewest results.
    """
    # A configuration without the engine is judged by the engine's default configuration.
    own = config.engines.get(DEPTHWISE, DEPTHWISE.configuration())
    streams = [Stream(window, own.taps, along, 1 + more) for more in range(own.chains) for along in (1, 0)]
    possible = [stream for stream in streams if stream.results <= stream.rows <= _MOST_ROWS]
    roomy = [
        stream
        for stream in possible
        if stream.results == 1 or is_roomy(config, stream.results * stream.steps, stream.rows)
    ]
    return min(roomy, key=lambda stream: stream.cycles(sizes, groups), default=None)


def _takes(network: Network, layer: ProductLayer) -> bool:
    """Return whether the chained columns can compute a layer."""
    outputs, _, _, inputs = layer.weights.shape
    if not 1 < layer.groups == outputs or inputs != 1:
        return False
    # There is a step for each element of the kernel, and the list memory holds all of them.
    if layer.window.kernel[0] * layer.window.kernel[1] > network.config.memory.list_entries:
        return False
    sizes = network.graph.tensors[layer.output].shape[:2]
    return _is_unit(layer, sizes) or best_stream(layer.window, network.config, sizes, 1) is not None


def _is_unit(layer: ProductLayer, sizes: tuple[int, int]) -> bool:
    """Return whether one weight word serves every step: equal weights, and a single window."""
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
            self.stream = Stream(Window((1, elements), (1, elements), (1, 1)), elements, 1)
        else:
            self.stream = best_stream(layer.window, self.config, sizes, self.groups)
        self.taps = tap_addresses(layer.window, sources[0])
        self.pitches = (sources[0].row_pitch, sources[0].pixel_pitch)
        words, results = self.stream.advance * self.stream.rows, self.stream.results
        windows = "window" if results == 1 else f"{results} windows"
        self.fold = f"{words} words per {windows}, {min(lanes, self.channels_in_all)} of {lanes} lanes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """Weights and parameters tile by tile, step lists, and the table if there is one."""
        return {
            LocalMemory.WEIGHT: self._weights(),
            LocalMemory.PARAMETER: channel_parameters(
                self.layer, self.layer.bias, self.layer.multiplier, self.tile_channels, self.config
            ),
            LocalMemory.LIST: self._lists(),
            **table_constants(self.layer.table),
        }

    def _weights(self) -> Constant:
        words = self._unit_words() if self.is_unit else self._stream_words()
        return Constant(words.tobytes(), (words[0].nbytes,) * self.tiles)

    def _lists(self) -> Constant:
        """Return a list for each number of results that a window may have, in ascending order of the number."""
        if self.is_unit:
            return step_list(self.taps.reshape(-1))
        lists = [self._offsets(1 + results) for results in range(self.stream.results)]
        start = self.stream.steps - self.stream.rows
        return Constant(b"".join(step_list(offsets, start).image for offsets in lists))

    @property
    def _chains(self) -> range:
        return range(self.stream.results)

    def _kernel(self) -> npt.NDArray[np.int8]:
        """Return the weights int8[tiles, kernel rows, kernel columns, lanes], zero beyond the last channel."""
        kernel = np.zeros((self.tiles * self.tile_channels, *self.layer.weights.shape[1:3]), np.int8)
        kernel[: self.channels_in_all] = self.layer.weights[..., 0]
        return kernel.reshape(self.tiles, self.tile_channels, *kernel.shape[1:]).transpose(0, 2, 3, 1)

    def _unit_words(self) -> npt.NDArray[np.int8]:
        """Return one word for each tile, int8[tiles, 1, columns, lanes], with weights for the first array column."""
        words = np.zeros((self.tiles, 1, self.config.array.columns, self.tile_channels), np.int8)
        words[:, 0, 0] = self._kernel()[:, 0, 0]
        return words

    def _stream_words(self) -> npt.NDArray[np.int8]:
        """Return the weight words int8[tiles, rows, columns, lanes]."""
        stream, kernel = self.stream, self._kernel()
        if stream.along == 0:
            kernel = kernel.transpose(0, 2, 1, 3)
        places = [
            [stream.across.index(stream.row(one, element)) for element in stream.elements] for one in self._chains
        ]
        words = np.zeros(
            (self.tiles, stream.turns, len(stream.across), self.config.array.columns, self.tile_channels), np.int8
        )
        for turn, column in np.ndindex(stream.turns, stream.columns):
            position = self._position(turn, column)
            for chain in self._chains if position >= 0 else ():
                words[:, turn, places[chain], chain * stream.taps + column] = kernel[:, :, position]
        return words.reshape(self.tiles, stream.rows, *words.shape[3:])

    def _offsets(self, results: int) -> npt.NDArray[np.int64]:
        """Return the offsets of the words of a window with so many results, int64[steps]."""
        stream, along = self.stream, self.stream.along
        # Words beyond the kernel are arbitrary.
        offsets = np.zeros((stream.columns, stream.turns, len(stream.across)), np.int64)
        for turn, column in np.ndindex(stream.turns, stream.columns):
            position = max(self._position(turn, column), 0) * stream.window.dilation[along]
            offsets[stream.columns - 1 - column, turn] = (
                position * self.pitches[along] + np.array(stream.nearest(results)) * self.pitches[1 - along]
            )
        return offsets.reshape(-1)

    def _position(self, turn: int, column: int) -> int:
        """Return the kernel element along the stream of an array column, negative for none. The first column of a chain
        has the newest image column of its turn, the last one the oldest."""
        return self.stream.window.kernel[self.stream.along] - 1 - column - turn * self.stream.taps

    def lower(self, job: Job) -> list[Command]:
        """Return a command for whole windows, with rows for all their results, and one for the remaining rows. The
        loops run over tiles, over windows across the stream, and over windows along it."""
        stream = self.stream
        across = job.rows if stream.along == 1 else job.columns
        full = len(across) // stream.results * stream.results
        parts = [(across[:full], stream.results), (across[full:], len(across) - full)]
        return [self._command(job, part, results) for part, results in parts if part]

    def _command(self, job: Job, across: range, results: int) -> Command:
        """Return a command whose windows have so many results across the stream."""
        layer, (source,), target, stream = self.layer, job.sources, job.target, self.stream
        rows, columns = (across, job.columns) if stream.along == 1 else (job.rows, across)
        first, *pitches = window_pitches(layer.window, source)
        channels = self.channels(job.tiles, self.channels_in_all)
        start = first + rows.start * pitches[0] + columns.start * pitches[1]
        writes = target.addresses(rows, columns, channels)
        pixels = (
            Loop(len(rows), pitches[0], target.row_pitch),
            Loop(len(columns), pitches[1], target.pixel_pitch),
        )
        apart = pixels[1 - stream.along]
        windows = Loop(len(across) // results, results * apart.source, results * apart.destination)
        further = {"further": results - 1, "destination_further": apart.destination} if results > 1 else {}
        fields = compute_fields(
            job,
            DEPTHWISE,
            steps=stream.steps,
            source=start + channels.start,
            destination=int(writes[0]),
            tiles=Tiles(len(channels), self.tile_channels, self.tile_channels),
            windows=(windows, pixels[stream.along]),
            codes=Codes(
                self.zero_point, layer.epilogue.low, layer.epilogue.high, is_shared=False, table=only_table(job)
            ),
            entry=(results - 1) * stream.steps,
            weight=job.addresses[LocalMemory.WEIGHT],
            rows=stream.rows,
            skip=stream.skip,
            **further,
        )
        y, x = np.ogrid[: len(rows), : len(columns)]
        taken = (start + y * pitches[0] + x * pitches[1])[..., None] + self.taps.reshape(-1)
        reads = taken[..., None] + np.arange(channels.start, channels.stop)
        return Command(fields, self.index, reads.reshape(-1), writes)

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Return the steps that a window does not share with the window before."""
        return len(tiles) * self.stream.cycles((rows, columns), 0)

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Return the cycles: a step or a group of results each cycle, whichever takes longer."""
        return len(tiles) * self.stream.cycles((rows, columns), self.groups)


LOWERING = Lowering(products(DepthwiseOperation), (DEPTHWISE,), _takes)


def tap_addresses(window: Window, storage: Storage) -> npt.NDArray[np.int64]:
    """Return the offsets of a channel's elements in a window, int64[kernel rows, kernel columns]."""
    row, column = np.ogrid[: window.kernel[0], : window.kernel[1]]
    return row * window.dilation[0] * storage.row_pitch + column * window.dilation[1] * storage.pixel_pitch
