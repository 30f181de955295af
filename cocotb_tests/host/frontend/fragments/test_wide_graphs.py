"""Networks with 16-bit tensors beside all else that random graphs of codes have, and on the simulated core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cocotb_tests.support.networks.generated import Generated
from cocotb_tests.support.networks.wide_codes import repeated
from cocotb_tests.support.networks.wide_graphs import GraphOfWideCodes
from cocotb_tests.support.oracles.exactness import accepted, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.session.verify import verify

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
