"""Normalise: move input zero points into biases."""

from __future__ import annotations

import dataclasses

from ..data.plan import Plan


def normalise(plan: Plan) -> Plan:
    """Let no layer subtract a zero point from what it reads."""
    graph = plan.graph
    layers = [layer.normalised(graph.tensors[layer.input].zero_point) for layer in graph.layers]
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, layers=layers))
