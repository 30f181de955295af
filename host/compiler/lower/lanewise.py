"""Max pooling and pointwise tables on the lane-wise maximum, where each lane is a byte of its own, or of binary values.

A max pooling reads no border. It runs in border classes, each with a step list for the elements within the map, whose
maximum is that of the window.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ....golden.elements import BINARY_BITS
from ....golden.engines import BINARY_MAXIMUM, MAXIMUM
from ....golden.memories import LocalMemory
from ....golden.timing.issue import result_groups
from ...graph import MaxPool, Pointwise
from ..network import Network
from ..operation import Command, Constant, Job, Lowering, Operation
from ..storage import NO_ADDRESSES, Storage
from .fields import Codes, Loop, Tiles, compute_fields, identity_parameters, only_table, step_list, table_constants
from .windows import BorderClass, border_classes, window_pitches


class LanewiseOperation(Operation):
    """A max pooling, or a table on every code (a window of one element). There is one tile of all channels."""

    engine = MAXIMUM
    #: The result of windows without an element.
    least = -128

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        (source,) = sources
        height, width, self.tile_channels = network.graph.tensors[self.layer.output].shape
        self.pixel_bytes = source.stored_bytes
        self.window = self.layer.window
        self.input_size = network.graph.tensors[self.layer.input].shape[:2]
        row, column = np.ogrid[: self.window.kernel[0], : self.window.kernel[1]]
        self.taps = (
            row * self.window.dilation[0] * source.row_pitch + column * self.window.dilation[1] * source.pixel_pitch
        )
        #: The step lists, each with the index of its first entry.
        self.lists: dict[tuple[int, ...], int] = {}
        classes = border_classes(self.window, self.input_size, range(height), range(width))
        for part in classes:
            steps = self._steps_of(part)
            self.lists.setdefault(steps, sum(map(len, self.lists)))
        self.is_dense = all(storage.row_pitch == storage.row_bytes for storage in (source, target))
        #: Whether a run is the channels of a pixel, because windows or pixels are not side by side.
        self.by_pixel = self.window.stride[1] > 1 or not source.pixel_pitch == target.pixel_pitch == self.pixel_bytes
        lanes = self.config.array.lanes
        run, _, _ = self._loops(target.height, target.width, is_dense=self.is_dense)
        split = f", {len(classes)} border classes" if len(classes) > 1 else ""
        self.fold = f"{min(run, lanes)} of {lanes} lanes{split}"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The identity parameter, the step lists, and the table if there is one."""
        lists = b"".join(step_list(np.array(steps)).image for steps in self.lists)
        return {
            LocalMemory.PARAMETER: identity_parameters(self.config),
            LocalMemory.LIST: Constant(lists),
            **table_constants(self.layer.table),
        }

    def _steps_of(self, part: BorderClass) -> tuple[int, ...]:
        """Return the offsets of the elements of a class's windows from the first one; an arbitrary byte if there are
        none."""
        if part.is_empty:
            return (0,)
        taps = self.taps[
            part.kernel_rows.start : part.kernel_rows.stop, part.kernel_columns.start : part.kernel_columns.stop
        ].reshape(-1)
        return tuple((taps - taps[0]).tolist())

    def _loops(self, rows: int, columns: int, *, is_dense: bool) -> tuple[int, int, int]:
        """Return the bytes of a run of results, and the numbers of runs in the middle and in the inner loop.

        Where windows are side by side, a row of results is one run of bytes for any number of channels, and a whole map
        is one run if its rows are side by side too. Else a run is the channels of a pixel.
        """
        window, size = self.window, self.pixel_bytes
        if self.by_pixel:
            return size, rows, columns
        if is_dense and window.kernel[1] == 1 and window.stride[0] == 1:
            return rows * columns * size, 1, 1
        return columns * size, 1, rows

    def lower(self, job: Job) -> list[Command]:
        """Return a command for each border class, whose tiles are ``lanes`` bytes of a run."""
        return [
            self._command(job, part) for part in border_classes(self.window, self.input_size, job.rows, job.columns)
        ]

    def _command(self, job: Job, part: BorderClass) -> Command:
        (source,), target, lanes = job.sources, job.target, self.config.array.lanes
        rows, columns = len(part.rows), len(part.columns)
        row_bytes = columns * source.pixel_pitch
        run, middle, inner = self._loops(rows, columns, is_dense=source.row_pitch == target.row_pitch == row_bytes)
        steps = self._steps_of(part)
        writes = target.addresses(part.rows, part.columns)
        # Empty windows give the least value by the clamp, whatever byte is read at the address 0 or elsewhere.
        first = below = beside = along_tiles = 0
        reads, codes = NO_ADDRESSES, Codes(low=self.least, high=self.least, table=only_table(job))
        if not part.is_empty:
            first, below, beside = window_pitches(self.window, source)
            first += part.rows.start * below + part.columns.start * beside
            first += int(self.taps[part.kernel_rows.start, part.kernel_columns.start])
            y, x, byte = np.ogrid[:rows, :columns, : self.pixel_bytes]
            windows = first + y * below + x * beside + byte
            reads, along_tiles = (windows[..., None] + np.array(steps)).reshape(-1), lanes
            codes = Codes(table=only_table(job))
        beside_result = target.pixel_pitch if self.by_pixel else target.row_pitch
        fields = compute_fields(
            job,
            self.engine,
            steps=len(steps),
            source=first,
            destination=int(writes[0]),
            tiles=Tiles(run, lanes, along_tiles),
            windows=(
                Loop(middle, below, target.row_pitch),
                Loop(inner, beside if self.by_pixel else below, beside_result),
            ),
            codes=codes,
            entry=self.lists[steps],
        )
        return Command(fields, self.index, reads, writes)

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Return a step for each element of a window."""
        run, middle, inner = self._loops(rows, columns, is_dense=self.is_dense)
        return len(tiles) * -(-run // self.config.array.lanes) * middle * inner * self.taps.size

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Return the cycles: a step or a group of results each cycle, whichever takes longer."""
        run, middle, inner = self._loops(rows, columns, is_dense=self.is_dense)
        lanes = self.config.array.lanes
        groups = result_groups(self.config, min(run, lanes))
        return len(tiles) * -(-run // lanes) * middle * inner * max(self.taps.size, groups)


class BinaryPoolingOperation(LanewiseOperation):
    """A max pooling of binary values, on bytes of eight channels each."""

    engine = BINARY_MAXIMUM
    least = 0


LOWERING = Lowering({MaxPool: LanewiseOperation, Pointwise: LanewiseOperation}, (MAXIMUM,), reads_border=False)
BINARY_LOWERING = Lowering(
    {MaxPool: BinaryPoolingOperation},
    (BINARY_MAXIMUM,),
    takes=lambda _, layer: layer.table is None,
    reads_border=False,
    bits=(BINARY_BITS,),
)
