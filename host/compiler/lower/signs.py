"""Signs: codes become binary values, packed along channels, perhaps through a table."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from ....golden.elements import BINARY_BITS, CODE_BITS
from ....golden.engines import MAXIMUM
from ....golden.isa import Opcode
from ....golden.machine.landings import shares_bytes
from ....golden.memories import LocalMemory
from ....golden.timing.issue import result_groups
from ...graph import Pointwise
from ..data.command import Command
from ..data.constant import Constant
from ..data.job import Job
from ..data.network import Network
from ..data.operation import Lowering, Operation
from ..data.storage import Storage
from ..steps.fields import Codes, Loop, Tiles, compute_fields, only_table
from ..steps.images import identity_parameters, step_list, table_constants


class SignOperation(Operation):
    """The sign of every code. There is one tile: all channels."""

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        self.tile_channels = self.output_channels
        self.fold = f"{min(self.output_channels, self.config.array.lanes)} of {self.config.array.lanes} lanes"

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The parameter that leaves codes as they are, a list of one step, perhaps a table."""
        return {
            LocalMemory.PARAMETER: identity_parameters(self.config),
            LocalMemory.LIST: step_list(np.zeros(1, np.int64)),
            **table_constants(self.layer.table),
        }

    def lower(self, job: Job) -> list[Command]:
        """One command; its tiles are ``lanes`` channels of a pixel."""
        (source,), target, lanes = job.sources, job.target, self.config.array.lanes
        reads, writes = (storage.addresses(job.rows, job.columns) for storage in (source, target))
        if shares_bytes(self.config):
            # The inner loop collects a pixel's bits.
            job = dataclasses.replace(job, tile_inner=True)
        fields = compute_fields(
            job,
            MAXIMUM,
            steps=1,
            source=int(reads[0]),
            destination=int(writes[0]),
            tiles=Tiles(self.output_channels, lanes, lanes, bits=BINARY_BITS),
            windows=(
                Loop(len(job.rows), source.row_pitch, target.row_pitch),
                Loop(len(job.columns), source.pixel_pitch, target.pixel_pitch),
            ),
            codes=Codes(table=only_table(job)),
        )
        if shares_bytes(self.config):
            fields["destination_inner"] = 0
        return [Command(Opcode.COMPUTE, fields, self.index, reads, writes)]

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """A word for each tile of a pixel."""
        return len(tiles) * rows * columns * -(-self.output_channels // self.config.array.lanes)

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """A group of results a cycle."""
        groups = result_groups(self.config, min(self.output_channels, self.config.array.lanes))
        return self.steps(rows, columns, tiles) * groups


def _takes(network: Network, layer: Pointwise) -> bool:
    return network.graph.tensors[layer.output].bits == BINARY_BITS


LOWERING = Lowering({Pointwise: SignOperation}, (MAXIMUM,), _takes, reads_border=False, bits=(CODE_BITS, BINARY_BITS))
