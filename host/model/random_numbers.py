"""Which tensors of a model random numbers decide, so that no two inferences need give the same."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import NodeProto

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
#: Of Dropout: it draws numbers where this input is given, and true.
_TRAINING = 2


def random_tensors(model: onnx.ModelProto) -> set[str]:
    """Names of all tensors that depend on random numbers.

    One with a seed counts as well: ONNX Runtime draws on from it in every inference.
    """
    bodies = {(function.domain, function.name): function for function in model.functions}

    def draws(nodes: Iterable[NodeProto]) -> bool:
        return any(is_source(node) for node in nodes)

    def is_source(node: NodeProto) -> bool:
        if node.op_type in _RANDOM or (node.op_type == "Dropout" and any(node.input[_TRAINING:])):
            return True
        body = bodies.get((node.domain, node.op_type))
        graphs = [graph for item in node.attribute for graph in (item.g, *item.graphs)]
        return (body is not None and draws(body.node)) or any(draws(graph.node) for graph in graphs)

    found: set[str] = set()
    for node in model.graph.node:
        if is_source(node) or found & set(node.input):
            found |= set(node.output)
    return found
