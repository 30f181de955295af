"""Normalise: move input zero points into biases."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..graph import Convolution, Layer, Tensor
from .plan import Plan


def normalise(plan: Plan) -> Plan:
    """Subtract what a zero point adds to each accumulator.

    ``sum((x - zx) * w) + b = sum(x * w) + (b - zx * sum(w))``, modulo 2**32. Borders hold zx, so that this holds there
    too.
    """
    layers = [_without_zero_point(layer, plan.graph.tensors[layer.input]) for layer in plan.graph.layers]
    graph = dataclasses.replace(plan.graph, layers=layers, notes=[*plan.graph.notes])
    return dataclasses.replace(plan, graph=graph)


def _without_zero_point(layer: Layer, source: Tensor) -> Layer:
    if not isinstance(layer, Convolution) or source.zero_point == 0:
        return layer
    sums = layer.weights.astype(np.int64).sum(axis=(1, 2, 3))
    bias = (layer.bias.astype(np.int64) - source.zero_point * sums).astype(np.int32)
    return dataclasses.replace(layer, bias=bias)
