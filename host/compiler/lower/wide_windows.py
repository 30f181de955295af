"""Wide windows, which compute several neighbouring pixels, for layers with few output channels.

A layer with at most half as many output channels as the array has columns leaves the other columns idle. With wide
windows they compute neighbouring pixels: a window reads all that ``pixels`` pixels of a row need, and their results are
side by side in the output. So the layer becomes one with more outputs and a wider kernel, whose weights are those of
the layer, shifted by the stride from pixel to pixel, and zeros; words that neighbours share are read once.

The remaining pixels at the end of a row are a command of their own, whose windows give fewer results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.elements import BINARY_BITS, CODE_BITS
from ....golden.engines import MAC
from ....golden.memories import LocalMemory
from ....golden.timing.latencies import command_cycles
from ...graph import Layer
from ..network import Network
from ..operation import Command, Connectivity, Constant, Job, Lowering
from ..storage import Addresses, Storage, is_roomy
from .convolution import COMMAND_COST, ConvolutionOperation, products
from .fields import channel_parameters, step_list
from .windows import places, tap_offsets
from .winograd import winograd_operations


class WideConvolutionOperation(ConvolutionOperation):
    """A product of one group, each window of which computes ``pixels`` neighbouring pixels. There is one tile.

    Parameters
    ----------
    network, index, sources, target
        As for every operation. The pixels of the target are side by side.
    pixels : int
        Number of pixels, at least 2, whose channels fit the array's columns.

    Attributes
    ----------
    taken : int64[columns]
        Columns of the input that a window reads, from its first one on.
    """

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage, pixels: int):
        self.pixels = pixels
        window = network.graph.layers[index].window
        first, tap = np.ogrid[:pixels, : window.kernel[1]]
        #: The index in `taken` of each element of a kernel row, for each pixel: int64[pixels, kernel columns].
        self.taken, self._place = np.unique(first * window.stride[1] + tap * window.dilation[1], return_inverse=True)
        self._place = self._place.reshape(pixels, -1)
        super().__init__(network, index, sources, target)

    @cached_property
    def kernel(self) -> npt.NDArray[np.int8]:
        """The weights int8[pixels * outputs, kernel rows, columns taken, channels]."""
        weights = self.layer.weights
        outputs, rows, _, channels = weights.shape
        kernel = np.zeros((self.pixels, outputs, rows, len(self.taken), channels), np.int8)
        for own, place in zip(kernel, self._place, strict=True):
            own[:, :, place] = weights
        return kernel.reshape(-1, *kernel.shape[2:])

    def _plan_offsets(self, channels: int) -> Addresses:
        """Return the offsets of the bytes of a window that reads so many channels, see :attr:`offsets`."""
        window = self.layer.window
        kernel, dilation = (window.kernel[0], int(self.taken[-1]) + 1), (window.dilation[0], 1)
        wide = dataclasses.replace(window, kernel=kernel, dilation=dilation)
        return tap_offsets(wide, channels, self.sources[0])[:, self.taken]

    def _parameters(self) -> Constant:
        """Return the parameters of all output channels, repeated for each pixel."""
        layer = self.layer
        bias, multiplier = (np.tile(values, self.pixels) for values in (layer.bias, layer.multiplier))
        return channel_parameters(layer, bias, multiplier, self.tile_channels, self.config)

    @cached_property
    def _distinct_lists(self) -> dict[bytes, int]:
        """The distinct lists for all pixels and for fewer, each with the index of its first entry.

        All have the same length, and as many weights. In the lists for fewer pixels, words that only the other pixels
        need would be beyond the map, so that the first word is read in their place.
        """
        (run,) = self.runs
        images = dict.fromkeys(self._list_of(pixels) for pixels in range(self.pixels, 0, -1))
        return {image: number * len(run.starts) for number, image in enumerate(images)}

    def _list_of(self, pixels: int) -> bytes:
        """Return the step list for so many pixels."""
        (run,) = self.runs
        read = np.zeros(len(run.starts), np.bool_)
        read[places(self._used_by(pixels) - run.source, run.starts, self.config.array.lanes)[0]] = True
        return step_list(np.where(read, run.starts, run.starts[0])).image

    def _used_by(self, pixels: int) -> Addresses:
        """Return the offsets, from the layer's window, of the bytes that so many pixels need: int64[bytes]."""
        used = self.kernel[: pixels * len(self.layer.weights)].any(axis=0)
        return self.offsets[used]

    def lower(self, job: Job) -> list[Command]:
        """Return a command for all whole windows of the rows, and one for the remaining pixels of each row."""
        columns, (run,) = job.columns, self.runs
        end = columns.stop - len(columns) % self.pixels
        whole, left = range(columns.start, end, self.pixels), range(end, columns.stop)
        commands = [self._command(dataclasses.replace(job, columns=whole), run, job.tiles)] if whole else []
        return [*commands, self._shorter(job, left)] if left else commands

    def _shorter(self, job: Job, columns: range) -> Command:
        """Return the command with a window in each row that computes only these pixels, fewer than other windows."""
        (run,), pixels = self.runs, len(columns)
        of_one = dataclasses.replace(job, columns=columns[:1])
        command = self._command(of_one, run, job.tiles)
        results = pixels * len(self.layer.weights)
        entry = job.addresses[LocalMemory.LIST] + self._distinct_lists[self._list_of(pixels)]
        return Command.of(
            command.with_fields(lanes=results, last_lanes=results, list=entry),
            reads=(self._windows(of_one)[0][..., None] + self._used_by(pixels)).reshape(-1),
            writes=job.target.addresses(job.rows, columns),
        )

    def _describe(self, channels: int) -> str:
        """Return a text for people about the words of windows."""
        steps, whole = int(self.tile_steps[0]), self._dense_steps
        words = f"{self.pixels} pixels a window, {steps}"
        if steps < whole:
            return f"{words} of {whole} words, {steps / whole:.0%} of all"
        return f"{words} words per window, {self.offsets.size / (steps * self.config.array.lanes):.0%} useful"

    @cached_property
    def connectivity(self) -> Connectivity:
        """The existing connections of the layer, each of which the kernel has once for every pixel."""
        found = super().connectivity
        return dataclasses.replace(
            found,
            connections=found.connections // self.pixels,
            live_connections=found.live_connections // self.pixels,
        )

    def is_possible(self) -> bool:
        """Return whether every weight has its own byte, and there is room for lists and the tile's weights."""
        steps = int(self.tile_steps[0])
        # A byte must not belong to two rows of a window.
        is_single = np.unique(self.offsets).size == self.offsets.size
        return is_single and is_roomy(self.config, len(self._distinct_lists) * steps, steps)


