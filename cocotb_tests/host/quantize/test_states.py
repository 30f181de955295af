"""LSTM and GRU whose states are inputs and outputs of the network: one step at a time, fed back by the user."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.session.session import InferenceSession
from lutterfly.host.session.verify import verify

INPUTS, HIDDEN, RESULTS = 6, 8, 3
GATES = {"LSTM": 4, "GRU": 3}
STATES = {"LSTM": ("h", "c"), "GRU": ("h",)}


def streaming(operator: str = "GRU", *, steps: int = 1, direction: str = "forward", **attributes: object) -> bytes:
    """A network of some steps, whose states are inputs and outputs."""
    rng, count, rows = np.random.default_rng(4), 1 + (direction == "bidirectional"), GATES[operator] * HIDDEN
    held = {
        "W": rng.normal(size=(count, rows, INPUTS)) / 2,
        "R": rng.normal(size=(count, rows, HIDDEN)) / 2,
        "B": rng.normal(size=(count, 2 * rows)) / 4,
        "v": rng.normal(size=(count * HIDDEN, RESULTS)),
        "shape": np.array([1, steps, count * HIDDEN]),
    }
    states = STATES[operator]
    shape = (count, 1, HIDDEN)
    nodes = [
        helper.make_node("Transpose", ["x"], ["rows"], "turn", perm=(1, 0, 2)),
        helper.make_node(
            operator,
            ["rows", "W", "R", "B", "", *states],
            ["every", *(f"{state}_out" for state in states)],
            "cell",
            hidden_size=HIDDEN,
            direction=direction,
            **attributes,
        ),
        helper.make_node("Transpose", ["every"], ["turned"], "back", perm=(2, 0, 1, 3)),
        helper.make_node("Reshape", ["turned", "shape"], ["flat"], "flat"),
        helper.make_node("MatMul", ["flat", "v"], ["y"], "head"),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, steps, INPUTS))]
    ends += [helper.make_tensor_value_info(state, TensorProto.FLOAT, shape) for state in states]
    targets = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, steps, RESULTS))]
    targets += [helper.make_tensor_value_info(f"{state}_out", TensorProto.FLOAT, shape) for state in states]
    tensors = [
        numpy_helper.from_array(array.astype(np.float32) if array.dtype.kind == "f" else array, name)
        for name, array in held.items()
    ]
    graph = helper.make_graph(nodes, "network", ends, targets, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def steps_of(data: bytes, count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """What the float model reads of a stream, step by step; its states begin with zero."""
    session, rng = open_session(Model(data)), np.random.default_rng(seed)
    shapes = {value.name: value.shape for value in session.get_inputs()}
    state = {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name != "x"}
    found = []
    for _ in range(count):
        found.append({"x": rng.normal(size=shapes["x"]).astype(np.float32), **state})
        results = session.run(list(map("{}_out".format, state)), found[-1])
        state = dict(zip(state, results, strict=True))
    return found


def samples_of(data: bytes, count: int = 30, seed: int = 1) -> dict[str, np.ndarray]:
    """Calibration: states as they occur."""
    found = steps_of(data, count, seed)
    stack = np.concatenate if found[0]["h"].shape[0] == 1 else np.stack
    return {name: (stack if name != "x" else np.concatenate)([step[name] for step in found]) for name in found[0]}


def stream(session: object, steps: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """All outputs of a network whose new states are the next step's states; the inputs are those of ``steps``."""
    names = [value.name for value in session.get_outputs()]
    state, found = {name: array for name, array in steps[0].items() if name != "x"}, []
    for step in steps:
        found.append(dict(zip(names, session.run(names, {"x": step["x"], **state}), strict=True)))
        state = {name: found[-1][f"{name}_out"] for name in state}
    return {name: np.stack([step[name] for step in found]) for name in names}


CASES = {
    "GRU": {"operator": "GRU", "linear_before_reset": 1},
    "GRU with the reset in front": {"operator": "GRU", "linear_before_reset": 0},
    "LSTM": {"operator": "LSTM"},
    "several steps": {"operator": "LSTM", "steps": 3},
    "several steps of a GRU, backwards": {"operator": "GRU", "steps": 2, "direction": "reverse"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_stream_is_onnx_runtimes_and_near_the_float_models(case: str) -> None:
    data = streaming(**CASES[case])
    quantised = quantize(data, samples_of(data))
    assert not {"LSTM", "GRU"} & {node.op_type for node in onnx.load_from_string(quantised).graph.node}
    steps = steps_of(data, 12, 5)
    wanted, reference = (stream(open_session(Model(model)), steps) for model in (data, quantised))
    found = stream(InferenceSession(quantised, backend="golden"), steps)
    for name, array in found.items():
        np.testing.assert_array_equal(array, reference[name])
        assert np.linalg.norm(array - wanted[name]) < 0.15 * np.linalg.norm(wanted[name])
        assert (array[1:] != array[:-1]).any()


@pytest.mark.parametrize("operator", GATES)
def test_a_state_that_is_fed_back_is_not_rounded_again(operator: str) -> None:
    """It has one scale as input and as output."""
    data = streaming(operator)
    model = onnx.load_from_string(quantize(data, samples_of(data)))
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    scales = {
        node.input[0]: [held[name].item() for name in node.input[1:]]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }
    for state in STATES[operator]:
        read = next(scales[node.output[0]] for node in model.graph.node if state in node.input)
        dequantised = next(node for node in model.graph.node if f"{state}_out" in node.output)
        assert [held[name].item() for name in dequantised.input[1:]] == read


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@pytest.mark.parametrize("case", CASES)
def test_every_byte_is_onnx_runtimes(case: str, preset: str) -> None:
    data = streaming(**CASES[case])
    assert_right(verify(quantize(data, samples_of(data)), PRESETS[preset], samples=2))
