"""Transposed convolutions spelled as convolution and depth to space: the same function, which runs in integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.float_model import prepare

STRIDED = {"strides": (2, 2)}
#: What DepthToSpace does, where the block is no square.
SPLIT = ["Reshape", "Transpose", "Reshape"]


def network(*, weights: tuple[int, ...], after: tuple[str, ...] = (), **given: object) -> onnx.ModelProto:
    """A transposed convolution in float, and pointwise operators after it; ``weights`` is the shape of them."""
    rng = np.random.default_rng(0)
    outputs = weights[1] * given.get("group", 1)
    held = {"w": rng.normal(size=weights), "b": rng.normal(size=outputs)}
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["t0"], "transposed", **given)]
    for kind in after:
        operands: list[str] = []
        if kind == "BatchNormalization":
            operands = ["scale", "shift", "mean", "variance"]
            held |= {name: rng.uniform(0.5, 2, outputs) for name in operands}
        nodes.append(helper.make_node(kind, [nodes[-1].output[0], *operands], [f"t{len(nodes)}"], kind))
    nodes[-1].output[0] = "y"
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, weights[0], *(7, 6)[: len(weights) - 2]]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(weights)),
    ]
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "network", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.sampled(52)
@pytest.mark.parametrize(
    ("weights", "given", "spelled"),
    [
        ((4, 3, 2, 2), STRIDED, ["Conv", "DepthToSpace"]),
        ((4, 3, 4, 4), STRIDED | {"pads": (1, 1, 1, 1)}, ["Conv", "DepthToSpace"]),
        ((4, 3, 3, 3), STRIDED | {"pads": (1, 1, 1, 1), "output_padding": (1, 1)}, ["Conv", "DepthToSpace"]),
        ((4, 3, 3, 3), STRIDED | {"pads": (1, 0, 1, 0)}, ["Conv", "DepthToSpace", "Slice"]),
        ((4, 3, 3, 2), {"strides": (3, 3), "dilations": (2, 1)}, ["Conv", "DepthToSpace", "Slice"]),
        ((4, 1, 4, 4), STRIDED | {"pads": (1, 1, 1, 1), "group": 4}, ["Conv", "DepthToSpace"]),
        ((4, 3, 2, 2), STRIDED | {"pads": (3, 0, 3, 1), "group": 2}, ["Conv", "DepthToSpace", "Slice"]),
        # The last rows of the input are not used.
        ((4, 3, 2, 2), STRIDED | {"pads": (3, 0, 3, 0)}, ["Conv", "DepthToSpace"]),
        ((4, 3, 3, 3), {"pads": (1, 1, 1, 1)}, ["Conv"]),
        # DepthToSpace has one size of block down and across.
        ((4, 3, 3, 3), {"strides": (1, 2)}, ["Conv", *SPLIT, "Slice"]),
        ((4, 3, 3, 4), {"strides": (3, 2), "pads": (0, 1, 0, 1)}, ["Conv", *SPLIT]),
        ((4, 1, 3, 4), {"strides": (3, 1), "pads": (0, 1, 1, 1), "group": 4}, ["Conv", *SPLIT, "Slice"]),
        ((4, 3, 3), {"strides": (2,)}, ["Conv", *SPLIT, "Slice"]),
        ((4, 3, 4), {"strides": (2,), "pads": (1, 1), "group": 2}, ["Conv", *SPLIT]),
        ((4, 3, 5), {}, ["Conv"]),
        ((4, 3, 3, 3), STRIDED | {"auto_pad": "SAME_UPPER"}, ["Conv", "DepthToSpace"]),
        ((4, 3, 3, 4), STRIDED | {"auto_pad": "SAME_LOWER"}, ["Conv", "DepthToSpace"]),
        ((4, 3, 3, 3), STRIDED | {"auto_pad": "VALID"}, ["Conv", "DepthToSpace", "Slice"]),
        ((4, 3, 3, 4), STRIDED | {"output_shape": (14, 13)}, ["Conv", "DepthToSpace", "Slice"]),
        ((4, 3, 3, 3), {"strides": (2, 2), "output_shape": (14, 12)}, ["Conv", "DepthToSpace"]),
        # What the output is larger by is no border.
        ((4, 3, 1, 1), STRIDED | {"auto_pad": "SAME_UPPER"}, ["ConvTranspose"]),
    ],
)
@pytest.mark.parametrize("after", [(), ("BatchNormalization", "Relu"), ("Relu",)])
def test_the_function_is_the_same(
    tmp_path: Path, weights: tuple[int, ...], given: dict, spelled: list[str], after: tuple[str, ...]
) -> None:
    model = network(weights=weights, after=after, **given)
    prepared, _ = prepare(model, "model", tmp_path)
    if spelled != ["ConvTranspose"]:
        # Batch normalisation is part of the weights, and what follows it stands in front of the depth to space.
        rest = [kind for kind in after if kind != "BatchNormalization"]
        assert operators(prepared) == [spelled[0], *rest, *spelled[1:]]
    values = np.random.default_rng(1).normal(size=[1, weights[0], *(7, 6)[: len(weights) - 2]]).astype(np.float32)
    (wanted,), (found,) = (
        open_session(Model(one.SerializeToString())).run(None, {"x": values}) for one in (model, prepared)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
