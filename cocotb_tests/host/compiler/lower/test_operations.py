"""The compiler chooses by capability: with each engine but MAC left out, networks that need it are refused by name, and
all others run with the bytes that ONNX Runtime gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.networks.families.builder import Form, Net
from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, DEPTHWISE, MAC, MAXIMUM
from lutterfly.golden.engines.engine import Engine
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.golden.units import Queue
from lutterfly.host.command.main import main
from lutterfly.host.compiler import CompileError, compile_graph, compile_model, encode, plan_graph
from lutterfly.host.compiler.lower import convolution, lanewise, operations, wide_windows
from lutterfly.host.compiler.operation import Lowering, Operation
from lutterfly.host.graph import Convolution, Graph, MaxPool, ProductLayer, Shape, Window
from lutterfly.host.session.verify import verify

TINY, DEFAULT = PRESETS["tiny"], PRESETS[DEFAULT_PRESET]
SAME = Window((3, 3), pads=(1, 1, 1, 1))
LEFT_OUT = [engine for engine in TINY.engines if engine is not MAC]


def without(*engines: Engine) -> Config:
    """The smallest preset with some engines left out."""
    return dataclasses.replace(TINY, engines=TINY.engines.without(*engines))


def sums(net: Net) -> None:
    x = net.input(4, 6, 6)
    net.output(net.add(net.conv(x, 4, 3), x))


def maxima(net: Net) -> None:
    net.output(net.maximum(net.conv(net.input(4, 6, 6), 4, 3), 2, stride=2))


def averages(net: Net) -> None:
    x = net.conv(net.input(6, 6, 6), 6, 3, groups=6)
    net.output(net.global_average(net.average(x, 3, padded=True)))


def side_by_side(net: Net) -> None:
    """A concatenation whose inputs are written where they belong: nothing copies them."""
    x = net.conv(net.input(4, 6, 6), 4, 3)
    net.output(net.conv(net.concat([net.conv(x, 4, 1, like=x), net.conv(x, 4, 3, like=x)]), 4))


NEEDED = {sums: ADD, maxima: MAXIMUM}


def made(*builds: Callable[[Net], None]) -> bytes:
    net = Net(Form(qdq=True, unsigned=False, per_channel=False), np.random.default_rng(3))
    for build in builds:
        build(net)
    return net.finish()


# A simulator for each.
@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("engine", LEFT_OUT, ids=lambda engine: engine.name)
def test_what_does_not_need_an_engine_runs_without_it(engine: Engine) -> None:
    builds = [build for build in (sums, maxima, averages, side_by_side) if NEEDED.get(build) is not engine]
    assert_right(verify(made(*builds), without(engine), samples=1))


@pytest.mark.demo_core
@needs_reference
def test_an_average_of_more_pixels_than_the_list_memory_has_entries_runs_as_groups() -> None:
    net, config = Net(Form(qdq=True, unsigned=False, per_channel=False), np.random.default_rng(3)), DEFAULT
    net.output(net.global_average(net.input(3, 40, 40)))
    model = net.finish()
    assert config.memory.list_entries < 40 * 40
    assert compile_model(model, config).layers[0].fold == "3 groups, 300 words per window, 100% useful"
    assert_right(verify(model, config, samples=1))


@pytest.mark.parametrize("command", ["check", "compile", "run"])
@pytest.mark.parametrize("build", NEEDED)
def test_what_needs_an_engine_is_refused(
    command: str,
    build: Callable[[Net], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = NEEDED[build]
    Path("net.onnx").write_bytes(made(build))
    Path("config.json").write_text(without(engine).to_json())
    np.save("x.npy", np.zeros((1, 4, 6, 6), np.float32))
    words = {"compile": ["-o", "net.program"], "run": ["--input", "x.npy"]}.get(command, [])
    assert main([command, "net.onnx", "--config", "config.json", *words]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    have = ", ".join(kept.name for kept in without(engine).engines)
    assert f"engines must include {engine.name} for this layer, not {have}; choose a --config that does" in shown.err
    assert not Path("net.program").exists()


def graph_of(kind: str) -> tuple[Graph, str]:
    """A graph that only the lane-wise maximum computes, and the layer that needs it."""
    maker = GraphMaker((6, 6, 4))
    name = maker.convolution("x", 4, SAME)
    name = {
        "max pooling": lambda: maker.max_pool(name, Window((2, 2))),
        "max pooling in two": lambda: maker.max_pool(name, Window((5, 5), pads=(2, 2, 2, 2))),
        "table": lambda: maker.pointwise(name),
        # Inputs of the network are no views.
        "copy": lambda: maker.concat("x", name, tables=False),
        "slice": lambda: maker.slice(name, 1, 2),
    }[kind]()
    return maker.finish(name), maker.graph.layers[-1].name


@pytest.mark.parametrize("kind", ["max pooling", "max pooling in two", "table", "copy", "slice"])
def test_the_layer_is_named(kind: str) -> None:
    graph, layer = graph_of(kind)
    plan_graph(graph, TINY)
    with pytest.raises(CompileError, match=rf"^{layer}( along columns)?: engines must include MAXIMUM for this layer"):
        compile_graph(graph, without(MAXIMUM))


def test_depthwise_layers_run_on_the_array_without_its_chain() -> None:
    maker = GraphMaker((6, 6, 4))
    graph = maker.finish(maker.depthwise("x", SAME))
    engines = [
        plan_graph(graph, config).queue(Queue.COMPUTE)[0].fields["engine"] for config in (TINY, without(DEPTHWISE))
    ]
    assert engines == [DEPTHWISE, MAC]


def test_the_first_lowering_counts_that_takes_the_layer_and_has_its_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def lowering(name: str, engine: Engine, *, takes: bool = True) -> Lowering:
        def make(*given) -> Operation:
            made.append(name)
            return lanewise.LOWERING.make(*given)

        return Lowering({MaxPool: make}, (engine,), lambda *_: takes)

    graph, _ = graph_of("max pooling")
    new = (
        lowering("takes none", MAXIMUM, takes=False),
        lowering("has no engine", ADD),
        lowering("first", MAXIMUM),
        lowering("second", MAXIMUM),
    )
    monkeypatch.setattr(operations, "LOWERINGS", (*new, *operations.LOWERINGS))
    plan_graph(graph, without(ADD))
    assert {*made} == {"first"}


def test_a_layer_that_no_lowering_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, layer = graph_of("max pooling")
    others = tuple(lowering for lowering in operations.LOWERINGS if lowering is not lanewise.LOWERING)
    monkeypatch.setattr(operations, "LOWERINGS", others)
    with pytest.raises(
        CompileError, match=rf"^{layer}: layer must be one that a lowering takes, not max pooling on elements of "
    ):
        compile_graph(graph, TINY)


def test_what_is_derived_from_a_kind_is_another_kind() -> None:
    """It may compute something else, so that no lowering takes it but one that names it."""

    class Other(MaxPool):
        pass

    graph, name = graph_of("max pooling")
    pool = graph.layers[-1]
    other = Other(pool.name, pool.inputs, pool.output, window=pool.window)
    with pytest.raises(CompileError, match=rf"^{name}: layer must be one that a lowering takes, not max pooling on "):
        compile_graph(dataclasses.replace(graph, layers=[*graph.layers[:-1], other]), TINY)


def test_all_lowerings_that_take_a_layer_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, layer = graph_of("max pooling")
    other = Lowering(lanewise.LOWERING.layers, (MAC, ADD))
    monkeypatch.setattr(operations, "LOWERINGS", (*operations.LOWERINGS, other))
    with pytest.raises(CompileError, match=rf"^{layer}: engines must include MAXIMUM, or MAC and ADD for this layer"):
        compile_graph(graph, without(MAXIMUM, ADD))


@dataclass(frozen=True, eq=False)
class Correlation(ProductLayer):
    """A kind of layer that the project does not have, though it says what a convolution says."""

    weights: np.ndarray
    bias: np.ndarray
    multiplier: np.ndarray
    groups: int

    normalised = Convolution.normalised

    def kind(self, source: Shape, target: Shape) -> str:
        return "correlation"


CORRELATION = dataclasses.replace(
    wide_windows.LOWERING, layers={Correlation: convolution.ConvolutionOperation}, takes=lambda *_: True
)


def correlations(graph: Graph) -> Graph:
    """The graph with such layers for its convolutions."""
    layers = [
        Correlation(**{field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)})
        if isinstance(layer, Convolution)
        else layer
        for layer in graph.layers
    ]
    return dataclasses.replace(graph, layers=layers)


@pytest.mark.regress
@pytest.mark.parametrize("feature_bytes", [1 << 17, 4096])
def test_a_kind_of_layer_needs_its_class_and_its_lowering(monkeypatch: pytest.MonkeyPatch, feature_bytes: int) -> None:
    """Passes see what a lowering can do: folds, early jobs, parts, views and tables are as a convolution's."""
    config = PRESETS["ecp5-85k"]
    config = dataclasses.replace(config, memory=dataclasses.replace(config.memory, feature_bytes=feature_bytes))
    maker = GraphMaker((40, 40, 3), zero_point=0)
    first = maker.convolution("x", 40, Window((3, 3), (2, 2), pads=(1, 1, 1, 1)), zero_point=0)
    second = maker.convolution(first, 40, SAME, zero_point=0)
    third = maker.convolution(maker.add(first, second), 8, SAME)
    graph = maker.finish(maker.concat(third, second))
    monkeypatch.setattr(operations, "LOWERINGS", (CORRELATION, *operations.LOWERINGS))
    wanted, plan = plan_graph(graph, config), plan_graph(correlations(graph), config)
    if feature_bytes == 4096:
        assert plan.cuts
    else:
        assert plan.storages["x"].fold
        assert len(plan.jobs) > len(plan.graph.layers)
    assert {layer.kind for layer in plan.predictions} >= {"correlation", "addition"}
    found, expected = encode(plan), encode(wanted)
    assert (found.cores[0].body, found.constants) == (expected.cores[0].body, expected.constants)
    assert found.predicted_cycles == expected.predicted_cycles
