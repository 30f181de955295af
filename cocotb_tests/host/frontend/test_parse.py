"""Files that the standard has otherwise, and spellings of one operator: they are read as ONNX Runtime reads them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_answers, needs_reference
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.parse import _spell_reshapes
from lutterfly.host.frontend.source import Source
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.model.reference import Reference
from lutterfly.host.quantize.static_quantisation import quantize, relative_errors

pytestmark = needs_reference

TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3, 5, 6] x) => (float[n, 4, 5, 6] y) '
VALUES = {"x": np.random.default_rng(1).normal(size=(4, 3, 5, 6)).astype(np.float32)}


def network() -> onnx.ModelProto:
    """Three operators in float, none of which has a name."""
    model = onnx.parser.parse_model(TEXT + "{ a = Conv(x, w) b = HardSwish(a) y = Conv(b, v) }")
    rng = np.random.default_rng(0)
    for name, shape in (("w", (8, 3, 1, 1)), ("v", (4, 8, 1, 1))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return model


QUANTISED = onnx.load_from_string(quantize(network().SerializeToString(), VALUES))


def backwards(model: onnx.ModelProto) -> None:
    nodes = [copy.deepcopy(node) for node in model.graph.node][::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def without_shape(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.ClearField("shape")


def without_type(model: onnx.ModelProto) -> None:
    model.graph.output[0].ClearField("type")


def without_graph_name(model: onnx.ModelProto) -> None:
    model.graph.name = ""


def standard_by_name(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.domain = "ai.onnx"


def twice(model: onnx.ModelProto) -> None:
    """The second counts: the first one has a value for each of other elements."""
    first = model.graph.initializer[0]
    other = numpy_helper.to_array(first)
    model.graph.initializer.append(copy.deepcopy(first))
    first.CopyFrom(numpy_helper.from_array(np.zeros_like(other), first.name))


def nameless_constant(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1), ""))


def same_note_twice(model: onnx.ModelProto) -> None:
    for _ in range(2):
        model.metadata_props.add(key="made by", value="nobody")


CHANGES = [
    backwards,
    without_shape,
    without_type,
    without_graph_name,
    standard_by_name,
    twice,
    nameless_constant,
    same_note_twice,
]
Change = Callable[[onnx.ModelProto], None]


def changed(model: onnx.ModelProto, change: Change) -> bytes:
    """The file, which the checker refuses and ONNX Runtime runs to the same values."""
    other = copy.deepcopy(model)
    change(other)
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(other)
    data = other.SerializeToString()
    feeds = {"x": VALUES["x"][:1]}
    (wanted,), (found,) = (open_session(each).run(None, feeds) for each in (Model.written(model), Model(data)))
    np.testing.assert_array_equal(found, wanted)
    return data


@pytest.mark.parametrize("change", CHANGES)
def test_a_quantised_file_runs(change: Change) -> None:
    data = changed(QUANTISED, change)
    assert_answers(data, {"x": VALUES["x"][:1]})
    assert [layer.name for layer in import_model(data).layers] == [
        layer.name for layer in import_model(QUANTISED.SerializeToString()).layers
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_a_float_file_is_quantised(change: Change) -> None:
    model = network()
    quantised = quantize(changed(model, change), VALUES)
    (error,) = relative_errors(Model.written(model), Model(quantised), VALUES).values()
    assert error < 0.05
    assert_answers(quantised, {"x": VALUES["x"][:1]})


def lost(model: onnx.ModelProto) -> None:
    model.graph.node[-1].input[0] = "nowhere"


def circle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "y"


def strange_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("colour", 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lost, "Conv that gives 'y' reads 'nowhere', which nothing computes"),
        (circle, "Conv that gives 'a' reads 'y', which is computed from its own result"),
        (strange_attribute, "Unrecognized attribute: colour for operator Conv"),
    ],
)
def test_what_onnx_runtime_does_not_run_is_refused_with_its_cause(change: Change, message: str) -> None:
    model = network()
    change(model)
    with pytest.raises(ModelError) as refused:
        quantize(model.SerializeToString(), VALUES, name="net")
    assert str(refused.value) == f"net: is not a valid ONNX model: {message}; export it again"


def test_an_input_without_a_shape_is_refused() -> None:
    model = network()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match="input 'x' must have a shape with a batch dimension"):
        quantize(model.SerializeToString(), VALUES)


def test_of_several_constants_the_last_is_read_and_none_without_a_name() -> None:
    model = network()
    model.graph.initializer.append(numpy_helper.from_array(np.full((8, 3, 1, 1), 2, np.float32), "w"))
    nameless_constant(model)
    read = Model(model.SerializeToString()).proto.graph.initializer
    assert sorted(tensor.name for tensor in read) == ["v", "w"]
    assert (numpy_helper.to_array(next(tensor for tensor in read if tensor.name == "w")) == 2).all()


def test_what_a_branch_reads_comes_before_it() -> None:
    """A name that a graph within a node takes from outside, and that a node further down computes."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2] x) => (float[2] y) { '
        "y = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) }, "
        "else_branch = e () => (float[2] q) { q = Abs(x) }> a = Relu(x) }"
    )
    model = Model(onnx.parser.parse_model(text).SerializeToString())
    assert [node.op_type for node in model.proto.graph.node] == ["Relu", "If"]


