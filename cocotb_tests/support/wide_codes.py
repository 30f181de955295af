"""Networks with tensors of 16-bit codes between 8-bit ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from generated import TINY, Maker
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

WIDE = (np.int16, np.uint16)


def convolved(unsigned: bool = False) -> Maker:
    """A 3x3 convolution from 3x6x6 to 4x4x4."""
    made = Maker(np.random.default_rng(3), "qdq", unsigned, TINY)
    made.start((1, 3, 6, 6))
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    return made


def widened(
    made: Maker, tensor: str, dtype: type = np.int16, scale: float = 0.0001, zero: int = 0, *, domain: str = ""
) -> str:
    """A float tensor, quantised to 16 bits and dequantised; codes of uint16 are ``zero`` and 32768 for 0."""
    zero += 1 << 15 if dtype is np.uint16 else 0
    ends = [made.constant("scale", np.float32(scale)), made.constant("zero", dtype(zero))]
    codes = made.node("QuantizeLinear", [tensor, *ends], domain=domain)
    return made.node("DequantizeLinear", [codes, *ends], domain=domain)


def main_name(made: Maker, operator: str, at: int = -1) -> str:
    """The name of a node, counted among those of its operator."""
    return [node.name for node in made.nodes if node.op_type == operator][at]


def repeated(count: int) -> Maker:
    """The same activation, computed in 16 bits, behind each of several convolutions to one scale and zero point."""
    made = Maker(np.random.default_rng(3), "qdq", False, TINY)
    made.start((1, 4, 4, 4))
    for _ in range(count):
        made.product("Conv", (4, 4, 1, 1), 0, made.shape, bias=False)
        made.constants[made.scale], made.constants[made.zero] = np.float32(0.05), np.int8(3)
        tensor = made.node("Tanh", [widened(made, made.dequantised())])
        made.quantise(widened(made, tensor, np.uint16, 0.00003), *made.quantisation(0.01, 0), made.shape)
    return made


class Samples(CalibrationDataReader):
    """A few random samples of ``x`` for ONNX Runtime's quantiser."""

    def __init__(self, shape: tuple[int, ...]):
        rng = np.random.default_rng(0)
        self._samples = iter([{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(8)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._samples, None)


def quantised(folder: Path, activations: QuantType, *, wide: QuantType | None = None) -> bytes:
    """Conv ``c1``, Tanh, HardSwish, Conv ``c2``, as ONNX Runtime's quantiser writes it.

    Parameters
    ----------
    folder : Path
        For its files.
    activations : QuantType
    wide : QuantType or None
        Of the tensors between the two convolutions, if not the same.
    """
    rng = np.random.default_rng(0)
    made = [("first", (4, 3, 3, 3)), ("second", (4, 4, 1, 1))]
    weights = [numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name) for name, shape in made]
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], "c1"),
        helper.make_node("Tanh", ["a"], ["b"], "tanh"),
        helper.make_node("HardSwish", ["b"], ["c"], "swish"),
        helper.make_node("Conv", ["c", "second"], ["y"], "c2"),
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", *shape])
        for name, shape in (("x", (3, 6, 6)), ("y", (4, 4, 4)))
    ]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "f.onnx")
    overrides = {}
    if wide is not None:
        overrides = {
            "a": [{"quant_type": activations, "convert": {"quant_type": wide, "recv_nodes": {"tanh"}}}],
            "b": [{"quant_type": wide}],
            "c": [{"quant_type": wide, "convert": {"quant_type": activations, "recv_nodes": {"c2"}}}],
        }
    quantize_static(
        folder / "f.onnx",
        folder / "q.onnx",
        Samples((1, 3, 6, 6)),
        activation_type=activations,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["Conv", "Tanh", "HardSwish"],
        extra_options={"TensorQuantOverrides": overrides},
    )
    return (folder / "q.onnx").read_bytes()
