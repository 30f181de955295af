"""What `verify` draws, and what it cannot compare byte by byte: strings, and what random numbers decide."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import needs_reference
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host.graph import Window
from lutterfly.host.model.arrays import TensorInfo, contents
from lutterfly.host.model.independence import mixing_node
from lutterfly.host.model.model import Model
from lutterfly.host.model.runtime import random_tensors
from lutterfly.host.session.compare import Verification
from lutterfly.host.session.session import InferenceSession
from lutterfly.host.session.verify import random_feeds, verify

TINY = PRESETS["tiny"]


def with_names(names: list[str]) -> bytes:
    """The digits' network, which says what it has read in words."""
    model = onnx.load(digits.model_path("qdq"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(names, object), "names"))
    model.graph.node.extend(
        [
            helper.make_node("ArgMax", ["logits"], ["best"], "best", axis=1, keepdims=0),
            helper.make_node("Gather", ["names", "best"], ["name"], "name"),
        ]
    )
    model.graph.output.append(helper.make_tensor_value_info("name", TensorProto.STRING, ["N"]))
    return model.SerializeToString()


def with_noise(*, in_front: bool) -> bytes:
    """The digits' network with random numbers added to its input, or to its output."""
    model = onnx.load(digits.model_path("qdq"))
    source, target = ("pixels", "noisy_pixels") if in_front else ("logits", "noisy_logits")
    for node in model.graph.node if in_front else ():
        node.input[:] = [target if name == source else name for name in node.input]
    nodes = [
        helper.make_node("RandomNormalLike", [source], ["noise"], "noise", scale=4.0),
        helper.make_node("Add", [source, "noise"], [target], "add"),
    ]
    if in_front:
        nodes += model.graph.node
        del model.graph.node[:]
    else:
        model.graph.output.append(helper.make_tensor_value_info(target, TensorProto.FLOAT, ["N", 10]))
    model.graph.node.extend(nodes)
    return model.SerializeToString()


def output_of(found: Verification, name: str) -> int | None:
    """Bytes of an output that differ; None where it is not compared."""
    return next((tensor.rtl for tensor in found.tensors if tensor.name == f"{name} (output)"), None)


@pytest.mark.regress
@needs_reference
def test_strings_are_compared_by_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_names([f"{number} as read" for number in range(10)])
    found = verify(model, TINY, samples=3)
    assert found.is_right
    assert output_of(found, "name") == output_of(found, "logits") == 0
    tail = InferenceSession.tail
    # Of the same length, and of another one.
    for word in ("? as read", "?"):
        wrong = {"name": np.array([word], object)}
        monkeypatch.setattr(InferenceSession, "tail", lambda *given, wrong=wrong: tail(*given) | wrong)
        found = verify(model, TINY, samples=1)
        assert [tensor.name for tensor in found.tensors if tensor.mismatched] == ["name (output)"]


def test_the_contents_of_strings_tell_them_apart() -> None:
    lists = [[], [""], ["", ""], ["ab"], ["a", "b"], ["ab", ""], ["é"], ["e"]]
    assert len({contents(np.array(words, object)) for words in lists}) == len(lists)
    assert contents(np.array(["ab"], object)) == contents(np.array(["ab"]))
    assert contents(np.arange(3, dtype=np.int16)) == b"\0\0\1\0\2\0"


@pytest.mark.regress
@needs_reference
def test_random_outputs_are_named_and_not_compared() -> None:
    found = verify(with_noise(in_front=False), TINY, samples=2)
    assert found.is_right
    assert (found.random, output_of(found, "noisy_logits"), output_of(found, "logits")) == (["noisy_logits"], None, 0)
    assert found.verdict.endswith("ONNX Runtime's are no reference where random numbers decide: noisy_logits")


@pytest.mark.regress
@needs_reference
def test_after_random_inputs_the_golden_functions_are_the_reference() -> None:
    found = verify(with_noise(in_front=True), TINY, samples=2)
    assert found.is_right
    assert "logits" in found.random
    assert not found.unseen
    # Every tensor that the core writes is compared all the same.
    assert {tensor.rtl for tensor in found.tensors if tensor.rtl is not None} == {0}
    assert len(found.tensors) > 5


def test_random_tensors_are_found_in_functions_and_branches() -> None:
    draw = helper.make_node("RandomUniform", [], ["drawn"], shape=[1])
    sides = [helper.make_graph([draw], side, [], [helper.make_empty_tensor_value_info("drawn")]) for side in "ab"]
    nodes = [
        helper.make_node("Called", ["x"], ["called"], domain="own"),
        helper.make_node("Relu", ["called"], ["after"]),
        helper.make_node("If", ["condition"], ["chosen"], then_branch=sides[0], else_branch=sides[1]),
        helper.make_node("Dropout", ["x", "", "training"], ["dropped"]),
        helper.make_node("Dropout", ["x"], ["kept"]),
        helper.make_node("Neg", ["x"], ["certain"]),
    ]
    body = helper.make_function("own", "Called", ["x"], ["drawn"], [draw], [helper.make_opsetid("", 18)])
    model = helper.make_model(helper.make_graph(nodes, "net", [], []), functions=[body])
    assert random_tensors(model) == {"called", "after", "chosen", "dropped"}


@needs_reference
def test_strings_and_random_numbers_do_not_mix_samples() -> None:
    assert mixing_node(Model(with_names([str(number) for number in range(10)]))) == ""
    assert mixing_node(Model(with_noise(in_front=False))) == ""


# Random inputs: all that a quantised input can tell apart, and nothing beyond.


def test_floats_have_the_range_of_the_codes() -> None:
    maker = GraphMaker((40, 40, 8))
    graph = maker.finish(maker.convolution("x", 8, Window((1, 1))))
    session = SimpleNamespace(get_inputs=lambda: [TensorInfo("x", [1, 8, 40, 40], "tensor(float)")])
    (values,) = random_feeds(session, graph, np.random.default_rng(0), samples=2).values()
    tensor = graph.tensors["x"]
    codes = np.rint(values / tensor.scale) + tensor.zero_point
    assert values.shape == (2, 8, 40, 40)
    assert np.unique(codes).tolist() == list(range(-128, 128))
