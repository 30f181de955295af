"""Drawn float networks through `quantize`: near the float model, with ONNX Runtime's bytes, or truly refused."""

from __future__ import annotations

import copy
import re

import numpy as np
import onnx
import pytest
from hypothesis import event, given, note, settings
from onnx import helper, numpy_helper

from cocotb_tests.support.networks.float_maker import FloatNetwork
from cocotb_tests.support.networks.floats import float_networks
from cocotb_tests.support.oracles.exactness import PATIENT, assert_answers, assert_exact, needs_reference
from cocotb_tests.support.oracles.execution import differing_bytes
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.host.compiler import compile_graph
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Graph
from lutterfly.host.model import executed
from lutterfly.host.model.model import Model
from lutterfly.host.model.onnx_graph import set_nodes
from lutterfly.host.model.whole_samples import with_axis
from lutterfly.host.quantize import quantize

pytestmark = needs_reference

CONFIG = PRESETS["ecp5-85k"]
#: The error of an output that int8 explains, relative to what the output varies by, of so few layers.
NEAR = 0.2
#: Where it is larger, it is at most so many times that of the float model whose tensors are off by a code.
LIKE_SHAKEN = 2.0
#: What may be refused, and by which words; anything else is a fault.
REFUSED = {
    "a fixed batch": r"the batch of input '.*' must be dynamic or 1, not 2; export the model with a dynamic batch",
    "names": r"two nodes must not have the name 'node', as ONNX Runtime refuses them; give each node a name",
}


def error(network: FloatNetwork, quantised: bytes) -> float:
    """The largest error of an output on the samples, relative to its root mean square in float."""
    sessions = [executed.open_session(with_axis(Model(data))) for data in (network.model, quantised)]
    names = [info.name for info in sessions[0].get_outputs()]
    samples = [{key: array[place : place + 1] for key, array in network.samples.items()} for place in range(12)]
    wanted, found = ([session.run(names, feeds) for feeds in samples] for session in sessions)
    errors = []
    for expected, given_back in zip(zip(*wanted, strict=True), zip(*found, strict=True), strict=True):
        size = float(np.sqrt(np.mean(np.square(expected))))
        errors.append(float(np.sqrt(np.mean(np.square(np.subtract(expected, given_back))))) / max(size, 1e-9))
    return max(errors)


def shaken(network: FloatNetwork) -> float:
    """The error of the float model in which every computed tensor is off by up to one of 256 codes of its range."""
    model = onnx.load_from_string(with_axis(Model(network.model)).data)
    outputs = [info.name for info in model.graph.output]
    computed = [name for node in model.graph.node for name in node.output if name]
    extended = copy.deepcopy(model)
    extended.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in computed if name not in outputs)
    session = executed.open_session(Model(extended.SerializeToString()))
    values = dict(zip(computed, session.run(computed, network.samples), strict=True))
    rng, nodes = np.random.default_rng(0), list[onnx.NodeProto]()
    for node in model.graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            array = values.get(name)
            if array is None or array.dtype != np.float32 or not np.isfinite(array).all():
                continue
            code = (max(0.0, array.max()) - min(0.0, array.min())) / 255
            moved = rng.uniform(-code, code, array.shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(moved, f"{name} moved"))
            node.output[place] = f"{name} before"
            nodes.append(helper.make_node("Add", [f"{name} before", f"{name} moved"], [name]))
    set_nodes(model.graph, nodes)
    found = executed.open_session(Model(model.SerializeToString())).run(outputs, network.samples)
    squares = [
        (np.square(values[name] - moved).mean(), np.square(values[name]).mean())
        for name, moved in zip(outputs, found, strict=True)
    ]
    return max(float(np.sqrt(off / max(size, 1e-18))) for off, size in squares)


def compiled(network: FloatNetwork) -> tuple[bytes, Graph, Program] | str:
    """The quantised model, samples of which stand along its first axis, and what is made of it; or a refusal."""
    try:
        quantised = with_axis(Model(quantize(network.model, network.samples))).data
        graph = import_model(quantised)
        return quantised, graph, compile_graph(graph, CONFIG)
    except ValueError as refusal:
        return str(refusal)


def check(network: FloatNetwork) -> None:
    """It is quantised near the float model and runs exactly, or is refused for a cause that is listed."""
    note(network.text)
    found = compiled(network)
    if isinstance(found, str):
        assert "lutterfly quantize" not in found
        causes = [name for name, words in REFUSED.items() if re.search(words, found)]
        assert causes, found
        event(f"refused: {causes[0]}")
        return
    quantised, graph, program = found
    assert sum(layer.macs for layer in program.layers)
    off = error(network, quantised)
    # A normalisation of values that are nearly equal enlarges what rounding changes, up to the values' own size.
    assert off < NEAR or off < LIKE_SHAKEN * shaken(network), (off, shaken(network))
    feeds = {name: array[:1] for name, array in network.samples.items()}
    assert_exact(quantised, feeds, covered=False)
    assert_answers(quantised, feeds)
    assert differing_bytes(graph, program, CONFIG, order=ORDERS[0]) == 0


@given(float_networks(most=2))
@settings(PATIENT, max_examples=10, derandomize=True)
def test_networks(network: FloatNetwork):
    check(network)


@pytest.mark.regress
@pytest.mark.parametrize("part", range(20))
@given(network=float_networks(most=5))
@settings(PATIENT, max_examples=25)
def test_many_networks(part: int, network: FloatNetwork):
    """Each part draws others: one alone, of 500, took longer than a test may."""
    check(network)
