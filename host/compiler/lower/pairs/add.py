"""Sums of two tensors: their codes choose entries of the Add tables."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .....golden.engines import ADD
from .....golden.memories import LocalMemory
from .....golden.numerics.requant import SUM_FRACTION_BITS, pack_parameters
from ....graph import Add
from ...data.constant import Constant
from ...data.job import Job
from ...data.operation import Lowering
from ...steps.fields import Codes, only_table
from ...steps.images import table_constants
from .pair import PairOperation


class AddOperation(PairOperation):
    """A sum of two tensors."""

    engine = ADD

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

    def codes(self, job: Job) -> Codes:
        """The tables hold the zero points."""
        layer = self.layer
        return Codes(layer.offset, layer.finish.low, layer.finish.high, table=only_table(job))

    def own_fields(self, job: Job) -> dict[str, int]:
        """The pair of tables."""
        return {"add_table": job.addresses[ADD.memory]}


LOWERING = Lowering({Add: AddOperation}, (ADD,), reads_border=False, has_one_pitch=True)
