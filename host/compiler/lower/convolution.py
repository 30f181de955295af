"""Convolutions and fully connected layers: windows on the multiplier array."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.elements import BINARY_BITS, CODE_BITS
from ....golden.isa import Engine, LocalMemory, Opcode
from ....golden.memories import LIST_ENTRY_BYTES
from ....golden.timing import command_cycles, result_groups
from ...graph import Layer
from ..connections import Run, plan_runs
from ..operation import Connectivity, Constant, Job, Lowering, Operation, channel_parameters, step_list, table_constants
from ..plan import Command, Plan
from ..storage import Addresses, Storage
from ..units import list_share
from ..windows import cover, describe, places, tap_offsets, window_pitches
from .average import products
from .fields import Codes, Loop, Tiles, compute_fields, only_table

#: Cycles that one more command costs, beside those in which it is read.
_COMMAND_COST = 8


class ConvolutionOperation(Operation):
    """A convolution of one group. A tile is ``columns`` output channels; of binary ones at least a byte.

    Attributes
    ----------
    engine : Engine
    array_tiles : int
        What the array computes at a time, ``columns`` channels: so many are a tile.
    origins : list of int
        Bytes from the layer's window to that of each tile.
    offsets : int64[kernel rows, kernel columns, bytes of the channels]
        Where the bytes of a tile's window lie.
    runs : list of Run
        The tiles of each command, and their words.
    """

    engine = Engine.MAC
    array_tiles = 1

    def __init__(self, plan: Plan, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(plan, index, sources, target)
        self.outputs = len(self.layer.weights)
        self.zero_point = plan.graph.tensors[self.layer.inner].zero_point
        height, width, _ = plan.graph.tensors[self.layer.output].shape
        self.windows = height * width
        channels = self._plan_tiles()
        self.offsets = tap_offsets(self.layer.window, channels, sources[0])
        self.runs = self._plan_runs()
        self.tile_steps = np.concatenate([np.full(len(run.tiles), len(run.starts)) for run in self.runs])
        self.fold = self._describe(channels)

    def _plan_tiles(self) -> int:
        """Choose the tiles; input channels that each of them reads."""
        columns = self.config.array.columns
        self.tile_channels = max(columns, 8 // self.target.bits)
        self.array_tiles = self.tile_channels // columns
        self.tiles = -(-self.outputs // self.tile_channels)
        self.origins = [0] * self.tiles
        return self.layer.weights.shape[3]

    def _plan_runs(self) -> list[Run]:
        """Choose the words of each tile: for the fewest cycles of the whole output."""
        groups, least = self._groups, command_cycles(self.config)

        def cost(tiles: int, steps: float) -> float:
            return max(tiles * self.windows * self.array_tiles * max(steps, groups), least) + _COMMAND_COST

        runs = plan_runs(
            self.offsets.reshape(-1),
            self._tile_weights.any(axis=1),
            self.origins,
            lanes=self.config.array.lanes,
            cost=cost,
        )
        if self.array_tiles == 1:
            return runs
        # The inner loop has several steps for a tile: it cannot move the windows from tile to tile.
        return [part for run in runs for part in run.without_pitch()]

    def _describe(self, channels: int) -> str:
        """How windows read their input, for people."""
        least, most, whole = int(self.tile_steps.min()), int(self.tile_steps.max()), self._dense_steps
        if least == most == whole:
            return describe(self.layer.window, channels, self.sources[0], self.config.array.lanes)
        words = f"{least}" if least == most else f"{least} to {most}"
        return f"{words} of {whole} words per window, {self.tile_steps.sum() / (whole * self.tiles):.0%} of all"

    @cached_property
    def connectivity(self) -> Connectivity:
        """What is off, of the connections that there could be."""
        live = self.layer.weights.any(axis=(1, 2))
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
        """Words of a window if no connection were off."""
        return len(cover(self.offsets, self.config.array.lanes))

    @property
    def _groups(self) -> int:
        """Groups in which the results of a window are finished."""
        return result_groups(self.config, min(self.tile_channels // self.array_tiles, self.outputs))

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

    @cached_property
    def _tile_weights(self) -> npt.NDArray[np.int8]:
        """int8[tiles, columns of a tile, elements of a window], zeros behind the last output."""
        weights = self._packed_weights().reshape(self.outputs, -1)
        columns = self.array_tiles * self.config.array.columns
        filled = np.zeros((self.tiles * columns, weights.shape[1]), np.int8)
        filled[: self.outputs] = weights
        return filled.reshape(self.tiles, columns, -1)

    def _packed_weights(self) -> npt.NDArray[np.int8]:
        """int8[outputs, kernel rows, kernel columns, bytes of the channels]."""
        return self.layer.weights

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
        layer, (source,), target = self.layer, job.sources, job.target
        first, below, beside = window_pitches(layer.window, source)
        channels = self.channels(tiles, self.outputs)
        at_once = self.tile_channels // self.array_tiles
        writes = target.addresses(job.rows, job.columns, channels)
        before = self._steps_before[tiles.start] - self._steps_before[job.tiles.start]
        fields = compute_fields(
            job,
            self.engine,
            steps=len(run.starts),
            source=first + run.from_tile(tiles.start) + job.rows.start * below + job.columns.start * beside,
            destination=int(writes[0]),
            tiles=Tiles(len(channels), at_once, run.pitch, bits=target.bits),
            windows=(
                Loop(len(job.rows), below, target.row_pitch),
                Loop(len(job.columns), beside, target.pixel_pitch),
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
        y, x = np.ogrid[job.rows.start : job.rows.stop, job.columns.start : job.columns.stop]
        windows = (first + y * below + x * beside)[..., None]
        reads = (windows + self._used(run, tiles)).reshape(-1)
        return Command(Opcode.COMPUTE, fields, self.index, reads, writes)

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

    @cached_property
    def _steps_before(self) -> list[int]:
        """Of all tiles before each: sums of some are asked for often."""
        return [0, *self.tile_steps.cumsum().tolist()]

    @cached_property
    def _cycles_before(self) -> list[int]:
        return [0, *np.maximum(self.tile_steps, self._groups).cumsum().tolist()]

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Those of each tile, for every pixel."""
        return rows * columns * self.array_tiles * (self._steps_before[tiles.stop] - self._steps_before[tiles.start])

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """A step a cycle, or a group of results, whichever takes longer."""
        return rows * columns * self.array_tiles * (self._cycles_before[tiles.stop] - self._cycles_before[tiles.start])


def _takes(plan: Plan, layer: Layer) -> bool:
    return layer.groups == 1 and plan.graph.tensors[layer.input].bits == CODE_BITS


LOWERING = Lowering(
    products(ConvolutionOperation),
    (Engine.MAC,),
    _takes,
    reads_folds=True,
    is_tile_inner=True,
    bits=(CODE_BITS, BINARY_BITS),
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
