"""Two neighbouring outputs of three taps: those of ONNX Runtime's convolution, and within the bits that are built."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.engines import WINOGRAD
from lutterfly.golden.engines.winograd import MOST_GROUPS, SPECIFICATION, winograd
from lutterfly.golden.numerics.winograd import (
    GROUP,
    INPUTS,
    MOST_TOTAL,
    OUTPUTS,
    TAPS,
    WEIGHT_BITS,
    WORD_BITS,
    outputs,
    transform_inputs,
    transform_taps,
)
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.issue import issue_rounds
from lutterfly.golden.timing.latencies import backlog_limit

EXTREMES = np.array([-128, 127], np.int8)


def convolution(inputs: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """ONNX Runtime's ConvInteger of int8[4, channels] and int8[3, columns, channels]: int32[2, columns]."""
    weights = np.ascontiguousarray(taps.transpose(1, 2, 0))
    graph = helper.make_graph(
        [helper.make_node("ConvInteger", ["x", "w"], ["y"])],
        "filter",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, inputs.shape[1], len(inputs)])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    codes = (inputs.astype(np.int16) + 128).astype(np.uint8).T[None]
    # ConvInteger takes unsigned inputs: take the shift by 128 off again.
    return session.run(None, {"x": codes})[0][0].T - 128 * weights.astype(np.int32).sum((1, 2))


@pytest.mark.parametrize("seed", range(12))
def test_both_outputs_are_those_of_a_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes, groups, columns = (int(rng.integers(1, most)) for most in (9, 6, 5))
    inputs = rng.integers(-128, 128, (groups, GROUP, lanes), dtype=np.int8)
    taps = rng.integers(-128, 128, (groups, 3, columns, lanes), dtype=np.int8)
    if seed % 3 == 0:
        inputs, taps = rng.choice(EXTREMES, inputs.shape), rng.choice(EXTREMES, taps.shape)
    found = winograd(inputs[:, INPUTS].reshape(-1, lanes), taps[:, TAPS].reshape(-1, columns, lanes))
    whole = inputs.transpose(1, 0, 2).reshape(GROUP, -1), taps.transpose(1, 2, 0, 3).reshape(3, columns, -1)
    np.testing.assert_array_equal(found, convolution(*whole))


def test_factors_fit_the_bits_that_are_built_and_need_them() -> None:
    every = np.array(list(itertools.product(EXTREMES, repeat=4)), np.int8)
    for factors, bits in ((transform_inputs(every[..., None]), WORD_BITS), (_taps(every), WEIGHT_BITS)):
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        assert low <= factors.min()
        assert factors.max() <= high
        assert factors.min() < low // 2 or factors.max() > high // 2


def _taps(every: np.ndarray) -> np.ndarray:
    return transform_taps(every[..., None, None])


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=2, max_size=2), st.data())
def test_a_total_of_the_allowed_size_is_exact_whatever_its_parts(wanted: list[int], data: st.DataObject) -> None:
    """Parts may be of any size: the accumulators count modulo 2**32."""
    wanted = [max(-MOST_TOTAL, min(one, MOST_TOTAL)) for one in wanted]
    m1, m2 = (data.draw(st.integers(-(1 << 33), 1 << 33)) * 2 for _ in range(2))
    m0, m3 = wanted[0] - (m1 + m2) // 2, wanted[1] - (m1 - m2) // 2
    sums = np.array([m0, m3, m1, m2], np.int64)[:, None]
    np.testing.assert_array_equal(outputs(sums), np.array(wanted, np.int32)[:, None])


def test_the_next_larger_total_overflows() -> None:
    """Such a total of a single product, which counts twice."""
    found = [int(outputs(np.array([total, 0, 0, 0])[:, None])[0, 0]) for total in (MOST_TOTAL, MOST_TOTAL + 1)]
    assert found == [MOST_TOTAL, -MOST_TOTAL - 1]


def test_no_step_of_a_window_is_ever_held_back() -> None:
    """Whatever legal windows follow one another: all numbers of cycles that results may take are looked at, from none
    on, which is when the engine begins. So the words of a group come in successive cycles."""
    config = dataclasses.replace(PRESETS["large"], array=dataclasses.replace(PRESETS["large"].array, requant_lanes=1))
    limit, reached, new = backlog_limit(config, WINOGRAD), set[int](), {0}
    at_once = config.array.requant_lanes
    assert (at_once, config.array.columns) == (1, 32)
    legal = [
        (steps, (1 + further) * groups)
        for steps in (4, 8, 12, 16)
        for further in (0, 1)
        for groups in range(1, config.array.columns // at_once + 1)
        if SPECIFICATION.is_legal({"steps": steps, "lanes": groups * at_once, "further": further}, config)
    ]
    assert {(4, 3), (8, 5)} <= {*legal}
    while new:
        reached |= new
        after = set()
        for backlog, window, begins in itertools.product(new, legal, (False, True)):
            ((_, ((held, _),), later),) = issue_rounds(backlog, [window], 1, limit=limit, begins=begins)
            assert not held, (backlog, window)
            after.add(later)
        new = after - reached
    assert max(reached) > MOST_GROUPS


@pytest.mark.parametrize("steps", [0, 3, 6])
def test_steps_are_whole_groups(steps: int) -> None:
    words, weights = np.zeros((steps, 4), np.int8), np.zeros((steps, 2, 4), np.int8)
    with pytest.raises(ValueError, match=rf"^steps must be a multiple of {GROUP}, not {steps}$"):
        winograd(words, weights)


def test_weights_are_bytes() -> None:
    with pytest.raises(TypeError, match=r"^weights must be int8, not int16$"):
        winograd(np.zeros((GROUP, 4), np.int8), np.zeros((GROUP, 2, 4), np.int16))


def test_outputs_are_neighbours() -> None:
    """Of the inputs 0, 2, 1, 3 a single tap takes two."""
    inputs, taps = np.arange(1, 5, dtype=np.int8)[:, None], np.zeros((3, 1, 1), np.int8)
    for tap in range(3):
        taps[:] = 0
        taps[tap] = 1
        found = winograd(inputs[list(INPUTS)], taps[list(TAPS)])
        assert found.reshape(-1).tolist() == [1 + tap, 2 + tap]
        assert len(found) == OUTPUTS
