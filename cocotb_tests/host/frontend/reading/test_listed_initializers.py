"""Initializers among the inputs of a graph: constants in files of IR version 3, and what a caller may replace later."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_answers, needs_reference
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.model.model import Model
from lutterfly.host.model.reference import Reference
from lutterfly.host.quantize.static_quantisation import quantize, relative_errors

pytestmark = needs_reference
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
