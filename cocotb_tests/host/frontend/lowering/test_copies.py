"""Operators that move bytes, between two convolutions or alone: what ONNX Runtime moves where, and refusals."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, needs_reference
from cocotb_tests.support.oracles.execution import exact_plan
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.elements import _COORDINATES, _ROUNDINGS
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model

pytestmark = needs_reference

INPUT = (1, 2, 6, 4)
SCALE, OTHER = np.float32(0.05), np.float32(0.07)
Step = tuple[str, list[np.ndarray], dict[str, object]]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


class Between:
    """Steps between two convolutions, from 8 channels of 6x4; in QDQ form each between float tensors, which are
    quantised with another scale after the last one."""

    def __init__(self, form: str, shape: tuple[int, ...] = INPUT) -> None:
        self.shape, self.form, self.rng = shape, form, np.random.default_rng(1)
        self.nodes, self.constants, self.codes = [], [], "x"

    def constant(self, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, kind: str, inputs: list[str], outputs: int = 1, **given: object) -> list[str]:
        names = [f"t{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, f"{kind}_{len(self.nodes)}", **given))
        return names

    def ends(self, scale: np.float32 = SCALE) -> list[str]:
        return [self.constant(scale), self.constant(np.int8(3))]

    def convolve(self, inputs: int, outputs: int, scale: np.float32 = SCALE) -> None:
        weights = self.constant(self.rng.integers(-127, 128, (outputs, inputs, 1, 1)).astype(np.int8))
        of_weights = [weights, self.constant(np.float32(0.02)), self.constant(np.int8(0))]
        if self.form == "codes":
            operands = [self.codes, *self.ends(scale), *of_weights, *self.ends()]
            (self.codes,) = self.node("QLinearConv", operands)
            return
        values = [self.read(self.codes, scale), *self.node("DequantizeLinear", of_weights)]
        (self.codes,) = self.node("QuantizeLinear", [*self.node("Conv", values), *self.ends()])

    def read(self, codes: str, scale: np.float32 = SCALE) -> str:
        return self.node("DequantizeLinear", [codes, *self.ends(scale)])[0]

    def step(self, kind: str, operands: list[np.ndarray], given: dict[str, object], outputs: int = 1) -> list[str]:
        source = self.codes if self.form == "codes" else self.read(self.codes)
        # Numbers of the tensor's own type are codes, or what these stand for.
        values = [value * SCALE if value.dtype == np.int8 and self.form != "codes" else value for value in operands]
        found = self.node(kind, [source, *map(self.constant, values)], outputs, **given)
        return found if self.form == "codes" else [self.write(name) for name in found]

    def write(self, name: str, scale: np.float32 = SCALE) -> str:
        return self.node("QuantizeLinear", [name, *self.ends(scale)])[0]

    def model(self) -> bytes:
        values = [helper.make_tensor_value_info("x", TensorProto.INT8, self.shape)]
        values.append(helper.make_tensor_value_info(self.codes, TensorProto.INT8, [None] * 4))
        graph = helper.make_graph(self.nodes, "moves", values[:1], values[1:], self.constants)
        opset = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def moved(form: str, steps: list[Step], channels: int) -> bytes:
    net = Between(form)
    net.convolve(2, 8)
    for kind, operands, given in steps:
        (net.codes,) = net.step(kind, operands, given)
    net.convolve(channels, 3)
    return net.model()


def pad(*pads: int, value: object = None, **given: object) -> Step:
    more = [] if value is None else [np.asarray(value)]
    return "Pad", [ints(0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3]), *more], given


SHUFFLE: list[Step] = [
    ("Reshape", [ints(1, 2, 4, 6, 4)], {}),
    ("Transpose", [], {"perm": [0, 2, 1, 3, 4]}),
    ("Reshape", [ints(1, 8, 6, 4)], {}),
]
#: Steps, channels after them, and the layers that remain.
CASES: dict[str, tuple[list[Step], int, list[str]]] = {
    "shuffle": (SHUFFLE, 8, ["shuffle"]),
    "there and back": ([*SHUFFLE, ("Reshape", [ints(1, 4, 2, 6, 4)], {}), *SHUFFLE[1:]], 8, []),
    "turned": ([("Transpose", [], {"perm": [0, 1, 3, 2]})], 8, ["arrangement"]),
    "channels last": ([("Transpose", [], {"perm": [0, 2, 3, 1]})], 6, ["arrangement"]),
    "reshaped": ([("Reshape", [ints(1, 4, 12, 4)], {})], 4, ["arrangement"]),
    "unshuffled": (
        [
            ("Reshape", [ints(1, 8, 3, 2, 2, 2)], {}),
            ("Transpose", [], {"perm": [0, 1, 3, 5, 2, 4]}),
            ("Reshape", [ints(1, 32, 3, 2)], {}),
        ],
        32,
        ["arrangement"],
    ),
    "chosen channels": ([("Gather", [ints(3, 0, 5)], {"axis": 1})], 3, ["shuffle"]),
    "chosen rows": ([("Gather", [ints(5, 0, -1)], {"axis": 2})], 8, ["arrangement"]),
    "last column": ([("Gather", [np.int64(-1)], {"axis": 3}), ("Unsqueeze", [ints(2)], {})], 8, ["arrangement"]),
    "every second channel": ([("Slice", [ints(1), ints(8), ints(1), ints(2)], {})], 4, ["shuffle"]),
    "backwards": ([("Slice", [ints(-1), ints(-1 << 60), ints(3), ints(-1)], {})], 8, ["arrangement"]),
    "channels and rows": ([("Slice", [ints(1, 2), ints(7, 5), ints(1, 2)], {})], 6, ["arrangement"]),
    "reflected": ([pad(1, 2, 0, 1, mode="reflect")], 8, ["border"]),
    "edge": ([pad(2, 0, 1, 3, mode="edge")], 8, ["border"]),
    "narrower": ([pad(-1, 1, 2, -1, value=np.int8(0))], 8, ["border"]),
    "another value": ([pad(1, 1, 1, 1, value=np.int8(20))], 8, ["border"]),
    "more channels": ([("Pad", [ints(0, 1, 0, 0, 0, 3, 0, 0), np.int8(0)], {})], 12, ["border"]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["codes", "qdq"])
@pytest.mark.parametrize("name", CASES)
def test_moves_between_convolutions(name: str, form: str) -> None:
    steps, channels, layers = CASES[name]
    data = moved(form, steps, channels)
    graph = assert_exact(data, {"x": np.random.default_rng(2).integers(-128, 128, INPUT, np.int8)}, covered=False)
    assert [*map(graph.kind_of, graph.layers)][1:-1] == layers
    exact_plan(graph, PRESETS["tiny"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["codes", "qdq"])
def test_maps_that_are_taken_apart_and_joined(form: str) -> None:
    """The halves of a map, the second one first, and the shuffle's halves, of which only one is read."""
    net = Between(form)
    net.convolve(2, 8)
    first, second = net.step("Split", [ints(2, 4)], {"axis": 2}, outputs=2)
    joined = [second, first]
    if form == "codes":
        operands = [[name, *net.ends(scale)] for name, scale in zip(joined, (SCALE, OTHER), strict=True)]
        inputs = [*net.ends(), *operands[0], *operands[1]]
        net.nodes.append(helper.make_node("QLinearConcat", inputs, ["joined"], "joined", "", "com.microsoft", axis=2))
        net.codes = "joined"
    else:
        floats = [net.read(name) for name in joined]
        net.codes = net.write(net.node("Concat", floats, axis=2)[0], OTHER)
    scale = SCALE if form == "codes" else OTHER
    net.convolve(8, 8, scale)
    for kind, operands, given in SHUFFLE:
        (net.codes,) = net.step(kind, operands, given)
    net.codes, _ = net.step("Split", [ints(4, 4)], {"axis": 1}, outputs=2)
    net.convolve(4, 3)
    graph = assert_exact(
        net.model(), {"x": np.random.default_rng(2).integers(-128, 128, INPUT, np.int8)}, covered=False
    )
    kinds = [*map(graph.kind_of, graph.layers)]
    assert [kind for kind in kinds if kind not in ("convolution", "table")] == ["concatenation", "shuffle"]
    assert kinds.count("table") == (1 if form == "codes" else 2)
    exact_plan(graph, PRESETS["tiny"])


