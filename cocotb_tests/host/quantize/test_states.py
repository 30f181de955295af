"""LSTM and GRU whose states are inputs and outputs of the network: one step at a time, fed back by the user."""

from __future__ import annotations

from collections.abc import Callable

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
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": ("h", "c"), "GRU": ("h",), "RNN": ("h",)}


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
    inputs = {"x": (1, steps, INPUTS), **dict.fromkeys(states, shape)}
    return written(nodes, inputs, ["y", *(f"{state}_out" for state in states)], held)


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


def layered(operator: str = "GRU", part: str = "Slice", layers: int = 2, direction: str = "forward") -> bytes:
    """A step of several layers, each of which has a part of the states."""
    count = 1 + (direction == "bidirectional")
    states, rng, held, nodes = STATES[operator], np.random.default_rng(6), {"axis": np.array([0])}, []
    held["flat"] = np.array([1, 1, count * HIDDEN])
    source = "x"
    for layer in range(layers):
        rows, width = GATES[operator] * HIDDEN, INPUTS if not layer else count * HIDDEN
        held[f"W{layer}"] = rng.normal(size=(count, rows, width)) / 2
        held[f"R{layer}"] = rng.normal(size=(count, rows, HIDDEN)) / 2
        held[f"from{layer}"], held[f"to{layer}"] = (np.array([(layer + more) * count]) for more in (0, 1))
        held[f"of{layer}"] = np.arange(count) + layer * count
        for state in states:
            operands = [f"from{layer}", f"to{layer}", "axis"] if part == "Slice" else [f"of{layer}"]
            nodes.append(helper.make_node(part, [state, *operands], [f"{state}{layer}"]))
        outputs = [f"every{layer}", *(f"{state}{layer}_out" for state in states)]
        operands = [source, f"W{layer}", f"R{layer}", "", "", *(f"{state}{layer}" for state in states)]
        nodes.append(helper.make_node(operator, operands, outputs, hidden_size=HIDDEN, direction=direction))
        nodes.append(helper.make_node("Reshape", [f"every{layer}", "flat"], [f"flat{layer}"]))
        source = f"flat{layer}"
    for state in states:
        nodes.append(
            helper.make_node("Concat", [f"{state}{layer}_out" for layer in range(layers)], [f"{state}_out"], axis=0)
        )
    held["v"] = rng.normal(size=(count * HIDDEN, RESULTS))
    nodes.append(helper.make_node("MatMul", [source, "v"], ["y"]))
    shape = (layers * count, 1, HIDDEN)
    return written(
        nodes, {"x": (1, 1, INPUTS), **dict.fromkeys(states, shape)}, ["y", *map("{}_out".format, states)], held
    )


def written(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], outputs: list[str], held: dict[str, np.ndarray]
) -> bytes:
    """A model of fixed shapes."""
    tensors = [
        numpy_helper.from_array(array.astype(np.float32) if array.dtype.kind == "f" else array, name)
        for name, array in held.items()
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    targets = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "network", ends, targets, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def stream(session: object, steps: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """All outputs of a network whose new states are the next step's states; the inputs are those of ``steps``."""
    names = [value.name for value in session.get_outputs()]
    state, found = {name: array for name, array in steps[0].items() if name != "x"}, []
    for step in steps:
        found.append(dict(zip(names, session.run(names, {"x": step["x"], **state}), strict=True)))
        state = {name: found[-1][f"{name}_out"] for name in state}
    return {name: np.stack([step[name] for step in found]) for name in names}


CASES: dict[str, Callable[[], bytes]] = {
    "GRU": lambda: streaming("GRU", linear_before_reset=1),
    "GRU with the reset in front": lambda: streaming("GRU", linear_before_reset=0),
    "LSTM": lambda: streaming("LSTM"),
    "several steps": lambda: streaming("LSTM", steps=3),
    "both directions": lambda: streaming("GRU", direction="bidirectional", linear_before_reset=1),
    "two layers": lambda: layered("LSTM"),
    "two layers, gathered": lambda: layered("GRU", "Gather"),
    "layers of both directions": lambda: layered("GRU", direction="bidirectional"),
    "several steps of a GRU, backwards": lambda: streaming("GRU", steps=2, direction="reverse"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
def test_a_stream_is_onnx_runtimes_and_near_the_float_models(case: str) -> None:
    data = CASES[case]()
    quantised = quantize(data, samples_of(data))
    assert not {*GATES} & {node.op_type for node in onnx.load_from_string(quantised).graph.node}
    steps = steps_of(data, 12, 5)
    wanted, reference = (stream(open_session(Model(model)), steps) for model in (data, quantised))
    found = stream(InferenceSession(quantised, backend="golden"), steps)
    for name, array in found.items():
        np.testing.assert_array_equal(array, reference[name])
        assert np.linalg.norm(array - wanted[name]) < 0.15 * np.linalg.norm(wanted[name])
        assert (array[1:] != array[:-1]).any()


@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
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
    data = CASES[case]()
    assert_right(verify(quantize(data, samples_of(data)), PRESETS[preset], samples=2))
