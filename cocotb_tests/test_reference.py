"""ONNX Runtime as the reference: the processor's probe, integer tensors on show, options of the QDQ form."""
from __future__ import annotations

import numpy as np
import onnx
import pytest
from generated import FORMS, chain, layer

from lutterfly.examples import digits
from lutterfly.host import reference


def test_the_probe_gives_a_reason_or_none():
    reason = reference.probe()
    assert reason is None or "processor" in reason


@pytest.mark.parametrize(("machine", "flags", "expected"), [
    ("x86_64", "avx2 fma", None),
    ("AMD64", "avx2 fma avx512_vnni", None),
    ("x86_64", "sse4_2", "the processor lacks avx2, fma, with which ONNX Runtime's bytes are defined"),
    ("aarch64", "", "ONNX Runtime's bytes are defined on x86-64 processors, and this one is aarch64"),
])
def test_the_probe_reads_the_processor(monkeypatch, machine: str, flags: str, expected: str | None):
    monkeypatch.setattr(reference.platform, "machine", lambda: machine)
    monkeypatch.setattr(reference.Path, "exists", lambda _: True)
    monkeypatch.setattr(reference.Path, "read_text", lambda _: f"processor : 0\nflags\t\t: fpu {flags}\n")
    assert reference.probe.__wrapped__() == expected


@pytest.mark.parametrize("form", digits.FORMS)
def test_it_shows_every_integer_tensor_and_the_outputs(form: str):
    data = digits.model_path(form).read_bytes()
    values = reference.run(data, {"pixels": digits.images()[:2]})
    model = onnx.load_from_string(data)
    operators = ("QuantizeLinear", "QLinearConv", "QGemm")
    quantised = [node.output[0] for node in model.graph.node if node.op_type in operators]
    assert set(quantised) | {"logits"} <= values.keys()
    assert {values[name].dtype.type for name in quantised} == {np.uint8 if form == "uint8" else np.int8}
    assert {len(value) for value in values.values()} == {2}


def test_integer_inputs_are_shown_as_well():
    generated = layer("conv", 1)
    feeds = generated.feeds(0)
    values = reference.run(generated.model, feeds)
    assert values["x"] is feeds["x"]
    assert reference.run(generated.model, feeds, ["x"]).keys() == {"x"}


@pytest.mark.parametrize("form", FORMS)
def test_showing_tensors_changes_no_answer(form: str):
    for seed in range(5):
        generated = chain(seed, form=form)
        # Nothing in between would be shown otherwise.
        assert len(reference.Reference(generated.model).run(generated.feeds(seed))) > 2


def test_a_changed_answer_hides_the_tensors_in_between():
    generated = layer("fc", 0)
    opened = reference.Reference(generated.model)
    feeds = generated.feeds(0)
    shown = opened.run(feeds)
    broken = onnx.load_from_string(generated.model)
    weights = next(tensor for tensor in broken.graph.initializer if tensor.name.startswith("w_"))
    weights.raw_data = bytes(len(weights.raw_data))
    opened._plain = reference.open_session(broken.SerializeToString())
    name, = opened.output_names
    hidden = opened.run(feeds)
    assert hidden.keys() == {"x", name}
    assert hidden[name].tobytes() == opened._plain.run([name], feeds)[0].tobytes() != shown[name].tobytes()


def test_the_qdq_form_is_recognised_and_remembered():
    loaded = {form: onnx.load(digits.model_path(form)) for form in digits.FORMS}
    assert [form for form, model in loaded.items() if reference.is_qdq(model)] == ["qdq"]
    part = onnx.ModelProto()
    assert not reference.is_qdq(part)
    for qdq in (True, False):
        part = onnx.load_from_string(loaded["qop"].SerializeToString())
        reference.mark_form(part, qdq=qdq)
        assert reference.is_qdq(part) is qdq


@pytest.mark.parametrize(("kind", "form", "qdq"), [
    ("Tanh", "qdq", True), ("pool", "qdq", True), ("pool", "qop", False),
])
def test_networks_without_a_product_have_a_form_too(kind: str, form: str, qdq: bool):
    assert reference.is_qdq(onnx.load_from_string(layer(kind, 0, form=form).model)) is qdq


def test_an_opened_reference_is_kept():
    data = digits.model_path("qop").read_bytes()
    assert reference.reference(data) is reference.reference(bytes(data))
