"""Files and models that the frontend refuses, with the whole message: place, reason and remedy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.networks.small_models import convolved, maker, refusal
from cocotb_tests.support.oracles.exactness import needs_reference
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


# Refusals of what ONNX Runtime makes of a file: they name the node and the tensor that the file has.

BEGIN = "xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z) wd = DequantizeLinear(w, s, z) "
END = "q = QuantizeLinear(c, t, z) y = DequantizeLinear(q, t, z)"
SCALES = {"s": np.float32(0.0213), "t": np.float32(0.0571), "z": np.int8(0)}


def network(text: str, **constants: np.ndarray) -> bytes:
    """A QDQ network whose nodes are called by operator and place."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 13]> g (float[n, 4, 5, 6] x) => (float[n, 4, 5, 6] y) {{ {text} }}'
    )
    for place, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{place}"
    rng = np.random.default_rng(0)
    held = SCALES | {"w": rng.integers(-127, 128, (4, 4, 1, 1), np.int8)} | constants
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in held.items())
    return model.SerializeToString()


@needs_reference
def test_a_shared_bias_is_called_as_in_the_file() -> None:
    """ONNX Runtime gives every reader a DequantizeLinear of its own, and that a name."""
    text = (
        f"{BEGIN} bd = DequantizeLinear(bias, of_first, none) a = Conv(xd, wd, bd) aq = QuantizeLinear(a, t, z) "
        f"ad = DequantizeLinear(aq, t, z) c = Conv(ad, wd, bd) {END}"
    )
    bias = np.arange(700, 1100, 101, dtype=np.int32)
    of_first = SCALES["s"] * SCALES["s"]
    assert refusal(network(text, bias=bias, of_first=of_first, none=np.int32(0))) == (
        "net.onnx: ONNX Runtime computes Conv 'Conv_7' in float, because the bias 'bd' of channel 0 is no whole "
        "multiple of input scale times weight scale; use one of its own, as Conv 'Conv_4' reads it too: a bias "
        "quantised with that scale (Brevitas: bias_quant=Int32Bias)"
    )


@needs_reference
def test_what_reads_past_a_quantised_tensor_is_named() -> None:
    """A residual sum in float beside a branch that is quantised, as where only inputs of products are."""
    text = (
        f"{BEGIN} a = Conv(xd, wd) r = Relu(a) rq = QuantizeLinear(r, t, z) rd = DequantizeLinear(rq, t, z) "
        "b = Conv(rd, wd) bq = QuantizeLinear(b, t, z) bd = DequantizeLinear(bq, t, z) d = Conv(bd, wd) "
        f"c = Add(d, r) {END}"
    )
    assert refusal(network(text)) == (
        "net.onnx: Add 'Add_11' reads the float tensor 'r' past a quantised one; quantise every branch"
    )
