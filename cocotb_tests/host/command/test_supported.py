"""`check --supported` and its page say what the code enforces: each operator, and only those that a network has met."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import defs

from cocotb_tests.support.networks.operator_networks import operator_network
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
