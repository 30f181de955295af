"""Operators that change nothing, as exporters leave them, are no layers and no reason to refuse a network."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import layer_names, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import import_model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

CHANNELS = np.array([0]), np.array([4]), np.array([1])
ROWS = np.array([0]), np.array([1 << 60]), np.array([2])
BACKWARDS = np.array([-1]), np.array([-1 << 60]), np.array([1]), np.array([-1])


def between(operator: str, *operands: np.ndarray, form: str, **given) -> bytes:
    """Two convolutions on four channels, and an operator between them."""
    rng, constants, nodes = np.random.default_rng(1), [], []

    def constant(value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(constants)}"))
        return constants[-1].name

    def node(name: str, inputs: list[str], output: str, **attributes) -> str:
        nodes.append(helper.make_node(name, inputs, [output], output, **attributes))
        return output

    scale, zero_point, none = constant(np.float32(0.05)), constant(np.int8(3)), constant(np.int8(0))
    codes = [scale, zero_point]

    def convolution(source: str, output: str) -> str:
        weights = [constant(rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)), constant(np.float32(0.01)), none]
        if form == "qop":
            return node("QLinearConv", [source, *codes, *weights, *codes], output, pads=[1] * 4)
        values = [node("DequantizeLinear", [source, *codes], f"{output}_x")]
        values.append(node("DequantizeLinear", weights, f"{output}_w"))
        return node("QuantizeLinear", [node("Conv", values, f"{output}_y", pads=[1] * 4), *codes], output)

    middle = node(operator, [convolution("x", "a"), *map(constant, operands)], "b", **given)
    convolution(middle, "y")
    ends = [helper.make_tensor_value_info(name, TensorProto.INT8, ["n", 4, 6, 5]) for name in "xy"]
    graph = helper.make_graph(nodes, operator, ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("form", ["qop", "qdq"])
@pytest.mark.parametrize(
    ("operator", "operands", "given"),
    [
        ("Slice", CHANNELS, {}),
        ("Slice", ROWS, {}),
        ("Slice", (*CHANNELS, np.array([1])), {}),
        ("Split", (), {"axis": 1}),
        ("Concat", (), {"axis": 1}),
        ("Identity", (), {}),
    ],
)
def test_is_no_layer(operator: str, operands: tuple[np.ndarray, ...], given: dict[str, int], form: str):
    data = between(operator, *operands, form=form, **given)
    assert layer_names(import_model(data)) == ["Convolution", "Convolution"]
    assert verify(data, PRESETS["tiny"], samples=1).is_right


def test_a_slice_backwards_is_no_identity():
    assert layer_names(import_model(between("Slice", *BACKWARDS, form="qop"))) == [
        "Convolution",
        "Arrange",
        "Convolution",
    ]
