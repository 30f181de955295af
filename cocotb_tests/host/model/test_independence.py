"""Batches in which samples depend on each other are refused; others are run sample by sample."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.networks.generated import TINY, Maker
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.independence import mixing_node
from lutterfly.host.model.model import Model

CONFIG = PRESETS["tiny"]


def network(*operators: tuple[str, dict], fixed: bool = False) -> bytes:
    """A fully connected layer, and float operators after it."""
    made = Maker(np.random.default_rng(0), "qdq", False, TINY)
    made.start((1, 20))
    made.product("Gemm", (8, 20), 0, (1, 8), transB=1)
    tensor = made.dequantised()
    for operator, attributes in operators:
        tensor = made.node(operator, [tensor], **attributes)
    model = onnx.load_from_string(made.serialise([tensor]))
    if fixed:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return model.SerializeToString()


def samples(count: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).integers(-128, 128, (count, 20), np.int8)}


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ((), ""),
        ((("Softmax", {"axis": 1}),), ""),
        ((("Softmax", {"axis": 0}),), "Softmax"),
        ((("Softmax", {"axis": 0}), ("Relu", {})), "Softmax"),
        ((("Relu", {}), ("ReduceMean", {})), "ReduceMean"),
        # Moved and moved back: the samples stay as they are.
        ((("Transpose", {"perm": [1, 0]}), ("Softmax", {"axis": 0}), ("Transpose", {"perm": [1, 0]})), ""),
        ((("Transpose", {"perm": [1, 0]}),), "Transpose"),
    ],
)
def test_the_node_that_mixes_samples(operators: tuple, expected: str):
    found = mixing_node(Model(network(*operators)))
    assert found.partition(" ")[0] == expected


def test_a_batch_that_mixes_samples_is_refused_and_one_sample_is_not():
    data = network(("Softmax", {"axis": 0}))
    session = InferenceSession(data, CONFIG, GoldenTransport(CONFIG))
    one = samples(1)
    assert session.run(None, one)[0].tobytes() == open_session(Model(data)).run(None, one)[0].tobytes()
    softmax = next(node.name for node in onnx.load_from_string(data).graph.node if node.op_type == "Softmax")
    with pytest.raises(
        ValueError,
        match=rf"^input must be one sample, not 3: Softmax '{softmax}' makes the outputs of "
        r"a batch other than those of its samples; run them one by one$",
    ):
        session.run(None, samples(3))


def test_a_fixed_batch_has_nothing_to_differ_from():
    session = InferenceSession(network(("Softmax", {"axis": 0}), fixed=True), CONFIG, GoldenTransport(CONFIG))
    assert session.run(None, samples(3))[0].shape == (3, 8)


def test_a_constant_output():
    model = onnx.load_from_string(network())
    model.graph.initializer.append(numpy_helper.from_array(np.float32([[1, 2]]), "given"))
    model.graph.output.append(helper.make_tensor_value_info("given", TensorProto.FLOAT, [1, 2]))
    data = model.SerializeToString()
    assert mixing_node(Model(data)) == "output 'given'"
    found = InferenceSession(data, CONFIG, GoldenTransport(CONFIG)).run(["given"], samples(1))[0]
    assert found.tolist() == [[1, 2]]


@pytest.mark.parametrize("form", digits.FORMS)
def test_the_samples_of_the_demo_are_independent(form: str):
    assert mixing_node(Model(digits.model_path(form).read_bytes())) == ""