def test_indices_that_are_computed_are_refused_by_name() -> None:
    net = Between("codes")
    net.convolve(2, 8)
    (largest,) = net.node("ReduceMax", [net.read(net.codes)], keepdims=0)
    (number,) = net.node("Cast", [largest], to=TensorProto.INT64)
    (numbers,) = net.node("Unsqueeze", [number, net.constant(ints(0))])
    (net.codes,) = net.node("Gather", [net.codes, numbers], axis=1)
    net.convolve(1, 3)
    with pytest.raises(ModelError, match=r"^model: (Gather|Cast|ReduceMax) .* is not supported: "):
        import_model(net.model())


@pytest.mark.parametrize("form", ["codes", "qdq"])
def test_a_part_that_leaves_beside_one_that_is_read(form: str) -> None:
    """One half of a map is an output, which the host takes from the whole; it also reads the other one, as a layer
    does."""
    net = Between(form)
    net.convolve(2, 8)
    first, second = net.step("Split", [ints(2, 4)], {"axis": 2}, outputs=2)
    net.codes, real = second, net.read(second)
    net.convolve(8, 3)
    model = onnx.load_from_string(net.model())
    kinds = {first: TensorProto.INT8, real: TensorProto.FLOAT}
    outputs = [helper.make_tensor_value_info(name, kind, [None] * 4) for name, kind in kinds.items()]
    model.graph.output.extend(outputs)
    feeds = {"x": np.random.default_rng(2).integers(-128, 128, INPUT, np.int8)}
    assert_answers(model.SerializeToString(), feeds)


