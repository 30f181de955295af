"""The ONNX function of a binary convolution, in plain ONNX Runtime: the bytes of the golden functions."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.networks.binary_networks import BinaryNetwork, random_layer
from lutterfly.golden.numerics.binary import signs
from lutterfly.host.graph import BinaryConvolution, CodeEpilogue, Tensor, Window
from lutterfly.host.model.functions.binary_function import add_function, make_call, make_function


def run(codes: np.ndarray, known: dict, *, opset: int = 17) -> np.ndarray:
    """The function's result in plain ONNX Runtime."""
    network = BinaryNetwork(codes.shape[1:], opset=opset)
    outputs, inputs, *kernel = known["weights"].shape
    model = network.model(network.binary("x", inputs, outputs, tuple(kernel), **known))
    onnx.checker.check_model(model, full_check=True)
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": codes})
    return found


def golden(codes: np.ndarray, known: dict) -> np.ndarray:
    """The same of the graph's layer, sample by sample."""
    weights = known["weights"].reshape(*known["weights"].shape, *[1] * (4 - known["weights"].ndim))
    window = Window(
        weights.shape[2:],
        known.get("strides", (1, 1)),
        known.get("dilations", (1, 1)),
        known.get("pads", (0, 0, 0, 0)),
    )
    is_signs = known.get("scale") is None
    layer = BinaryConvolution(
        "layer",
        ("x",),
        "y",
        weights=np.ascontiguousarray(weights.transpose(0, 2, 3, 1)),
        bias=known["bias"],
        multiplier=np.ones(len(weights), np.float32) if is_signs else known["scale"],
        window=window,
        epilogue=CodeEpilogue(known.get("low", -128), known.get("high", 127), inner="codes"),
        pad=known.get("pad_value", 1),
    )
    samples = []
    for sample in codes.astype(np.int64):
        values = sample.reshape(*sample.shape, *[1] * (3 - sample.ndim)).transpose(1, 2, 0)
        shape = (*window.output_size(*values.shape[:2]), len(weights))
        tensors = {
            "x": Tensor("x", values.shape, 1.0, 0, (), bits=1),
            "codes": Tensor("codes", shape, 1.0, known.get("zero_point", 0), ()),
            "y": Tensor("y", shape, 1.0, 0, (), bits=1 if is_signs else 8),
        }
        entering = signs(values - known.get("input_zero_point", 0))
        samples.append(layer.evaluate({"x": entering}, tensors)["y"].transpose(2, 0, 1))
    result = np.stack(samples)
    return result if codes.ndim == 4 else result[:, :, 0, 0]


def assert_runs(codes: np.ndarray, known: dict, *, opset: int = 17) -> None:
    found = run(codes, known, opset=opset)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, golden(codes, known))


def drawn(seed: int, *, most_channels: int = 40) -> tuple[np.ndarray, dict]:
    """Codes and a layer with any geometry, border and epilogue."""
    rng = np.random.default_rng(seed)
    inputs, outputs = (int(value) for value in rng.integers(1, most_channels + 1, 2))
    if rng.integers(4) == 0:
        codes = rng.integers(-128, 128, (3, inputs)).astype(np.int8)
        known = random_layer(rng, (outputs, inputs), codes=bool(rng.integers(2)))
    else:
        kernel, dilations = (rng.integers(1, most, 2) for most in (6, 4))
        pads = rng.integers(0, 4, 4)
        least = np.maximum((kernel - 1) * dilations + 1 - pads[:2] - pads[2:], 1)
        codes = rng.integers(-128, 128, (2, inputs, *(least + rng.integers(0, 6, 2)))).astype(np.int8)
        known = random_layer(rng, (outputs, inputs, *kernel), codes=bool(rng.integers(2)))
        known |= {"dilations": tuple(dilations.tolist()), "strides": tuple(rng.integers(1, 4, 2).tolist())}
        known |= {"pads": tuple(pads.tolist()), "pad_value": int(rng.integers(-1, 2))}
    known["input_zero_point"] = int(rng.choice([-128, 0, 127, rng.integers(-128, 128)]))
    if "scale" in known:
        low, high = sorted(rng.choice([-128, 127, *rng.integers(-128, 128, 3)], 2, replace=False).tolist())
        known |= {"zero_point": int(rng.integers(-128, 128)), "low": low, "high": high}
    return codes, known


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_any_layer_gives_the_golden_bytes(seed: int):
    assert_runs(*drawn(seed))


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("kernel", [(3, 3), ()])
def test_wide_layers_give_the_golden_bytes(kernel: tuple[int, ...], codes: bool):
    rng = np.random.default_rng(0)
    known = random_layer(rng, (19, 300, *kernel), codes=codes)
    assert_runs(rng.integers(-128, 128, (2, 300, *(4,) * len(kernel))).astype(np.int8), known)


@pytest.mark.parametrize("opset", range(13, 24))
def test_every_operator_set_has_it(opset: int):
    for seed in range(3):
        assert_runs(*drawn(seed), opset=opset)


