"""LSTM and GRU unrolled by `quantize`, whole or step by step with states that the user feeds back."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.float_model import prepare
from lutterfly.host.quantize.ranges import common_ranges
from lutterfly.host.quantize.rewriting.recurrent import RECURRENT, UNROLLED, rows_of
from lutterfly.host.session.session import InferenceSession
from lutterfly.host.session.verify import verify

STEPS, INPUTS, HIDDEN = 4, 3, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
#: What a network may read of a recurrence, and after which moves.
Moves = list[tuple[str, tuple[object, ...], dict[str, object]]]


def recurrent(
    operator: str = "LSTM",
    *,
    steps: int = STEPS,
    batch: int | str = 1,
    read: int = 0,
    bias: bool = True,
    states: float | None = None,
    lengths: int | None = None,
    peephole: float | None = None,
    moves: Moves = (),
    is_computed: str = "",
    **attributes: object,
) -> onnx.ModelProto:
    """A network of one recurrence, whose input has the batch first, and of what is read of it.

    Parameters
    ----------
    read : int
        Which of its outputs.
    states : float or None
        What all elements of the initial states are; other than zero they differ.
    lengths, peephole : int, float or None
        All elements of these operands.
    is_computed : str
        The operand that is an input of the network.
    """
    rng, count = np.random.default_rng(3), DIRECTIONS[attributes.get("direction", "forward")]
    rows = GATES[operator] * HIDDEN
    held = {"W": rng.normal(size=(count, rows, INPUTS)), "R": rng.normal(size=(count, rows, HIDDEN)) / 2}
    if bias:
        held["B"] = rng.normal(size=(count, 2 * rows))
    if lengths is not None:
        held["lengths"] = np.full(1, lengths, np.int32)
    if states is not None:
        shape = (count, 1, HIDDEN)
        held["h"] = np.full(shape, states) if not states else rng.normal(size=shape) * states
        if operator == "LSTM":
            held["c"] = np.full(shape, states) if not states else rng.normal(size=shape) * states
    if peephole is not None:
        held["P"] = np.full((count, 3 * HIDDEN), peephole)
    order = ["W", "R", "B", "lengths", "h", *(["c", "P"] if operator == "LSTM" else [])]
    operands = ["steps", *(name if name in held else "" for name in order)]
    outputs = ["" if at != read else "found" for at in range(read + 1)]
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], "Transpose", perm=(1, 0, 2)),
        helper.make_node(operator, operands, outputs, "cell", hidden_size=HIDDEN, **attributes),
    ]
    for at, (kind, constants, given) in enumerate(moves):
        names = [f"k{at}_{number}" for number in range(len(constants))]
        held |= dict(zip(names, map(np.asarray, constants), strict=True))
        nodes.append(helper.make_node(kind, [nodes[-1].output[-1], *names], [f"m{at}"], f"{kind}_{at}", **given))
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, steps, INPUTS))]
    if is_computed:
        ends.append(helper.make_tensor_value_info(is_computed, TensorProto.FLOAT, held.pop(is_computed).shape))
    nodes[-1].output[-1] = "y"
    tensors = [
        numpy_helper.from_array(array.astype(np.float32) if array.dtype.kind == "f" else array, name)
        for name, array in held.items()
    ]
    target = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "network", ends, target, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def values(steps: int = STEPS, samples: int = 1) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(samples, steps, INPUTS)).astype(np.float32)


def run(model: onnx.ModelProto, array: np.ndarray) -> np.ndarray:
    return open_session(Model(model.SerializeToString())).run(None, {"x": array})[0]


def assert_same(model: onnx.ModelProto, folder: Path, steps: int = STEPS) -> onnx.ModelProto:
    """The rewritten model, which computes what ONNX Runtime computes of the model."""
    prepared, found = prepare(model, "model", folder)
    assert UNROLLED in [one.rewriting for one in found]
    assert not {node.op_type for node in prepared.graph.node} & set(RECURRENT)
    wanted, made = run(model, values(steps)), run(prepared, values(steps))
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    return prepared


@pytest.mark.sampled(24)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("states", [None, 0.0, 0.7])
@pytest.mark.parametrize(
    ("operator", "read"), [("LSTM", 0), ("LSTM", 1), ("LSTM", 2), ("GRU", 0), ("GRU", 1), ("RNN", 1)]
)
def test_every_output_from_every_start(
    operator: str, read: int, states: float | None, direction: str, tmp_path: Path
) -> None:
    # An RNN has two activations in ONNX unless others are given, also of one direction.
    more = {"GRU": {"linear_before_reset": 1}, "RNN": {"activations": ["Tanh", "Tanh"]}}.get(operator, {})
    assert_same(recurrent(operator, read=read, states=states, direction=direction, **more), tmp_path)


@pytest.mark.parametrize("case", range(24))
def test_any_options_together(case: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(case)
    operator, steps = rng.choice(RECURRENT), int(rng.integers(1, 6))
    activations = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[operator]
    direction = str(rng.choice([*DIRECTIONS]))
    more = {"activations": activations * DIRECTIONS[direction]} if rng.integers(2) else {}
    if operator == "GRU":
        more["linear_before_reset"] = int(rng.integers(2))
    model = recurrent(
        operator,
        steps=steps,
        batch="batch" if (no_batch := bool(rng.integers(2))) else 1,
        read=int(rng.integers(3 if operator == "LSTM" else 2)),
        bias=bool(rng.integers(2)),
        states=None if no_batch else [None, 0.0, 0.5][rng.integers(3)],
        lengths=[None, steps][rng.integers(2)],
        peephole=0.0 if operator == "LSTM" and rng.integers(2) else None,
        direction=direction,
        **more,
    )
    assert_same(model, tmp_path, steps)


@pytest.mark.parametrize("given", [{"activations": ["Relu"]}, {"clip": 3.0}])
def test_an_rnn_of_another_kind_is_left(given: dict[str, object], tmp_path: Path) -> None:
    _, found = prepare(recurrent("RNN", **given), "model", tmp_path)
    assert UNROLLED not in [one.rewriting for one in found]


SQUEEZED = ("Squeeze", (np.array([1]),), {})
BATCH_FIRST = ("Transpose", (), {"perm": (1, 0, 2)})
#: Moves behind the states of all steps, and whether they leave all of them, or which.
MOVES: dict[str, tuple[Moves, int]] = {
    "nothing": ([], 4),
    "PyTorch's older exporter": ([SQUEEZED, BATCH_FIRST], 4),
    "PyTorch's newer exporter": (
        [("Transpose", (), {"perm": (0, 2, 1, 3)}), ("Reshape", (np.array([STEPS, 1, HIDDEN]),), {}), BATCH_FIRST],
        4,
    ),
    "the last": ([SQUEEZED, BATCH_FIRST, ("Gather", (np.array(-1),), {"axis": 1})], 1),
    "the second": ([SQUEEZED, ("Gather", (np.array(1),), {"axis": 0})], 1),
    "some": (
        [SQUEEZED, BATCH_FIRST, ("Slice", tuple(map(np.array, ([1], [99], [1], [2]))), {})],
        2,
    ),
    "all but the first": ([SQUEEZED, BATCH_FIRST, ("Slice", tuple(map(np.array, ([1], [99], [1]))), {})], 3),
    "flat": ([SQUEEZED, BATCH_FIRST, ("Flatten", (), {"axis": 1})], 4),
    "features": ([SQUEEZED, BATCH_FIRST, ("Gather", (np.array([0, 2]),), {"axis": 2})], 4),
    "backwards": ([SQUEEZED, BATCH_FIRST, ("Slice", tuple(map(np.array, ([-1], [-99], [1], [-1]))), {})], 4),
}


@pytest.mark.parametrize("case", MOVES)
def test_moves_of_rows_are_part_of_it(case: str, tmp_path: Path) -> None:
    moves, joined = MOVES[case]
    prepared = assert_same(recurrent(moves=moves), tmp_path)
    concatenations = [len(node.input) for node in prepared.graph.node if node.op_type == "Concat"]
    assert concatenations == ([joined] if joined > 1 else [])
    kept = [node.op_type for node in prepared.graph.node if node.op_type in ("Transpose", "Squeeze", "Gather", "Slice")]
    assert kept == {"features": ["Gather"], "backwards": ["Slice"]}.get(case, [])


def test_a_transpose_in_front_that_moves_elements_stays(tmp_path: Path) -> None:
    """As behind a convolution over time, whose channels come before the steps."""
    model = recurrent()
    model.graph.node[0].CopyFrom(helper.make_node("Transpose", ["x"], ["steps"], "Transpose", perm=(2, 0, 1)))
    shape = model.graph.input[0].type.tensor_type.shape
    shape.dim[1].dim_value, shape.dim[2].dim_value = INPUTS, STEPS
    prepared, _ = prepare(model, "model", tmp_path)
    assert [node.op_type for node in prepared.graph.node][:2] == ["Transpose", "Reshape"]
    array = values().transpose(0, 2, 1)
    np.testing.assert_allclose(run(prepared, array), run(model, array), rtol=1e-5, atol=1e-5)


def test_rows_are_whole_or_none() -> None:
    assert rows_of(np.array([[4, 5], [0, 1]]), 2) == [2, 0]
    assert rows_of(np.array([1, 2]), 2) is None
    assert rows_of(np.array([0, 2]), 2) is None
    assert rows_of(np.arange(3), 2) is None
    assert rows_of(np.zeros(0, np.int64), 2) is None


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "lengths": ({"lengths": 2}, "LSTM 'cell': sequence_lens must be 4 or absent; pad all sequences to one length"),
    "peepholes": ({"peephole": 0.5}, "LSTM 'cell': peepholes are not supported; train it without"),
    "clip": ({"clip": 3.0}, "LSTM 'cell': clip is not supported; train it without"),
    "coupled gates": (
        {"input_forget": 1},
        "LSTM 'cell': input_forget must be 0; train it with a forget gate of its own",
    ),
    "functions": (
        {"activations": ["Sigmoid", "Relu", "Tanh"]},
        "LSTM 'cell': activations must be sigmoid, tanh, tanh, not sigmoid, relu, tanh",
    ),
    "weights": (
        {"is_computed": "R"},
        "LSTM 'cell': its weights must be constants, and are computed; export them as they are",
    ),
    "steps": (
        {"steps": 257},
        "LSTM 'cell': steps must be at most 256, not 257; cut or pool the sequence in front",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_spell_is_refused_by_name(case: str, tmp_path: Path) -> None:
    given, message = REFUSED[case]
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        prepare(recurrent(**given), "model", tmp_path)


@pytest.mark.regress
def test_the_most_steps(tmp_path: Path) -> None:
    assert_same(recurrent("GRU", steps=256, read=1), tmp_path, 256)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("operator", RECURRENT)
def test_tensors_of_all_steps_have_one_scale(operator: str, direction: str) -> None:
    """Of every role, and of the gates together, so that tables and multipliers are those of all steps."""
    model = recurrent(operator, batch="batch", direction=direction)
    quantised = onnx.load_from_string(quantize(model.SerializeToString(), {"x": values(samples=8)}))
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantised.graph.initializer}
    scales: dict[str, set[tuple[float, int]]] = {}
    for node in quantised.graph.node:
        name = re.fullmatch(r"y_\d_(\w+?)_\d+", node.input[0])
        if node.op_type == "QuantizeLinear" and name:
            scale, zero = (held[operand].item() for operand in node.input[1:])
            scales.setdefault(name[1], set()).add((scale, zero))
    assert {role: len(found) for role, found in scales.items()} == dict.fromkeys(scales, 1)
    assert len(scales) > 8
    gates = "iof" if operator == "LSTM" else "zr"
    assert len(set.union(*(scales[gate] for gate in gates))) == 1


def test_joined_states_keep_their_scale() -> None:
    """Even where those that are joined have a smaller range than all."""
    model = recurrent(moves=MOVES["some"][0])
    quantised = onnx.load_from_string(quantize(model.SerializeToString(), {"x": values(samples=8)}))
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantised.graph.initializer}
    operands = {node.input[0]: node.input[1:] for node in quantised.graph.node if node.op_type == "QuantizeLinear"}
    joined, state = ([held[name].item() for name in operands[tensor]] for tensor in ("y_joined", "found_0_state_1"))
    assert joined == state


def test_the_range_of_a_group_is_that_of_all_samples_and_tensors() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Add", ["a", "a"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2)) for name in "xy"]
    model = helper.make_model(
        helper.make_graph(nodes, "network", ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    samples = {"x": np.array([[1, 2], [-3, 0]], np.float32)}
    found = common_ranges(model, samples, [["a", "y", "gone"], ["gone"]])
    assert found == {name: [{"rmin": -4.0, "rmax": 6.0}] for name in "ay"}
    assert common_ranges(model, samples, [["gone"]]) == {}


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("preset", sweep(["tiny", "ecp5-85k"], kept=["tiny"]))
@pytest.mark.parametrize(
    "given",
    [
        {"operator": "LSTM", "states": 0.5},
        {"operator": "GRU", "states": 0.5, "linear_before_reset": 1, "direction": "reverse"},
        {"operator": "GRU", "linear_before_reset": 0, "read": 1},
        {"operator": "LSTM", "direction": "bidirectional", "read": 2},
    ],
)
def test_every_byte_is_onnx_runtimes(given: dict[str, object], preset: str) -> None:
    data = quantize(recurrent(**given).SerializeToString(), {"x": values(samples=8)})
    assert_right(verify(data, PRESETS[preset], samples=2))


@pytest.mark.regress
def test_constants_are_there_once_however_many_steps() -> None:
    """Weights, parameters and tables of two more steps, of all of which there are two already, cost nothing."""
    sizes = []
    for steps in (3, 5):
        data = quantize(recurrent(steps=steps).SerializeToString(), {"x": values(steps, samples=8)})
        sizes.append(verify(data, PRESETS["ecp5-85k"], samples=1).loaded.program.cores[0].prologue)
    assert len(sizes[0].dma.commands) == len(sizes[1].dma.commands) > 0


# LSTM and GRU whose states are inputs and outputs of the network: one step at a time, fed back by the user.

FRAME, STATE, RESULTS = 6, 8, 3
STATES = {"LSTM": ("h", "c"), "GRU": ("h",), "RNN": ("h",)}


def streaming(operator: str = "GRU", *, steps: int = 1, direction: str = "forward", **attributes: object) -> bytes:
    """A network of some steps, whose states are inputs and outputs."""
    rng, count, rows = np.random.default_rng(4), 1 + (direction == "bidirectional"), GATES[operator] * STATE
    held = {
        "W": rng.normal(size=(count, rows, FRAME)) / 2,
        "R": rng.normal(size=(count, rows, STATE)) / 2,
        "B": rng.normal(size=(count, 2 * rows)) / 4,
        "v": rng.normal(size=(count * STATE, RESULTS)),
        "shape": np.array([1, steps, count * STATE]),
    }
    states = STATES[operator]
    shape = (count, 1, STATE)
    nodes = [
        helper.make_node("Transpose", ["x"], ["rows"], "turn", perm=(1, 0, 2)),
        helper.make_node(
            operator,
            ["rows", "W", "R", "B", "", *states],
            ["every", *(f"{state}_out" for state in states)],
            "cell",
            hidden_size=STATE,
            direction=direction,
            **attributes,
        ),
        helper.make_node("Transpose", ["every"], ["turned"], "back", perm=(2, 0, 1, 3)),
        helper.make_node("Reshape", ["turned", "shape"], ["flat"], "flat"),
        helper.make_node("MatMul", ["flat", "v"], ["y"], "head"),
    ]
    inputs = {"x": (1, steps, FRAME), **dict.fromkeys(states, shape)}
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
    held["flat"] = np.array([1, 1, count * STATE])
    source = "x"
    for layer in range(layers):
        rows, width = GATES[operator] * STATE, FRAME if not layer else count * STATE
        held[f"W{layer}"] = rng.normal(size=(count, rows, width)) / 2
        held[f"R{layer}"] = rng.normal(size=(count, rows, STATE)) / 2
        held[f"from{layer}"], held[f"to{layer}"] = (np.array([(layer + more) * count]) for more in (0, 1))
        held[f"of{layer}"] = np.arange(count) + layer * count
        for state in states:
            operands = [f"from{layer}", f"to{layer}", "axis"] if part == "Slice" else [f"of{layer}"]
            nodes.append(helper.make_node(part, [state, *operands], [f"{state}{layer}"]))
        outputs = [f"every{layer}", *(f"{state}{layer}_out" for state in states)]
        operands = [source, f"W{layer}", f"R{layer}", "", "", *(f"{state}{layer}" for state in states)]
        nodes.append(helper.make_node(operator, operands, outputs, hidden_size=STATE, direction=direction))
        nodes.append(helper.make_node("Reshape", [f"every{layer}", "flat"], [f"flat{layer}"]))
        source = f"flat{layer}"
    for state in states:
        nodes.append(
            helper.make_node("Concat", [f"{state}{layer}_out" for layer in range(layers)], [f"{state}_out"], axis=0)
        )
    held["v"] = rng.normal(size=(count * STATE, RESULTS))
    nodes.append(helper.make_node("MatMul", [source, "v"], ["y"]))
    shape = (layers * count, 1, STATE)
    return written(
        nodes, {"x": (1, 1, FRAME), **dict.fromkeys(states, shape)}, ["y", *map("{}_out".format, states)], held
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


@pytest.mark.sampled(3)
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
def test_every_byte_of_a_stream_is_onnx_runtimes(case: str, preset: str) -> None:
    data = CASES[case]()
    assert_right(verify(quantize(data, samples_of(data)), PRESETS[preset], samples=2))
