"""Networks with 16-bit tensors beside all else that random graphs of codes have, and on the simulated core."""

from __future__ import annotations

import pytest

from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.session.verify import verify
from networks.wide_codes import repeated
from networks.wide_graphs import GraphOfWideCodes
from oracles.exactness import assert_answers, assert_exact, assert_right, needs_reference
from oracles.kept import kept

pytestmark = needs_reference


def check(seed: int) -> bool:
    """Whether a random graph is accepted; if so, no byte differs."""
    network = GraphOfWideCodes(seed).finish()
    with kept(network, "wide_graph"):
        try:
            import_model(network.model)
        except ModelError:
            return False
        assert_exact(network.model, network.feeds(0), covered=False)
        assert_answers(network.model, network.feeds(1))
    return True


def test_random_graphs() -> None:
    assert sum(check(seed) for seed in range(12)) > 9


@pytest.mark.regress
def test_many_random_graphs() -> None:
    assert sum(check(seed) for seed in range(12, 1000)) > 800


def test_the_core_has_the_bytes_of_places_that_share_a_table() -> None:
    made = repeated(3)
    made.product("Conv", (4, 4, 1, 1), 0, made.shape, bias=False)
    assert_right(verify(made.serialise(opset=21), PRESETS["tiny"], samples=2))


def test_the_core_has_the_bytes_of_a_random_graph() -> None:
    found = verify(GraphOfWideCodes(12).finish().model, PRESETS["tiny"], samples=1)
    assert found.bytes
    assert not found.mismatched_bytes
