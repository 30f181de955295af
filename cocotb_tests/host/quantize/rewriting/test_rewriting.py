"""What `quantize` rewrites before it quantises: each rewriting, and that the function stays the same."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.command.main import main
from lutterfly.host.frontend import ModelError
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import float_model, quantize
from lutterfly.host.quantize.float_model import prepare
from lutterfly.host.quantize.rewriting import REWRITINGS, affine, products
from lutterfly.host.quantize.rewriting.float_graph import FloatGraph

Node = tuple[str, tuple[object, ...], dict[str, object]]
Steps = list[Node]

MAP = (1, 6, 8, 12)
RNG = np.random.default_rng(0)
BATCH_NORMALISATION: Node = ("BatchNormalization", tuple(RNG.uniform(0.5, 2, (4, 6))), {"epsilon": 0.01})
VECTOR: Steps = [("GlobalAveragePool", (), {}), ("Flatten", (), {}), ("Relu", (), {})]
ROWS: Node = ("MatMul", (RNG.normal(size=(12, 5)),), {})
CHANNELS = RNG.uniform(0.5, 2, (6, 1, 1))


def convolution(outputs: int = 4, inputs: int = 6, kernel: int = 3, **given: object) -> Node:
    weights = np.random.default_rng(outputs).normal(size=(outputs, inputs, kernel, kernel)) / kernel
    return "Conv", (weights,), given


def resize(scales: tuple[float, ...], **given: object) -> Node:
    operands = (np.zeros(0, np.float32), np.array((1, 1, *scales), np.float32))
    return "Resize", operands, {"mode": "linear"} | given


def network(steps: Steps, shape: tuple[int, ...] = MAP, opset: int = 17) -> onnx.ModelProto:
    """Operators one after the other, with constants of float32 but those that are integers."""
    nodes, held = [], []
    for at, (operator, operands, given) in enumerate(steps):
        names = ["x" if not at else f"t{at - 1}"]
        for number, operand in enumerate(operands):
            array = np.asarray(operand)
            names.append("" if operand is None else f"c{at}_{number}")
            if operand is not None:
                stored = array.astype(np.float32) if array.dtype.kind == "f" else array
                held.append(numpy_helper.from_array(stored, names[-1]))
        nodes.append(helper.make_node(operator, names, [f"t{at}"], f"{operator}_{at}", **given))
    nodes[-1].output[0] = "y"
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


SPLIT = ["Reshape", "Transpose", "Reshape"]
ACROSS = ["Transpose", "Conv", "Transpose"]
TURNED = ["Transpose", "Reshape"]
GROUP_MEAN = ["GlobalAveragePool", "Conv"]
CUT = ["Clip", "Exp", "Greater", "Where"]
SOFTMAX = ["Reshape", "MaxPool", "Sub", *CUT, "GlobalAveragePool", "Reciprocal", "Mul", "Mul", "Reshape"]

CASES: dict[str, tuple[Steps, list[str]]] = {
    # Averages.
    "average of a map": ([("ReduceMean", (), {"axes": (2, 3)})], ["GlobalAveragePool"]),
    "vector": ([("ReduceMean", (), {"axes": (-1, -2), "keepdims": 0})], ["GlobalAveragePool", "Flatten"]),
    "average of rows": ([("ReduceMean", (), {"axes": (3,)})], ["Conv"]),
    "average of columns": ([("ReduceMean", (), {"axes": (2,), "keepdims": 0})], ["Conv", "Squeeze"]),
    "average of channels": ([("ReduceMean", (), {"axes": (1,)})], [*TURNED, "GlobalAveragePool", "Reshape"]),
    "even windows": ([("AveragePool", (), {"kernel_shape": (2, 4), "strides": (2, 4)})], ["Conv"]),
    "windows over a border": (
        [("AveragePool", (), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1})],
        ["Conv"],
    ),
    "windows cut off": ([("AveragePool", (), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)})], ["AveragePool"]),
    "needless ceiling": (
        [("AveragePool", (), {"kernel_shape": (2, 3), "strides": (2, 3), "ceil_mode": 1})],
        ["Conv"],
    ),
    "needed ceiling": (
        [("AveragePool", (), {"kernel_shape": (3, 5), "strides": (3, 5), "ceil_mode": 1})],
        ["AveragePool"],
    ),
    "average of all rows": (
        [("ReduceMean", (), {"axes": (1, 2), "keepdims": 0})],
        [*TURNED, "GlobalAveragePool", "Reshape"],
    ),
    "average of all rows that stay": (
        [("ReduceMean", (), {"axes": (-2, -3)})],
        [*TURNED, "GlobalAveragePool", "Reshape"],
    ),
    # Maxima.
    "maximum of a map": ([("ReduceMax", (), {"axes": (2, 3), "keepdims": 0})], ["MaxPool", "Squeeze"]),
    "maximum of rows": ([("ReduceMax", (), {"axes": (-1,)})], ["MaxPool"]),
    "maximum of channels": ([("ReduceMax", (), {"axes": (1, 2)})], [*TURNED, "MaxPool", "Reshape"]),
    "maximum of all": ([("ReduceMax", (), {"axes": (-1, 1, 2), "keepdims": 0})], ["Reshape", "MaxPool", "Reshape"]),
    "maximum of a batch": ([("ReduceMax", (), {"axes": (0, 1)})], ["ReduceMax"]),
    # Interpolation: 0 is an axis that stays as it is.
    "bilinear": ([resize((2, 2))], ["Pad", "Conv", "DepthToSpace"]),
    "bilinear by three": ([resize((3, 3))], ["Pad", "Conv", "DepthToSpace"]),
    "PyTorch's half pixels": (
        [resize((2, 2), coordinate_transformation_mode="pytorch_half_pixel")],
        ["Pad", "Conv", "DepthToSpace"],
    ),
    "asymmetric": ([resize((2, 2), coordinate_transformation_mode="asymmetric")], ["Pad", "Conv", "DepthToSpace"]),
    "cubic": ([resize((2, 2), mode="cubic")], ["Pad", "Conv", "DepthToSpace"]),
    "one axis": ([resize((1, 2))], ["Pad", "Conv", *SPLIT]),
    "unequal factors": ([resize((2, 3))], ["Pad", "Conv", *SPLIT]),
    "half the size": ([resize((0.5, 0.5))], ["Conv"]),
    "to a row of two": ([resize((1 / 6, 2 / 8))], ["Slice", "Conv"]),
    "three halves": ([resize((1.5, 1.5))], ["Pad", "Conv", "DepthToSpace"]),
    "aligned corners": ([resize((2, 2), coordinate_transformation_mode="align_corners")], 2 * ACROSS),
    "aligned corners of rows": ([resize((1, 2), coordinate_transformation_mode="align_corners")], ACROSS),
    "nearest by no whole factor": ([resize((1.5, 1.5), mode="nearest")], ["Conv", "DepthToSpace"]),
    "nearest": ([resize((2, 2), mode="nearest")], ["Resize"]),
    "channels": ([("Resize", (np.zeros(0, np.float32), np.float32([1, 2, 1, 1])), {"mode": "linear"})], ["Resize"]),
    # Slopes of channels.
    "PRelu": ([("PRelu", (np.linspace(0.1, 0.5, 6).reshape(6, 1, 1),), {})], ["Conv", "Clip", "Relu", "Add"]),
    "PRelu with negative slopes": (
        [("PRelu", (np.linspace(-0.3, 0.5, 6).reshape(6, 1, 1),), {})],
        ["Clip", "Conv", "Relu", "Add"],
    ),
    "PRelu of a vector": (
        [*VECTOR, ("PRelu", (np.linspace(0.1, 0.5, 6),), {})],
        ["GlobalAveragePool", "Flatten", "Relu", "Unsqueeze", "Conv", "Clip", "Squeeze", "Relu", "Add"],
    ),
    "PRelu of a vector with negative slopes": (
        [*VECTOR, ("PRelu", (np.linspace(-0.3, 0.5, 6)[None],), {})],
        ["GlobalAveragePool", "Flatten", "Relu", "Unsqueeze", "Clip", "Conv", "Squeeze", "Relu", "Add"],
    ),
    "PRelu with one slope": ([("PRelu", (np.full((1, 1, 1), 0.2),), {})], ["PRelu"]),
    # The last axis.
    "layer normalisation": (
        [("LayerNormalization", tuple(RNG.normal(size=(2, 12))), {"epsilon": 1e-3})],
        ["MatMul", "Mul", "MatMul", "Add", "Sqrt", "Reciprocal", "Mul", "Reshape", "Gemm", "Reshape"],
    ),
    "layer normalisation without offsets": (
        [("LayerNormalization", (RNG.normal(size=12),), {"axis": 3})],
        ["MatMul", "Mul", "MatMul", "Add", "Sqrt", "Reciprocal", "Mul", "Reshape", "Gemm", "Reshape"],
    ),
    "layer normalisation of two axes": (
        [("LayerNormalization", (RNG.normal(size=(8, 12)),), {"axis": 2})],
        ["LayerNormalization"],
    ),
    "factors behind rows": ([ROWS, ("Mul", (RNG.normal(size=5),), {})], ["MatMul"]),
    "factors alone": (
        [("Tanh", (), {}), ("Mul", (RNG.normal(size=(1, 12)),), {})],
        ["Tanh", "Reshape", "Gemm", "Reshape"],
    ),
    "factors of columns of a convolution": (
        [convolution(kernel=1), ("Reshape", (np.array([1, 32, 12]),), {}), ("Mul", (RNG.normal(size=12),), {})],
        ["Conv", "Reshape", "Reshape", "Gemm", "Reshape"],
    ),
    "a factor of all": ([("Tanh", (), {}), ("Mul", (np.full((1, 1), 0.5),), {})], ["Tanh", "Mul"]),
    # Softmax, and normalisation by what is normalised.
    "softmax": ([("Softmax", (), {}), convolution()], [*SOFTMAX, "Conv"]),
    "softmax of other axes": (
        [("Softmax", (), {"axis": 1}), convolution()],
        ["Transpose", *SOFTMAX, "Transpose", "Conv"],
    ),
    "softmax at the end": ([convolution(), ("Softmax", (), {}), ("Tanh", (), {})], ["Conv", "Softmax", "Tanh"]),
    "instance normalisation": (
        [("InstanceNormalization", tuple(RNG.uniform(0.5, 2, (2, 6))), {"epsilon": 0.01})],
        ["GlobalAveragePool", "Sub", "Mul", "GlobalAveragePool", "Add", "Sqrt", "Reciprocal", "Mul", "Conv"],
    ),
    "instance normalisation alone": (
        [("InstanceNormalization", (np.ones(6), np.zeros(6)), {})],
        ["GlobalAveragePool", "Sub", "Mul", "GlobalAveragePool", "Add", "Sqrt", "Reciprocal", "Mul"],
    ),
    "group normalisation": (
        [
            ("Reshape", (np.array([0, 3, -1]),), {}),
            ("InstanceNormalization", (np.ones(3), np.zeros(3)), {"epsilon": 0.01}),
            ("Reshape", (np.array([0, 6, 8, 12]),), {}),
        ],
        [*GROUP_MEAN, "Sub", "Mul", *GROUP_MEAN, "Add", "Sqrt", "Reciprocal", "Mul"],
    ),
    "reshaped for another reason": (
        [
            ("Reshape", (np.array([0, 3, 192]),), {}),
            ("InstanceNormalization", (np.ones(3), np.zeros(3)), {"epsilon": 0.01}),
            ("Reshape", (np.array([0, 6, 12, 8]),), {}),
        ],
        [
            "Reshape",
            "GlobalAveragePool",
            "Sub",
            "Mul",
            "GlobalAveragePool",
            "Add",
            "Sqrt",
            "Reciprocal",
            "Mul",
            "Reshape",
        ],
    ),
    # Factors and offsets of channels.
    "normalisation alone": ([BATCH_NORMALISATION], ["Conv"]),
    "normalisation behind a table": (
        [("Tanh", (), {}), BATCH_NORMALISATION, ("Relu", (), {})],
        ["Tanh", "Conv", "Relu"],
    ),
    "normalisation in front of a convolution": (
        [("Tanh", (), {}), BATCH_NORMALISATION, convolution(group=2, inputs=3)],
        ["Tanh", "Conv"],
    ),
    "normalisation in front of a border": (
        [("Tanh", (), {}), BATCH_NORMALISATION, convolution(pads=(1, 1, 1, 1))],
        ["Tanh", "Conv", "Conv"],
    ),
    "factors in front of a border": (
        [("Tanh", (), {}), ("Mul", (CHANNELS,), {}), convolution(pads=(1, 1, 1, 1))],
        ["Tanh", "Conv"],
    ),
    "affine chain": (
        [("Tanh", (), {}), ("Sub", (CHANNELS,), {}), ("Div", (CHANNELS,), {}), ("Mul", (np.float32(3),), {})],
        ["Tanh", "Conv"],
    ),
    "scalars": ([("Tanh", (), {}), ("Mul", (np.float32(3),), {}), ("Relu", (), {})], ["Tanh", "Mul", "Relu"]),
    "affine behind a convolution": (
        [convolution(6), ("Sub", (CHANNELS,), {}), ("Mul", (CHANNELS,), {})],
        ["Conv"],
    ),
    "vector in front of a product": (
        [*VECTOR, BATCH_NORMALISATION, ("MatMul", (RNG.normal(size=(6, 4)),), {})],
        ["GlobalAveragePool", "Flatten", "Relu", "Gemm"],
    ),
    "normalised vector": (
        [*VECTOR, BATCH_NORMALISATION, ("Relu", (), {})],
        ["GlobalAveragePool", "Flatten", "Relu", "Unsqueeze", "Conv", "Squeeze", "Relu"],
    ),
}


def run(model: onnx.ModelProto, values: np.ndarray) -> np.ndarray:
    return open_session(Model(model.SerializeToString())).run(None, {"x": values})[0]


@pytest.mark.sampled(64)
@pytest.mark.parametrize("batch", [1, "batch"])
@pytest.mark.parametrize("case", CASES)
def test_the_function_is_the_same(case: str, batch: int | str, tmp_path: Path) -> None:
    steps, spelled = CASES[case]
    model = network(steps, (batch, *MAP[1:]))
    prepared, found = prepare(model, "model", tmp_path)
    assert [node.op_type for node in prepared.graph.node] == spelled
    assert bool(found) == (spelled != [operator for operator, _, _ in steps])
    values = np.random.default_rng(1).normal(size=MAP).astype(np.float32)
    wanted, made = run(model, values), run(prepared, values)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


GATHERED: Steps = [
    ("Gather", (np.arange(8).reshape(4, 2),), {"axis": 2}),
    ("Gather", (np.arange(12).reshape(6, 2),), {"axis": 4}),
    ("ReduceMean", (), {"axes": (3, 5), "keepdims": 0}),
]


def test_gathered_elements_are_a_convolution(tmp_path: Path) -> None:
    model = network(GATHERED)
    prepared, found = prepare(model, "model", tmp_path)
    assert [node.op_type for node in prepared.graph.node] == ["Conv"]
    assert len(found) == 1
    values = np.random.default_rng(1).normal(size=MAP).astype(np.float32)
    np.testing.assert_allclose(run(prepared, values), run(model, values), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_output", [False, True])
def test_what_is_gathered_stays_where_it_is_read_elsewhere(is_output: bool, tmp_path: Path) -> None:
    model = network(GATHERED)
    if not is_output:
        model.graph.node.append(helper.make_node("Relu", ["t1"], ["z"], "reader"))
    model.graph.output.append(
        helper.make_tensor_value_info("t1" if is_output else "z", TensorProto.FLOAT, [1, 6, 4, 2, 6, 2])
    )
    prepared, found = prepare(model, "model", tmp_path)
    assert not found
    values = {"x": np.random.default_rng(1).normal(size=MAP).astype(np.float32)}
    results = (open_session(Model.written(each)).run(None, values) for each in (prepared, model))
    for made, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("operator", ["Sub", "Add", "Mul", "Div"])
def test_a_constant_may_stand_first(operator: str, tmp_path: Path) -> None:
    model = network([(operator, (CHANNELS,), {})])
    node = model.graph.node[0]
    node.input[0], node.input[1] = node.input[1], node.input[0]
    prepared, found = prepare(model, "model", tmp_path)
    assert len(found) == (operator != "Div")
    values = np.random.default_rng(1).normal(size=MAP).astype(np.float32)
    np.testing.assert_allclose(run(prepared, values), run(model, values), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [[("AveragePool", (), {"kernel_shape": (3,)})], [("ReduceMax", (), {"axes": (2,)})]])
def test_one_dimension(steps: Steps, tmp_path: Path) -> None:
    model = network(steps, MAP[:3])
    prepared, found = prepare(model, "model", tmp_path)
    assert len(found) == 1
    values = np.random.default_rng(1).normal(size=MAP[:3]).astype(np.float32)
    np.testing.assert_allclose(run(prepared, values), run(model, values), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("steps", "axis"),
    [
        (
            [
                ("Flatten", (), {}),
                ("Gemm", tuple(np.random.default_rng(4).normal(size=(2, 5, 576)))[:1], {"transB": 1}),
            ],
            2,
        ),
        ([("Flatten", (), {}), ("Gemm", (RNG.normal(size=(576, 5)), RNG.normal(size=5)), {})], 2),
        ([("Flatten", (), {}), ("Relu", (), {}), ("MatMul", (RNG.normal(size=(576, 5)),), {})], 1),
    ],
)
def test_products_of_more_than_a_window(
    steps: Steps, axis: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts of whole rows of a map, each of which is one run of bytes, or of a vector."""
    monkeypatch.setattr(products, "_MOST", 200)
    model = network(steps, ("batch", *MAP[1:]))
    prepared, (found,) = prepare(model, "model", tmp_path)
    assert found.rewriting is products.WIDE_PRODUCT
    kinds = [node.op_type for node in prepared.graph.node]
    split = next(node for node in prepared.graph.node if node.op_type == "Split")
    assert kinds.count("Gemm") == len(split.output) == (4 if axis == 2 else 3)
    assert split.attribute[0].i == axis
    values = np.random.default_rng(1).normal(size=MAP).astype(np.float32)
    np.testing.assert_allclose(run(prepared, values), run(model, values), rtol=1e-4, atol=1e-4)


