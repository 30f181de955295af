"""Writes files of one matrix product of two inputs, with layout operators in front of them and behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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
