"""Models of which a sample is a whole tensor: found by running, and run as the file has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.presets import PRESETS
from lutterfly.host.command.main import main
from lutterfly.host.frontend import ModelError
from lutterfly.host.model.arrays import TensorInfo, describe_model
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.model.whole_samples import with_axis, without_axis
from lutterfly.host.quantize import quantize
from lutterfly.host.session.session import InferenceSession
from lutterfly.host.session.verify import verify

STEPS, INPUTS, HIDDEN = 5, 6, 4
RNG = np.random.default_rng(2)
WEIGHTS = {
    "w": RNG.normal(size=(1, 4 * HIDDEN, INPUTS)) / 2,
    "r": RNG.normal(size=(1, 4 * HIDDEN, HIDDEN)) / 2,
    "v": RNG.normal(size=(HIDDEN, 3)),
    "k": RNG.normal(size=(INPUTS, HIDDEN)),
    "axis": np.array([1]),
    "last": np.array(-1),
}
#: PyTorch's LSTM as it is unless one asks for batch_first; every step is read, or the last one.
EVERY = "s, h = LSTM<hidden_size = 4>(x, w, r) q = Squeeze(s, axis) y = MatMul(q, v)"
LAST = "s, h = LSTM<hidden_size = 4>(x, w, r) q = Squeeze(s, axis) g = Gather<axis = 0>(q, last) y = MatMul(g, v)"


def model(text: str, inputs: str = f"float[{STEPS}, 1, {INPUTS}] x") -> Model:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float y) {{ {text} }}')
    for name, array in WEIGHTS.items():
        if any(name in node.input for node in proto.graph.node):
            stored = array.astype(np.float32) if array.dtype.kind == "f" else array
            proto.graph.initializer.append(onnx.numpy_helper.from_array(stored, name))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return Model(onnx.shape_inference.infer_shapes(proto).SerializeToString())


def values(samples: int) -> np.ndarray:
    return np.random.default_rng(samples).normal(size=(samples, STEPS, 1, INPUTS)).astype(np.float32)


def test_the_axis_comes_and_goes() -> None:
    given = model(EVERY)
    changed = with_axis(given)
    assert with_axis(changed) is changed
    assert describe_model(changed) == (
        [TensorInfo("x", [STEPS, 1, INPUTS], "tensor(float)", is_whole=True)],
        [TensorInfo("y", [STEPS, 1, 3], "tensor(float)", is_whole=True)],
    )
    array = values(1)
    (wanted,) = open_session(given).run(None, {"x": array[0]})
    np.testing.assert_array_equal(open_session(changed).run(None, {"x": array})[0][0], wanted)
    back = Model.written(without_axis(changed.proto))
    assert not back.proto.metadata_props
    np.testing.assert_array_equal(open_session(back).run(None, {"x": array[0]})[0], wanted)
    assert without_axis(given.proto) is given.proto


def test_an_output_that_has_a_batch_keeps_it() -> None:
    inputs, outputs = describe_model(with_axis(model(LAST)))
    assert inputs[0].is_whole
    assert outputs == [TensorInfo("y", [1, 3], "tensor(float)")]


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("y = Relu(x)", "float[5, 1, 6] x"),
        # A batch of all inputs.
        ("y = Add(x, z)", "float[5, 1, 6] x, float[5, 1, 6] z"),
        (EVERY, f"float[t, 1, {INPUTS}] x"),
        (EVERY, f"float[1, 1, {INPUTS}] x"),
        (EVERY, f"float[5, n, {INPUTS}] x"),
    ],
)
def test_everything_else_stays(text: str, inputs: str) -> None:
    given = model(text, inputs)
    assert with_axis(given) is given


@pytest.mark.parametrize("text", ["z = CumSum(x, zero) y = Relu(z)", "z = CumSum<reverse = 1>(x, zero) y = Relu(z)"])
def test_a_first_row_or_a_last_one_that_others_read_is_no_batch(text: str) -> None:
    given = model("zero = Constant<value = int64 {0}>() " + text)
    assert with_axis(given) is not given


def test_a_batch_is_refused_as_one() -> None:
    with pytest.raises(
        ModelError, match="the batch of input 'x' must be dynamic or 1, not 5; export the model with a d"
    ):
        quantize(model("y = Relu(x)").data, {"x": values(1)[0]})


@pytest.mark.parametrize("text", sweep([EVERY, LAST], kept=[EVERY]))
def test_it_runs_as_the_file_has_it(text: str) -> None:
    """One sample, several one after the other, and a stack."""
    given, array = model(text), values(20)
    quantised = quantize(given.data, {"x": array})
    assert quantised == quantize(given.data, {"x": array.reshape(-1, 1, INPUTS)})
    sessions = open_session(given), open_session(Model(quantised))
    wanted, reference = (np.stack([session.run(None, {"x": one})[0] for one in array[:3]]) for session in sessions)
    assert np.linalg.norm(reference - wanted) < 0.1 * np.linalg.norm(wanted)
    found = InferenceSession(quantised, backend="golden")
    assert found.get_inputs()[0].shape == [STEPS, 1, INPUTS]
    np.testing.assert_array_equal(found.run(None, {"x": array[0]})[0], reference[0])
    flat = reference.reshape(-1, *reference.shape[2:])
    np.testing.assert_array_equal(found.run(None, {"x": array[:3].reshape(-1, 1, INPUTS)})[0], flat)
    stacked = found.run(None, {"x": array[:3]})[0]
    np.testing.assert_array_equal(stacked, reference if text == EVERY else flat)
    with pytest.raises(ValueError, match=r"^input x must have the shape \[batch, 5, 1, 6\], not \[7, 1, 6\]$"):
        found.run(None, {"x": np.zeros((7, 1, INPUTS), np.float32)})


@pytest.mark.regress
def test_the_commands_take_it(tmp_path: Path) -> None:
    array = values(12)
    np.savez(tmp_path / "x.npz", x=array)
    np.save(tmp_path / "one.npy", array[0])
    (tmp_path / "net.onnx").write_bytes(model(EVERY).data)
    quantised = tmp_path / "out.onnx"
    words = ["quantize", str(tmp_path / "net.onnx"), "--calibrate", str(tmp_path / "x.npz"), "-o", str(quantised)]
    assert main([*words, "--per-layer"]) == 0
    program = tmp_path / "out.program"
    assert main(["compile", str(quantised), "-o", str(program)]) == 0
    (wanted,) = open_session(Model(quantised.read_bytes())).run(None, {"x": array[0]})
    for given in (quantised, program):
        words = ["run", str(given), "--input", str(tmp_path / "one.npy"), "--output", str(tmp_path / "y.npy")]
        assert main([*words, "--backend", "golden"]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), wanted)


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@pytest.mark.parametrize("text", [EVERY, LAST])
def test_every_byte_is_onnx_runtimes(text: str, preset: str) -> None:
    data = quantize(model(text).data, {"x": values(20)})
    assert_right(verify(data, PRESETS[preset], samples=2))


@needs_reference
@pytest.mark.parametrize(
    "text",
    [
        "m = Squeeze(x, axis) p = MatMul(m, k) a = ReduceMean<axes = [0]>(p) s = Sub(p, a) y = MatMul(s, v)",
        "m = Squeeze(x, axis) p = MatMul(m, k) a = ReduceMean<axes = [0], keepdims = 0>(p) y = MatMul(a, v)",
        "m = Squeeze(x, axis) p = MatMul(m, k) a = ReduceMax<axes = [0]>(p) y = MatMul(a, v)",
        "m = Squeeze(x, axis) p = MatMul(m, k) a = ReduceMean<axes = [1]>(p) s = Sub(p, a) y = ReduceMax<axes=[0]>(s)",
    ],
)
def test_time_is_reduced_as_any_other_axis(text: str) -> None:
    data = quantize(model(text).data, {"x": values(100)})
    assert_right(verify(data, PRESETS["tiny"], samples=2))
    array = values(100)[:3]
    wanted, found = (
        np.stack([open_session(Model(form)).run(None, {"x": one})[0] for one in array])
        for form in (model(text).data, data)
    )
    assert np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)
