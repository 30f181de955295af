"""A fully connected layer that adds an activation: ONNX Runtime's fusion makes it of a product and a residual sum."""

from __future__ import annotations

from onnx import NodeProto, helper

from .float_graph import FloatGraph, Rewriting, given


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    if len(node.input) < 3 or not node.input[2] or node.input[2] in graph.constants:
        return None
    if given(node).get("beta", 1) != 1:
        return None
    product = f"{node.output[0]}_product"
    gemm = helper.make_node("Gemm", node.input[:2], [product], f"{node.name}_product")
    gemm.attribute.extend(item for item in node.attribute if item.name != "beta")
    return [gemm, helper.make_node("Add", [product, node.input[2]], node.output, f"{node.name}_sum")]


COMPUTED_ADDEND = Rewriting(
    "a fully connected layer that adds an activation as a product and a sum",
    "The product is quantised before the activation is added.",
    _spell,
    ("Gemm",),
)
