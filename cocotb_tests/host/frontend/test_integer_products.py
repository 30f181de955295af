"""ConvInteger and MatMulInteger: the int32 sums of ONNX Runtime, put together from results of 8 bits."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.integer_products import MOST_RESULTS
from lutterfly.host.session.verify import verify

CONFIG = PRESETS["tiny"]


def network(
    operator: str,
    shape: tuple[int, ...],
    weights: np.ndarray,
    *,
    codes: type = np.uint8,
    zero_point=None,
    weight_zero_point=None,
    opset: int = 13,
    computed: bool = False,
    **attributes,
) -> bytes:
    """One integer product, after nothing."""
    constants = {"w": weights, "zx": zero_point, "zw": weight_zero_point}
    names = ["x", *(name for name, value in constants.items() if value is not None)]
    if zero_point is None and weight_zero_point is not None:
        names.insert(2, "")
    nodes = [helper.make_node(operator, names, ["y"], name="product", **attributes)]
    if computed:
        nodes.insert(0, helper.make_node("ReduceMax", ["x"], ["zx"], keepdims=0))
        del constants["zx"]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(codes)), ["batch", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["batch", *(f"d{axis}" for axis in range(len(shape)))])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if value is not None],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def small(rng: np.random.Generator, *shape: int, dtype: type = np.int8) -> np.ndarray:
    """Weights whose sums take few values."""
    return rng.integers(0 if dtype == np.uint8 else -2, 3, shape).astype(dtype)


def cases() -> dict[str, tuple[bytes, type]]:
    rng = np.random.default_rng(3)
    signed = {"codes": np.int8}
    return {
        name: (network(operator, shape, weights, **options), options.get("codes", np.uint8))
        for name, operator, shape, weights, options in (
            ("plain", "ConvInteger", (2, 5, 6), small(rng, 3, 2, 3, 3), {}),
            (
                "padded",
                "ConvInteger",
                (2, 5, 6),
                small(rng, 3, 2, 3, 3),
                {"zero_point": np.uint8(7), "pads": [1, 2, 0, 1], "strides": [2, 1]},
            ),
            (
                "unsigned weights",
                "ConvInteger",
                (2, 5, 5),
                small(rng, 3, 2, 2, 2, dtype=np.uint8),
                {"zero_point": np.uint8(250), "weight_zero_point": np.uint8(1)},
            ),
            ("groups", "ConvInteger", (6, 4, 4), small(rng, 6, 3, 2, 2), {"group": 2, "zero_point": np.uint8(1)}),
            ("depthwise", "ConvInteger", (5, 6, 6), small(rng, 5, 1, 3, 3), {"group": 5, "auto_pad": "SAME_UPPER"}),
            ("one dimension", "ConvInteger", (3, 9), small(rng, 4, 3, 3), {"dilations": [2], "pads": [1, 1]}),
            ("old operator set", "ConvInteger", (1, 4, 4), small(rng, 2, 1, 2, 2), {"opset": 10}),
            ("matrix", "MatMulInteger", (9,), small(rng, 9, 4), {"zero_point": np.uint8(12)}),
            ("rows", "MatMulInteger", (3, 8), small(rng, 8, 5), {"zero_point": np.uint8(99)}),
            ("signed", "MatMulInteger", (9,), small(rng, 9, 4), {**signed, "zero_point": np.int8(-12)}),
            (
                "column zero points",
                "MatMulInteger",
                (9,),
                small(rng, 9, 4, dtype=np.uint8),
                {"weight_zero_point": np.array([0, 1, 2, 1], np.uint8)},
            ),
            ("large weights", "MatMulInteger", (1,), np.array([[127, -128]], np.int8), signed),
            ("zeros", "MatMulInteger", (2,), np.zeros((2, 3), np.int8), {}),
        )
    }


CASES = cases()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_onnx_runtime(name: str) -> None:
    model, codes = CASES[name]
    session = InferenceSession(model, CONFIG, GoldenTransport(CONFIG))
    limits, shape = np.iinfo(codes), session.get_inputs()[0].sample_shape
    random = np.random.default_rng(4).integers(limits.min, limits.max, (3, *shape), codes, endpoint=True)
    # The bounds of the sums are reached, or nearly, with all codes at an end.
    inputs = np.concatenate([random, np.full((1, *shape), limits.min, codes), np.full((1, *shape), limits.max, codes)])
    (found,) = session.run(None, {"x": inputs})
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": inputs})
    assert (found.dtype, found.shape) == (np.int32, expected.shape)
    np.testing.assert_array_equal(found, expected)


def test_an_integer_product_may_stand_after_other_layers_and_before_float_operators() -> None:
    shape, tensor = ["batch", 2, 6, 6], helper.make_tensor_value_info
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"]),
        helper.make_node("MaxPool", ["codes"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ConvInteger", ["pooled", "w", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "scale"], ["y"]),
    ]
    constants = {"scale": np.float32(0.013), "zero": np.uint8(101), "w": small(np.random.default_rng(1), 3, 2, 2, 2)}
    graph = helper.make_graph(
        nodes,
        "net",
        [tensor("x", TensorProto.FLOAT, shape)],
        [tensor("y", TensorProto.FLOAT, ["batch", 3, 2, 2])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = InferenceSession(model, CONFIG, GoldenTransport(CONFIG))
    assert len(session.program.layers) == 2
    inputs = {"x": np.random.default_rng(2).uniform(-2, 2, (3, 2, 6, 6)).astype(np.float32)}
    (expected,) = onnxruntime.InferenceSession(model).run(None, inputs)
    np.testing.assert_array_equal(session.run(None, inputs)[0], expected)


@pytest.mark.parametrize("name", ["padded", "rows"])
def test_the_core_has_them_too(name: str) -> None:
    report = verify(CASES[name][0], CONFIG, samples=2)
    assert report.is_right
    output = next(tensor for tensor in report.tensors if tensor.name == "y (output)")
    assert (output.rtl, output.bytes > 0) == (0, True)


def test_a_sum_is_put_together_from_as_few_results_as_its_range_needs() -> None:
    for value, results in ((0, 1), (1, 1), (2, 2), (-MOST_RESULTS, MOST_RESULTS)):
        # Of one uint8 code: 255 * abs(value) + 1 values.
        graph = import_model(network("MatMulInteger", (1,), np.array([[value]], np.int8)))
        assert len(graph.layers[0].weights) == results


REFUSALS = {
    "many values": (
        {"weights": np.array([[65], [64]], np.int8)},
        (
            "the int32 sums of MatMulInteger 'product' take 32896 values; the accelerator's results have 8 bits, and "
            "at most 128 of them make a sum; requantise the sums (QLinearConv, QLinearMatMul)"
        ),
    ),
    "large weights": (
        {"weights": np.array([[200]], np.uint8)},
        (
            "the weights 'w' of MatMulInteger 'product' must lie between -128 and 127 less their zero point, not reach "
            "200; use int8 weights with the zero point 0"
        ),
    ),
    "small weights": (
        {"weights": np.array([[50, 100]], np.uint8), "weight_zero_point": np.uint8(200)},
        (
            "the weights 'w' of MatMulInteger 'product' must lie between -128 and 127 less their zero point, not reach "
            "-150; use int8 weights with the zero point 0"
        ),
    ),
    "stack": (
        {"weights": np.ones((2, 1, 1), np.int8)},
        (
            "the weights 'w' of MatMulInteger 'product' must be one matrix, not of the shape [2, 1, 1]; use a product "
            "for each"
        ),
    ),
    "computed zero point": (
        {"weights": np.ones((1, 1), np.int8), "zero_point": np.uint8(1), "computed": True},
        (
            "MatMulInteger 'product' quantises at run time, and the accelerator needs constant weights and zero "
            "points; quantise the float model with `lutterfly quantize MODEL --calibrate inputs.npz`"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_by_name(name: str) -> None:
    options, message = REFUSALS[name]
    shape = {"stack": (1, 1), "many values": (2,)}.get(name, (1,))
    with pytest.raises(ModelError) as caught:
        import_model(network("MatMulInteger", shape, **options), "net.onnx")
    assert str(caught.value) == f"net.onnx: {message}"
