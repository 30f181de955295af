"""Resize, DepthToSpace, SpaceToDepth and crops: what ONNX Runtime moves where."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.elements import _COORDINATES, _ROUNDINGS
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model

pytestmark = needs_reference


def moved(
    kind: str,
    shape: tuple[int, ...],
    *constants: np.ndarray | None,
    between: bool = True,
    table: bool = False,
    opset: int = 18,
    **given: object,
) -> bytes:
    """An operator behind a pointwise convolution: on codes, or with ``table`` in float in front of a function."""
    held = {"scale": np.float32(0.1), "zero": np.int8(3), "unit": np.float32(0.1), "ws": np.float32(0.02)}
    rng, rank = np.random.default_rng(0), len(shape) - 2
    held["first"] = rng.integers(-127, 128, (shape[1], 2, *[1] * rank), np.int8)
    ends = ["scale", "zero"]
    names = ["" if value is None else f"operand {at}" for at, value in enumerate(constants)]
    held |= {name: value for name, value in zip(names, constants, strict=True) if name}
    nodes = [
        helper.make_node("QLinearConv", ["x", *ends, "first", "ws", "zero w", *ends], ["a"], "before"),
        helper.make_node(kind, ["a", *names], ["b"], "moved", **given),
    ]
    held["zero w"] = np.int8(0)
    if table:
        nodes[1].input[0] = "f"
        nodes.insert(1, helper.make_node("DequantizeLinear", ["a", *ends], ["f"]))
        nodes += [
            helper.make_node("Tanh", ["b"], ["g"], "table"),
            helper.make_node("QuantizeLinear", ["g", "ws", "zero"], ["c"]),
        ]
    nodes.append(helper.make_node("DequantizeLinear", [nodes[-1].output[0], "scale", "zero"], ["y"]))
    values = [
        helper.make_tensor_value_info("x", TensorProto.INT8, [1, 2, *shape[2:]]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape)),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "moved", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def feeds(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).integers(-128, 128, (1, 2, *shape[2:]), np.int8)}


def resized(shape: tuple[int, ...], *factors: float, **given: object) -> bytes:
    return moved("Resize", shape, None, np.array([1, 1, *factors], np.float32), **given)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("coordinates", _COORDINATES)
@pytest.mark.parametrize("rounding", _ROUNDINGS)
def test_a_resize_is_taken_where_it_repeats_and_refused_where_it_does_not(coordinates: str, rounding: str) -> None:
    modes = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    for shape, factors in itertools.product(((1, 3, 4, 5), (1, 3, 1, 2)), ((2, 2), (1, 3), (3, 4))):
        data = resized(shape, *factors, **modes)
        # What ONNX Runtime does with a map whose elements are all different.
        graph = onnx.helper.make_graph(
            [helper.make_node("Resize", ["x", "", "s"], ["y"], **modes)],
            "alone",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, *shape[2:]])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
            [numpy_helper.from_array(np.array([1, 1, *factors], np.float32), "s")],
        )
        alone = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        cells = np.arange(np.prod(shape[2:]), dtype=np.float32).reshape(1, 1, *shape[2:])
        (found,) = open_session(Model(alone.SerializeToString())).run(None, {"x": cells})
        repeats = np.array_equal(found, cells.repeat(factors[0], axis=2).repeat(factors[1], axis=3))
        kinds = [imported.kind_of(layer) for imported in [import_model(data)] for layer in imported.layers]
        assert ("nearest upsampling" in kinds) == repeats, (shape, factors)
        if repeats:
            assert_exact(data, feeds(shape))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("data", "shape", "kind"),
    [
        (resized((1, 3, 6), 2, mode="nearest"), (1, 3, 6), "nearest upsampling"),
        (moved("Resize", (1, 3, 2, 3), None, None, np.array([1, 3, 4, 9])), (1, 3, 2, 3), "nearest upsampling"),
        (moved("DepthToSpace", (1, 12, 3, 4), blocksize=2), (1, 12, 3, 4), "depth to space"),
        (moved("DepthToSpace", (1, 18, 3, 4), blocksize=3, mode="CRD"), (1, 18, 3, 4), "depth to space"),
        (moved("SpaceToDepth", (1, 3, 6, 4), blocksize=2), (1, 3, 6, 4), "space to depth"),
        (
            moved("Slice", (1, 3, 6, 5), *map(np.array, ([1, -4], [6, 4], [2, 3]))),
            (1, 3, 6, 5),
            "crop",
        ),
    ],
    ids=["one dimension", "sizes", "DCR", "CRD", "space", "crop"],
)
def test_other_moves(data: bytes, shape: tuple[int, ...], kind: str) -> None:
    graph = assert_exact(data, feeds(shape))
    assert [graph.kind_of(layer) for layer in graph.layers] == ["convolution", kind]


def test_a_crop_counts_from_the_front() -> None:
    """A start before the end is one behind the beginning; the last columns stay out."""
    data = moved("Slice", (1, 3, 6, 5), *map(np.array, ([1, -4], [6, 4], [2, 3])))
    _, crop = import_model(data).layers
    assert crop.window.pads == (-1, -1, 0, -1)
    assert crop.pieces[0].read[:2] == (1, 1)


def test_a_table_is_fused_into_what_is_in_front_of_the_move() -> None:
    shape = (1, 3, 4, 5)
    data = moved("Resize", shape, None, np.array([1, 1, 2, 2], np.float32), table=True, mode="nearest")
    graph = assert_exact(data, feeds(shape), covered=False)
    convolution, move = graph.layers
    assert (convolution.table is not None, graph.kind_of(move)) == (True, "nearest upsampling")


def test_what_interpolates_stays_with_the_host() -> None:
    for given in ({"mode": "linear"}, {"mode": "nearest", "nearest_mode": "ceil"}):
        graph = import_model(resized((1, 3, 4, 5), 2, 2, coordinate_transformation_mode="asymmetric", **given))
        assert [graph.kind_of(layer) for layer in graph.layers] == ["convolution"]
        assert graph.tail


def test_the_reason_has_the_first_row_that_is_not_repeated() -> None:
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}
    model = onnx.load_from_string(resized((1, 3, 4, 5), 2, 2, **modes))
    kernel = numpy_helper.from_array(np.ones((2, 3, 1, 1), np.int8), "last")
    model.graph.initializer.append(kernel)
    inputs = ["b", "scale", "zero", "last", "ws", "zero w", "scale", "zero"]
    model.graph.node.insert(2, helper.make_node("QLinearConv", inputs, ["c"], "after"))
    model.graph.node[3].input[0] = "c"
    with pytest.raises(ModelError) as refused:
        import_model(model.SerializeToString())
    assert str(refused.value) == (
        "model: Resize 'moved' between QLinearConv 'before' and QLinearConv 'after' is not supported: Resize 'moved' "
        "from 4x5x3 to 8x10x3 (height x width x channels) takes row 1 for row 1 (asymmetric, ceil), and not 0; "
        "upsample by whole factors, with coordinate_transformation_mode asymmetric and nearest_mode floor"
    )
