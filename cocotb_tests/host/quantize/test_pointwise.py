"""Which pointwise operators stay in float, and which activations are quantised around 0."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.pointwise import limiting_nodes, pointwise_nodes
from lutterfly.host.quantize.ranges import around_zero
from lutterfly.host.quantize.static_quantisation import relative_errors

#: Nodes as (operator, inputs, output) after the convolutions ``a`` and ``b`` of one input, and which stay in float.
CASES = {
    "a gate of its own": ([("Sigmoid", "a", "s"), ("Mul", "a s", "y")], ["y"]),
    "a longer one": (
        [("Add", "a c", "p"), ("Clip", "p", "q"), ("Mul", "q c", "r"), ("Mul", "r a", "y")],
        ["p", "r", "y"],
    ),
    "a gate of another layer": ([("Sigmoid", "b", "s"), ("Mul", "a s", "y")], []),
    "of two layers": ([("Mul", "a b", "y")], []),
    "a sum of two layers": ([("Add", "a b", "y")], []),
    "a sum with what is made of it": ([("Sigmoid", "a", "s"), ("Add", "a s", "y")], []),
    "of a sum and itself": ([("Add", "a b", "t"), ("Tanh", "t", "s"), ("Mul", "t s", "y")], ["y"]),
    "of sums and one of their operands": ([("Add", "a b", "t"), ("Mul", "t a", "y")], []),
    "with a constant": ([("Mul", "a c", "y")], ["y"]),
    "a square": ([("Mul", "a a", "y")], ["y"]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_stays_in_float(case: str) -> None:
    written, expected = CASES[case]
    nodes = [helper.make_node("Conv", ["x", "w"], [name], name) for name in "ab"]
    nodes += [helper.make_node(kind, inputs.split(), [output], output) for kind, inputs, output in written]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    weights = [numpy_helper.from_array(np.ones((1,) * rank, np.float32), name) for name, rank in (("w", 4), ("c", 0))]
    graph = helper.make_graph(nodes, "network", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert list(pointwise_nodes(model)) == expected


#: Networks with a limit that ONNX Runtime's quantiser leaves out, though the codes behind it do not end there.
LIMITED = {
    "around 0": "a = MatMul(x, w) r = Relu(a) b = MatMul(x, v) t = Transpose<perm = [0, 2, 1]>(b) y = MatMul(r, t)",
    "0 for all samples": "p = MatMul(x, w) q = Relu(p) a = MatMul(q, m) r = Relu(a) s = Add(q, r) y = MatMul(s, v)",
    "above 0": "a = MatMul(x, w) r = Clip(a, half, six) y = MatMul(r, v)",
    "below 0": "a = MatMul(x, w) r = Clip(a, minus, smaller) y = MatMul(r, v)",
}


@needs_reference
@pytest.mark.parametrize("case", LIMITED)
def test_no_limit_is_lost(case: str) -> None:
    rng = np.random.default_rng(2)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4, 6] x) => (float[n, 4, k] y) {{ {LIMITED[case]} }}'
    )
    w, v = rng.normal(0, 0.5, (2, 6, 6))
    limits = {"half": 0.5, "six": 6.0, "minus": -6.0, "smaller": -0.5}
    for name, array in {"w": w, "v": v, "m": -np.abs(w), **limits}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    samples = {"x": rng.normal(0, 1, (12, 4, 6)).astype(np.float32)}
    quantised = quantize(model.SerializeToString(), samples)
    (error,) = relative_errors(Model(model.SerializeToString()), Model(quantised), samples).values()
    assert error < 0.05
    feeds = {"x": samples["x"][:1]}
    assert_exact(quantised, feeds, covered=False)


@pytest.mark.parametrize(
    ("operator", "override", "is_kept"),
    [
        ("Relu(a)", None, False),
        ("Relu(a)", {"rmin": 0.0, "rmax": 2.0}, False),
        # As of a group of tensors that have one range.
        ("Relu(a)", {"rmin": -1.0, "rmax": 2.0}, True),
        ("Relu(a)", {"symmetric": True}, True),
        ("Relu(a)", {"scale": 0.1, "zero_point": -128}, False),
        ("Relu(a)", {"scale": 0.1, "zero_point": -126}, True),
        ("Clip(a, zero, six)", {"scale": 6 / 255, "zero_point": -128}, False),
        ("Clip(a, zero, six)", {"scale": 7 / 255, "zero_point": -128}, True),
        # Samples may go down to -9.
        ("Clip(a, , six)", {"symmetric": True}, True),
        ("Clip(a, , six)", {"rmin": -5.0, "rmax": 4.0, "symmetric": True}, False),
        ("Clip(a, , six)", {"rmin": -7.0, "rmax": 4.0, "symmetric": True}, True),
        ("Clip(a, minus, six)", {"symmetric": True}, False),
        ("Clip(a, minus, six)", {"rmin": -6.0, "rmax": 6.0}, False),
        ("Clip(a, minus, six)", {"rmin": -6.0, "rmax": 6.1}, True),
        ("Clip(a, x, six)", {"symmetric": True}, False),
    ],
)
def test_limits_that_codes_do_not_have_stay(operator: str, override: dict[str, float] | None, is_kept: bool) -> None:
    """Within a step, which every code is rounded by; limits that are computed are nobody's to leave out."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) {{ a = Neg(x) y = {operator} }}'
    )
    for name, value in {"zero": 0.0, "six": 6.0, "minus": -6.0}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    model.graph.node[1].name = "limit"
    assert [*limiting_nodes(model, {"y": [override]} if override else {})] == ["limit"] * is_kept


# Which activations are quantised around 0.


def test_both_operands_and_what_their_codes_come_from() -> None:
    """Past what keeps codes; neither results, nor what is multiplied by a constant."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["tokens"]),
        helper.make_node("Reshape", ["tokens", "shape"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        helper.make_node("Mul", ["tokens", "half"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "turned"], ["y"]),
    ]
    held = [
        numpy_helper.from_array(array, name)
        for name, array in (("w", np.eye(3)), ("half", np.array(0.5)), ("shape", np.array([4, 3])))
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "products", ends[:1], ends[1:], held))
    known = {"turned": [{"rmin": -1.0}], "y": [{"rmax": 2.0}]}
    found = around_zero(model, known)
    assert {name for name, (given,) in found.items() if given.get("symmetric")} == {
        "tokens",
        "rows",
        "turned",
        "scaled",
    }
    # What is known of a tensor stays.
    assert found["turned"] == [{"rmin": -1.0, "symmetric": True}]
    assert found["y"] == known["y"]


@pytest.mark.parametrize("kind", ["Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"])
def test_what_moves_codes_alone_passes_them_on(kind: str) -> None:
    """Of the further outputs as of the first, and several in a row."""
    nodes = [
        helper.make_node("Relu", ["x"], ["made"]),
        helper.make_node(kind, ["made"], ["moved", "aside"]),
        helper.make_node(kind, ["aside"], ["again"]),
        helper.make_node("MatMul", ["again", "x"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "products", ends[:1], ends[1:]))
    assert around_zero(model, {}).keys() == {"again", "aside", "made", "x"}
