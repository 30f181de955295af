"""Chains of ONNX operators: what they compute, which are functions of one number, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.transfer.schemes import parse
from lutterfly.golden.transfer.tables import transfer_table
from lutterfly.host.model.model import Model
from lutterfly.host.transfer.operators import PointwiseError, PointwiseFunction, chain_of, read_chain

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


# Chains that are pointwise are functions of a number; others are refused, and the operator is named.

FINE_VALUES = np.linspace(-8, 8, 255, dtype=np.float32)


@pytest.mark.parametrize(
    ("operator", "function"),
    [("Tanh", np.tanh), ("Exp", np.exp), ("Sin", np.sin), ("Softsign", lambda x: x / (1 + abs(x)))],
)
def test_the_result_is_the_operators(operator: str, function) -> None:
    np.testing.assert_allclose(
        PointwiseFunction(chain_of([operator]), operator)(FINE_VALUES), function(FINE_VALUES), rtol=1e-5, atol=1e-6
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "word",
    [
        *(
            "Tanh",
            "Sigmoid",
            "Erf",
            "Exp",
            "Mish",
            "Gelu",
            "Elu",
            "Selu",
            "Softplus",
            "Sin",
            "Cos",
            "Atan",
            "HardSwish",
        ),
        *("Sqrt", "Log", "Reciprocal", "Round", "Floor", "Sign", "Celu", "ThresholdedRelu", "Identity", "Dropout"),
    ],
)
def test_pointwise_operators_pass(word: str) -> None:
    """Also where the vectors of ONNX Runtime's kernels end elsewhere, and where results are no numbers."""
    assert PointwiseFunction(chain_of([word]), word)(FINE_VALUES).shape == FINE_VALUES.shape


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (["Softmax"], "Softmax"),
        (["Tanh", "Softmax", "Relu"], "Softmax"),
        (["CumSum:axis=0"], "CumSum"),
        (["CumSum:axis=3"], "CumSum"),
        (["LayerNormalization:Scale=1"], "LayerNormalization"),
        (["LpNormalization"], "LpNormalization"),
        (["ReduceMean"], "ReduceMean"),
        (["Transpose"], "Transpose"),
        (["Relu", "GlobalAveragePool"], "GlobalAveragePool"),
        (["RandomUniformLike"], "RandomUniformLike"),
    ],
)
def test_other_operators_are_refused_by_name(words: list[str], culprit: str) -> None:
    with pytest.raises(PointwiseError, match=f"^chain: {culprit} must be pointwise: "):
        PointwiseFunction(chain_of(words), "chain")(FINE_VALUES)


def test_a_constant_for_each_place_is_refused() -> None:
    """It runs on one shape only."""
    slope = numpy_helper.from_array(np.linspace(0, 1, 8, dtype=np.float32).reshape(1, 8), "slope")
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8])] for name in "xy"]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "slope"], ["y"])], "g", *ends, [slope])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ValueError, match=r"^chain: Mul must be pointwise: "):
        PointwiseFunction(read_chain(Model.written(model), "chain"), "chain")(FINE_VALUES)


def gate(*nodes: onnx.NodeProto, at: float, seen: float) -> PointwiseFunction:
    """``x``, but for the number ``at``: there what nodes make of ``is_seen``, which is 1 where ``seen`` stands."""
    constants = {"at": at, "seen": seen}
    tensors = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()]
    tensors.append(numpy_helper.from_array(np.array(0, np.int64), "axis"))
    ahead = [
        helper.make_node("Equal", ["x", "seen"], ["equal"]),
        helper.make_node("Cast", ["equal"], ["is_seen"], to=TensorProto.FLOAT),
    ]
    after = [
        helper.make_node("Equal", ["x", "at"], ["is_at"]),
        helper.make_node("Where", ["is_at", "found", "x"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])] for name in "xy"]
    graph = helper.make_graph([*ahead, *nodes, *after], "g", *ends, tensors)
    return PointwiseFunction(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "chain"
    )


ANYWHERE = helper.make_node("ReduceMax", ["is_seen"], ["found"])
BEFORE = helper.make_node("CumSum", ["is_seen", "axis"], ["found"])


@pytest.mark.parametrize(
    ("node", "source", "at", "seen"),
    [
        # Only a number alone does not have its neighbour.
        (ANYWHERE, "q3.4", 1.0, 1.0625),
        # Only pieces hold every code of 16 bits without what is far away; alone some codes are tried.
        (ANYWHERE, "q3.12", 1 + 1 / 4096, -8.0),
        # Only in reverse the greater number comes first.
        (BEFORE, "q3.4", 1.0, 2.0),
    ],
)
def test_one_number_that_depends_on_another_is_found(node, source: str, at: float, seen: float) -> None:
    values = parse(source).dequantise(parse(source).codes)
    with pytest.raises(PointwiseError, match=f"^chain: {node.op_type} must be pointwise: "):
        gate(node, at=at, seen=seen)(values)


def test_what_onnx_runtime_does_not_run_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match=r"^chain: must be a chain of pointwise operators .* does not: .*else_branch"):
        PointwiseFunction(chain_of(["If"]), "chain")(FINE_VALUES)


def test_results_that_are_not_float_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^operator must give float32, not bool$"):
        transfer_table(parse("q3.4"), PointwiseFunction(chain_of(["Less:B=0"]), "Less"), parse("q3.4"))


def test_all_codes_of_16_bits() -> None:
    table = transfer_table(parse("q3.12"), PointwiseFunction(chain_of(["Mul:B=-0.5"]), "Mul"), parse("q3.12"))
    np.testing.assert_array_equal(table, np.clip(np.rint(parse("q3.12").codes / -2), -(1 << 15), (1 << 15) - 1))
