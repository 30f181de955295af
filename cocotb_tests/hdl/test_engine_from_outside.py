# amaranth: UnusedElaboratable=no
"""A network on two engines that the project does not have: compiled, and run by the shipped driver on the core."""

from __future__ import annotations

import dataclasses

import cocotb
import numpy as np
import pytest
from cocotb.task import bridge

from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.toys.toy_borrower import WEIGHTED, FirstElement, add_borrower
from cocotb_tests.support.toys.toy_engine import MINIMUM, MinPool, add_toy
from cocotb_tests.support.transports.cocotb_transport import start
from lutterfly.golden.engines import ADD, FPC, MAC, EngineConfigs
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.isa import COMMAND_BYTES, COMPUTE
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.top_axi import TopAxi
from lutterfly.host.compiler import CompileError, compile_graph
from lutterfly.host.driver.driver import Driver
from lutterfly.host.driver.transport import Transport
from lutterfly.host.graph import Graph, Window
from lutterfly.host.graph.evaluate import evaluate, to_onnx

#: Beside them one that borrows, and has weight times and a whole epilogue of its own, and one with addends.
CONFIG = dataclasses.replace(
    PRESETS["tiny"], engines=EngineConfigs.of(MAC, FPC, ADD, MINIMUM, WEIGHTED, FPC=FpcConfig(width=2))
)


def network() -> Graph:
    """A convolution, the least of every 2 x 2 of its elements, the first of every 2 x 2 of these, added to itself."""
    maker = GraphMaker((8, 8, 3))
    half = Window((2, 2), (2, 2))
    names = [maker.convolution("x", 6, Window((3, 3), pads=(1, 1, 1, 1)))]
    names.append(maker.max_pool(names[-1], half))
    names.append(maker.max_pool(names[-1], half))
    names.append(maker.add(names[-1], names[-1]))
    graph = maker.finish(names[-1])
    for place, kind in ((1, MinPool), (2, FirstElement)):
        layer = graph.layers[place]
        graph.layers[place] = kind(**{field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)})
    return graph


def test_other_configurations_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    add_toy(monkeypatch)
    add_borrower(monkeypatch)
    graph = network()
    with pytest.raises(CompileError, match="engines must include MINIMUM"):
        compile_graph(graph, dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC)))


@pytest.mark.regress
@pytest.mark.verilator
def test_network(simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    add_toy(monkeypatch)
    add_borrower(monkeypatch)
    simulate(TopAxi(CONFIG))


def infer(transport: Transport) -> None:
    graph = network()
    program = compile_graph(graph, CONFIG)
    queue = program.cores[0].body.compute.commands
    commands = [queue[at : at + COMMAND_BYTES] for at in range(0, len(queue), COMMAND_BYTES)]
    used = {COMPUTE.decode(command)["engine"] for command in commands if command[0] & 15 == COMPUTE.opcode}
    assert used == {MAC, MINIMUM, WEIGHTED, ADD}
    driver = Driver(transport, CONFIG)
    driver.load(program)
    codes = np.random.default_rng(0).integers(-128, 128, (8, 8, 3), dtype=np.int8)
    (found,) = driver.infer([to_onnx(graph.tensors["x"].views[0], codes)])
    wanted = evaluate(graph, {"x": codes})[graph.outputs[0]]
    np.testing.assert_array_equal(found, to_onnx(graph.tensors[graph.outputs[0]].views[0], wanted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def runs(dut) -> None:
    # The simulator is a process of its own.
    add_toy(pytest.MonkeyPatch())
    add_borrower(pytest.MonkeyPatch())
    await bridge(infer)(await start(dut))