def make_convolution(
    network: Network, index: int, sources: tuple[Storage, ...], target: Storage
) -> ConvolutionOperation:
    """Return the fastest operation of a convolution, with a window for each pixel or for several."""
    choices = [ConvolutionOperation(network, index, sources, target)]
    if network.has_wide_windows:
        choices += _wide(network, index, sources, target)
        choices += winograd_operations(network, index, sources, target)
    return min(choices, key=lambda operation: _cost(operation, target))


def _wide(
    network: Network, index: int, sources: tuple[Storage, ...], target: Storage
) -> Iterator[WideConvolutionOperation]:
    """Yield operations with wide windows, whose results are side by side."""
    outputs = len(network.graph.layers[index].weights)
    if target.bits != CODE_BITS or target.pixel_pitch != outputs:
        return
    for pixels in range(2, min(network.config.array.columns // outputs, target.width) + 1):
        operation = WideConvolutionOperation(network, index, sources, target, pixels)
        if operation.is_possible():
            yield operation


def _cost(operation: ConvolutionOperation, target: Storage) -> int:
    """Return the cycles of all commands of an output, if it is computed as a whole."""
    least, along = command_cycles(operation.config), operation.along
    sizes = [target.height, target.width]
    left = sizes[along] % operation.pixels
    cost = 0
    for part in filter(None, (sizes[along] - left, left)):
        sizes[along] = part
        cost += max(operation.cycles(*sizes, range(operation.tiles)), least) + COMMAND_COST
    return cost


def _takes(network: Network, layer: Layer) -> bool:
    return layer.groups == 1 and network.graph.tensors[layer.input].bits == CODE_BITS


LOWERING = Lowering(
    products(make_convolution),
    (MAC,),
    _takes,
    reads_folds=True,
    is_tile_inner=True,
    bits=(CODE_BITS, BINARY_BITS),
)
