"""Pooling against ONNX Runtime's MaxPool and QLinearGlobalAveragePool."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.golden.numerics.convolution import average_multiplier, convolve, pool_maximum
from lutterfly.golden.numerics.requant import pack_parameters, requantise


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
