"""The greater of two tensors' elements."""

from __future__ import annotations

from functools import cached_property

from .....golden.engines import MAXIMUM
from .....golden.memories import LocalMemory
from ....graph import Maximum
from ...data.constant import Constant
from ...data.job import Job
from ...data.operation import Lowering
from ...steps.fields import Codes, only_table
from ...steps.images import identity_parameters, table_constants
from .pair import PairOperation


class MaximumOperation(PairOperation):
    """The greater code of two tensors, as of a pooling whose windows have two elements."""

    engine = MAXIMUM

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """The parameter that leaves codes as they are, perhaps a table."""
        return {LocalMemory.PARAMETER: identity_parameters(self.config), **table_constants(self.layer.table)}

    def codes(self, job: Job) -> Codes:
        """As they are."""
        return Codes(table=only_table(job))


LOWERING = Lowering({Maximum: MaximumOperation}, (MAXIMUM,), reads_border=False, has_one_pitch=True)
