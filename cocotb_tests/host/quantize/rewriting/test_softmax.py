"""Attention whose scores range far, and with masks: what int8 takes for 0 is 0, and everything else stays near."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.host.frontend import ModelError
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize, static_quantisation
from lutterfly.host.quantize.float_model import prepare
from lutterfly.host.quantize.static_quantisation import relative_errors
from lutterfly.host.session.verify import verify

TOKENS, SIZE = 12, 8
LATER = np.triu(np.ones((TOKENS, TOKENS), bool), 1)
SAMPLES = {"x": np.random.default_rng(7).normal(size=(24, TOKENS, SIZE)).astype(np.float32)}


def attention(
    gain: float = 1.0,
    masking: str = "",
    softmax: str = "s = Softmax<axis = -1>(m)",
    weights: int = 3,
    **constants: np.ndarray,
) -> bytes:
    """One head; ``masking`` makes ``m`` of the scores ``a``, and a greater gain sharpens them."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, {TOKENS}, {SIZE}] x) => (float y) {{ '
        "q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv) t = Transpose<perm = [0, 2, 1]>(k) "
        f"p = MatMul(q, t) a = Mul(p, gain) {masking or 'm = Identity(a)'} {softmax} o = MatMul(s, v) "
        "y = MatMul(o, wo) }"
    )
    rng = np.random.default_rng(weights)
    held = {name: rng.normal(size=(SIZE, SIZE)) / np.sqrt(SIZE) for name in ("wq", "wk", "wv", "wo")}
    for name, array in (held | {"gain": np.array(gain)} | constants).items():
        stored = array.astype(np.float32) if array.dtype.kind == "f" else array
        proto.graph.initializer.append(onnx.numpy_helper.from_array(stored, name))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(proto).SerializeToString()


def error_of(data: bytes) -> float:
    """Of int8 from float; everything runs on the accelerator."""
    quantised = quantize(data, SAMPLES)
    (error,) = relative_errors(Model(data), Model(quantised), SAMPLES).values()
    program = compile_model(quantised, PRESETS["ecp5-85k"])
    assert sum(layer.macs for layer in program.layers) == TOKENS * SIZE * (4 * SIZE + 2 * TOKENS)
    return error


@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_scores_may_range_far(gain: float, tmp_path: Path) -> None:
    """Many terms of a row are below what counts in int8, and differ from 0 in float."""
    data = attention(gain)
    prepared, _ = prepare(onnx.load_from_string(data), "net", tmp_path)
    (cut,) = relative_errors(Model(data), Model.written(prepared), {"x": SAMPLES["x"][:1]}).values()
    assert 1e-3 < cut < 0.02
    assert error_of(data) < 0.1


def test_the_cut_excuses_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison of both float models is as sharp as without it."""
    made = static_quantisation.prepare

    def broken(*given: object) -> object:
        prepared, rewritten = made(*given)
        shares = next(tensor for tensor in prepared.graph.initializer if tensor.name.endswith("_size"))
        shares.CopyFrom(onnx.numpy_helper.from_array(np.array(1.002 / TOKENS, np.float32), shares.name))
        return prepared, rewritten

    monkeypatch.setattr(static_quantisation, "prepare", broken)
    with pytest.raises(ModelError, match=r"output 'y' of the rewritten float model is 0\.20%"):
        quantize(attention(3.0), SAMPLES)


#: Of the values that exporters write, and in their spellings.
MASKS = {
    **{
        f"{value} added": ("m = Add(a, mask)", {"mask": np.where(LATER, value, 0.0)})
        for value in (-np.inf, -3.4e38, -1e9, -1e4, -100.0)
    },
    "added in front": ("m = Add(mask, a)", {"mask": np.where(LATER, -1e9, 0.0)}),
    "of more axes": ("m = Add(a, mask)", {"mask": np.where(LATER, -1e9, 0.0)[None]}),
    "with other values": (
        "m = Add(a, mask)",
        {"mask": np.where(LATER, -np.inf, np.random.default_rng(0).normal(size=LATER.shape))},
    ),
    "subtracted": ("m = Sub(a, mask)", {"mask": np.where(LATER, 1e4, 0.0)}),
    "chosen": ("m = Where(later, least, a)", {"later": LATER, "least": np.array(-np.inf)}),
    "chosen otherwise": ("m = Where(earlier, a, least)", {"earlier": ~LATER, "least": np.array(-1e9)}),
    "of columns": ("m = Add(a, mask)", {"mask": np.where(np.arange(TOKENS) < 9, 0.0, -np.inf)}),
}


@pytest.mark.parametrize(("case", "gain"), [*((case, 3.0) for case in MASKS), ("-inf added", 0.5)])
def test_a_mask_leaves_the_scores_their_codes(case: str, gain: float) -> None:
    masking, constants = MASKS[case]
    assert error_of(attention(gain, masking, **constants)) < 0.1


def test_a_guard_against_nan_is_part_of_it() -> None:
    """PyTorch writes one behind a mask."""
    guarded = "r = Softmax<axis = -1>(m) n = IsNaN(r) s = Where(n, zero, r)"
    masking, constants = MASKS["-inf added"]
    assert error_of(attention(3.0, masking, guarded, zero=np.array(0.0), **constants)) < 0.1


def test_a_row_of_which_nothing_is_left_is_refused() -> None:
    mask = np.where(LATER.T, -1e9, 0.0)
    mask[3] = -1e9
    with pytest.raises(
        ModelError, match=r"^Add '.*': it must leave a score in each row of Softmax '.*', and takes all"
    ):
        quantize(attention(masking="m = Add(a, mask)", mask=mask), SAMPLES)


def test_a_bias_of_positions_stays_what_it_is(tmp_path: Path) -> None:
    """It is within the range of the scores."""
    bias = np.random.default_rng(0).normal(size=LATER.shape)
    _, found = prepare(onnx.load_from_string(attention(masking="m = Add(a, bias)", bias=bias)), "net", tmp_path)
    assert found
    assert not any(one.masks for one in found)


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@pytest.mark.parametrize("case", ["", "-inf added", "chosen"])
def test_every_byte_is_onnx_runtimes(case: str, preset: str) -> None:
    masking, constants = MASKS.get(case, ("", {}))
    data = quantize(attention(3.0, masking, **constants), SAMPLES)
    assert_right(verify(data, PRESETS[preset], samples=2))
