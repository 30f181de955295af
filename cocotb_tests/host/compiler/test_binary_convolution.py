"""Binary layers: programs on the golden machine against their float evaluation, on wide and on narrow arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from binary_graphs import random_binary_graph
from execution import differing_bytes
from graphs import evaluate_float

from lutterfly.golden.config import PRESETS, FpcConfig
from lutterfly.golden.isa import Engine
from lutterfly.golden.machine import ORDERS
from lutterfly.host.compiler import compile_graph
from lutterfly.host.evaluate import evaluate
from lutterfly.host.graph import Window

CONFIGS = {
    name: dataclasses.replace(PRESETS[name], engines=tuple(Engine), fpc=FpcConfig(2))
    for name in ("tiny", "ecp5-85k", "large")
}
SAME = Window((3, 3), pads=(1, 1, 1, 1))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("name", CONFIGS)
def test_random_graphs(name: str, seed: int) -> None:
    graph, config = random_binary_graph(seed), CONFIGS[name]
    inputs = {"x": np.random.default_rng(seed).integers(-128, 128, graph.tensors["x"].shape, dtype=np.int8)}
    expected, found = evaluate_float(graph, inputs), evaluate(graph, inputs)
    for tensor, codes in expected.items():
        np.testing.assert_array_equal(found[tensor], codes, tensor)
    program = compile_graph(graph, config)
    assert differing_bytes(graph, program, config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0
