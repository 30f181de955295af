"""Random inputs: all that a quantised input can tell apart, and nothing beyond."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.host.graph import Window
from lutterfly.host.model.arrays import TensorInfo
from lutterfly.host.session.verify import random_feeds


def test_floats_have_the_range_of_the_codes() -> None:
    maker = GraphMaker((40, 40, 8))
    graph = maker.finish(maker.convolution("x", 8, Window((1, 1))))
    session = SimpleNamespace(get_inputs=lambda: [TensorInfo("x", [1, 8, 40, 40], "tensor(float)")])
    (values,) = random_feeds(session, graph, np.random.default_rng(0), samples=2).values()
    tensor = graph.tensors["x"]
    codes = np.rint(values / tensor.scale) + tensor.zero_point
    assert values.shape == (2, 8, 40, 40)
    assert np.unique(codes).tolist() == list(range(-128, 128))
