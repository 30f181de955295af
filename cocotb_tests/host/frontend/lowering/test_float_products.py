"""Products in float between quantised tensors: values of channels, transposed convolutions; what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_exact, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.frontend.lowering import float_products
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

CHANNELS = 24
Steps = list[tuple[str, tuple[np.ndarray, ...]]]


def values(seed: int, low: float = 0.2, high: float = 2, rank: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, (CHANNELS, *[1] * (rank - 2))).astype(np.float32)


NORMALISATION = ("BatchNormalization", tuple(values(seed).reshape(-1) for seed in range(4)))


def network(
    steps: Steps, *, rank: int = 4, scale: float = 0.08, type_: type = np.int8, turned: tuple[int, ...] | None = None
) -> bytes:
    """A pointwise convolution, operators in float between codes, and another convolution; perhaps a transpose after the
    first."""
    rng, sizes = np.random.default_rng(0), (5, 7)[: rank - 2]
    zero = type_(3 if type_ is np.int8 else 131)
    held = {"s": np.float32(0.05), "z": zero, "unit": np.float32(0.01), "zw": np.int8(0), "s2": np.float32(scale)}
    held |= {"z2": type_(zero - 9)}
    for name, shape in (("w1", (CHANNELS, 2)), ("w2", (4, CHANNELS))):
        held[name] = rng.integers(-127, 128, (*shape, *[1] * (rank - 2)), np.int8)
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w1", "unit", "zw", "s", "z"], ["a"], "before"),
        helper.make_node("Transpose", ["a"], ["turned"], perm=turned or range(rank)),
        helper.make_node("DequantizeLinear", ["turned" if turned else "a", "s", "z"], ["t"]),
    ]
    nodes = nodes if turned else [nodes[0], nodes[2]]
    for at, (operator, operands) in enumerate(steps):
        names = [f"c{at}_{number}" for number in range(len(operands))]
        held |= dict(zip(names, operands, strict=True))
        nodes.append(helper.make_node(operator, [nodes[-1].output[0], *names], [f"t{at}"], f"{operator}_{at}"))
    nodes += [
        helper.make_node("QuantizeLinear", [nodes[-1].output[0], "s2", "z2"], ["b"]),
        helper.make_node("QLinearConv", ["b", "s2", "z2", "w2", "unit", "zw", "s", "z"], ["y"], "after"),
    ]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(type_))
    ends = [
        helper.make_tensor_value_info("x", element, [1, 2, *sizes]),
        helper.make_tensor_value_info("y", element, [1, 4, *(sizes[at - 2] for at in (turned or range(rank))[2:])]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "channels", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


CASES: dict[str, tuple[Steps, dict[str, object]]] = {
    "normalisation": ([NORMALISATION], {}),
    "uint8": ([NORMALISATION], {"type_": np.uint8}),
    "factor and offset": ([("Mul", (values(5),)), ("Add", (values(6, -1, 1),))], {}),
    "signs": ([("Mul", (values(5, -2, 2),)), ("Sub", (values(6, -1, 1),))], {}),
    "then Relu": ([NORMALISATION, ("Relu", ())], {}),
    "one dimension": ([("Div", (values(5, rank=3),))], {"rank": 3}),
    "constant channels": ([("Mul", (np.where(values(5) > 1, values(5), 0).astype(np.float32),))], {}),
    "steep": ([NORMALISATION], {"scale": 0.02}),
    "flat": ([NORMALISATION], {"scale": 3.0}),
}


def test_of_a_map_that_is_turned() -> None:
    """Its elements are moved first."""
    data = network([NORMALISATION], turned=(0, 1, 3, 2))
    kinds = [row.kind for row in describe(import_model(data)) if row.where == "accelerator"]
    assert kinds == ["convolution 1x1", "arrangement", "depthwise 1x1", "convolution 1x1"]
    assert_right(verify(data, PRESETS["tiny"], samples=1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_every_code_of_every_channel(case: str) -> None:
    steps, given = CASES[case]
    data = network(steps, **given)
    kinds = [row.kind for row in describe(import_model(data)) if row.where == "accelerator"]
    assert kinds == ["convolution 1x1", "depthwise 1x1", "convolution 1x1"]
    sizes = (5, 7)[: given.get("rank", 4) - 2]
    codes = np.random.default_rng(1).integers(0, 256, (1, 2, *sizes)).astype(np.uint8)
    assert_exact(data, {"x": codes.view(given.get("type_", np.int8))})


def test_on_the_core() -> None:
    assert_right(verify(network([NORMALISATION]), PRESETS["tiny"], samples=2))


#: What no convolution computes: what bends, and what is rounded in between.
BENT: dict[str, tuple[Steps, dict[str, object]]] = {
    "PRelu": ([("PRelu", (values(5, 0.1, 0.5),))], {}),
    "PRelu of uint8": ([("PRelu", (values(5, -0.2, 0.9),))], {"type_": np.uint8}),
    "PRelu with few slopes": ([("PRelu", (np.tile(values(5, 0.1, 0.5)[:2], (CHANNELS // 2, 1, 1)),))], {}),
    "PRelu of one dimension": ([("PRelu", (values(5, 0.1, 0.5, rank=3),))], {"rank": 3}),
    "Tanh of channels": ([NORMALISATION, ("Tanh", ())], {}),
}


@pytest.mark.regress
@pytest.mark.parametrize("case", BENT)
def test_what_is_no_line_is_a_table_for_each_channel(case: str) -> None:
    steps, given = BENT[case]
    data = network(steps, **given)
    kinds = [row.kind for row in describe(import_model(data)) if row.where == "accelerator"]
    assert kinds == ["convolution 1x1", "tables of channels", "convolution 1x1"]
    assert_right(verify(data, PRESETS["tiny"], samples=2))


def test_channels_of_one_table_are_one_piece() -> None:
    layer = next(
        layer
        for layer in import_model(network(BENT["PRelu with few slopes"][0])).layers
        if "Arrange" in str(type(layer))
    )
    assert len(layer.pieces) == 2
    assert sorted(part.channels for part in layer.pieces) == [CHANNELS // 2] * 2


@pytest.mark.regress
def test_more_tables_than_pieces_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    data = network(BENT["PRelu"][0])
    monkeypatch.setattr(float_products, "MOST_PIECES", CHANNELS)
    import_model(data)
    monkeypatch.setattr(float_products, "MOST_PIECES", CHANNELS - 1)
    message = (
        rf"no depthwise convolution gives the codes of PRelu 'PRelu_0', and it has {CHANNELS} tables for {CHANNELS} "
        rf"channels, in {CHANNELS} pieces of at most {CHANNELS - 1}; quantise the float model with `lutterfly quantize`"
    )
    with pytest.raises(ModelError, match=message):
        import_model(data)


# Transposed convolutions between quantised tensors: ONNX Runtime's bytes where they are certain, else refused.

# Files with one quantised transposed convolution, between others or alone, as ONNX Runtime's quantiser has it.


def transposed(
    kernel: tuple[int, ...] = (3, 3),
    *,
    shape: tuple[int, ...] = (5, 6),
    channels: tuple[int, int] = (4, 6),
    group: int = 1,
    scales: tuple[float, float, float] = (2.0**-4, 2.0**-6, 2.0**-1),
    relu: bool = False,
    alone: bool = False,
    **attributes: object,
) -> bytes:
    """``channels`` of input and output; ``scales`` of input, weights and output."""
    rng, nodes, constants = np.random.default_rng(0), [], []

    def constant(value: np.ndarray | np.generic) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(constants)}"))
        return constants[-1].name

    def add(kind: str, inputs: list[str], name: str = "", **given: object) -> str:
        output = name or f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], name or output, **given))
        return output

    (source, weight, target), zero = scales, constant(np.int8(3))
    ends = [[constant(np.float32(scale)), zero] for scale in (source, target)]

    def weights(*size: int, scale: float, axis: int = 0) -> str:
        codes = constant(rng.integers(-127, 128, size, np.int8))
        return add("DequantizeLinear", [codes, constant(np.full(size[axis], scale, np.float32))], axis=axis)

    def pointwise(x: str, inputs: int, outputs: int, end: list[str], name: str) -> str:
        kernel = weights(outputs, inputs, *[1] * len(shape), scale=0.01)
        return add("QuantizeLinear", [add("Conv", [x, kernel], name), *end])

    x = add("QuantizeLinear", ["image", *ends[0]])
    if not alone:
        x = pointwise(add("DequantizeLinear", [x, *ends[0]]), channels[0], channels[0], ends[0], "first")
    kernels = weights(channels[0], channels[1] // group, *kernel, scale=weight, axis=1)
    bias = constant((rng.integers(-500, 500, channels[1]) * np.float32(source * weight)).astype(np.float32))
    given = {"kernel_shape": kernel, "group": group, **attributes}
    y = add("ConvTranspose", [add("DequantizeLinear", [x, *ends[0]]), kernels, bias], "transposed", **given)
    y = add("Relu", [y]) if relu else y
    y = add("DequantizeLinear", [add("QuantizeLinear", [y, *ends[1]]), *ends[1]])
    if not alone:
        y = add("DequantizeLinear", [pointwise(y, channels[1], 3, ends[1], "last"), *ends[1]])
    nodes[-1].output[0] = "result"
    sizes = [[1, channels[0], *shape], [1, None, *[None] * len(shape)]]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
        for name, size in zip(("image", "result"), sizes, strict=True)
    ]
    graph = helper.make_graph(nodes, "transposed", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


STRIDED = {"strides": (2, 2)}


def feeds(*shape: int) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(1).normal(size=(1, *shape)).astype(np.float32)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kernel", "given", "moves"),
    [
        ((3, 3), {}, []),
        ((2, 2), STRIDED, ["depth to space"]),
        ((4, 4), STRIDED | {"pads": (1, 1, 1, 1), "relu": True}, ["depth to space"]),
        ((3, 3), STRIDED | {"pads": (1, 1, 1, 1), "output_padding": (1, 1)}, ["depth to space"]),
        ((3, 3), STRIDED | {"pads": (1, 1, 1, 1)}, ["depth to space", "crop"]),
        ((3, 3), STRIDED | {"group": 2, "dilations": (2, 2)}, ["depth to space", "crop"]),
        ((3, 3), STRIDED | {"group": 4, "channels": (4, 4), "pads": (1, 1, 0, 0)}, ["depth to space"]),
        ((3, 5), {"strides": (2, 3), "pads": (1, 1, 1, 1), "output_padding": (0, 1)}, ["depth to space", "crop"]),
        # Pixels that no element reaches hold the bias alone.
        ((1, 1), {"strides": (3, 3)}, ["depth to space", "crop"]),
        # More is cut off than the kernel adds.
        ((2, 2), STRIDED | {"pads": (3, 0, 3, 1)}, ["depth to space", "crop"]),
        ((4, 4), STRIDED | {"auto_pad": "SAME_UPPER"}, ["depth to space"]),
        ((3, 3), STRIDED | {"auto_pad": "SAME_LOWER"}, ["depth to space"]),
        ((3, 3), STRIDED | {"output_shape": (10, 12)}, ["depth to space"]),
    ],
)
def test_powers_of_two_are_exact(kernel: tuple[int, int], given: dict, moves: list[str]) -> None:
    data = transposed(kernel, **given)
    graph = assert_exact(data, feeds(4, 5, 6), covered=False)
    kinds = [graph.kind_of(layer) for layer in graph.layers]
    assert kinds[2:-1] == moves
    assert_right(verify(data, PRESETS["tiny"], samples=1))


def test_one_dimension() -> None:
    data = transposed((4,), shape=(9,), strides=(2,), pads=(1, 1))
    graph = assert_exact(data, feeds(4, 9), covered=False)
    assert graph.kind_of(graph.layers[2]) == "depth to space"


def test_where_float32_may_round_either_way_it_is_refused_between_layers() -> None:
    data = transposed(**STRIDED, scales=(0.053, 0.013, 0.4))
    with pytest.raises(ModelError) as refused:
        import_model(data)
    assert str(refused.value) == (
        "model: ConvTranspose 'transposed' between Conv 'first' and Conv 'last' is not supported: ONNX Runtime "
        "computes it in float, and float32 may round the sum -75762 of channel 0 to the code -128 or to -127; quantise "
        "the float model with `lutterfly quantize`, which spells it as a convolution and DepthToSpace, or use scales "
        "that are powers of two"
    )


def test_at_an_end_it_runs_on_the_host_unless_it_is_certain() -> None:
    rows = describe(import_model(transposed((2, 2), alone=True, **STRIDED)))
    assert [row.where for row in rows] == ["host", "accelerator", "accelerator", "host"]
    with pytest.raises(ModelError) as refused:
        import_model(transposed((2, 2), alone=True, scales=(0.053, 0.013, 0.4), **STRIDED))
    assert "ConvTranspose 'transposed': ONNX Runtime computes it in float, and float32 may round" in str(refused.value)
