"""What of a network runs on the host in ONNX Runtime, in words: whoever calls the C driver does it instead."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, numpy_helper

from ..model.model import Model

#: More operators are counted.
_MOST = 12


def host_lines(head: Model, tail: Model) -> list[str]:
    """A note on the operators before and after the accelerator; empty if there are none."""
    parts = (("before the inference", head), ("after it", tail))
    lines = [line for when, part in parts if part for line in (f"{when}:", *_operators(part.proto.graph))]
    if not lines:
        return []
    return ["Not in here is what runs on the host in ONNX Runtime. It is yours to do:", *lines]


def _operators(graph: GraphProto) -> list[str]:
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def shown(name: str) -> str:
        value = constants.get(name)
        return name if value is None or value.size != 1 else f"{name} = {_number(value)}"

    lines = [
        f"  {node.op_type}({', '.join(map(shown, node.input))}) -> {', '.join(node.output)}"
        for node in graph.node[:_MOST]
    ]
    left = len(graph.node) - len(lines)
    return lines + [f"  and {left} more operators"] * (left > 0)


def _number(value: np.ndarray) -> str:
    # As few digits as give the same float32.
    return str(value.reshape(-1)[0])
