"""Files that ONNX Runtime opens and the standard has otherwise: they are read as ONNX Runtime reads them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_answers, needs_reference
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.static_quantisation import relative_errors

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
