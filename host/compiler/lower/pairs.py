"""Operations on two tensors, element by element."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np

from ....golden.engines import ADD, MAXIMUM, MULTIPLY
from ....golden.engines.engine import Engine
from ....golden.memories import LocalMemory
from ....golden.numerics.requant import SUM_FRACTION_BITS, pack_parameters
from ....golden.timing.issue import result_groups
from ...graph import Add, ElementwiseMaximum, ElementwiseProduct, Layer
from ..network import Network
from ..operation import Command, Constant, Job, Lowering, Operation
from ..storage import Addresses, Storage
from .fields import Codes, Loop, Tiles, compute_fields, identity_parameters, only_table, step_list, table_constants

# Operations on two tensors, element by element, have windows of two words, one of each operand.

_STEPS = 2


class PairOperation(Operation):
    """An operation on two tensors of one shape. There is one tile of all channels.

    Attributes
    ----------
    engine : Engine
    order : tuple of int
        Index of the input that each step reads.
    skip : int
        Number of steps of a window that the window before has read.
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
        """Return the settings of the requantiser."""

    def own_fields(self, job: Job) -> dict[str, int]:
        """Return the fields of the engine's own."""
        return {}

    def job_constants(self, job: Job) -> dict[LocalMemory, Constant]:
        """Return the step list of each command, with the distance of the operands."""
        starts = [np.array([read[0] for read in self._reads(job, rows)]) for rows in self._pieces(job)]
        lists = [step_list(places - places.min(), self.skip).image for places in starts]
        return {LocalMemory.LIST: Constant(b"".join(lists))}

    def lower(self, job: Job) -> list[Command]:
        """Return a command for each piece, whose tiles are ``lanes`` bytes of a run."""
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
            **self.own_fields(job),
        )
        return Command(fields, self.index, np.concatenate(reads), writes)

    def _pieces(self, job: Job) -> list[range]:
        """Return the rows of each command; by default one command has all."""
        return [job.rows]

    def _loops(self, job: Job, rows: int) -> tuple[int, int, int]:
        """Return the bytes of a run of results, and the numbers of runs in the middle and in the inner loop: a run is a
        pixel, or a row, or the map, as far as all storages are dense.

        Both operands are read with one pitch, for which the layout gives them equal distances of rows.
        """
        run, middle, inner = self.tile_channels, rows, len(job.columns)
        storages = (*job.sources, job.target)
        if all(storage.pixel_pitch == run for storage in storages):
            run, inner = run * inner, 1
            if all(storage.row_pitch == run for storage in storages):
                run, middle = run * middle, 1
        return run, middle, inner

    def _reads(self, job: Job, rows: range) -> list[Addresses]:
        """Return the bytes of each operand that some rows are computed from, in the order of the steps."""
        windows = [self.layer.window_of(place) for place in self.order]
        return [
            job.sources[place].addresses(window.reached(0, rows), window.reached(1, job.columns))
            for place, window in zip(self.order, windows, strict=True)
        ]

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Return a step for a word of each operand."""
        return self.words(rows, columns, tiles) * _STEPS

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Return the cycles: a step or a group of results each cycle, whichever takes longer."""
        lanes = self.config.array.lanes
        groups = self.words(rows, columns, tiles) * result_groups(self.config, min(self.tile_channels, lanes))
        return max(self.steps(rows, columns, tiles), groups)

    def words(self, rows: int, columns: int, tiles: range) -> int:
        """Return the number of windows, each of which gives a word of results."""
        return len(tiles) * -(-self.tile_channels // self.config.array.lanes) * rows * columns


# In sums of two tensors, codes select entries of the Add tables.


class AddOperation(PairOperation):
    """A sum of two tensors."""

    engine = ADD

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The Add tables, and the parameter that removes the fraction bits of their sums."""
        layer, lanes = self.layer, self.config.array.requant_lanes
        scale = np.full(lanes, 2.0 ** (SUM_FRACTION_BITS - layer.fraction), np.float32)
        parameters = pack_parameters(np.zeros(lanes, np.int32), scale)
        return {
            LocalMemory.PARAMETER: Constant(parameters.astype("<u8").tobytes()),
            ADD.memory: Constant(np.concatenate([layer.first, layer.second]).astype("<i8").tobytes()),
            **table_constants(layer.table),
        }

    def codes(self, job: Job) -> Codes:
        """Return limits only, as the tables contain the zero points."""
        layer = self.layer
        return Codes(layer.offset, layer.epilogue.low, layer.epilogue.high, table=only_table(job))

    def own_fields(self, job: Job) -> dict[str, int]:
        """Return the pair of tables."""
        return {"add_table": job.addresses[ADD.memory]}


ADD_LOWERING = Lowering({Add: AddOperation}, (ADD,), reads_border=False, has_one_pitch=True)


# The greater of two tensors' elements is a maximum.


class MaximumOperation(PairOperation):
    """The greater code of two tensors, computed as a pooling whose windows have two elements."""

    engine = MAXIMUM

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The identity parameter, and the table if there is one."""
        return {LocalMemory.PARAMETER: identity_parameters(self.config), **table_constants(self.layer.table)}

    def codes(self, job: Job) -> Codes:
        """Return the identity, perhaps with a table."""
        return Codes(table=only_table(job))


MAXIMUM_LOWERING = Lowering({ElementwiseMaximum: MaximumOperation}, (MAXIMUM,), reads_border=False, has_one_pitch=True)


# Products are of two tensors of one shape, or of a map and a vector over its channels.


class MultiplyOperation(PairOperation):
    """A product of two tensors of one shape. The second input is read first, so that a vector can be read once."""

    engine = MULTIPLY
    order = (1, 0)

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """One parameter for all lanes, and the table if there is one."""
        parameters = np.repeat(self.layer.scaling.parameters, self.config.array.requant_lanes)
        return {
            LocalMemory.PARAMETER: Constant(parameters.astype("<u8").tobytes()),
            **table_constants(self.layer.table),
        }

    def codes(self, job: Job) -> Codes:
        """Return the zero point, or its part that is not in the bias."""
        epilogue = self.layer.epilogue
        return Codes(self.layer.scaling.zero_point, epilogue.low, epilogue.high, table=only_table(job))

    def own_fields(self, job: Job) -> dict[str, int]:
        """Return the zero points in the order of the steps."""
        first, second = (self.layer.zero_points[place] for place in self.order)
        return {"skip": self.skip, "first_zero_point": first, "second_zero_point": second}


class VectorOperation(MultiplyOperation):
    """A product of a map and a vector over its channels, which each tile of a command reads once."""

    skip = 1

    def _pieces(self, job: Job) -> list[range]:
        """Return all rows if the distance of pixels is the same across rows as within one; else each row."""
        pixels = len(job.columns)
        is_dense = all(one.row_pitch == pixels * one.pixel_pitch for one in (job.sources[0], job.target))
        return [job.rows] if is_dense else [range(row, row + 1) for row in job.rows]

    def _loops(self, job: Job, rows: int) -> tuple[int, int, int]:
        """Return loops with a pixel as a run; all pixels are in the inner loop, whose first window alone reads the
        vector."""
        return self.tile_channels, 1, rows * len(job.columns)

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Return a step for a word of each pixel, and one for a word of the vector."""
        return self.words(rows, columns, tiles) + self.words(1, 1, tiles)


def _is_by_vector(network: Network, layer: Layer) -> bool:
    return layer.is_by_vector


MULTIPLY_LOWERING = Lowering(
    {ElementwiseProduct: MultiplyOperation},
    (MULTIPLY,),
    takes=lambda network, layer: not _is_by_vector(network, layer),
    reads_border=False,
    has_one_pitch=True,
)
VECTOR_LOWERING = Lowering({ElementwiseProduct: VectorOperation}, (MULTIPLY,), takes=_is_by_vector, reads_border=False)
