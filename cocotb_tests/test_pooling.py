"""Maximum pooling against ONNX Runtime's MaxPool."""
from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from lutterfly.golden.pooling import pool_maximum


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_is_max_pool(seed: int, unsigned: bool) -> None:
    rng = np.random.default_rng(seed)
    kernel, dilation = rng.integers(1, 5, 2), rng.integers(1, 3, 2)
    # ONNX wants borders smaller than the kernel, as else a window could lie outside the map.
    pads = [int(rng.integers(0, extent)) for extent in (*kernel, *kernel)]
    options = {"kernel": tuple(kernel.tolist()), "stride": tuple(rng.integers(1, 4, 2).tolist()),
               "dilation": tuple(dilation.tolist()), "pads": tuple(pads)}
    size = (kernel - 1) * dilation + 1 + rng.integers(0, 6, 2)
    codes = rng.integers(-128, 128, (*size, rng.integers(1, 9)), dtype=np.int8)

    kind = TensorProto.UINT8 if unsigned else TensorProto.INT8
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=options["kernel"], strides=options["stride"],
                            dilations=options["dilation"], pads=options["pads"])
    x, y = (helper.make_tensor_value_info(name, kind, None) for name in "xy")
    graph = helper.make_graph([node], "pool", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    nchw = np.moveaxis(codes, -1, 0)[None]
    nchw = (nchw.astype(np.int16) + 128).astype(np.uint8) if unsigned else np.ascontiguousarray(nchw)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": nchw})[0][0].astype(np.int16)

    result = pool_maximum(codes, **options)
    np.testing.assert_array_equal(np.moveaxis(result, -1, 0), expected - 128 * unsigned)


def test_refuses_other_types() -> None:
    with pytest.raises(TypeError, match=r"^codes must be int8, not uint8$"):
        pool_maximum(np.zeros((2, 2, 1), np.uint8), kernel=(1, 1))
