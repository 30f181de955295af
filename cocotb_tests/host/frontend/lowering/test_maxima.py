"""ReduceMax over rows and columns between quantised tensors: max pooling, with the bytes of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_exact, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference


def network(shape: tuple[int, ...], axes: tuple[int, ...], *, keeps: bool, dequantised: bool, opset: int = 18) -> bytes:
    """A pointwise convolution, ReduceMax on its codes or on what they stand for, and a table."""
    rng = np.random.default_rng(0)
    held = {"scale": np.float32(0.1), "zero": np.int8(3), "unit": np.float32(0.01), "zero w": np.int8(0)}
    held["weights"] = rng.integers(-127, 128, (shape[1], 2, *[1] * (len(shape) - 2)), np.int8)
    ends = ["scale", "zero"]
    given: dict[str, object] = {"keepdims": int(keeps)}
    operands = []
    if opset < 18:
        given["axes"] = axes
    else:
        held["axes"], operands = np.array(axes, np.int64), ["axes"]
    nodes = [helper.make_node("QLinearConv", ["x", *ends, "weights", "unit", "zero w", *ends], ["a"], "before")]
    if dequantised:
        nodes.append(helper.make_node("DequantizeLinear", ["a", *ends], ["f"]))
        nodes.append(helper.make_node("ReduceMax", ["f", *operands], ["g"], "most", **given))
    else:
        nodes.append(helper.make_node("ReduceMax", ["a", *operands], ["b"], "most", **given))
        nodes.append(helper.make_node("DequantizeLinear", ["b", *ends], ["g"]))
    nodes += [
        helper.make_node("Tanh", ["g"], ["h"], "table"),
        helper.make_node("QuantizeLinear", ["h", "unit", "zero"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info("x", TensorProto.INT8, [1, 2, *shape[2:]]),
        helper.make_tensor_value_info("y", TensorProto.INT8, [None] * (len(shape) - (0 if keeps else len(axes)))),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "maxima", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dequantised", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes", "kernel"),
    [
        ((1, 6, 5, 7), (2, 3), "5x7"),
        ((1, 6, 5, 7), (-1,), "1x7"),
        ((1, 6, 5, 7), (2,), "5x1"),
        ((1, 6, 9), (2,), "1x9"),
    ],
)
def test_rows_and_columns(
    shape: tuple[int, ...], axes: tuple[int, ...], kernel: str, keeps: bool, dequantised: bool
) -> None:
    data = network(shape, axes, keeps=keeps, dequantised=dequantised)
    kinds = [row.kind for row in describe(import_model(data)) if row.where == "accelerator"]
    assert any(kind.startswith(f"max pooling {kernel}") for kind in kinds)
    feeds = {"x": np.random.default_rng(1).integers(-128, 128, (1, 2, *shape[2:]), np.int8)}
    assert_exact(data, feeds)


def test_axes_as_an_attribute() -> None:
    data = network((1, 6, 5, 7), (2, 3), keeps=True, dequantised=True, opset=17)
    assert "max pooling 5x7 + table" in [row.kind for row in describe(import_model(data))]


def test_channels_are_none_of_them() -> None:
    """The host computes it, as what it is."""
    rows = describe(import_model(network((1, 6, 5, 7), (1, 2), keeps=True, dequantised=True)))
    assert [row.where for row in rows if row.kind == "ReduceMax"] == ["host"]
    assert not any(row.kind.startswith("max pooling") for row in rows)


def test_a_map_larger_than_the_feature_memory() -> None:
    """The greatest of columns first, part by part, then that of rows."""
    shape = (1, 4, 60, 50)
    config = PRESETS["tiny"]
    assert np.prod(shape) > config.memory.feature_bytes
    assert_right(verify(network(shape, (2, 3), keeps=False, dequantised=True), config, samples=2))
