"""Additions of two tensors: windows of two words, one of each operand, whose codes choose entries of the Add tables."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ....golden.engines import ADD
from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ....golden.numerics.requant import SUM_FRACTION_BITS, pack_parameters
from ....golden.timing.issue import result_groups
from ...graph import Add
from ..data.command import Command
from ..data.constant import Constant
from ..data.job import Job
from ..data.network import Network
from ..data.operation import Lowering, Operation
from ..data.storage import Storage
from ..steps.fields import Codes, Loop, Tiles, compute_fields, only_table
from ..steps.images import step_list, table_constants

_STEPS = 2


class AddOperation(Operation):
    """An addition of two tensors. There is one tile: all channels."""

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        lanes = self.config.array.lanes
        self.tile_channels = network.graph.tensors[self.layer.output].shape[2]
        self.fold = f"{min(self.tile_channels, lanes)} of {lanes} lanes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The Add tables, and the parameter that leaves what they add up to as it is, but for its fraction."""
        layer, lanes = self.layer, self.config.array.requant_lanes
        scale = np.full(lanes, 2.0 ** (SUM_FRACTION_BITS - layer.fraction), np.float32)
        parameters = pack_parameters(np.zeros(lanes, np.int32), scale)
        return {
            LocalMemory.PARAMETER: Constant(parameters.astype("<u8").tobytes()),
            ADD.memory: Constant(np.concatenate([layer.first, layer.second]).astype("<i8").tobytes()),
            **table_constants(layer.table),
        }

    def job_constants(self, job: Job) -> dict[LocalMemory, Constant]:
        """The step list: how far the operands lie apart."""
        starts = np.array([source.addresses(job.rows, job.columns)[0] for source in job.sources])
        return {LocalMemory.LIST: step_list(starts - starts.min())}

    def lower(self, job: Job) -> list[Command]:
        """One command; its tiles are ``lanes`` bytes of a run: a pixel, or a row, or the map, as far as all are dense.

        One pitch leads through both operands: :mod:`.borders` makes their rows equally far apart.
        """
        storages, lanes, rows, columns = (*job.sources, job.target), self.config.array.lanes, job.rows, job.columns
        run, middle, inner = self.tile_channels, len(rows), len(columns)
        if all(storage.pixel_pitch == run for storage in storages):
            run, inner = run * inner, 1
            if all(storage.row_pitch == run for storage in storages):
                run, middle = run * middle, 1
        reads = [source.addresses(rows, columns) for source in job.sources]
        writes = job.target.addresses(rows, columns)
        source, target, layer = job.sources[0], job.target, self.layer
        fields = compute_fields(
            job,
            ADD,
            steps=_STEPS,
            source=int(min(addresses[0] for addresses in reads)),
            destination=int(writes[0]),
            tiles=Tiles(run, lanes, lanes),
            windows=(
                Loop(middle, source.row_pitch, target.row_pitch),
                Loop(inner, source.pixel_pitch, target.pixel_pitch),
            ),
            codes=Codes(layer.offset, layer.finish.low, layer.finish.high, table=only_table(job)),
        )
        fields["add_table"] = job.addresses[ADD.memory]
        return [Command(Opcode.COMPUTE, fields, self.index, np.concatenate(reads), writes)]

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """A word of each operand."""
        return len(tiles) * -(-self.tile_channels // self.config.array.lanes) * rows * columns * _STEPS

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Two steps, or a group of results a cycle, whichever takes longer."""
        lanes = self.config.array.lanes
        groups = result_groups(self.config, min(self.tile_channels, lanes))
        return len(tiles) * -(-self.tile_channels // lanes) * rows * columns * max(_STEPS, groups)


LOWERING = Lowering({Add: AddOperation}, (ADD,), reads_border=False, has_one_pitch=True)
