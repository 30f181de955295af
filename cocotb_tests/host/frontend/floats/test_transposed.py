"""Transposed convolutions between quantised tensors: ONNX Runtime's bytes where they are certain, else refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_exact, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.session.verify import verify

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


pytestmark = needs_reference

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