def test_linear_interpolation_of_one_dimension(tmp_path: Path) -> None:
    scales = np.array((1, 1, 2), np.float32)
    model = network([("Resize", (np.zeros(0, np.float32), scales), {"mode": "linear"})], MAP[:3])
    prepared, _ = prepare(model, "model", tmp_path)
    assert [node.op_type for node in prepared.graph.node] == ["Pad", "Conv", *SPLIT]
    values = np.random.default_rng(1).normal(size=MAP[:3]).astype(np.float32)
    np.testing.assert_allclose(run(prepared, values), run(model, values), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "kernel"),
    [((32, 32), None), ((56, 56), (2, 7)), ((112, 112), (7, 7)), ((40, 33), (2, 3)), ((47, 53), (47, 1))],
)
def test_the_average_of_a_large_map(sizes: tuple[int, int], kernel: tuple[int, int] | None, tmp_path: Path) -> None:
    """Of windows first, of all of which there are as many as one window reads."""
    model = network([("Relu", (), {}), ("ReduceMean", (), {"axes": (2, 3)})], (1, 3, *sizes))
    prepared, _ = prepare(model, "model", tmp_path)
    kinds = [node.op_type for node in prepared.graph.node]
    assert kinds == ["Relu", *(["Conv"] if kernel else []), "GlobalAveragePool"]
    if kernel:
        given = {item.name: helper.get_attribute_value(item) for item in prepared.graph.node[1].attribute}
        assert tuple(given["kernel_shape"]) == tuple(given["strides"]) == kernel
    values = np.random.default_rng(1).normal(size=(1, 3, *sizes)).astype(np.float32)
    np.testing.assert_allclose(run(prepared, values), run(model, values), rtol=1e-5, atol=1e-5)


