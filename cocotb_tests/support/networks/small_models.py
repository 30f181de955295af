"""Small quantised models for tests of one operator: written, widened to 16 bits, and the refusals that they get."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.networks.generated import TINY, Maker
from lutterfly.host.frontend import ModelError, import_model


def refusal(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        import_model(data, "net.onnx")
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


#: The remedy of codes of two types.
ONE_TYPE = "quantise all activations to one type, as `lutterfly quantize` does with the float model"
#: What the message of a product in float ends with where float32 may decide on a code.
POWERS = ", or use scales that are powers of two (Brevitas: FixedPoint quantisers, or export_qonnx)"


def without_numbers(message: str) -> str:
    """A message without the sum, the channel and the codes between which float32 may decide."""
    return re.sub(
        r"round the sum -?\d+ of channel \d+ to the code -?\d+ or to -?\d+", "round the sum to either code", message
    )


def maker(shape: tuple[int, ...], form: str = "qdq", *, unsigned: bool = False, seed: int = 0) -> Maker:
    made = Maker(np.random.default_rng(seed), form, unsigned, TINY)
    made.start(shape)
    return made


def convolved(form: str = "qdq", *, unsigned: bool = False, channels: int = 4) -> Maker:
    """A 3x3 convolution from 3x6x6 to ``channels`` x 4 x 4."""
    made = maker((1, 3, 6, 6), form, unsigned=unsigned)
    made.product("Conv", (channels, 3, 3, 3), 0, (1, channels, 4, 4))
    return made


def main_name(made: Maker, index: int = 0) -> str:
    """Name of the index-th convolution or matrix product."""
    operators = ("Conv", "Gemm", "MatMul", "QLinearConv", "QGemm", "QLinearMatMul")
    return [f"{node.op_type} '{node.name}'" for node in made.nodes if node.op_type in operators][index]


def between(made: Maker, operator: str) -> str:
    """Add a convolution, and say where the last operator of a kind stands."""
    name = next(node.name for node in reversed(made.nodes) if node.op_type == operator)
    made.product("Conv", (2, made.shape[1], 1, 1), 0, (1, 2, *made.shape[2:]))
    return f"net.onnx: {operator} '{name}' between {main_name(made)} and {main_name(made, 1)} is not supported: "


def refusal_in_the_middle(made: Maker, operator: str) -> str:
    """Why the last operator of a kind is refused between two convolutions."""
    begin = between(made, operator)
    text = refusal(made.serialise())
    assert text.startswith(begin)
    return text.removeprefix(begin)


# Networks with tensors of 16-bit codes between 8-bit ones.

WIDE = (np.int16, np.uint16)


def widened(
    made: Maker, tensor: str, dtype: type = np.int16, scale: float = 0.0001, zero: int = 0, *, domain: str = ""
) -> str:
    """A float tensor, quantised to 16 bits and dequantised; codes of uint16 are ``zero`` and 32768 for 0."""
    zero += 1 << 15 if dtype is np.uint16 else 0
    ends = [made.constant("scale", np.float32(scale)), made.constant("zero", dtype(zero))]
    codes = made.node("QuantizeLinear", [tensor, *ends], domain=domain)
    return made.node("DequantizeLinear", [codes, *ends], domain=domain)


def node_name(made: Maker, operator: str, at: int = -1) -> str:
    """The name of a node, counted among those of its operator."""
    return [node.name for node in made.nodes if node.op_type == operator][at]


def repeated(count: int) -> Maker:
    """The same activation, computed in 16 bits, after each of several convolutions to one scale and zero point."""
    made = Maker(np.random.default_rng(3), "qdq", False, TINY)
    made.start((1, 4, 4, 4))
    for _ in range(count):
        made.product("Conv", (4, 4, 1, 1), 0, made.shape, bias=False)
        made.constants[made.scale], made.constants[made.zero] = np.float32(0.05), np.int8(3)
        tensor = made.node("Tanh", [widened(made, made.dequantised())])
        made.quantise(widened(made, tensor, np.uint16, 0.00003), *made.quantisation(0.01, 0), made.shape)
    return made


# Writes files of one matrix product of two inputs, with layout operators in front of them and behind it.

Shape = tuple[int, ...]
#: Of operands and result.
SCALES = (0.013, 0.021, 0.11)


@dataclass(frozen=True)
class Matrices:
    """A product of two inputs.

    Attributes
    ----------
    first, second : tuple of int
        Shapes of the inputs.
    turned : tuple of tuple
        Orders of axes of both operands, and of the result; empty where nothing is transposed.
    zero_points : tuple of int
        Of both operands and of the result, as int8 codes.
    unsigned, qdq : bool
        uint8 codes, and how they are written.
    """

    first: Shape
    second: Shape
    turned: tuple[Shape, Shape, Shape] = ((), (), ())
    zero_points: tuple[int, int, int] = (0, 0, 5)
    unsigned: bool = False
    qdq: bool = True

    def model(self) -> bytes:
        """The file."""
        held: list[onnx.TensorProto] = []
        nodes: list[onnx.NodeProto] = []
        kind = np.uint8 if self.unsigned else np.int8

        def constant(array: np.ndarray) -> str:
            held.append(numpy_helper.from_array(array, f"c{len(held)}"))
            return held[-1].name

        def node(operator: str, inputs: Sequence[str], **given: object) -> str:
            nodes.append(helper.make_node(operator, inputs, [f"t{len(nodes)}"], f"{operator}_{len(nodes)}", **given))
            return nodes[-1].output[0]

        ends = [
            (constant(np.float32(scale)), constant(kind(zero + (128 if self.unsigned else 0))))
            for scale, zero in zip(SCALES, self.zero_points, strict=True)
        ]
        operands, shapes = [], []
        for name, shape, axes, end in zip("ab", (self.first, self.second), self.turned, ends, strict=False):
            codes = node("QuantizeLinear", [name, *end])
            moved = node("Transpose", [codes], perm=axes) if axes else codes
            operands.append(moved)
            shapes.append(tuple(shape[axis] for axis in axes) if axes else shape)
        if self.qdq:
            numbers = [node("DequantizeLinear", [name, *end]) for name, end in zip(operands, ends, strict=False)]
            result = node("QuantizeLinear", [node("MatMul", numbers), *ends[2]])
        else:
            result = node("QLinearMatMul", [operands[0], *ends[0], operands[1], *ends[1], *ends[2]])
        shape = np.matmul(*map(np.zeros, shapes)).shape
        if self.turned[2]:
            result, shape = node("Transpose", [result], perm=self.turned[2]), tuple(shape[at] for at in self.turned[2])
        nodes.append(helper.make_node("DequantizeLinear", [result, *ends[2]], ["y"], "last"))
        graph = helper.make_graph(
            nodes,
            "matrices",
            [
                helper.make_tensor_value_info(*value)
                for value in (("a", TensorProto.FLOAT, self.first), ("b", TensorProto.FLOAT, self.second))
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            held,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
