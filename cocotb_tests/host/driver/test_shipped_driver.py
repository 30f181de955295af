# amaranth: UnusedElaboratable=no
"""The driver that is shipped, on the core in cocotb, with cocotbext-axi's register master and memory."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from cocotb.task import bridge

from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.transports.cocotb_transport import start
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.top_axi import TopAxi
from lutterfly.host.compiler import compile_graph
from lutterfly.host.driver.driver import Driver
from lutterfly.host.driver.transport import Transport
from lutterfly.host.graph import Window
from lutterfly.host.graph.evaluate import evaluate, to_onnx

CONFIG = PRESETS["tiny"]


@pytest.mark.verilator
def test_driver(simulate) -> None:
    simulate(TopAxi(CONFIG))


def infer_twice_reset_and_infer(transport: Transport) -> None:
    maker = GraphMaker((5, 5, 3))
    pooled = maker.max_pool(
        maker.convolution("x", 6, Window((3, 3), pads=(1, 1, 1, 1)), table=True), Window((2, 2), (2, 2))
    )
    graph = maker.finish(maker.fully_connected(pooled, 5))
    program = compile_graph(graph, CONFIG)
    driver = Driver(transport, CONFIG)
    driver.load(program)
    rng = np.random.default_rng(0)

    def infer_one() -> None:
        codes = rng.integers(-128, 128, (5, 5, 3), dtype=np.int8)
        (found,) = driver.infer([to_onnx(graph.tensors["x"].views[0], codes)])
        output = graph.tensors[graph.outputs[0]]
        np.testing.assert_array_equal(found, to_onnx(output.views[0], evaluate(graph, {"x": codes})[output.name]))

    infer_one()
    infer_one()
    driver.begin([to_onnx(graph.tensors["x"].views[0], np.zeros((5, 5, 3), np.int8))])
    transport.wait_for_interrupt(200)
    driver.reset()
    infer_one()
    assert driver.counters()["compute_done"] == len(program.cores[0].body.compute)


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.3])
async def two_inferences_and_a_reset(dut, p_stall: float) -> None:
    transport = await start(dut)
    transport.stall(np.random.default_rng(1), p_stall)
    await bridge(infer_twice_reset_and_infer)(transport)
