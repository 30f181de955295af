"""`check --supported` and its page say what the code enforces: each operator, and only those that a network has met."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import defs

from cocotb_tests.support.networks.generated import TINY, Maker
from cocotb_tests.support.networks.qonnx_networks import QonnxNetwork
from lutterfly.host import frontend
from lutterfly.host.command.main import main
from lutterfly.host.compiler.lower.operations import LOWERINGS as EXECUTED
from lutterfly.host.frontend import import_model
from lutterfly.host.frontend.fragments import FLOAT_PRODUCTS, Kind
from lutterfly.host.frontend.lowering.lowering import refusals, refuses
from lutterfly.host.frontend.lowerings import LOWERINGS
from lutterfly.host.frontend.supported import supported
from lutterfly.host.graph import Convolution, Pointwise
from lutterfly.host.quantize.rewriting import REWRITINGS
from lutterfly.host.supported import page

# Networks with one operator each between two convolutions: what does not run on the accelerator is refused there.

EXAMPLES = Path(__file__).parents[3] / "examples"

#: Powers of two, and a scale that is one, so that averages and products in float are exact.
_MAP = (1, 4, 4, 4)
_SCALE = np.float32(2.0**-4)
_LOGICAL = ("And", "Or", "Xor")
_COMPARING = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_WITH_A_NUMBER = ("Add", "Div", "Max", "Min", "Mod", "Mul", "PRelu", "Pow", "Sub", "Sum")
_MICROSOFT = ("FastGelu", "QuickGelu")

#: Attributes that an operator needs.
_ATTRIBUTES: dict[str, dict[str, object]] = {"Mod": {"fmod": 1}}

#: Where it is newer than the others.
_OPSETS = {"Swish": 24}

#: What a network of the examples has.
_WHOLE = {
    "BinaryConv": "digits_binary.onnx",
    "BipolarQuant": "digits_brevitas.onnx",
    "FastPointwiseConv": "digits_fpc.onnx",
}

Body = Callable[[Maker, str], tuple[str, tuple[int, ...]]]


def _moved(operator: str, *operands: object, shape: tuple[int, ...] = _MAP, **given: object) -> Body:
    """An operator with constants, and the shape that it makes of a map."""

    def body(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
        return made.node(
            operator, [tensor, *(made.constant("c", np.asarray(each)) for each in operands)], **given
        ), shape

    return body


def _there_and_back(operator: str, *operands: object, **given: object) -> Body:
    """An operator that changes the shape, and a Reshape back."""

    def body(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
        there = _moved(operator, *operands, **given)(made, tensor)[0]
        return made.node("Reshape", [there, made.constant("shape", np.array(_MAP))]), _MAP

    return body


def _twice(operator: str) -> Body:
    return lambda made, tensor: (made.node(operator, [tensor, tensor], axis=1), (1, 8, 4, 4))


def _split(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
    first = made.node("Split", [tensor], num_outputs=2, axis=1)
    made.nodes[-1].output.append(f"{first}_second")
    return first, (1, 2, 4, 4)


def _weighted(operator: str, shape: tuple[int, ...], **given: object) -> Body:
    """A product in float, whose weights have powers of two as scales."""

    def body(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
        weights = made.constant("w", np.arange(-16, 16, dtype=np.int8).reshape(4, 2, 2, 2))
        ends = [weights, made.constant("s", np.float32(2.0**-6)), made.constant("z", np.int8(0))]
        return made.node(operator, [tensor, made.node("DequantizeLinear", ends)], **given), shape

    return body


_SHAPED: dict[str, Body] = {
    "AveragePool": _moved("AveragePool", kernel_shape=[2, 2], strides=[2, 2], shape=(1, 4, 2, 2)),
    "GlobalAveragePool": _moved("GlobalAveragePool", shape=(1, 4, 1, 1)),
    "ReduceMean": _moved("ReduceMean", np.array([2, 3]), shape=(1, 4, 1, 1)),
    "MaxPool": _moved("MaxPool", kernel_shape=[2, 2], strides=[2, 2], shape=(1, 4, 2, 2)),
    "ReduceMax": _moved("ReduceMax", np.array([2, 3]), shape=(1, 4, 1, 1)),
    "Concat": _twice("Concat"),
    "Split": _split,
    "Slice": _moved("Slice", np.array([1]), np.array([3]), np.array([1]), shape=(1, 2, 4, 4)),
    "Pad": _moved("Pad", np.array([0, 0, 1, 1, 0, 0, 1, 1]), shape=(1, 4, 6, 6)),
    "DepthToSpace": _moved("DepthToSpace", blocksize=2, shape=(1, 1, 8, 8)),
    "SpaceToDepth": _moved("SpaceToDepth", blocksize=2, shape=(1, 16, 2, 2)),
    "Resize": _moved(
        "Resize", np.zeros(0, np.float32), np.float32([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric", shape=(1, 4, 8, 8),
    ),
    "Reshape": _there_and_back("Reshape", np.array([1, 2, 8, 4])),
    "Flatten": _there_and_back("Flatten"),
    "Transpose": _moved("Transpose", perm=[0, 1, 3, 2]),
    "Squeeze": _there_and_back("Squeeze", np.array([0])),
    "Unsqueeze": _there_and_back("Unsqueeze", np.array([0])),
    "Gather": _moved("Gather", np.array([2, 0, 3, 1]), axis=1),
    "BatchNormalization": _moved(
        "BatchNormalization", *(np.full(4, each, np.float32) for each in (1.5, 0.25, 0.5, 1.0))
    ),
    "ConvTranspose": _weighted("ConvTranspose", (1, 2, 8, 8), strides=[2, 2]),
    "FusedConv": _weighted("FusedConv", (1, 4, 3, 3), group=2, activation="Relu", domain="com.microsoft"),
    "GatherND": _moved("GatherND", np.array([[[0, each]] for each in (2, 0)][:1]), shape=(1, 1, 4, 4)),
}  # fmt: skip


def operator_network(operator: str) -> bytes:
    """A quantised network with an operator between two convolutions, or with it as a convolution or matrix product."""
    if operator in _WHOLE:
        return (EXAMPLES / _WHOLE[operator]).read_bytes()
    if operator in ("Quant", "IntQuant"):
        return _brevitas(operator)
    if operator in ("QLinearConv", "QLinearMatMul", "QGemm", "Conv", "MatMul", "Gemm"):
        return _product(operator)
    if operator in ("ConvInteger", "MatMulInteger"):
        return _integer_product(operator)
    made = Maker(np.random.default_rng(0), "qop" if operator.startswith("QLinear") else "qdq", False, TINY)
    made.start((1, 3, 4, 4))
    made.product("Conv", (4, 3, 1, 1), 0, _MAP, bias=False)
    made.constants[made.scale] = _SCALE
    if operator.startswith("QLinear"):
        _add_quantised(made, operator.removeprefix("QLinear"))
    elif operator not in ("QuantizeLinear", "DequantizeLinear"):
        # In QuantizeLinear and DequantizeLinear alone there is nothing to compute, but another scale.
        given, shape = _SHAPED.get(operator, _pointwise(operator))(made, made.dequantised())
        made.quantise(given, *made.quantisation(2.0**-5, 0), shape)
    else:
        made.quantise(made.dequantised(), *made.quantisation(2.0**-3, 0), _MAP)
    made.product("Conv", (2, made.shape[1], 1, 1), 0, (1, 2, *made.shape[2:]), bias=False)
    return made.serialise(opset=_OPSETS.get(operator, 20))


def _brevitas(operator: str) -> bytes:
    made = QonnxNetwork((3, 4, 4))
    inner = made.quant(made.add("Relu", made.quant(made.conv(made.quant("x"), made.integers((4, 3, 1, 1))))))
    model = onnx.load_from_string(made.model(made.quant(made.conv(inner, made.integers((2, 4, 1, 1))))))
    for node in model.graph.node:
        node.op_type = operator if node.op_type == "Quant" else node.op_type
    return model.SerializeToString()


def _integer_product(operator: str) -> bytes:
    """One with an int32 result at the end, behind a convolution or a matrix product."""
    made = Maker(np.random.default_rng(0), "qop", False, TINY)
    if operator == "ConvInteger":
        made.start(_MAP)
        made.product("Conv", (3, 4, 1, 1), 0, (1, 3, 4, 4))
        weights = np.array([[1, -1, 1], [0, 1, 0]], np.int8).reshape(2, 3, 1, 1)
    else:
        made.start((1, 12))
        made.product("Gemm", (12, 3), 1, (1, 3))
        weights = np.array([[1, -1], [0, 1], [1, 1]], np.int8)
    zeros = made.zero, made.constant("z", np.int8(0))
    made.tensor = made.node(operator, [made.tensor, made.constant("w", weights), *zeros])
    return made.serialise()


def _product(operator: str) -> bytes:
    form = "qop" if operator.startswith("Q") else "qdq"
    made = Maker(np.random.default_rng(0), form, False, TINY)
    kind = operator.removeprefix("QLinear").removeprefix("Q")
    if kind == "Conv":
        made.start(_MAP)
        made.product("Conv", (3, 4, 1, 1), 0, (1, 3, 4, 4))
    else:
        made.start((1, 12))
        made.product(kind, (12, 5), 1, (1, 5))
    return made.serialise()


def _add_quantised(made: Maker, kind: str) -> None:
    out_scale, out_zero = made.quantisation(0.02, 0)
    ends, shape, given = [made.tensor, made.scale, made.zero], _MAP, {}
    if kind in ("Add", "Mul"):
        number = [made.constant("n", np.int8(5)), made.constant("ns", np.float32(0.1)), made.constant("nz", np.int8(0))]
        ends += [*number, out_scale, out_zero]
    elif kind == "Concat":
        ends, shape, given = [out_scale, out_zero, *ends, *ends], (1, 8, 4, 4), {"axis": 1}
    elif kind == "Where":
        ends += [*ends, out_scale, out_zero]
        ends.insert(0, made.node("Greater", [made.dequantised(), made.constant("n", np.float32(0.25))]))
    else:
        ends += [out_scale, out_zero]
    if kind == "GlobalAveragePool":
        shape = (1, 4, 1, 1)
    if kind == "AveragePool":
        # An odd number of elements and one scale: no sum is a tie.
        ends, shape, given = [*ends[:3], made.scale, made.zero], (1, 4, 2, 2), {"kernel_shape": [3, 3]}
        out_scale, out_zero = made.scale, made.zero
    made.tensor = made.node(f"QLinear{kind}", ends, domain="com.microsoft", **given)
    made.scale, made.zero, made.shape = out_scale, out_zero, shape


def _pointwise(operator: str) -> Body:
    """An operator on one activation and numbers, which gives float again."""

    def body(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
        half = made.constant("number", np.float32(0.5))
        if operator in (*_COMPARING, *_LOGICAL, "Not", "Where"):
            compared = made.node(operator if operator in _COMPARING else "Greater", [tensor, half])
            if operator in _LOGICAL:
                compared = made.node(operator, [compared, made.node("Less", [tensor, half])])
            if operator == "Not":
                compared = made.node("Not", [compared])
            result = (
                made.node("Where", [compared, tensor, half])
                if operator == "Where"
                else made.node("Cast", [compared], to=1)
            )
            return result, _MAP
        if operator == "Cast":
            return made.node("Cast", [made.node("Cast", [tensor], to=10)], to=1), _MAP
        operands = [tensor, half] if operator in _WITH_A_NUMBER else [tensor]
        domain = "com.microsoft" if operator in _MICROSOFT else ""
        return made.node(operator, operands, domain=domain, **_ATTRIBUTES.get(operator, {})), _MAP

    return body


DOCS = Path(__file__).parents[3] / "docs"
OPERATORS = sorted({name for one in supported() for name in one.operators})
#: What the frontend names, but does not lower: mostly to say why it is refused.
REFUSED = {
    *(name for name in FLOAT_PRODUCTS if name not in OPERATORS),
    *("GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"),
    *("Attention", "GRU", "LSTM", "MatMulNBits", "RNN", "QLinearSoftmax", "Softmax"),
    # It writes that for the host.
    "ReduceSum",
    # They are folded or measured before anything is lowered, or begin the names of operators.
    *("Constant", "Shape", "Size", "DynamicQuantizeLinear", "QLinear"),
}


def test_page_is_up_to_date() -> None:
    text = (DOCS / "supported.md").read_text(encoding="utf-8")
    assert text == page(), "run `python -m lutterfly.host.supported`"


def named_operators() -> Iterator[tuple[str, str]]:
    """Every string in the code of the frontend that is the name of an operator, and the file it stands in."""
    for path in Path(frontend.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_name = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_name and (defs.has(node.value) or node.value.startswith(("QLinear", "QGemm", "Fused"))):
                yield node.value, path.name


def test_every_operator_that_the_frontend_names_is_listed() -> None:
    found = dict(named_operators())
    assert len(found) > 80
    assert {name: place for name, place in found.items() if name not in {*OPERATORS, *REFUSED}} == {}


def test_every_kind_of_fragment_is_lowered() -> None:
    assert {*LOWERINGS} == {*Kind} - {Kind.HOST}


@pytest.mark.sampled(11)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_runs_on_the_accelerator_between_two_layers(operator: str) -> None:
    data = operator_network(operator)
    written = {node.op_type.rpartition("_")[0] or node.op_type for node in onnx.load_from_string(data).graph.node}
    assert operator in written
    layers = {type(layer) for layer in import_model(data).layers}
    known = {layer for one in supported() if written & {*one.operators} for layer in one.layers}
    assert layers <= {*known, Convolution, Pointwise}


def test_every_layer_that_is_listed_is_executed() -> None:
    executed = {layer for one in EXECUTED for layer in one.layers}
    assert {layer for one in supported() for layer in one.layers} <= executed


def test_every_rewriting_names_operators_of_onnx() -> None:
    assert all(each.operators and all(map(defs.has, each.operators)) for each in REWRITINGS)


def test_refusals_are_those_that_a_function_states() -> None:
    @refuses("it is large", "there is none")
    def lower() -> None: ...

    assert refusals(lower) == ("it is large", "there is none")
    assert refusals(functools.wraps(lower)(lambda: None)) == ("it is large", "there is none")


def test_what_refuses_must_say_when() -> None:
    with pytest.raises(ValueError, match=r"^named_operators must be marked with refuses\(\.\.\.\), which says when$"):
        refusals(named_operators)


def test_the_answer_knows_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--supported", "--config", "tiny", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    runs = {one["title"]: one["runs_on_configuration"] for one in answer["operators"]}
    assert not runs["fast pointwise convolution"]
    assert runs["convolution or matrix product"]
    assert {name for one in answer["operators"] for name in one["operators"]} == {*OPERATORS}
    assert main(["check", "--supported", "--config", "tiny"]) == 0
    shown = capsys.readouterr().out
    assert "  needs the engine FPC, which this configuration lacks\n" in shown
    assert shown.count("which this configuration lacks") == sum(not each for each in runs.values())
    assert all(f"\n    {each.change}\n" in f"{shown}\n" for each in REWRITINGS)


@pytest.mark.parametrize("words", [[], ["net.onnx", "--supported"]])
def test_a_model_or_the_list(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == "one of MODEL and --supported must be given, and not both"
