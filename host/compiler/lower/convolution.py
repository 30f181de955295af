"""Convolutions and fully connected layers: windows on the multiplier array."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.engines import MAC
from ....golden.isa import Opcode
from ....golden.memories import LIST_ENTRY_BYTES, LocalMemory
from ....golden.timing.issue import result_groups
from ..data.command import Command
from ..data.constant import Constant
from ..data.job import Job
from ..data.storage import Addresses
from ..data.units import list_share
from ..steps.connections import Run
from ..steps.fields import Codes, Loop, Tiles, compute_fields, only_table
from ..steps.images import channel_parameters, step_list, table_constants
from ..steps.windows import places, window_pitches
from .array_operation import ArrayOperation


class ConvolutionOperation(ArrayOperation):
    """A product of one group: its constants and commands.

    Attributes
    ----------
    engine : Engine
    """

    engine = MAC

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """Weights and parameters tile by tile, step lists, perhaps a table."""
        return {
            LocalMemory.WEIGHT: self._weights(),
            LocalMemory.PARAMETER: self._parameters(),
            LocalMemory.LIST: self._lists(),
            **table_constants(self.layer.table),
        }

    def _weights(self) -> Constant:
        """The weight words of all tiles."""
        array, images = self.config.array, []
        for run in self.runs:
            # Windows and words of neighbours mostly are equally far apart.
            ahead = {tile: self.origins[tile] - run.from_tile(tile) for tile in run.tiles}
            for shift, tiles in itertools.groupby(run.tiles, key=ahead.__getitem__):
                weights = self._tile_weights[list(tiles)].reshape(-1, self.offsets.size)
                words = weight_words(weights, self.offsets + shift, run.starts, array.lanes, array.columns)
                images.append(words.tobytes())
        sizes = self.array_tiles * self.tile_steps * self.config.weight_word_bytes
        return Constant(b"".join(images), tuple(sizes.tolist()))

    def _parameters(self) -> Constant:
        """Those of all output channels, tile by tile."""
        layer = self.layer
        return channel_parameters(layer, layer.bias, layer.multiplier, self.tile_channels, self.config)

    def _lists(self) -> Constant:
        """The step lists of all runs, equal ones once; or those of each tile, where they are many."""
        if self._has_tile_lists:
            images = [self._list(run).image for run in self.runs for _ in run.tiles]
            return Constant(b"".join(images), tuple(map(len, images)))
        return Constant(b"".join(self._distinct_lists))

    def _list(self, run: Run) -> Constant:
        return step_list(run.starts)

    @cached_property
    def _distinct_lists(self) -> dict[bytes, int]:
        """The lists of all runs, each with its first entry."""
        images = dict.fromkeys(self._list(run).image for run in self.runs)
        sizes = [len(image) // LIST_ENTRY_BYTES for image in images]
        return dict(zip(images, itertools.accumulate(sizes, initial=0), strict=False))

    @cached_property
    def _has_tile_lists(self) -> bool:
        """Whether every tile has its own list, so that they can come and go."""
        entries = sum(len(image) // LIST_ENTRY_BYTES for image in self._distinct_lists)
        return len(self.runs) > 1 and entries > list_share(self.config)

    def lower(self, job: Job) -> list[Command]:
        """A command for each run: its three loops run over tiles, rows and columns.

        Where the array computes less than a byte at a time, the inner loop collects a pixel's bits.
        """
        return self._commands(self._collecting(job), job.tiles)

    def _collecting(self, job: Job) -> Job:
        """The job in the order in which it is computed."""
        return job if self.array_tiles == 1 else dataclasses.replace(job, tile_inner=True)

    def _commands(self, job: Job, tiles: range) -> list[Command]:
        """The commands of some of a job's tiles."""
        parts = ((run, range(max(run.tiles.start, tiles.start), min(run.tiles.stop, tiles.stop))) for run in self.runs)
        return [self._command(job, run, part) for run, part in parts if part]

    def _command(self, job: Job, run: Run, tiles: range) -> Command:
        """The command of some tiles of a run."""
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
                layer.finish.low,
                layer.finish.high,
                parameter=(tiles.start - job.tiles.start) * result_groups(self.config, self.tile_channels),
                is_shared=False,
                table=only_table(job),
            ),
            entry=int(before) if self._has_tile_lists else self._distinct_lists[self._list(run).image],
        )
        fields["weight"] = job.addresses[LocalMemory.WEIGHT] + self.array_tiles * int(before)
        reads = (windows[..., None] + self._used(run, tiles)).reshape(-1)
        return Command(Opcode.COMPUTE, fields, self.index, reads, writes)

    def _windows(self, job: Job) -> tuple[Addresses, int, int]:
        """First bytes of a job's windows, int64[rows, columns], and bytes from one to that below and that beside it."""
        first, below, beside = window_pitches(self.layer.window, job.sources[0])
        rows, columns = job.rows, job.columns
        y, x = np.ogrid[rows.start : rows.stop, columns.start : columns.stop : columns.step]
        return first + y * below + x * beside, below, beside * columns.step

    def _used(self, run: Run, tiles: range) -> Addresses:
        """Bytes from the layer's window to those that some tiles of a run need: int64[bytes]."""
        lanes, offsets = self.config.array.lanes, self.offsets.reshape(-1)
        if run.pitch == 0:
            # The same for all of them.
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
    """Weights in the order of use: each where its activation byte comes in, 0 at the bytes between.

    Those of bytes that are in no word are left out.

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
