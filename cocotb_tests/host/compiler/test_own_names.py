"""Names in a file may be any: of tensors that the compiler makes none is ever taken for one of the file's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from cocotb_tests.host.compiler.cluster.test_by_layer import assert_exact as assert_exact_on_cores
from cocotb_tests.support.networks.small_models import Matrices
from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from cocotb_tests.support.oracles.execution import exact_plan
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph, spread_graph
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Concat, Graph, Window
from lutterfly.host.program import SpreadBy

CONFIG = PRESETS["ecp5-85k"]
POINT, SAME = Window((1, 1)), Window((3, 3), pads=(1, 1, 1, 1))


def separated() -> Graph:
    maker = GraphMaker((9, 9, 5))
    pool = maker.max_pool(maker.convolution("x", 5, POINT), Window((5, 5), pads=(2, 2, 2, 2)))
    return maker.finish(maker.convolution(pool, 3, POINT))


def in_phases() -> Graph:
    maker = GraphMaker((6, 5, 3))
    wide = maker.convolution(maker.convolution("x", 16, SAME), 32, SAME, table=True)
    return maker.finish(maker.convolution(maker.depth_to_space(wide), 8, SAME))


def joined() -> Graph:
    maker = GraphMaker((6, 5, 3))
    made = maker.concat(maker.convolution("x", 16, SAME), maker.convolution("x", 16, POINT), tables=False)
    layer = maker.graph.layers[-1]
    maker.graph.layers[-1] = Concat(layer.name, layer.inputs, made, (maker.table(), maker.table()))
    return maker.finish(maker.convolution(made, 8, SAME))


def two_convolutions() -> Graph:
    maker = GraphMaker((24, 24, 16))
    return maker.finish(maker.convolution(maker.convolution("x", 16, SAME), 16, SAME))


def renamed(graph: Graph, old: str, new: str) -> Graph:
    """The graph with another name for a tensor."""
    names = {name: new if name == old else name for name in graph.tensors}

    def of(tensor):
        views = tuple(dataclasses.replace(view, name=names.get(view.name, view.name)) for view in tensor.views)
        return dataclasses.replace(tensor, name=names[tensor.name], views=views)

    def over(layer):
        layer = dataclasses.replace(layer, inputs=tuple(names[name] for name in layer.inputs))
        return dataclasses.replace(layer, output=names[layer.output])

    return dataclasses.replace(
        graph,
        tensors={names[name]: of(tensor) for name, tensor in graph.tensors.items()},
        layers=[over(layer) for layer in graph.layers],
        outputs=[names[name] for name in graph.outputs],
    )


@pytest.mark.parametrize("make", [separated, in_phases, joined])
def test_what_a_pass_makes(make: Callable[[], Graph]) -> None:
    graph = make()
    plan = exact_plan(graph, CONFIG)
    own = [*(plan.graph.tensors.keys() - graph.tensors.keys())]
    assert own
    for name in own:
        again = exact_plan(renamed(graph, graph.outputs[0], name), CONFIG)
        assert again.predicted_cycles == plan.predicted_cycles
        assert len(again.graph.tensors) == len(plan.graph.tensors)


@pytest.mark.parametrize("cores", [2, pytest.param(4, marks=pytest.mark.regress)])
def test_parts_on_several_cores(cores: int) -> None:
    graph, config = two_convolutions(), dataclasses.replace(CONFIG, cluster=ClusterConfig(cores))
    before = spread_graph(graph, config, SpreadBy.LAYER)
    own = [*dict.fromkeys(name for plan in before.plans for name in plan.graph.tensors if name not in graph.tensors)]
    assert own[0].startswith(("x[", "t0["))
    for name in own[:2]:
        for old in ("t0", "t1"):
            again = renamed(graph, old, name)
            spread = spread_graph(again, config, SpreadBy.LAYER)
            assert spread.predicted_cycles == before.predicted_cycles
            assert_exact_on_cores(again, spread, 0)


def written_with(data: bytes, old: str, new: str) -> bytes:
    """The file with another name for a tensor."""
    model = onnx.ModelProto.FromString(data)
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    for value in (*model.graph.output, *model.graph.value_info):
        value.name = new if value.name == old else value.name
    return model.SerializeToString()


@needs_reference
@pytest.mark.parametrize("name", ["t0", "t1", "t4"])
def test_what_the_frontend_makes(name: str) -> None:
    """An operand or the result of a product has the name of what is made between them."""
    data, rng = Matrices((1, 2, 6, 12), (1, 2, 12, 5)).model(), np.random.default_rng(0)
    graph = import_model(data)
    given = {tensor for node in onnx.ModelProto.FromString(data).graph.node for tensor in (*node.input, *node.output)}
    feeds = {"a": rng.normal(size=(1, 2, 6, 12)).astype(np.float32), "b": np.ones((1, 2, 12, 5), np.float32)}
    plan = plan_graph(graph, PRESETS["tiny"])
    own = sorted(plan.graph.tensors.keys() - given)
    assert len(own) > 5
    for new in own:
        again = assert_exact(written_with(data, name, new), feeds, covered=False)
        assert len(again.tensors) == len(graph.tensors)
        assert len(plan_graph(again, PRESETS["tiny"]).graph.tensors) == len(plan.graph.tensors)
