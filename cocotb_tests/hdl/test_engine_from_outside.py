# amaranth: UnusedElaboratable=no
"""A network on an engine that the project does not have: compiled, and run by the shipped driver on the core."""

from __future__ import annotations

import dataclasses

import cocotb
import numpy as np
import pytest
from cocotb.task import bridge

from benches.toy_engine import MINIMUM, MinPool, add_toy
from lutterfly.golden.engines import MAC
from lutterfly.golden.engines.configurations import EngineConfigs
from lutterfly.golden.isa import COMMAND_BYTES, COMPUTE
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.top_axi import TopAxi
from lutterfly.host.compiler import CompileError, compile_graph
from lutterfly.host.driver.driver import Driver
from lutterfly.host.driver.transport import Transport
from lutterfly.host.graph import Graph, Window
from lutterfly.host.graph.evaluate import evaluate, to_onnx
from quantised.graphs import GraphMaker
from transports.cocotb_transport import start

CONFIG = dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC, MINIMUM))


def network() -> tuple[Graph, str]:
    """A convolution, the minimum of every 2 x 2 of its elements, and the name of its output."""
    maker = GraphMaker((6, 6, 3))
    between = maker.convolution("x", 6, Window((3, 3), pads=(1, 1, 1, 1)))
    graph = maker.finish(maker.max_pool(between, Window((2, 2), (2, 2))))
    pooling = graph.layers[-1]
    graph.layers[-1] = MinPool(**{field.name: getattr(pooling, field.name) for field in dataclasses.fields(pooling)})
    return graph, between


def test_other_configurations_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    add_toy(monkeypatch)
    graph, _ = network()
    with pytest.raises(CompileError, match="engines must include MINIMUM"):
        compile_graph(graph, dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC)))


def test_network(simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    add_toy(monkeypatch)
    simulate(TopAxi(CONFIG))


def infer(transport: Transport) -> None:
    graph, between = network()
    program = compile_graph(graph, CONFIG)
    queue = program.body.compute
    commands = [queue[at : at + COMMAND_BYTES] for at in range(0, len(queue), COMMAND_BYTES)]
    used = {COMPUTE.decode(command)["engine"] for command in commands if command[0] & 15 == COMPUTE.opcode}
    assert used == {MAC, MINIMUM}
    driver = Driver(transport, CONFIG)
    driver.load(program)
    codes = np.random.default_rng(0).integers(-128, 128, (6, 6, 3), dtype=np.int8)
    (found,) = driver.infer([to_onnx(graph.tensors["x"].views[0], codes)])
    least = evaluate(graph, {"x": codes})[between].reshape(3, 2, 3, 2, 6).min((1, 3))
    np.testing.assert_array_equal(found, to_onnx(graph.tensors[graph.outputs[0]].views[0], least))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def runs(dut) -> None:
    # The simulator is a process of its own.
    add_toy(pytest.MonkeyPatch())
    await bridge(infer)(await start(dut))
