"""Chains that are pointwise are functions of a number; others are refused, and the operator is named."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.transfer.schemes import parse
from lutterfly.golden.transfer.tables import transfer_table
from lutterfly.host.model.model import Model
from lutterfly.host.transfer.operators import PointwiseError, PointwiseFunction, chain_of, read_chain

VALUES = np.linspace(-8, 8, 255, dtype=np.float32)


@pytest.mark.parametrize(
    ("operator", "function"),
    [("Tanh", np.tanh), ("Exp", np.exp), ("Sin", np.sin), ("Softsign", lambda x: x / (1 + abs(x)))],
)
def test_the_result_is_the_operators(operator: str, function) -> None:
    np.testing.assert_allclose(
        PointwiseFunction(chain_of([operator]), operator)(VALUES), function(VALUES), rtol=1e-5, atol=1e-6
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
    assert PointwiseFunction(chain_of([word]), word)(VALUES).shape == VALUES.shape


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
        PointwiseFunction(chain_of(words), "chain")(VALUES)


def test_a_constant_for_each_place_is_refused() -> None:
    """It runs on one shape only."""
    slope = numpy_helper.from_array(np.linspace(0, 1, 8, dtype=np.float32).reshape(1, 8), "slope")
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8])] for name in "xy"]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "slope"], ["y"])], "g", *ends, [slope])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ValueError, match=r"^chain: Mul must be pointwise: "):
        PointwiseFunction(read_chain(Model.written(model), "chain"), "chain")(VALUES)


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
        PointwiseFunction(chain_of(["If"]), "chain")(VALUES)


def test_results_that_are_not_float_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^operator must give float32, not bool$"):
        transfer_table(parse("q3.4"), PointwiseFunction(chain_of(["Less:B=0"]), "Less"), parse("q3.4"))


def test_all_codes_of_16_bits() -> None:
    table = transfer_table(parse("q3.12"), PointwiseFunction(chain_of(["Mul:B=-0.5"]), "Mul"), parse("q3.12"))
    np.testing.assert_array_equal(table, np.clip(np.rint(parse("q3.12").codes / -2), -(1 << 15), (1 << 15) - 1))
