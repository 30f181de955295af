"""The ONNX function of a fast pointwise convolution, in plain ONNX Runtime: the bytes of the golden functions."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.networks.butterflies import Network, patterns, random_epilogue, random_stages
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern
from lutterfly.golden.numerics.fpc import FpcEpilogue, Stages, fast_pointwise
from lutterfly.host.model.functions.fpc_function import add_function, make_call, make_function

SIZES = ((3, 3), (3, 256), (256, 3), (5, 7), (16, 16), (17, 16), (31, 64), (64, 64), (100, 60), (128, 129), (256, 256))


def assert_runs(stages: Stages, epilogue: FpcEpilogue, zero_point: int, codes: np.ndarray, *, opset: int = 17) -> None:
    """ONNX Runtime's bytes for ``codes``, int8[batch, inputs, ...], are the golden ones."""
    network = Network(codes.shape[1:], opset=opset)
    pattern, spatial = stages.pattern, codes.ndim - 2
    result = network.fast_pointwise(
        "x", pattern, zero_point=zero_point, spatial=spatial, stages=stages, epilogue=epilogue
    )
    model = network.model(result)
    onnx.checker.check_model(model, full_check=True)
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": codes})
    wanted = fast_pointwise(np.moveaxis(codes, 1, -1), zero_point, stages, epilogue)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, np.moveaxis(wanted, -1, 1))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_bytes_are_the_golden_ones(inputs: int, outputs: int, direction: Direction, extreme: bool):
    pattern = Pattern.of(inputs, outputs, direction)
    rng = np.random.default_rng(inputs)
    last = pattern.stages - 1
    for seed, skips in enumerate(((), ((0, last),), ((0, last), (1, 1)))):
        densities = rng.choice(list(Density), pattern.stages).tolist() if seed else None
        pattern = Pattern.of(inputs, outputs, direction, densities, skips)
        shape = (2, inputs, 4, 3)
        codes = rng.choice([-128, 127], shape) if extreme else rng.integers(-128, 128, shape)
        zero_point = int(rng.choice([-128, 127])) if extreme else 9
        stages = random_stages(pattern, seed, extreme=extreme)
        assert_runs(stages, random_epilogue(outputs, seed), zero_point, codes.astype(np.int8))


@pytest.mark.regress
@settings(max_examples=40)
@given(patterns(most=256), st.integers(0, 1 << 20), st.integers(0, 3), st.booleans())
def test_any_pattern_gives_the_golden_bytes(pattern: Pattern, seed: int, spatial: int, extreme: bool):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-128, 128, (2, pattern.inputs, *[3, 2, 2][:spatial])).astype(np.int8)
    shift = None if seed % 2 else seed % 8
    epilogue = random_epilogue(pattern.outputs, seed, shift=shift)
    assert_runs(random_stages(pattern, seed, extreme=extreme), epilogue, seed % 256 - 128, codes)


@pytest.mark.parametrize("opset", range(13, 24))
def test_every_operator_set_has_it(opset: int):
    pattern = Pattern.of(5, 6, skips=[(0, 2)])
    codes = np.random.default_rng(0).integers(-128, 128, (2, 5, 3, 3)).astype(np.int8)
    assert_runs(random_stages(pattern, 1), random_epilogue(6, 1), 4, codes, opset=opset)


def test_greatest_scales_saturate():
    pattern = Pattern.of(4, 4)
    epilogue = FpcEpilogue(np.array([-32768, 32767, 0, 5]), np.full(4, 3e38, np.float32), -128, -128, 127)
    codes = np.arange(-128, 128).astype(np.int8).reshape(16, 4, 4)
    assert_runs(random_stages(pattern, 1, extreme=True), epilogue, 0, codes)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epilogue": random_epilogue(5, 0)}, "bias must be of 4 outputs, not 5"),
        ({"zero_point": -129}, "zero_point must be between -128 and 127, not -129"),
        ({"spatial": -1}, "spatial must be at least 0, not -1"),
        ({"opset": 12}, "opset must be at least 13, not 12"),
    ],
)
def test_what_has_no_function_is_refused(changed: dict, message: str):
    stages = random_stages(Pattern.of(4, 4), 0)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_function(**{"stages": stages, "epilogue": random_epilogue(4, 0), "zero_point": 0} | changed)


def test_a_model_takes_a_name_once_and_its_own_operator_set():
    stages, epilogue = random_stages(Pattern.of(4, 4), 0), random_epilogue(4, 0)
    network = Network((4, 3, 3), opset=13)
    model = network.model(network.fast_pointwise("x", stages.pattern, stages=stages, epilogue=epilogue))
    function = make_function(stages, epilogue, 0)
    add_function(model, function)
    assert make_call(function, "x", "y", "layer").domain == "lutterfly"
    with pytest.raises(ValueError, match=r"^name must be one that no other function of the model has, not 'FastPoint"):
        add_function(model, function)
    with pytest.raises(ValueError, match=r"^opset must be the model's, 13, not 17$"):
        add_function(model, make_function(stages, epilogue, 0, name="other", opset=17))