def test_what_others_read_is_no_part_of_what_is_folded(tmp_path: Path) -> None:
    """The convolution's own result is read as well."""
    model = network([convolution(6), BATCH_NORMALISATION])
    model.graph.node.append(helper.make_node("Add", ["t0", "y"], ["sum"], "sum"))
    model.graph.output[0].name = "sum"
    prepared, found = prepare(model, "model", tmp_path)
    assert [node.op_type for node in prepared.graph.node] == ["Conv", "Conv", "Add"]
    assert [one.label for one in found] == ["BatchNormalization 'BatchNormalization_1'"]
    values = np.random.default_rng(1).normal(size=MAP).astype(np.float32)
    np.testing.assert_allclose(run(prepared, values), run(model, values), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [1, "batch"])
def test_factors_behind_rows_and_offsets(batch: int | str, tmp_path: Path) -> None:
    """A product with an offset has the same form whatever the batch."""
    steps = [ROWS, ("Add", (RNG.normal(size=5),), {}), ("Mul", (RNG.normal(size=5),), {})]
    model = network(steps, (batch, *MAP[1:]))
    prepared, found = prepare(model, "model", tmp_path)
    assert [node.op_type for node in prepared.graph.node] == ["Reshape", "Gemm", "Reshape"]
    assert len(found) == 1
    values = np.random.default_rng(1).normal(size=MAP).astype(np.float32)
    np.testing.assert_allclose(run(prepared, values), run(model, values), rtol=1e-5, atol=1e-5)