@pytest.mark.parametrize("form", ["codes", "qdq"])
def test_a_sum_of_a_map_and_itself_turned(form: str) -> None:
    shape = 1, 2, 5, 5
    net = Between(form, shape)
    net.convolve(2, 8)
    plain, (turned,) = net.codes, net.step("Transpose", [], {"perm": [0, 1, 3, 2]})
    if form == "codes":
        inputs = [plain, *net.ends(), turned, *net.ends(), *net.ends(OTHER)]
        net.nodes.append(helper.make_node("QLinearAdd", inputs, ["sum"], "sum", "", "com.microsoft"))
        net.codes = "sum"
    else:
        net.codes = net.write(*net.node("Add", [net.read(plain), net.read(turned)]), OTHER)
    net.convolve(8, 3, OTHER)
    feeds = {"x": np.random.default_rng(2).integers(-128, 128, shape, np.int8)}
    graph = assert_exact(net.model(), feeds, covered=False)
    assert [*map(graph.kind_of, graph.layers)] == ["convolution", "arrangement", "addition", "convolution"]


@pytest.mark.parametrize("form", ["codes", "qdq"])
def test_a_matrix_product_over_the_pixels_of_each_channel(form: str) -> None:
    """What mixes tokens: the features lie apart, and a layer brings them together."""
    net = Between(form)
    net.convolve(2, 8)
    (net.codes,) = net.step("Reshape", [ints(1, 8, 24)], {})
    weights = net.constant(net.rng.integers(-127, 128, (24, 5)).astype(np.int8))
    of_weights = [weights, net.constant(np.float32(0.02)), net.constant(np.int8(0))]
    if form == "codes":
        (net.codes,) = net.node("QLinearMatMul", [net.codes, *net.ends(), *of_weights, *net.ends()])
    else:
        values = [net.read(net.codes), *net.node("DequantizeLinear", of_weights)]
        net.codes = net.write(*net.node("MatMul", values))
    model = onnx.load_from_string(net.model())
    model.graph.output[0].type.tensor_type.shape.dim.pop()
    feeds = {"x": np.random.default_rng(2).integers(-128, 128, INPUT, np.int8)}
    graph = assert_exact(model.SerializeToString(), feeds, covered=False)
    assert [*map(graph.kind_of, graph.layers)] == ["convolution", "arrangement", "convolution"]


# Resize, DepthToSpace, SpaceToDepth and crops: what ONNX Runtime moves where.


def behind(
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
    return behind("Resize", shape, None, np.array([1, 1, *factors], np.float32), **given)


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
        (behind("Resize", (1, 3, 2, 3), None, None, np.array([1, 3, 4, 9])), (1, 3, 2, 3), "nearest upsampling"),
        (behind("DepthToSpace", (1, 12, 3, 4), blocksize=2), (1, 12, 3, 4), "depth to space"),
        (behind("DepthToSpace", (1, 18, 3, 4), blocksize=3, mode="CRD"), (1, 18, 3, 4), "depth to space"),
        (behind("SpaceToDepth", (1, 3, 6, 4), blocksize=2), (1, 3, 6, 4), "space to depth"),
        (
            behind("Slice", (1, 3, 6, 5), *map(np.array, ([1, -4], [6, 4], [2, 3]))),
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
    data = behind("Slice", (1, 3, 6, 5), *map(np.array, ([1, -4], [6, 4], [2, 3])))
    _, crop = import_model(data).layers
    assert crop.window.pads == (-1, -1, 0, -1)
    assert crop.pieces[0].read[:2] == (1, 1)


def test_a_table_is_fused_into_what_is_in_front_of_the_move() -> None:
    shape = (1, 3, 4, 5)
    data = behind("Resize", shape, None, np.array([1, 1, 2, 2], np.float32), table=True, mode="nearest")
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
