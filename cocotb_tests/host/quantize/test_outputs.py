"""Outputs in the midst of a network: quantised where a layer reads what they are part of, and left at its end."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from cocotb_tests.host.quantize.rewriting.test_spellings import MAP, ROWS, model, values
from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.static_quantisation import relative_errors

pytestmark = needs_reference

RNG = np.random.default_rng(5)
HELD = {
    "w": RNG.normal(size=(6, 8)),
    "v": RNG.normal(size=(8, 4)),
    "flat": np.array([-1, 7, 8]),
    "vector": np.array([-1, 56]),
    "some": RNG.normal(size=(32, 3)) / 4,
    "all": RNG.normal(size=(56, 3)) / 4,
    "k": RNG.normal(size=(3, 4, 2, 2)),
    "pixels": RNG.normal(size=(480, 3)) / 8,
    **{name: np.array([value]) for name, value in {"first": 1, "last": 5, "axis": 1}.items()},
}
#: A network, its input, and the output ``o`` in its midst.
CASES = {
    "a table in front of a view": ("a = MatMul(x, w) o = Tanh(a) b = Reshape(o, vector) y = Gemm(b, all)", ROWS),
    "a view of a table": ("a = MatMul(x, w) b = Tanh(a) o = Reshape(b, vector) y = Gemm(o, all)", ROWS),
    "a table of a slice": (
        "a = MatMul(x, w) b = Tanh(a) o = Slice(b, first, last, axis) c = Flatten(o) y = Gemm(c, some)",
        ROWS,
    ),
    "in front of a slice": ("a = MatMul(x, w) o = Elu(a) b = Slice(o, first, last, axis) y = MatMul(b, v)", ROWS),
    "beside a table": ("a = MatMul(x, w) b = Sigmoid(a) o = Elu(b) c = Tanh(b) y = MatMul(c, v)", ROWS),
    "pixels of a transposed convolution": (
        "a = ConvTranspose<strides = [2, 2]>(x, k) o = Identity(a) b = Flatten(a) y = Gemm(b, pixels)",
        MAP,
    ),
    "a flat transposed convolution": (
        "a = ConvTranspose<strides = [2, 2]>(x, k) o = Flatten(a) y = Gemm(o, pixels)",
        MAP,
    ),
}


def network(text: str, given: str) -> bytes:
    used = {name: array for name, array in HELD.items() if any(f", {name}{end}" in text for end in ",)")}
    proto = onnx.load_from_string(model(text, given, **used))
    inner = next(value for value in proto.graph.value_info if value.name == "o")
    proto.graph.output.append(inner)
    return proto.SerializeToString()


@pytest.mark.parametrize("case", CASES)
def test_it_runs_and_is_exact(case: str) -> None:
    text, given = CASES[case]
    data, samples = network(text, given), {"x": values(given)}
    quantised = quantize(data, samples)
    assert max(relative_errors(Model(data), Model(quantised), samples).values()) < 0.1
    program = compile_model(quantised, PRESETS["tiny"])
    assert len([layer for layer in program.layers if layer.macs]) > 1
    feeds = {"x": samples["x"][:1]}
    assert_exact(quantised, feeds, covered=False)
    assert_answers(quantised, feeds)


@pytest.mark.parametrize("case", ["a table in front of a view", "beside a table"])
def test_a_table_stays_in_float(case: str) -> None:
    """The host computes it of the same codes as the accelerator its table."""
    text, given = CASES[case]
    quantised = onnx.load_from_string(quantize(network(text, given), {"x": values(given)}))
    maker = next(node for node in quantised.graph.node if "o" in node.output)
    assert maker.op_type != "DequantizeLinear"


def test_one_at_the_end_stays_in_float() -> None:
    """The host computes it without loss."""
    data = network("a = MatMul(x, w) b = MatMul(a, v) o = Tanh(a) y = Elu(b)", ROWS)
    quantised = onnx.load_from_string(quantize(data, {"x": values(ROWS)}))
    maker = next(node for node in quantised.graph.node if "o" in node.output)
    assert maker.op_type == "Tanh"
