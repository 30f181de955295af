"""LSTM and GRU unrolled by `quantize`: the function stays ONNX Runtime's, and all steps have the same constants."""

from __future__ import annotations

import re
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
