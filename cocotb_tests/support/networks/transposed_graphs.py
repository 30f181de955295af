"""Files with one quantised transposed convolution, between others or alone, as ONNX Runtime's quantiser has it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


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
