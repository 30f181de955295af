"""Random graphs of codes in which 16-bit tensors stand between pointwise operators, beside all else that they have."""

from __future__ import annotations

import numpy as np

from cocotb_tests.support.networks.qdq_graphs import Codes, GraphOfCodes
from cocotb_tests.support.networks.wide_codes import WIDE, widened


class GraphOfWideCodes(GraphOfCodes):
    """A :class:`GraphOfCodes` with 16 bits in front of and after activations, layout and pooling."""

    def __init__(self, seed: int):
        #: Its own, so that the graphs are those of the same seed without 16 bits.
        self._wide = np.random.default_rng([seed, 16])
        super().__init__(seed)

    def _dequantise(self, item: Codes) -> str:
        return self._widen(super()._dequantise(item), 0.3)

    def _layout(self, tensor: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        tensor, shape = super()._layout(tensor, shape)
        return self._widen(tensor, 0.5), shape

    def _widen(self, tensor: str, probability: float) -> str:
        """16 bits for a float tensor: fine, or so coarse that they decide codes; now and then some values are cut."""
        while self._wide.random() < probability:
            dtype, scale = WIDE[self._wide.integers(2)], float(self._wide.choice([0.0003, 0.0001, 0.00002, 0.02]))
            zero = int(self._wide.choice([0, 0, 5000, -30000]))
            tensor = widened(self.maker, tensor, dtype, scale, zero, domain="com.microsoft")
        return tensor
