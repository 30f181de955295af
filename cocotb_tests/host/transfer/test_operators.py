"""Chains of ONNX operators as words and as files: what they compute, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lutterfly.host.model.model import Model
from lutterfly.host.transfer.operators import PointwiseFunction, chain_of, read_chain

VALUES = np.linspace(-8, 8, 129, dtype=np.float32)


def compute(model: onnx.ModelProto) -> np.ndarray:
    return PointwiseFunction(model, "chain")(VALUES)


@pytest.mark.parametrize(
    ("words", "function"),
    [
        (["Relu"], lambda x: np.maximum(x, 0)),
        (["LeakyRelu:alpha=0.25"], lambda x: np.where(x < 0, x * np.float32(0.25), x)),
        (["Clip:min=-1,max=6"], lambda x: np.clip(x, -1, 6)),
        (["Clip:max=2.5"], lambda x: np.minimum(x, 2.5)),
        (["Sub:A=1"], lambda x: 1 - x),
        (["Sub:B=1"], lambda x: x - 1),
        (["Abs", "Neg", "Add:B=0.5"], lambda x: np.float32(0.5) - np.abs(x)),
        (["HardSigmoid:alpha=0.125,beta=0.5"], lambda x: np.clip(x / 8 + np.float32(0.5), 0, 1)),
    ],
)
def test_words_make_a_chain(words: list[str], function) -> None:
    found = compute(chain_of(words))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, function(VALUES).astype(np.float32))


def test_attributes_that_are_words() -> None:
    exact, near = (compute(chain_of([f"Gelu:approximate={kind}"])) for kind in ("none", "tanh"))
    assert not np.array_equal(exact, near)
    np.testing.assert_array_equal(exact, compute(chain_of(["Gelu"])))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tanh", "operator must be one of ONNX's (operator set 21), as Tanh or Erf; did you mean Tanh"),
        ("Nothing", "operator must be one of ONNX's (operator set 21), as Tanh or Erf"),
        ("", "operator must be one of ONNX's (operator set 21), as Tanh or Erf"),
        ("Elu:beta=1", "beta must be an attribute or an input of Elu: alpha, X"),
        ("Elu:", "options must be NAME=VALUE, separated by commas, not nothing"),
        ("Elu:alpha", "options must be NAME=VALUE, separated by commas, not alpha"),
        ("Elu:alpha=1,alpha=1", "alpha must be given once, not twice"),
        ("Elu:alpha=much", "alpha must be a number, not much"),
        ("Cast:to=1.5", "to must be a whole number, not 1.5"),
        ("Clip:min=low", "min must be a number, not low"),
        ("CumSum:axis=0.5", "axis must be a whole number, not 0.5"),
        ("Pow", "Y must be given, as Pow:Y=1"),
        ("Constant", "one input must be left for the chain to go through"),
        (
            "MaxPool:kernel_shape=3",
            "kernel_shape must be in an ONNX file: it is neither a number nor a word; name one with --model",
        ),
    ],
)
def test_refused_words(word: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{word}: {message}')}$"):
        chain_of(["Relu", word])


def network(*nodes: onnx.NodeProto, kind: int = TensorProto.FLOAT, inputs: tuple[str, ...] = ("x",)) -> bytes:
    """With inputs of the shape [1, 2, 4, 4] and the output y."""
    values = [helper.make_tensor_value_info(name, kind, [1, 2, 4, 4]) for name in inputs]
    graph = helper.make_graph(list(nodes), "g", values, [helper.make_tensor_value_info("y", kind, [1, 2, 4, 4])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_a_file_is_freed_of_its_shapes() -> None:
    data = network(
        helper.make_node("HardSigmoid", ["x"], ["a"], alpha=0.125), helper.make_node("Mul", ["x", "a"], ["y"])
    )
    expected = VALUES * np.clip(VALUES / 8 + np.float32(0.5), 0, 1)
    np.testing.assert_array_equal(compute(read_chain(Model(data), "chain.onnx")), expected)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"nothing", "must be an ONNX file; export the chain of operators to ONNX"),
        (
            network(helper.make_node("Add", ["x", "z"], ["y"]), inputs=("x", "z")),
            "must have one input and one output, not 2 and 1; cut the chain of operators out of the network",
        ),
        (
            network(helper.make_node("Neg", ["x"], ["y"]), kind=TensorProto.INT8),
            "input x must be float, not int8; leave out the quantisation, which the two schemes say",
        ),
    ],
)
def test_refused_files(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'chain.onnx: {message}')}$"):
        read_chain(Model(data), "chain.onnx")
