"""The demo's files: the images are scikit-learn's, and ONNX Runtime classifies them in every form."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from lutterfly.examples import digits


@pytest.mark.regress
def test_the_images_are_360_different_ones_of_scikit_learn():
    # Imported here, as that takes seconds.
    theirs = importlib.import_module("sklearn.datasets").load_digits()
    at = {image.astype(np.float32).tobytes(): label for image, label in zip(theirs.images, theirs.target, strict=True)}
    pixels = digits.images()
    assert (pixels.dtype, pixels.shape) == (np.float32, (360, 1, 8, 8))
    assert (digits.labels().dtype, digits.labels().shape) == (np.int64, (360,))
    shown = [image.tobytes() for image in pixels * digits.FULL_SCALE]
    assert len(set(shown)) == 360
    assert [at.get(image) for image in shown] == digits.labels().tolist()


@pytest.mark.parametrize("form", digits.FORMS)
def test_onnx_runtime_classifies_at_least_97_percent(form: str):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(digits.model_path(form), options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"pixels": digits.images()})
    assert (logits.argmax(axis=1) == digits.labels()).mean() >= 0.97


@pytest.mark.parametrize("form", digits.FORMS)
def test_the_models_have_what_the_demo_is_to_show(form: str):
    model = onnx.load(digits.model_path(form))
    onnx.checker.check_model(model, full_check=True)
    operators = {node.op_type for node in model.graph.node}
    assert {"HardSwish", "Tanh", "MaxPool", "QuantizeLinear", "DequantizeLinear"} <= operators
    assert ({"Conv", "Gemm"} if form == "qdq" else {"QLinearConv", "QGemm"}) <= operators
    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    weights = {name: value for name, value in constants.items() if name.endswith("weight_quantized")}
    assert len(weights) == 5
    for name, value in weights.items():
        assert value.dtype == np.int8
        assert constants[name.replace("_quantized", "_scale")].shape == value.shape[:1]
        assert not constants[name.replace("_quantized", "_zero_point")].any()
    activations = np.uint8 if form == "uint8" else np.int8
    assert constants["pixels_zero_point"].dtype == activations
    assert digits.model_path(form).stat().st_size < 32 << 10


def test_another_form_is_refused():
    with pytest.raises(ValueError, match=r"^form must be one of qdq, qop, uint8, not float$"):
        digits.model_path("float")
