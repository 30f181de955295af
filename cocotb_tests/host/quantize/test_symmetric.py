"""Which activations are quantised around 0."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.quantize.ranges import around_zero


def test_both_operands_and_what_their_codes_come_from() -> None:
    """Past what keeps codes; neither results, nor what is multiplied by a constant."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["tokens"]),
        helper.make_node("Reshape", ["tokens", "shape"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        helper.make_node("Mul", ["tokens", "half"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "turned"], ["y"]),
    ]
    held = [
        numpy_helper.from_array(array, name)
        for name, array in (("w", np.eye(3)), ("half", np.array(0.5)), ("shape", np.array([4, 3])))
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "products", ends[:1], ends[1:], held))
    known = {"turned": [{"rmin": -1.0}], "y": [{"rmax": 2.0}]}
    found = around_zero(model, known)
    assert {name for name, (given,) in found.items() if given.get("symmetric")} == {
        "tokens",
        "rows",
        "turned",
        "scaled",
    }
    # What is known of a tensor stays.
    assert found["turned"] == [{"rmin": -1.0, "symmetric": True}]
    assert found["y"] == known["y"]


@pytest.mark.parametrize("kind", ["Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"])
def test_what_moves_codes_alone_passes_them_on(kind: str) -> None:
    """Of the further outputs as of the first, and several in a row."""
    nodes = [
        helper.make_node("Relu", ["x"], ["made"]),
        helper.make_node(kind, ["made"], ["moved", "aside"]),
        helper.make_node(kind, ["aside"], ["again"]),
        helper.make_node("MatMul", ["again", "x"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "products", ends[:1], ends[1:]))
    assert around_zero(model, {}).keys() == {"again", "aside", "made", "x"}
