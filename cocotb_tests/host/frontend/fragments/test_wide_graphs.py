"""Networks with 16-bit tensors beside all else that random graphs of codes have, and on the simulated core."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import Codes, Generated
from cocotb_tests.support.networks.qdq_graphs import GraphOfCodes
from cocotb_tests.support.networks.small_models import WIDE, repeated, widened
from cocotb_tests.support.oracles.exactness import accepted, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.session.verify import verify

# Random graphs of codes in which 16-bit tensors stand between pointwise operators, beside all else that they have.


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


pytestmark = needs_reference


def graphs(*seeds: int) -> Iterator[Generated]:
    return (GraphOfWideCodes(seed).finish() for seed in range(*seeds))


@pytest.mark.regress
def test_random_graphs() -> None:
    assert accepted(graphs(12), "wide_graph", samples=2) > 9


@pytest.mark.regress
def test_many_random_graphs() -> None:
    assert accepted(graphs(12, 1000), "wide_graph", samples=2) > 800


def test_the_core_has_the_bytes_of_places_that_share_a_table() -> None:
    made = repeated(3)
    made.product("Conv", (4, 4, 1, 1), 0, made.shape, bias=False)
    assert_right(verify(made.serialise(opset=21), PRESETS["tiny"], samples=2))


def test_the_core_has_the_bytes_of_a_random_graph() -> None:
    found = verify(GraphOfWideCodes(12).finish().model, PRESETS["tiny"], samples=1)
    assert found.bytes
    assert not found.mismatched_bytes
