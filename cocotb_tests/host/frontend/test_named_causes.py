"""Refusals of what ONNX Runtime makes of a file: they name the node and the tensor that the file has."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from cocotb_tests.support.networks.small_models import refusal
from cocotb_tests.support.oracles.exactness import needs_reference

pytestmark = needs_reference

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
