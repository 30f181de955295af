"""ONNX Runtime as the reference: the processor's probe, integer tensors on show, options of the QDQ form."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from cocotb_tests.support.networks.generated import FORMS, TINY, Maker, chain, layer
from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, needs_reference
from lutterfly.examples import digits
from lutterfly.host.model import executed, model_graph, reference, runtime
from lutterfly.host.model.model import Model


def test_the_probe_gives_a_reason_or_none():
    reason = runtime.probe()
    assert reason is None or "processor" in reason


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", "avx2 fma", None),
        ("AMD64", "avx2 fma avx512_vnni", None),
        ("x86_64", "sse4_2", "the processor lacks avx2, fma, with which ONNX Runtime's bytes are defined"),
        ("aarch64", "", "ONNX Runtime's bytes are defined on x86-64 processors, and this one is aarch64"),
    ],
)
def test_the_probe_reads_the_processor(monkeypatch, machine: str, flags: str, expected: str | None):
    monkeypatch.setattr(runtime.platform, "machine", lambda: machine)
    monkeypatch.setattr(runtime.Path, "exists", lambda _: True)
    monkeypatch.setattr(runtime.Path, "read_text", lambda _: f"processor : 0\nflags\t\t: fpu {flags}\n")
    assert runtime.probe.__wrapped__() == expected


@pytest.mark.parametrize("form", digits.FORMS)
def test_it_shows_every_integer_tensor_and_the_outputs(form: str):
    data = digits.model_path(form).read_bytes()
    values = reference.run(Model(data), {"pixels": digits.images()[:2]})
    model = onnx.load_from_string(data)
    operators = ("QuantizeLinear", "QLinearConv", "QGemm")
    quantised = [node.output[0] for node in model.graph.node if node.op_type in operators]
    assert set(quantised) | {"logits"} <= values.keys()
    assert {values[name].dtype.type for name in quantised} == {np.uint8 if form == "uint8" else np.int8}
    assert {len(value) for value in values.values()} == {2}


def test_integer_inputs_are_shown_as_well():
    generated = layer("conv", 1)
    feeds = generated.feeds(0)
    values = reference.run(Model(generated.model), feeds)
    assert values["x"] is feeds["x"]
    assert reference.run(Model(generated.model), feeds, ["x"]).keys() == {"x"}


@pytest.mark.parametrize("form", FORMS)
def test_showing_tensors_changes_no_answer(form: str):
    for seed in range(5):
        generated = chain(seed, form=form)
        # Nothing in between would be shown otherwise.
        assert len(reference.Reference(Model(generated.model)).run(generated.feeds(seed))) > 2


def around_float_convolutions(*, ahead: bool) -> tuple[bytes, list[str]]:
    """A quantised convolution with a float one after, and perhaps one ahead; its quantised tensors."""
    made = Maker(np.random.default_rng(0), "qdq", False, TINY)
    made.start((1, 3, 8, 8))
    weights = (
        made.constant("float", made.rng.normal(size=shape).astype(np.float32))
        for shape in ((16, 3, 3, 3), (16, 16, 3, 3))
    )
    first, second = weights
    if ahead:
        made.quantise(made.node("Conv", ["x", first]), *made.quantisation(0.1, 3), (1, 16, 6, 6))
        made.product("Conv", (16, 16, 1, 1), 0, (1, 16, 6, 6))
    else:
        made.product("Conv", (16, 3, 3, 3), 0, (1, 16, 6, 6))
    codes = [node.output[0] for node in made.nodes if node.op_type == "QuantizeLinear"]
    output = made.node("Conv", [made.dequantised(), second])
    return made.serialise([output], input_type=np.float32 if ahead else np.int8), codes


@pytest.mark.parametrize("ahead", [False, True])
def test_what_float_convolutions_make_uncertain_is_hidden(ahead: bool):
    """Their sums have another order in the plain model; what does not depend on them is shown."""
    data, codes = around_float_convolutions(ahead=ahead)
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 8, 8), np.int8)
    feeds = {"x": x.astype(np.float32) / 64 if ahead else x}
    opened = reference.Reference(Model(data))
    found = opened.run(feeds)
    (output,) = opened.output_names
    assert found[output].tobytes() == executed.open_session(Model(data)).run(None, feeds)[0].tobytes()
    assert found[output].tobytes() != opened._exposed.run([output], feeds)[0].tobytes(), "the two agree"
    assert [name in found for name in codes] == [not ahead] * len(codes)


def test_the_qdq_form_is_recognised_and_remembered():
    loaded = {form: onnx.load(digits.model_path(form)) for form in digits.FORMS}
    assert [form for form, model in loaded.items() if model_graph.is_qdq(model)] == ["qdq"]
    part = onnx.ModelProto()
    assert not model_graph.is_qdq(part)
    for qdq in (True, False):
        part = onnx.load_from_string(loaded["qop"].SerializeToString())
        model_graph.mark_form(part, qdq=qdq)
        assert model_graph.is_qdq(part) is qdq


@pytest.mark.parametrize(
    ("kind", "form", "qdq"),
    [
        ("Tanh", "qdq", True),
        ("pool", "qdq", True),
        ("pool", "qop", False),
    ],
)
def test_networks_without_a_product_have_a_form_too(kind: str, form: str, qdq: bool):
    assert model_graph.is_qdq(onnx.load_from_string(layer(kind, 0, form=form).model)) is qdq


def test_an_opened_reference_is_kept():
    data = digits.model_path("qop").read_bytes()
    assert reference.reference(Model(data)) is reference.reference(Model(bytes(data)))


@pytest.mark.parametrize(("form", "graphs"), [("qdq", 1), ("qop", 1), ("uint8", 2)])
def test_onnx_runtime_is_asked_once_for_what_it_executes(monkeypatch: pytest.MonkeyPatch, form: str, graphs: int):
    """Of uint8 codes twice: what it executes says whether sums must be made exact, and then it executes another."""
    found, execute = [], executed.executed_model
    monkeypatch.setattr(executed, "executed_model", lambda *given: found.append(execute(*given)) or found[-1])
    reference.Reference(Model(digits.model_path(form).read_bytes()))
    assert len(found) == graphs


def shared_zero_points() -> tuple[bytes, dict[str, np.ndarray]]:
    """A uint8 network of two products whose weights have one zero point, as exporters write it."""
    made = Maker(np.random.default_rng(0), "qdq", True, TINY)
    made.start((1, 3, 6, 6))
    for inputs in (3, 4):
        made.product("Conv", (4, inputs, 1, 1), 0, (1, 4, 6, 6), bias=False)
    model = onnx.load_from_string(made.serialise())
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    readers = [
        node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and constants.get(node.input[0], np.zeros(1)).ndim == 4
    ]
    assert len(readers) == 2
    for node in readers:
        node.input[2] = readers[0].input[2]
    feeds = {"x": np.random.default_rng(1).integers(0, 256, (1, 3, 6, 6), np.uint8)}
    return model.SerializeToString(), feeds


def constants_as_nodes(data: bytes) -> bytes:
    """A model whose initializers are nodes."""
    model = onnx.load_from_string(data)
    nodes = [onnx.helper.make_node("Constant", [], [one.name], value=one) for one in model.graph.initializer]
    nodes += model.graph.node
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString()


@needs_reference
@pytest.mark.parametrize("as_nodes", [False, True])
def test_products_may_share_the_zero_point_of_their_weights(as_nodes: bool):
    """Where sums must be exact, ONNX Runtime 1.32 fails on it by itself."""
    data, feeds = shared_zero_points()
    assert_exact(constants_as_nodes(data) if as_nodes else data, feeds)


@needs_reference
@pytest.mark.parametrize("as_nodes", [False, True])
def test_products_may_share_their_dequantised_weights(as_nodes: bool):
    """As ONNX Runtime's quantiser writes layers that have one matrix."""
    made = Maker(np.random.default_rng(0), "qdq", True, TINY)
    made.start((1, 4, 6, 6))
    for _ in range(3):
        made.product("Conv", (4, 4, 1, 1), 0, (1, 4, 6, 6), bias=False)
    products = [node for node in made.nodes if node.op_type == "Conv"]
    shared = products[0].input[1]
    made.nodes[:] = [node for node in made.nodes if node.output[0] not in {one.input[1] for one in products[1:]}]
    for node in products:
        node.input[1] = shared
    data = made.serialise()
    values = {"x": np.random.default_rng(1).integers(0, 256, (1, 4, 6, 6), np.uint8)}
    assert_exact(constants_as_nodes(data) if as_nodes else data, values)