# Initializers among the inputs of a graph: constants in files of IR version 3, and what a caller may replace later.

EXAMPLES = digits.model_path("qop").parent


def listed(model: onnx.ModelProto, ir_version: int) -> bytes:
    model.ir_version = ir_version
    present = {value.name for value in model.graph.input}
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
        if tensor.name not in present
    )
    return model.SerializeToString()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["qdq", "qop", "uint8", "binary", "brevitas"])
def test_listed_initializers_are_constants(form: str) -> None:
    path = EXAMPLES / f"digits_{form}.onnx"
    data = listed(onnx.load(path), 3)
    found, plain = (compile_model(given, PRESETS["ecp5-85k"]) for given in (data, path.read_bytes()))
    assert (found.cores[0].body, found.constants, found.predicted_cycles) == (
        plain.cores[0].body,
        plain.constants,
        plain.predicted_cycles,
    )


def test_listed_initializers_are_no_inputs_of_the_reference() -> None:
    data = listed(onnx.load(digits.model_path("qdq")), 3)
    feeds = {"pixels": np.random.default_rng(0).uniform(0, 16, (1, *digits.images()[:1].shape[1:])).astype(np.float32)}
    assert_answers(data, feeds)
    assert len(Reference(Model(data)).run(feeds)) > 2


def test_a_float_model_with_listed_initializers_is_quantised() -> None:
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], "conv")],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3, 6, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4, 4, 4])],
        [numpy_helper.from_array(weights, "w")],
    )
    data = listed(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), 3)
    samples = {"x": np.random.default_rng(1).normal(size=(4, 3, 6, 6)).astype(np.float32)}
    quantised = quantize(data, samples)
    assert len(import_model(quantised).layers) == 1
    assert relative_errors(Model(data), Model(quantised), samples)["y"] < 0.03


def test_what_a_caller_may_replace_is_refused_where_onnx_runtime_would_not_fuse_it() -> None:
    data = listed(onnx.load(digits.model_path("qdq")), 8)
    with pytest.raises(ModelError) as caught:
        import_model(data, "net.onnx")
    first = onnx.load_from_string(data).graph.initializer[0].name
    assert str(caught.value) == (
        f"net.onnx: initializer {first!r} must not be listed among the inputs of the graph: a caller may replace it "
        "then, and ONNX Runtime computes in float; export the network with "
        "keep_initializers_as_inputs=False (torch.onnx.export, and Brevitas), or take all of them out with "
        "python -m onnxruntime.tools.remove_initializer_from_input"
    )


# What a source's operators are spelled as: a Gather of everything in order is a Reshape, wherever it stands.


def test_every_gather_in_order_becomes_a_reshape() -> None:
    orders = {"backwards": [[3, 2, 1, 0]], "some": [0, 1], "in order": [[0, 1], [2, 3]], "again": [[0], [1], [2], [3]]}
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        *(helper.make_node("Gather", ["x", name], [f"{name} taken"]) for name in orders),
        helper.make_node("Gather", ["x", "computed"], ["unknown"]),
    ]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.INT8, [4])], [])
    constants = {name: np.array(order) for name, order in orders.items()}
    model = helper.make_model(graph)
    source = Source("model", model, Model(), qdq=False)
    source.constants, source.shapes = constants, {"x": (4,)}
    _spell_reshapes(source)
    assert [node.op_type for node in model.graph.node] == ["Relu", "Gather", "Gather", "Reshape", "Reshape", "Gather"]
    shapes = [constants[node.input[1]].tolist() for node in model.graph.node if node.op_type == "Reshape"]
    assert shapes == [[2, 2], [4, 1]]