def test_every_rewriting_says_in_one_sentence_what_it_changes() -> None:
    assert len({one.title for one in REWRITINGS}) == len(REWRITINGS)
    for one in REWRITINGS:
        assert one.change.endswith(".")
        assert one.change.count(". ") == 0


def test_another_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard in `quantize` itself: a rewriting that doubles what it folds."""
    whole = affine.AFFINE.spell

    def doubled(graph: FloatGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        made = whole(graph, node)
        tensors = graph.model.graph.initializer
        if made:
            tensors[-2].CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensors[-2]), tensors[-2].name))
        return made

    broken = dataclasses.replace(affine.AFFINE, spell=doubled)
    data = network([("Tanh", (), {}), BATCH_NORMALISATION, ("Relu", (), {})], ("batch", *MAP[1:])).SerializeToString()
    values = {"x": np.random.default_rng(1).normal(size=(4, *MAP[1:])).astype(np.float32)}
    quantize(data, values)
    monkeypatch.setattr(float_model, "SPELLINGS", (broken,))
    message = r"net: output 'y' of the rewritten float model is \d+\.\d+% from the float model's, which is no rounding"
    with pytest.raises(ModelError, match=message):
        quantize(data, values, name="net")


@pytest.mark.parametrize("greater", [1, 4], ids=["all near 0", "the first"])
def test_outputs_near_0_are_no_wrong_rewriting(greater: int) -> None:
    """A sigmoid of little is what float32 rounds at one, as a detector gives where there is nothing to detect."""
    averaged = ("AveragePool", (), {"kernel_shape": (3, 3)})
    low = ("Add", (np.float32(-17),), {})
    model = network([convolution(), averaged, low, ("Sigmoid", (), {})], ("batch", *MAP[1:]))
    values = np.random.default_rng(1).normal(size=(4, *MAP[1:])).astype(np.float32)
    values[1:] *= greater
    quantize(model.SerializeToString(), {"x": values}, name="net")


def test_the_command_tells_what_was_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [
        convolution(6),
        ("Tanh", (), {}),
        BATCH_NORMALISATION,
        ("ReduceMax", (), {"axes": (2, 3)}),
        convolution(kernel=1),
    ]
    onnx.save(network(steps, ("batch", *MAP[1:])), tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).normal(size=(4, *MAP[1:])).astype(np.float32))
    words = ["quantize", str(tmp_path / "net.onnx"), "--calibrate", str(tmp_path / "x.npz")]
    assert main([*words, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [(one["node"], one["as"]) for one in values["rewritten"]] == [
        ("ReduceMax 'ReduceMax_3'", "maximum over rows or columns as max pooling"),
        ("BatchNormalization 'BatchNormalization_2'", affine.AFFINE.title),
    ]
    assert values["rewritten_difference"] < 1e-6
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert f"rewritten: {affine.AFFINE.title}: BatchNormalization 'BatchNormalization_2'" in shown
    assert f"    {affine.AFFINE.change}" in shown


@pytest.mark.parametrize(("operator", "opset"), [("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizing_of_old_operator_sets_keeps_its_coordinates(operator: str, opset: int, mode: str, tmp_path: Path):
    steps = [(operator, (np.float32([1, 1, 1.5, 2]),), {"mode": mode})]
    model = network(steps, opset=opset)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 12, 24]))
    prepared, _ = prepare(model, "net", tmp_path)
    image = np.random.default_rng(1).normal(size=MAP).astype(np.float32)
    before, after = (open_session(Model.written(each)).run(None, {"x": image})[0] for each in (model, prepared))
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-5)