@needs_reference
def test_a_tail_multiplies_in_the_order_of_the_plain_model():
    """ONNX Runtime does not dequantise constant weights beforehand, and multiplies constant ones in another order."""
    made = Maker(np.random.default_rng(0), "qdq", False, TINY)
    made.start((1, 3, 6, 6))
    made.product("Conv", (8, 3, 1, 1), 0, (1, 8, 6, 6))
    flat = made.node("Flatten", [made.dequantised()])
    weight, scale, zero, _ = made.weights((10, 288), 0, False)
    made.tensor = made.node("Gemm", [flat, made.node("DequantizeLinear", [weight, scale, zero])], transB=1)
    data = made.serialise()
    for seed in range(4):
        assert_answers(data, {"x": np.random.default_rng(seed).integers(-128, 128, (1, 3, 6, 6)).astype(np.int8)})


def quantised_parts(*, swapped: bool) -> onnx.ModelProto:
    """A vector of int8 codes, of which two parts are quantised again; the nodes of one or of the other go first."""
    made = onnx.helper.make_node
    parts = [
        [
            made("QuantizeLinear", [name, "scale", "zero"], [f"{name}_codes"]),
            made("DequantizeLinear", [f"{name}_codes", "scale", "zero"], [f"{name}_read"]),
            made("Sqrt", [f"{name}_read"], [f"{name}_root"]),
        ]
        for name in ("left", "right")
    ]
    nodes = [
        # One operator on codes, so that int8 codes become uint8 ones between the others.
        made("QLinearSigmoid", ["x", "scale", "zero", "scale", "zero"], ["codes"], domain="com.microsoft"),
        made("DequantizeLinear", ["codes", "scale", "zero"], ["read"]),
        made("Split", ["read", "sizes"], ["left", "right"], axis=1),
        *itertools.chain(*(reversed(parts) if swapped else parts)),
    ]
    constants = {"scale": np.float32(0.5), "zero": np.int8(3), "sizes": np.int64([1, 2])}
    graph = onnx.helper.make_graph(
        nodes,
        "parts",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT8, [1, 3])],
        [
            onnx.helper.make_tensor_value_info(f"{name}_root", onnx.TensorProto.FLOAT, None)
            for name in ("left", "right")
        ],
        [onnx.numpy_helper.from_array(np.array(value), name) for name, value in constants.items()],
    )
    return onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    )


def test_what_onnx_runtime_adds_is_named_after_its_origin() -> None:
    made = [
        {node.output[0]: node.input[0] for node in executed.executed_model(quantised_parts(swapped=swapped)).graph.node}
        for swapped in (False, True)
    ]
    added = {name: source for name, source in made[0].items() if name.startswith("QuantizeLinear")}
    assert sorted(added.values()) == ["left", "right"]
    assert all(name.startswith(f"QuantizeLinear of {source}, ") for name, source in added.items())
    assert made[0] == made[1]
