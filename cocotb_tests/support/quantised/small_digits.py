"""A network for digits of a few hundred weights, for hardware that simulates slowly: fitted, not trained."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from lutterfly.examples import digits
from lutterfly.host.quantize import quantize

_CHANNELS, _KERNEL, _FEATURES, _CLASSES = 4, 3, 36, 10
#: How many of the images it is fitted to, the first ones.
FITTED = 240


def small_digits() -> bytes:
    """The quantised model, with input and output as the example's: random filters, a max pooling, and the fully
    connected layer that a least-squares fit gives."""
    rng = np.random.default_rng(33)
    filters = rng.normal(0, 0.5, (_CHANNELS, 1, _KERNEL, _KERNEL)).astype(np.float32)
    images, labels = digits.images()[:FITTED], digits.labels()[:FITTED]
    features = _run(_model(filters, np.eye(_FEATURES, dtype=np.float32), np.zeros(_FEATURES, np.float32)), images)
    wanted = np.eye(_CLASSES)[labels]
    extended = np.hstack([features, np.ones((FITTED, 1))])
    # A little of the identity keeps the weights small.
    fitted = np.linalg.solve(extended.T @ extended + 0.1 * np.eye(_FEATURES + 1), extended.T @ wanted)
    model = _model(filters, fitted[:-1].astype(np.float32), fitted[-1].astype(np.float32))
    return quantize(model.SerializeToString(), {"pixels": images})


def _model(filters: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> onnx.ModelProto:
    constants = {"filters": filters, "weights": weights, "bias": bias}
    nodes = [
        helper.make_node("Conv", ["pixels", "filters"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["rectified"]),
        helper.make_node("MaxPool", ["rectified"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("Gemm", ["features", "weights", "bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small_digits",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["images", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["images", weights.shape[1]])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _run(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"pixels": images})[0]
