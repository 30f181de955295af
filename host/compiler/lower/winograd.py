"""Two neighbouring pixels of three taps by four products instead of six, see :mod:`lutterfly.golden.numerics.winograd`.

Along a row of the kernel, or along a column, a window reads four inputs of each word of channels and gives two outputs.
The last output of an odd row is computed by a command of its own, whose windows give the first of their outputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.elements import CODE_BITS
from ....golden.engines import WINOGRAD, specification_of
from ....golden.memories import LocalMemory
from ....golden.numerics import winograd
from ...graph import Window
from ..network import Network
from ..operation import Command, Constant, Job
from ..storage import Addresses, Storage, is_roomy
from .convolution import ConvolutionOperation
from .fields import Codes, Loop, Tiles, compute_fields, only_table, step_list
from .windows import Run


class WinogradOperation(ConvolutionOperation):
    """A convolution with three taps in a row, or in a column, which computes two neighbouring outputs at a time.

    Parameters
    ----------
    network, index, sources, target
        As for every operation. The source is not folded.
    along : int
        See :class:`~lutterfly.host.compiler.operation.Operation`.

    Attributes
    ----------
    places : int64[groups, 2]
        For each group of four steps, the element of the kernel across, and the first channel of its words.
    """

    engine = WINOGRAD
    pixels = winograd.OUTPUTS
    # Four multiplications give six products.
    macs_at_once = 2

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage, along: int):
        self.along = along
        super().__init__(network, index, sources, target)

    def _plan_offsets(self, channels: int) -> Addresses:
        """Return the offsets of the bytes of a window: int64[across, four inputs, channels]."""
        across, taken, byte = np.ogrid[: self.taps.shape[1], : winograd.GROUP, :channels]
        pitches = self._pitches
        return across * self.layer.window.dilation[1 - self.along] * pitches[0] + taken * pitches[1] + byte

    @property
    def _pitches(self) -> tuple[int, int]:
        """The distances in bytes of elements across, and of inputs along."""
        source = self.sources[0]
        pitches = (source.row_pitch, source.pixel_pitch)
        return pitches[1 - self.along], pitches[self.along]

    @cached_property
    def taps(self) -> npt.NDArray[np.int8]:
        """The weights int8[outputs, across, three taps along, channels]."""
        return self.layer.weights if self.along == 1 else self.layer.weights.transpose(0, 2, 1, 3)

    def _plan_runs(self) -> list[Run]:
        """Return one run for all tiles, with the groups of words in which any tile has a weight."""
        lanes, (_, across, _, channels) = self.config.array.lanes, self.taps.shape
        every = np.stack(np.meshgrid(range(across), range(0, channels, lanes), indexing="ij"), axis=-1).reshape(-1, 2)
        live = [self.taps[:, row, :, first : first + lanes].any() for row, first in every]
        self.places = every[live] if any(live) else every[:1]
        return [Run(range(self.tiles), 0, 0, self._starts(winograd.OUTPUTS))]

    def _starts(self, outputs: int) -> Addresses:
        """Return the first byte of the word of each step, int64[steps], for so many outputs. For a single output, the
        last input may be beyond the map, and the first input is read in its place."""
        taken = np.array([place if place <= outputs + 1 else 0 for place in winograd.INPUTS])
        row, first = self.places.T
        return (self.offsets[row, :, 0][:, taken] + first[:, None]).reshape(-1)

    def _weights(self) -> Constant:
        """Return the weight words of all tiles, four for each group."""
        lanes, columns, outputs = self.config.array.lanes, self.config.array.columns, self.outputs
        words = np.zeros((self.tiles * columns, len(self.places), winograd.GROUP, lanes), np.int8)
        for number, (row, first) in enumerate(self.places):
            taps = self.taps[:, row, list(winograd.TAPS), first : first + lanes]
            words[:outputs, number, :, : taps.shape[-1]] = taps
        image = words.reshape(self.tiles, columns, -1, lanes).transpose(0, 2, 1, 3)
        return Constant(image.tobytes(), (image[0].nbytes,) * self.tiles)

    @cached_property
    def _distinct_lists(self) -> dict[bytes, int]:
        """The lists for two outputs and for one, each with the index of its first entry."""
        images = dict.fromkeys(step_list(self._starts(outputs)).image for outputs in (2, 1))
        return {image: number * len(self.runs[0].starts) for number, image in enumerate(images)}

    def lower(self, job: Job) -> list[Command]:
        """Return a command for all pairs of pixels, and one for the last pixel of each row or column, if that is
        odd."""
        of = job.columns if self.along else job.rows
        end = of.stop - len(of) % winograd.OUTPUTS
        parts = [(range(of.start, end), winograd.OUTPUTS), (range(end, of.stop), 1)]
        return [self._pairs(job, part, outputs) for part, outputs in parts if part]

    def _pairs(self, job: Job, part: range, outputs: int) -> Command:
        """Return a command whose windows give so many outputs each, for a part of the rows or columns."""
        job = dataclasses.replace(job, **{"columns" if self.along else "rows": part})
        firsts, below, beside = self._windows(job)
        target, channels = job.target, self.channels(job.tiles, self.outputs)
        writes = target.addresses(job.rows, job.columns, channels)
        loops = [Loop(len(job.rows), below, target.row_pitch), Loop(len(job.columns), beside, target.pixel_pitch)]
        each = loops[self.along]
        loops[self.along] = Loop(each.count // outputs, outputs * each.source, outputs * each.destination)
        further = {"further": outputs - 1, "destination_further": each.destination} if outputs > 1 else {}
        fields = compute_fields(
            job,
            self.engine,
            steps=len(self.runs[0].starts),
            source=int(firsts[0, 0]),
            destination=int(writes[0]),
            tiles=Tiles(len(channels), self.tile_channels),
            windows=(loops[0], loops[1]),
            codes=Codes(
                self.zero_point,
                self.layer.epilogue.low,
                self.layer.epilogue.high,
                is_shared=False,
                table=only_table(job),
            ),
            entry=(winograd.OUTPUTS - outputs) * len(self.runs[0].starts),
            weight=job.addresses[LocalMemory.WEIGHT],
            **further,
        )
        reads = (firsts[..., None] + self._read_by_each()).reshape(-1)
        return Command(fields, self.index, reads, writes)

    def _read_by_each(self) -> Addresses:
        """Return the offsets, from the layer's window, of the bytes that a pixel needs: int64[bytes]."""
        used = self.taps.any(axis=0)
        return self.offsets[:, : used.shape[1]][used]

    @cached_property
    def _dense_steps(self) -> int:
        """The words of a window if no connection were missing."""
        _, across, _, channels = self.taps.shape
        return across * -(-channels // self.config.array.lanes) * winograd.GROUP

    @property
    def _groups(self) -> int:
        """The number of groups in which the results of a window are finished."""
        return winograd.OUTPUTS * super()._groups

    def _windows_of(self, rows: int, columns: int) -> int:
        sizes = [rows, columns]
        sizes[self.along] = -(-sizes[self.along] // winograd.OUTPUTS)
        return sizes[0] * sizes[1]

    def _describe(self, channels: int) -> str:
        """Return a text for people about the words of windows."""
        steps, whole = len(self.runs[0].starts), self._dense_steps
        words = f"{steps}" if steps == whole else f"{steps} of {whole}"
        return f"{words} words per 2 windows, three taps by two products each"

    def is_possible(self) -> bool:
        """Return whether totals fit their accumulators, a window has no more results than allowed, and there is
        room."""
        steps = len(self.runs[0].starts)
        most = int(np.abs(self.taps.astype(np.int64)).sum(axis=(1, 2, 3)).max()) << CODE_BITS - 1
        fields = {"steps": steps, "lanes": min(self.tile_channels, self.outputs), "further": 1}
        return (
            most <= winograd.MOST_TOTAL
            and specification_of(WINOGRAD).is_legal(fields, self.config)
            and is_roomy(self.config, len(self._distinct_lists) * steps, steps)
        )


def winograd_operations(
    network: Network, index: int, sources: tuple[Storage, ...], target: Storage
) -> Iterator[WinogradOperation]:
    """Yield the possible operations, for neighbours in a row and in a column."""
    layer = network.graph.layers[index]
    if WINOGRAD not in network.config.engines or sources[0].fold or {sources[0].bits, target.bits} != {CODE_BITS}:
        return
    for along in (1, 0):
        if _takes(layer.window, along) and (target.width, target.height)[1 - along] > 1:
            operation = WinogradOperation(network, index, sources, target, along)
            if operation.is_possible():
                yield operation


def _takes(window: Window, along: int) -> bool:
    """Return whether a window has three adjacent taps, and a stride of one."""
    return window.kernel[along] == 3 and window.stride[along] == window.dilation[along] == 1
