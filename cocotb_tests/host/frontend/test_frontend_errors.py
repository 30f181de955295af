"""Files and models that the frontend refuses, with the whole message: place, reason and remedy."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from cocotb_tests.support.networks.small_models import convolved, maker, refusal
from lutterfly.host.frontend import import_model

QUANTISE = "quantise the float model with `lutterfly quantize MODEL --calibrate inputs.npz`"


def float_model(shape: list[str | int], operator: str = "Relu") -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], "node")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_an_empty_file():
    assert refusal(b"") == "net.onnx: must be an ONNX file, not an empty one"


@pytest.mark.parametrize("data", [b"not a model", b"\x89PNG\r\n\x1a\n" + bytes(100), b'{"json": true}'])
def test_another_kind_of_file(data: bytes):
    assert refusal(data).startswith("net.onnx: must be an ONNX file")
    assert refusal(data).endswith("; export the network to ONNX")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_truncated_file(part: float):
    data = convolved("qop").serialise()
    length = int(part * len(data))
    message = f"net.onnx: the ONNX file is truncated or damaged after {length} bytes; export or copy it again"
    assert refusal(data[:length]) == message


def test_an_invalid_model():
    model = float_model(["batch", 3])
    model.graph.node[0].input[0] = "nowhere"
    text = refusal(model.SerializeToString())
    assert text.startswith("net.onnx: is not a valid ONNX model: ")
    assert text.endswith("; export it again")


def test_a_float_model():
    assert refusal(float_model(["batch", 3]).SerializeToString()) == f"net.onnx: is a float model; {QUANTISE}"


def test_dynamic_quantisation():
    model = float_model(["batch", 3])
    model.graph.node.add(op_type="DynamicQuantizeLinear", name="dynamic", input=["x"], output=["q", "s", "z"])
    assert refusal(model.SerializeToString()) == (
        "net.onnx: DynamicQuantizeLinear 'dynamic' quantises at run time, and the accelerator needs fixed scales; "
        + QUANTISE
    )


def with_input_shape(shape: list[str | int]) -> bytes:
    made = maker((1, 3, 6, 6), "qop")
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    model = onnx.load_from_string(made.serialise())
    value = helper.make_tensor_value_info("x", TensorProto.INT8, shape)
    model.graph.input[0].CopyFrom(value)
    return model.SerializeToString()


def test_dynamic_shapes():
    assert refusal(with_input_shape(["batch", 3, "height", 6])) == (
        "net.onnx: dimension 2 of input 'x' must be fixed, not height; only the batch may be dynamic: set it with "
        "onnxruntime.tools.make_dynamic_shape_fixed"
    )


def test_a_fixed_batch():
    assert refusal(with_input_shape([8, 3, 6, 6])) == (
        "net.onnx: the batch of input 'x' must be dynamic or 1, not 8; export the model with a dynamic batch, or, if "
        "this axis is no batch but time or layers, for instance, with fixed sizes of all axes of all inputs"
    )


def test_a_batch_of_minus_one_is_dynamic():
    """As Paddle writes it."""
    assert import_model(with_input_shape([-1, 3, 6, 6])).layers


def test_what_onnx_runtime_cannot_run():
    assert refusal(with_input_shape(["batch", 5, 6, 6])).startswith("net.onnx: ONNX Runtime cannot run the model: ")


def test_a_model_without_a_layer_for_the_accelerator():
    made = maker((1, 20))
    made.quantise(made.node("Softmax", [made.dequantised()]), *made.quantisation(1 / 256, -128), (1, 20))
    softmax = f"Softmax '{made.nodes[-2].name}'"
    assert refusal(made.serialise()) == (
        f"net.onnx: no layer can run on the accelerator ({softmax}: the accelerator has no Softmax); it needs a "
        "quantised convolution, matrix product or pointwise operator"
    )


def test_a_model_that_only_arranges_codes():
    made = maker((1, 3, 4, 4))
    made.flatten()
    assert refusal(made.serialise()) == (
        "net.onnx: no layer can run on the accelerator, as nothing but the layout of codes changes; it needs a "
        "quantised convolution, matrix product or pointwise operator"
    )