@pytest.mark.regress
@pytest.mark.parametrize("bias", [0, 7])
def test_scales_are_not_multiplied_into_the_weights(bias: int):
    """ONNX Runtime does that to a convolution and a product right after it, and then rounds every weight: the inner
    product 9 * 25 and its scale are a tie."""
    weights = np.ones((1, 225, 1, 1), np.int8)
    for scale in np.float32(np.arange(1, 200, 2) / (2 * (225 + bias))):
        known = {"weights": weights, "bias": np.array([bias], np.int32), "scale": np.array([scale], np.float32)}
        assert_runs(np.full((1, 225, 2, 2), 5, np.int8), known)


def test_channels_that_are_always_one_sign():
    known = random_layer(np.random.default_rng(0), (4, 5, 3, 3), codes=False)
    known["bias"] = np.array([1 << 30, -(1 << 30), (1 << 31) - 46, -(1 << 31) + 45], np.int32)
    found = run(np.random.default_rng(1).integers(-128, 128, (2, 5, 6, 6)).astype(np.int8), known)
    for channel, sign in enumerate((1, -1, 1, -1)):
        assert (found[:, channel] == sign).all()


def test_large_sums_are_rounded_as_the_requantiser_rounds_them():
    """From 2**24 on float32 has no odd numbers."""
    rng = np.random.default_rng(3)
    known = random_layer(rng, (8, 5, 3, 3), codes=True)
    known["bias"] = (rng.integers(1 << 24, 1 << 30, 8) | 1).astype(np.int32)
    known["scale"] = (100 / known["bias"]).astype(np.float32)
    assert_runs(rng.integers(-128, 128, (2, 5, 6, 6)).astype(np.int8), known)


LAYER = random_layer(np.random.default_rng(0), (4, 5, 3, 3), codes=True)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": LAYER["weights"] * np.int8(3)}, "weights must be +1 and -1, not "),
        ({"weights": np.zeros((4, 5, 3, 3), np.int8)}, "weights must be +1 and -1, not 0"),
        ({"weights": LAYER["weights"][..., 0]}, "weights must have the shape [outputs, inputs, kernel rows, kernel"),
        ({"weights": LAYER["weights"][:, :0]}, "weights must have the shape [outputs, inputs, kernel rows, kernel"),
        ({"bias": LAYER["bias"][:3]}, "bias must be of 4 outputs, not of the shape [3]"),
        ({"scale": LAYER["scale"][:3]}, "bias must have the shape of multiplier (3,), not (4,)"),
        ({"scale": -LAYER["scale"]}, "multiplier must be finite and not negative, not -"),
        ({"zero_point": 128}, "zero_point must be between -128 and 127, not 128"),
        ({"low": 5, "high": 4}, "low must be at most high (4), not 5"),
        ({"scale": None, "low": 0}, "zero_point, low and high must be left out where the result is signs"),
        ({"input_zero_point": -129}, "input_zero_point must be between -128 and 127, not -129"),
        ({"pad_value": 2}, "pad_value must be +1, -1 or 0, not 2"),
        ({"pads": (0, 0, -1, 0)}, "pads must be 4 numbers of at least 0, not (0, 0, -1, 0)"),
        ({"strides": (0, 1)}, "strides must be 2 numbers of at least 1, not (0, 1)"),
        ({"dilations": (1,)}, "dilations must be 2 numbers of at least 1, not (1,)"),
        ({"weights": LAYER["weights"][..., 0, 0], "strides": (2, 1)}, "strides must be left out for weights without a"),
        ({"opset": 12}, "opset must be at least 13, not 12"),
    ],
)
def test_what_has_no_function_is_refused(changed: dict, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make_function(**LAYER | changed)


def test_more_connections_than_float32_counts_are_refused() -> None:
    weights, bias = np.ones((1, (1 << 24) + 1), np.int8), np.zeros(1, np.int32)
    with pytest.raises(ValueError, match=r"^weights must be at most 16777216 for an output, not 16777217$"):
        make_function(weights, bias=bias)
    assert make_function(weights[:, 1:], bias=bias).node


@pytest.mark.parametrize("name", ["weights", "bias", "scale"])
def test_arrays_of_another_type_are_refused(name: str):
    with pytest.raises(TypeError, match=r"must be (int8|int32|float32), not float64$"):
        make_function(**LAYER | {name: LAYER[name].astype(np.float64)})


def test_a_model_takes_a_name_once():
    network = BinaryNetwork((5, 4, 4), opset=13)
    model = network.model(network.binary("x", 5, 4))
    function = make_function(**LAYER)
    add_function(model, function)
    call = make_call(function, "x", "y", "layer")
    assert (call.domain, call.op_type) == ("lutterfly", "BinaryConv")
    with pytest.raises(ValueError, match=r"^name must be one that no other function of the model has, not 'BinaryConv"):
        add_function(model, function)
