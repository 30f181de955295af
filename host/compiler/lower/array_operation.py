"""Windows on the multiplier array: what each tile reads, and how long that takes."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.timing.issue import result_groups
from ....golden.timing.latencies import command_cycles
from ..data.network import Network
from ..data.operation import Connectivity, Operation
from ..data.storage import Addresses, Storage
from ..steps.connections import Run, plan_runs
from ..steps.windows import cover, describe, tap_offsets

#: Cycles that one more command costs, beside those in which it is read.
COMMAND_COST = 8


class ArrayOperation(Operation):
    """A product of one group. A tile is ``columns`` output channels; of binary ones at least a byte.

    Attributes
    ----------
    array_tiles : int
        What the array computes at a time, ``columns`` channels: so many are a tile.
    origins : list of int
        Bytes from the layer's window to that of each tile.
    offsets : int64[kernel rows, kernel columns, bytes of the channels]
        Where the bytes of a tile's window lie.
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
        """int8[outputs, kernel rows, kernel columns, channels], not 0 for each connection that there is."""
        return self.layer.weights

    def _plan_tiles(self) -> int:
        """Choose the tiles; input channels that each of them reads."""
        columns = self.config.array.columns
        self.tile_channels = max(columns, 8 // self.target.bits)
        self.array_tiles = self.tile_channels // columns
        self.tiles = -(-self.outputs // self.tile_channels)
        self.origins = [0] * self.tiles
        return self.kernel.shape[3]

    def _plan_offsets(self, channels: int) -> Addresses:
        """Where the bytes of a window lie that reads so many channels, see :attr:`offsets`."""
        return tap_offsets(self.layer.window, channels, self.sources[0])

    def _plan_runs(self) -> list[Run]:
        """Choose the words of each tile: for the fewest cycles of the whole output."""
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
        """Words of a window if no connection were off."""
        return len(cover(self.offsets, self.config.array.lanes))

    @property
    def _groups(self) -> int:
        """Groups in which the results of a window are finished."""
        return result_groups(self.config, min(self.tile_channels // self.array_tiles, self.outputs))

    @cached_property
    def _tile_weights(self) -> npt.NDArray[np.int8]:
        """int8[tiles, columns of a tile, elements of a window], zeros after the last output."""
        weights = self._packed_weights().reshape(self.outputs, -1)
        columns = self.array_tiles * self.config.array.columns
        filled = np.zeros((self.tiles * columns, weights.shape[1]), np.int8)
        filled[: self.outputs] = weights
        return filled.reshape(self.tiles, columns, -1)

    def _packed_weights(self) -> npt.NDArray[np.int8]:
        """int8[outputs, kernel rows, kernel columns, bytes of the channels]."""
        return self.kernel

    @cached_property
    def _steps_before(self) -> list[int]:
        """Of all tiles before each: sums of some are asked for often."""
        return [0, *self.tile_steps.cumsum().tolist()]

    @cached_property
    def _cycles_before(self) -> list[int]:
        return [0, *np.maximum(self.tile_steps, self._groups).cumsum().tolist()]

    def _windows_of(self, rows: int, columns: int) -> int:
        """Windows of so many rows and columns of the output."""
        return rows * -(-columns // self.pixels)

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Those of each tile, for every window."""
        of_window = self._steps_before[tiles.stop] - self._steps_before[tiles.start]
        return self._windows_of(rows, columns) * self.array_tiles * of_window

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """A step a cycle, or a group of results, whichever takes longer."""
        of_window = self._cycles_before[tiles.stop] - self._cycles_before[tiles.start]
        return self._windows_of(rows, columns) * self.array_tiles * of_window
