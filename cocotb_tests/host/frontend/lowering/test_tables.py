"""What becomes one table: activation functions that are written out, and a Clip of codes."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from lutterfly.host.graph import Pointwise

CONSTANTS = {
    "half": 0.5,
    "one": 1.0,
    "three": 3.0,
    "six": 6.0,
    "sixth": 1 / 6,
    "zero": 0.0,
    "root": np.sqrt(2),
    "cubic": 0.044715,
    "outer": np.sqrt(2 / np.pi),
}
TANH = "k = Mul(c, cubic) z = Add(x, k) w = Mul(z, outer) t = Tanh(w) p = Add(t, one) h = Mul(x, half) y = Mul(h, p)"
FUNCTIONS = {
    "HardSwish": "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "HardSwish as TensorFlow has it": ("a = Add(three, x) r = Relu(a) c = Min(r, six) d = Mul(c, sixth) y = Mul(d, x)"),
    "HardSwish of HardSigmoid": "h = HardSigmoid<alpha = 0.16666667>(x) y = Mul(x, h)",
    "HardSigmoid": "a = Add(x, three) c = Clip(a, zero, six) y = Div(c, six)",
    "HardSigmoid as Keras has it": "m = Mul(x, sixth) a = Add(m, half) y = Clip(a, zero, one)",
    "Gelu": "d = Div(x, root) e = Erf(d) p = Add(e, one) q = Mul(x, p) y = Mul(q, half)",
    "Gelu with the half in front": "d = Div(x, root) e = Erf(d) p = Add(one, e) h = Mul(half, x) y = Mul(h, p)",
    "Gelu by Tanh": f"c = Pow(x, three) {TANH}",
    "Gelu by Tanh and products": f"s = Mul(x, x) c = Mul(s, x) {TANH}",
}


def written_out(text: str, dtype: type) -> bytes:
    """Convolution, function, convolution, in QDQ form."""
    rng, nodes, held = np.random.default_rng(0), [], {name: np.float32(value) for name, value in CONSTANTS.items()}
    middle = 0 if dtype is np.int8 else 128

    def quantised(name: str, scale: float, zero_point: int) -> str:
        held[f"{name} scale"], held[f"{name} zero"] = np.float32(scale), dtype(middle + zero_point)
        ends = [f"{name} scale", f"{name} zero"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *ends], [f"{name} codes"], f"quantise {name}"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name} codes", *ends], [f"{name} numbers"]))
        return f"{name} numbers"

    def convolved(source: str, inputs: int, outputs: int, name: str) -> None:
        held[f"{name} w"] = rng.integers(-127, 128, (outputs, inputs, 1, 1), np.int8)
        held[f"{name} ws"], held[f"{name} wz"] = np.float32(0.011), np.int8(0)
        weights = [f"{name} {part}" for part in ("w", "ws", "wz")]
        nodes.append(helper.make_node("DequantizeLinear", weights, [f"{name} weights"]))
        nodes.append(helper.make_node("Conv", [source, f"{name} weights"], [name], name))

    convolved(quantised("in", 0.021, 3), 3, 8, "first")
    read = quantised("first", 0.053, -10)
    for node in onnx.parser.parse_graph(f"f (float[1] x) => (float[1] y) {{ {text} }}").node:
        node.input[:] = [read if name == "x" else name for name in node.input]
        nodes.append(node)
    convolved(quantised("y", 0.041, -5), 8, 4, "last")
    result = quantised("last", 0.13, 0)
    ends = [
        helper.make_tensor_value_info("in", TensorProto.FLOAT, ["n", 3, 5, 6]),
        helper.make_tensor_value_info(result, TensorProto.FLOAT, ["n", 4, 5, 6]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "written", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@needs_reference
@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_a_table_of_the_convolution_in_front(name: str, dtype: type) -> None:
    feeds = {"in": np.random.default_rng(1).normal(size=(1, 3, 5, 6)).astype(np.float32)}
    graph = assert_exact(written_out(FUNCTIONS[name], dtype), feeds, covered=False)
    assert [(graph.kind_of(layer), layer.table is not None) for layer in graph.layers] == [
        ("convolution", True),
        ("convolution", False),
    ]


# A Clip of codes becomes one of the numbers that are quantised: with any zero point, or none.

PAIRS = np.array(list(itertools.product(range(-8, 8), repeat=2)), np.int8)


def clipped(zero_point: int | None, limits: tuple[int, int]) -> bytes:
    """A convolution whose uint8 codes are clipped, and rise above their zero point again."""
    given = [] if zero_point is None else ["zero"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "quarter", "int8"], ["read"]),
        helper.make_node("DequantizeLinear", ["w", "eighth", "int8"], ["weights"]),
        helper.make_node("Conv", ["read", "weights"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "half", *given], ["codes"]),
        helper.make_node("Clip", ["codes", "least", "greatest"], ["cut"]),
        helper.make_node("DequantizeLinear", ["cut", "half", *given], ["numbers"]),
        helper.make_node("Relu", ["numbers"], ["positive"]),
        helper.make_node("QuantizeLinear", ["positive", "half", *given], ["y"]),
    ]
    constants = {
        "w": np.reshape([7, -5], (1, 2, 1, 1)).astype(np.int8),
        "int8": np.int8(0),
        "quarter": np.float32(0.25),
        "eighth": np.float32(0.125),
        "half": np.float32(0.5),
        "zero": np.uint8(zero_point or 0),
        "least": np.uint8(limits[0]),
        "greatest": np.uint8(limits[1]),
    }
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.INT8, ["batch", 2, 1, len(PAIRS)])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, ["batch", 1, 1, len(PAIRS)])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


@needs_reference
@pytest.mark.parametrize(("zero_point", "limits"), [(None, (2, 5)), (0, (2, 5)), (3, (4, 7)), (9, (1, 30))])
def test_clipped_codes_are_those_of_clipped_numbers(zero_point: int | None, limits: tuple[int, int]) -> None:
    graph = assert_exact(clipped(zero_point, limits), {"x": PAIRS.T.reshape(1, 2, 1, -1)}, covered=False)
    assert not any(isinstance(layer, Pointwise) for layer in graph.layers)
