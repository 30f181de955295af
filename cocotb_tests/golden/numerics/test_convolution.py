"""Convolution and pooling: ONNX's ConvInteger, and, requantised, ONNX Runtime's QLinearConv, MaxPool and averages."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis.strategies import integers
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.golden.numerics.convolution import Kernels, average_multiplier, convolve, matrix_product, pool_maximum
from lutterfly.golden.numerics.planes import patches
from lutterfly.golden.numerics.requant import pack_parameters, requantise
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model

GROUPINGS = ("dense", "grouped", "depthwise")


def random_layer(rng: np.random.Generator, grouping: str) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Arguments of :func:`convolve`: arrays, and the rest."""
    kernel = rng.integers(1, 6, 2)
    options = {
        "stride": tuple(rng.integers(1, 4, 2).tolist()),
        "dilation": tuple(rng.integers(1, 3, 2).tolist()),
        "pads": tuple(rng.integers(0, 4, 4).tolist()),
        "zero_point": int(rng.choice([-128, 127, 0, rng.integers(-128, 128)])),
    }
    extent = (kernel - 1) * options["dilation"] + 1
    channels, outputs = (int(number) for number in rng.integers(1, 25, 2))
    groups = {"dense": 1, "grouped": int(rng.integers(2, 5)), "depthwise": channels}[grouping]
    # Depthwise layers may have several outputs for each channel.
    outputs = {"dense": outputs, "grouped": groups * (outputs // 4 + 1), "depthwise": channels * (outputs % 3 + 1)}
    channels = channels if grouping != "grouped" else groups * (channels // 4 + 1)
    outputs = outputs[grouping]
    size = extent + rng.integers(0, 8, 2)
    arrays = {
        "codes": rng.integers(-128, 128, (*size, channels), dtype=np.int8),
        "weights": rng.integers(-128, 128, (outputs, *kernel, channels // groups), dtype=np.int8),
        "bias": rng.integers(-(2**31), 2**31, outputs).astype(np.int32) >> np.int32(rng.integers(0, 20)),
    }
    return arrays, options | {"groups": groups}


def onnx_attributes(options: dict[str, object]) -> dict[str, object]:
    return {
        "strides": options["stride"],
        "dilations": options["dilation"],
        "pads": options["pads"],
        "group": options["groups"],
    }


def onnx_model(op: str, inputs: str, constants: dict[str, np.ndarray], attributes: dict, types: tuple[int, int]):
    values = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip("xy", types, strict=True)]
    node = helper.make_node(op, inputs.split(), ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        op,
        values[:1],
        values[1:],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def nchw(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, -1, -3))


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("seed", range(12))
def test_accumulators_are_conv_integer(seed: int, grouping: str) -> None:
    arrays, options = random_layer(np.random.default_rng(seed), grouping)
    constants = {"w": nchw(arrays["weights"]), "zx": np.int8(options["zero_point"]), "zw": np.int8(0)}
    model = onnx_model(
        "ConvInteger", "x w zx zw", constants, onnx_attributes(options), (TensorProto.INT8, TensorProto.INT32)
    )
    expected = ReferenceEvaluator(model).run(None, {"x": nchw(arrays["codes"])[None]})[0][0]
    # The sum wraps around, as int32 does.
    with np.errstate(over="ignore"):
        expected = np.moveaxis(expected.astype(np.int32), 0, -1) + arrays["bias"]
    np.testing.assert_array_equal(convolve(**arrays, **options), expected)


@pytest.mark.parametrize(
    ("channels", "zero_point"), [(1032, -128), (1033, 127), (1101, 0), (3001, 127), (40_001, -128)]
)
@pytest.mark.parametrize("groups", [1, 2])
def test_the_greatest_sums_are_exact(channels: int, zero_point: int, groups: int) -> None:
    """Where float32 adds the last sums without rounding, and beyond."""
    codes = np.full((1, 1, channels * groups), -127, np.int8)
    weights = np.full((2 * groups, 1, 1, channels), -127, np.int8)
    weights[1:, ..., 0] += 2
    bias = np.arange(2 * groups, dtype=np.int32)
    found = convolve(codes, weights, bias, zero_point=zero_point, groups=groups)
    for output in range(2 * groups):
        part = codes[0, 0, output // 2 * channels :][:channels].astype(np.int64) - zero_point
        assert found[0, 0, output] == int((part * weights[output, 0, 0].astype(np.int64)).sum()) + output


#: What 1000 products with the least code add up to.
PRODUCTS = 128 * 127 * 1000


@pytest.mark.parametrize(
    ("greatest", "kind"),
    [
        (2**24 - 1, np.float32),
        (2**24, np.float32),
        (2**24 + 1, np.float64),
        (2**31 - 1, np.float64),
        # Sums wrap.
        (2**31, np.int32),
        (2**31 + 1, np.int32),
    ],
)
def test_a_type_is_taken_as_far_as_it_is_exact(greatest: int, kind: type) -> None:
    weights, codes = np.full((1, 1, 1, 1000), -127, np.int8), np.full((1, 1, 1000), -128, np.int8)
    kernels = Kernels(weights, np.array([greatest - PRODUCTS], np.int32))
    total = kernels.totals(codes, border=0, stride=(1, 1), dilation=(1, 1), pads=(0, 0, 0, 0))
    assert total.dtype == kind
    assert int(total[0, 0, 0]) == (greatest + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("outputs", [2, 3, 8])
@pytest.mark.parametrize("terms", [63, 64, 65, 511, 512, 2047, 2048, 2049])
def test_two_sums_in_one_are_exact(terms: int, outputs: int) -> None:
    """Of +1 and -1: the greatest sums of both, of either sign, and any; also where one number has no room for both."""
    rng = np.random.default_rng(terms)
    weights = rng.choice(np.array([-1, 1], np.int8), (outputs, 1, 1, terms))
    weights[:2] = [[[[1]]], [[[1 - 2 * (outputs % 2)]]]]
    codes = rng.choice(np.array([-1, 0, 1], np.int8), (2, 3, 5, terms))
    codes[0, 0, :3] = np.array([1, -1, 0])[:, np.newaxis]
    bias = rng.integers(-(1 << 30), 1 << 30, outputs).astype(np.int32)
    bias[:2] = 0
    kernels = Kernels(weights, bias, most_code=1)
    found = kernels.totals(codes, border=0, stride=(1, 1), dilation=(1, 1), pads=(0, 0, 0, 0))
    np.testing.assert_array_equal(found, codes.astype(np.int64) @ weights.reshape(outputs, terms).T + bias)


def test_greater_codes_than_announced_are_refused() -> None:
    kernels = Kernels(np.ones((2, 1, 1, 64), np.int8), np.zeros(2, np.int32), most_code=1)
    codes = np.ones((1, 1, 64), np.int8)
    codes[0, 0, 5] = -128
    with pytest.raises(ValueError, match=r"^codes must be between -1 and 1, not from -128 to 1$"):
        kernels.totals(codes, border=0, stride=(1, 1), dilation=(1, 1), pads=(0, 0, 0, 0))


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("count", [1, 2, 9])
def test_several_maps_are_convolved_as_each(count: int, grouping: str) -> None:
    """Also maps of which a processor's cache holds but a part."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        arrays, options = random_layer(rng, grouping)
        height, width, channels = arrays["codes"].shape
        size = (height + 40, width + 90) if seed % 3 == 0 else (height, width)
        arrays["codes"] = rng.integers(-128, 128, (count, *size, channels), dtype=np.int8)
        found = convolve(**arrays, **options)
        for sample, codes in enumerate(arrays["codes"]):
            np.testing.assert_array_equal(found[sample], _plain(codes, arrays, options))


def _plain(codes: np.ndarray, arrays: dict[str, np.ndarray], options: dict) -> np.ndarray:
    """By a sum over patches in integers."""
    weights, groups = arrays["weights"].astype(np.int64), options["groups"]
    window = {name: options[name] for name in ("stride", "dilation", "pads")}
    seen = patches(codes, kernel=weights.shape[1:3], border=options["zero_point"], **window)
    seen = (seen.astype(np.int64) - options["zero_point"]).reshape(*seen.shape[:4], groups, -1)
    of_groups = weights.reshape(groups, -1, *weights.shape[1:])
    found = np.einsum("hwrcgi,gorci->hwgo", seen, of_groups, optimize=True)
    return (found.reshape(*found.shape[:2], -1) + arrays["bias"]).astype(np.int32)


@needs_reference
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("seed", range(12))
def test_bytes_are_qlinear_conv(seed: int, grouping: str, unsigned: bool) -> None:
    rng = np.random.default_rng(1000 + seed)
    arrays, options = random_layer(rng, grouping)
    outputs, offset, dtype = len(arrays["bias"]), 128 * unsigned, np.uint8 if unsigned else np.int8
    zy = int(rng.integers(-128, 128))
    scale_x, scale_y = np.float32(rng.uniform(0.001, 0.1)), np.float32(rng.uniform(0.5, 5))
    scale_w = rng.uniform(0.001, 0.1, outputs if seed % 2 else 1).astype(np.float32)
    constants = {
        "sx": scale_x,
        "zx": dtype(options["zero_point"] + offset),
        "w": nchw(arrays["weights"]),
        "sw": scale_w,
        "zw": np.zeros(scale_w.shape, np.int8),
        "sy": scale_y,
        "zy": dtype(zy + offset),
        "b": arrays["bias"],
    }
    kind = TensorProto.UINT8 if unsigned else TensorProto.INT8
    model = onnx_model("QLinearConv", "x sx zx w sw zw sy zy b", constants, onnx_attributes(options), (kind, kind))
    x = (nchw(arrays["codes"])[None].astype(np.int16) + offset).astype(dtype)
    expected = open_session(Model.written(model)).run(None, {"x": x})[0][0].astype(np.int16)

    multiplier = np.broadcast_to(scale_x * scale_w / scale_y, outputs).astype(np.float32)
    bias = arrays.pop("bias")
    acc = convolve(**arrays, bias=np.zeros_like(bias), **options)
    result = requantise(acc, pack_parameters(bias, multiplier), zy)
    np.testing.assert_array_equal(np.moveaxis(result, -1, 0), expected - offset)


def test_patches_are_the_windows() -> None:
    codes = np.arange(12, dtype=np.int8).reshape(3, 4, 1)
    found = patches(codes, kernel=(2, 2), stride=(2, 1), dilation=(1, 2), pads=(1, 0, 0, 1), border=-7)
    assert found[..., 0].tolist() == [
        [[[-7, -7], [0, 2]], [[-7, -7], [1, 3]], [[-7, -7], [2, -7]]],
        [[[4, 6], [8, 10]], [[5, 7], [9, 11]], [[6, -7], [10, -7]]],
    ]


CODES, WEIGHTS, BIAS = np.zeros((2, 2, 3), np.int8), np.zeros((1, 1, 1, 3), np.int8), np.zeros(1, np.int32)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"codes": CODES.astype(np.uint8)}, TypeError, r"^codes must be int8, not uint8$"),
        ({"weights": WEIGHTS.astype(np.int16)}, TypeError, r"^weights must be int8, not int16$"),
        ({"bias": BIAS.astype(np.int64)}, TypeError, r"^bias must be int32, not int64$"),
        ({"bias": np.zeros(2, np.int32)}, ValueError, r"^bias must have the shape \(1,\), not \(2,\)$"),
        ({"codes": CODES[..., :2]}, ValueError, r"^codes must have the 3 channels of weights, not 2$"),
        (
            {"weights": np.zeros((1, 3, 1, 3), np.int8)},
            ValueError,
            r"^kernel must be at most the map with its borders \(2, 2\), not \(3, 1\) with its dilation$",
        ),
        ({"groups": 2}, ValueError, r"^groups must divide the 1 output channels, not 2$"),
        ({"zero_point": 128}, ValueError, r"^border must be between -128 and 127, not 128$"),
        ({"stride": (0, 1)}, ValueError, r"^stride must be at least 1, not \(0, 1\)$"),
        ({"pads": (0, 0, -1, 0)}, ValueError, r"^pads must be at least 0, not \(0, 0, -1, 0\)$"),
    ],
)
def test_refusals(changed: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        convolve(**{"codes": CODES, "weights": WEIGHTS, "bias": BIAS, "zero_point": 0} | changed)


@given(integers(1, 9), integers(1, 9), integers(1, 9), integers(0, 2**32 - 1))
def test_products_are_those_of_integers(rows: int, terms: int, columns: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    left, right = random.integers(-128, 128, (rows, terms)), random.integers(-128, 128, (terms, columns))
    for kind in (np.float32, np.float64):
        product = matrix_product(left.astype(kind), right.astype(kind))
        assert product.dtype == kind
        np.testing.assert_array_equal(product, left @ right)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_sum_that_is_no_number_is_refused(value: float) -> None:
    # Infinity times zero raises the flag that is ignored: what refuses it is the look at the sums.
    with pytest.raises(FloatingPointError, match="not finite"):
        matrix_product(np.array([[value, 1.0]]), np.array([[0.0], [1.0]]))


# Pooling against ONNX Runtime's MaxPool and QLinearGlobalAveragePool.


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_is_max_pool(seed: int, unsigned: bool) -> None:
    rng = np.random.default_rng(seed)
    kernel, dilation = rng.integers(1, 5, 2), rng.integers(1, 3, 2)
    # ONNX wants borders smaller than the kernel, as else a window could lie outside the map.
    pads = [int(rng.integers(0, extent)) for extent in (*kernel, *kernel)]
    options = {
        "kernel": tuple(kernel.tolist()),
        "stride": tuple(rng.integers(1, 4, 2).tolist()),
        "dilation": tuple(dilation.tolist()),
        "pads": tuple(pads),
    }
    size = (kernel - 1) * dilation + 1 + rng.integers(0, 6, 2)
    codes = rng.integers(-128, 128, (*size, rng.integers(1, 9)), dtype=np.int8)

    kind = TensorProto.UINT8 if unsigned else TensorProto.INT8
    node = helper.make_node(
        "MaxPool",
        ["x"],
        ["y"],
        kernel_shape=options["kernel"],
        strides=options["stride"],
        dilations=options["dilation"],
        pads=options["pads"],
    )
    x, y = (helper.make_tensor_value_info(name, kind, None) for name in "xy")
    graph = helper.make_graph([node], "pool", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    nchw = np.moveaxis(codes, -1, 0)[None]
    nchw = (nchw.astype(np.int16) + 128).astype(np.uint8) if unsigned else np.ascontiguousarray(nchw)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": nchw})[0][0].astype(np.int16)

    result = pool_maximum(codes, **options)
    np.testing.assert_array_equal(np.moveaxis(result, -1, 0), expected - 128 * unsigned)


@needs_reference
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_unit_weights_are_global_average_pool(seed: int, unsigned: bool) -> None:
    rng = np.random.default_rng(seed)
    height, width, channels = (int(number) for number in rng.integers(1, 40, 3))
    # Scales with few decimals give many ties.
    input_scale, output_scale = rng.integers(1, 100, 2) / 1000 if seed % 2 else np.exp(rng.uniform(-6, -1, 2))
    input_zero, output_zero = (int(rng.choice([-128, 127, 0, rng.integers(-128, 128)])) for _ in range(2))
    # Averages of random codes are all alike; a range for each channel makes them differ.
    ends = np.sort(rng.integers(-128, 128, (2, channels)), axis=0)
    codes = rng.integers(ends[0], ends[1] + 1, (height, width, channels)).astype(np.int8)

    dtype, kind = (np.uint8, TensorProto.UINT8) if unsigned else (np.int8, TensorProto.INT8)
    shift = 128 if unsigned else 0
    constants = {
        "sx": np.float32(input_scale),
        "zx": np.array(input_zero + shift, dtype),
        "sy": np.float32(output_scale),
        "zy": np.array(output_zero + shift, dtype),
    }
    node = helper.make_node("QLinearGlobalAveragePool", ["x", "sx", "zx", "sy", "zy"], ["y"], domain="com.microsoft")
    x, y = (helper.make_tensor_value_info(name, kind, None) for name in "xy")
    graph = helper.make_graph(
        [node], "pool", [x], [y], [numpy_helper.from_array(value, name) for name, value in constants.items()]
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    nchw = (np.moveaxis(codes, -1, 0)[None].astype(np.int16) + shift).astype(dtype)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": nchw})[0][0].astype(np.int16)

    unit, bias = np.ones((channels, height, width, 1), np.int8), np.zeros(channels, np.int32)
    sums = convolve(codes, unit, bias, zero_point=input_zero, groups=channels)
    multiplier = np.full(channels, average_multiplier(input_scale, output_scale, height * width))
    result = requantise(sums, pack_parameters(bias, multiplier), output_zero)
    np.testing.assert_array_equal(np.moveaxis(result, -1, 0), expected - shift)


def test_refuses_other_types() -> None:
    with pytest.raises(TypeError, match=r"^codes must be int8, not uint8$"):
        pool_maximum(np.zeros((2, 2, 1), np.uint8), kernel=(1, 1))
