"""Operations on two tensors element by element: windows of two words, one of each operand."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from .....golden.engines.engine import Engine
from .....golden.isa import Opcode
from .....golden.memories import LocalMemory
from .....golden.timing.issue import result_groups
from ...data.command import Command
from ...data.constant import Constant
from ...data.job import Job
from ...data.network import Network
from ...data.operation import Operation
from ...data.storage import Addresses, Storage
from ...steps.fields import Codes, Loop, Tiles, compute_fields
from ...steps.images import step_list

_STEPS = 2


class PairOperation(Operation):
    """An operation on two tensors of one shape. There is one tile: all channels.

    Attributes
    ----------
    engine : Engine
    order : tuple of int
        Which input each step reads.
    skip : int
        Steps of a window that the one before it has read.
    """

    engine: ClassVar[Engine]
    order: ClassVar[tuple[int, int]] = (0, 1)
    skip: ClassVar[int] = 0

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        lanes = self.config.array.lanes
        self.tile_channels = network.graph.tensors[self.layer.output].shape[2]
        self.fold = f"{min(self.tile_channels, lanes)} of {lanes} lanes"

    @abstractmethod
    def codes(self, job: Job) -> Codes:
        """What the requantiser makes of results."""

    def own_fields(self, job: Job) -> dict[str, int]:
        """Fields of the engine's own."""
        return {}

    def job_constants(self, job: Job) -> dict[LocalMemory, Constant]:
        """The step list of each command: how far the operands lie apart."""
        starts = [np.array([read[0] for read in self._reads(job, rows)]) for rows in self._pieces(job)]
        lists = [step_list(places - places.min(), self.skip).image for places in starts]
        return {LocalMemory.LIST: Constant(b"".join(lists))}

    def lower(self, job: Job) -> list[Command]:
        """A command for each piece; its tiles are ``lanes`` bytes of a run."""
        return [self._command(job, rows, number * _STEPS) for number, rows in enumerate(self._pieces(job))]

    def _command(self, job: Job, rows: range, entry: int) -> Command:
        reads, writes = self._reads(job, rows), job.target.addresses(rows, job.columns)
        run, middle, inner = self._loops(job, len(rows))
        source, lanes = job.sources[0], self.config.array.lanes
        fields = compute_fields(
            job,
            self.engine,
            steps=_STEPS,
            source=int(min(addresses[0] for addresses in reads)),
            destination=int(writes[0]),
            tiles=Tiles(run, lanes, lanes),
            windows=(
                Loop(middle, source.row_pitch, job.target.row_pitch),
                Loop(inner, source.pixel_pitch, job.target.pixel_pitch),
            ),
            codes=self.codes(job),
            entry=entry,
        )
        return Command(Opcode.COMPUTE, fields | self.own_fields(job), self.index, np.concatenate(reads), writes)

    def _pieces(self, job: Job) -> list[range]:
        """The rows of each command: all of them."""
        return [job.rows]

    def _loops(self, job: Job, rows: int) -> tuple[int, int, int]:
        """Bytes of a run of results, and the runs in the middle and the inner loop: a run is a pixel, or a row, or the
        map, as far as all are dense.

        One pitch leads through both operands: :mod:`.borders` makes their rows equally far apart.
        """
        run, middle, inner = self.tile_channels, rows, len(job.columns)
        storages = (*job.sources, job.target)
        if all(storage.pixel_pitch == run for storage in storages):
            run, inner = run * inner, 1
            if all(storage.row_pitch == run for storage in storages):
                run, middle = run * middle, 1
        return run, middle, inner

    def _reads(self, job: Job, rows: range) -> list[Addresses]:
        """The bytes of each operand that some rows are computed of, in the order of the steps."""
        windows = [self.layer.window_of(place) for place in self.order]
        return [
            job.sources[place].addresses(window.reached(0, rows), window.reached(1, job.columns))
            for place, window in zip(self.order, windows, strict=True)
        ]

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """A word of each operand."""
        return self.words(rows, columns, tiles) * _STEPS

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """A step a cycle, or a group of results, whichever takes longer."""
        lanes = self.config.array.lanes
        groups = self.words(rows, columns, tiles) * result_groups(self.config, min(self.tile_channels, lanes))
        return max(self.steps(rows, columns, tiles), groups)

    def words(self, rows: int, columns: int, tiles: range) -> int:
        """Windows: a word of results each."""
        return len(tiles) * -(-self.tile_channels // self.config.array.lanes) * rows * columns
