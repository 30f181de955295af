"""Products of two tensors, and of a map and a vector over its channels."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .....golden.engines import MULTIPLY
from .....golden.memories import LocalMemory
from ....graph import Layer, Multiply
from ...data.constant import Constant
from ...data.job import Job
from ...data.network import Network
from ...data.operation import Lowering
from ...steps.fields import Codes, only_table
from ...steps.images import table_constants
from .pair import PairOperation


class MultiplyOperation(PairOperation):
    """A product of two tensors of one shape. The second input is read first, so that a vector may be read once."""

    engine = MULTIPLY
    order = (1, 0)

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The parameter of all lanes, perhaps a table."""
        parameters = np.repeat(self.layer.scaling.parameters, self.config.array.requant_lanes)
        return {
            LocalMemory.PARAMETER: Constant(parameters.astype("<u8").tobytes()),
            **table_constants(self.layer.table),
        }

    def codes(self, job: Job) -> Codes:
        """The zero point, or what the bias does not hold of it."""
        finish = self.layer.finish
        return Codes(self.layer.scaling.zero_point, finish.low, finish.high, table=only_table(job))

    def own_fields(self, job: Job) -> dict[str, int]:
        """The zero points, in the order of the steps."""
        first, second = (self.layer.zero_points[place] for place in self.order)
        return {"skip": self.skip, "first_zero_point": first, "second_zero_point": second}


class VectorOperation(MultiplyOperation):
    """A product of a map and a vector over its channels, which each tile of a command reads once."""

    skip = 1

    def _pieces(self, job: Job) -> list[range]:
        """All rows if the pixels of a row and the next one are as far apart as those within it; else each row."""
        pixels = len(job.columns)
        is_dense = all(one.row_pitch == pixels * one.pixel_pitch for one in (job.sources[0], job.target))
        return [job.rows] if is_dense else [range(row, row + 1) for row in job.rows]

    def _loops(self, job: Job, rows: int) -> tuple[int, int, int]:
        """A run is a pixel; an inner loop that began again would read the vector from somewhere else."""
        return self.tile_channels, 1, rows * len(job.columns)

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """A word of each pixel, and one of the vector for all of them."""
        return self.words(rows, columns, tiles) + self.words(1, 1, tiles)


def _is_by_vector(network: Network, layer: Layer) -> bool:
    return layer.is_by_vector


LOWERING = Lowering(
    {Multiply: MultiplyOperation},
    (MULTIPLY,),
    takes=lambda network, layer: not _is_by_vector(network, layer),
    reads_border=False,
    has_one_pitch=True,
)
VECTOR_LOWERING = Lowering({Multiply: VectorOperation}, (MULTIPLY,), takes=_is_by_vector, reads_border=False)
