"""Fast pointwise convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.numerics.fpc import Finish, Stages
from ....golden.numerics.fpc_float import fast_pointwise_float
from ..finished import Finished
from ..tensor import Int8, Shape, Tensor


@dataclass(frozen=True, eq=False)
class FastPointwise(Finished):
    """Pointwise convolution by the stages of a butterfly, requantised, see ``golden/numerics/fpc.py``.

    Attributes
    ----------
    stages : Stages
    bias : int16[outputs]
    scale : float32[outputs]
        From value to code.
    zero_point : int
        That the input's codes lose, as an int8 code.
    result_zero_point : int
        Of the codes that it requantises to, as an int8 code.
    """

    stages: Stages
    bias: npt.NDArray[np.int16]
    scale: npt.NDArray[np.float32]
    zero_point: int
    result_zero_point: int

    @cached_property
    def requantisation(self) -> Finish:
        """What makes codes of the values of the last stage."""
        return Finish(self.bias, self.scale, self.result_zero_point, self.finish.low, self.finish.high)

    def kind(self, source: Shape, target: Shape) -> str:
        """As its technique is called."""
        return "fast pointwise convolution"

    def details(self, source: Shape, target: Shape) -> str:
        """The stages."""
        return f", {self.stages.pattern.stages} stages"

    def macs(self, target: Shape) -> int:
        """One for each weight that is not multiplied with a null channel, and whose result is kept."""
        return target[0] * target[1] * self.stages.pattern.live_multiplications

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Each pixel through all stages."""
        result = fast_pointwise_float(values[self.input], self.zero_point, self.stages, self.requantisation)
        return self.finished(result, tensors)
