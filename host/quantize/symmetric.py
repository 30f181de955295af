"""Activations that are quantised around 0: both operands of a matrix product of two activations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx

#: What gives the codes of its first operand, so that its scale is that of this.
_KEEPING = ("Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")


def around_zero(model: onnx.ModelProto, known: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """What is ``known`` of the quantisation of tensors of a float model, and that the zero point of some has to be 0.

    What another one would add to a sum of products of codes depends on the codes.
    """
    return {**known, **{name: [{**known.get(name, [{}])[0], "symmetric": True}] for name in _operands(model)}}


def _operands(model: onnx.ModelProto) -> Iterator[str]:
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "MatMul" or constants & {*node.input}:
            continue
        for operand in node.input:
            name = operand
            yield name
            while name in makers and makers[name].op_type in _KEEPING:
                name = makers[name].input[0]
                yield name
