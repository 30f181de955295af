"""Pruning: zeros among the weights of any quantised model, as a tool might leave them: blocks or single channels."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

#: Inputs and outputs that are on or off together.
GRANULARITIES = ((1, 1), (4, 2), (16, 8), (3, 5))


def connections(rng: np.random.Generator, outputs: int, inputs: int) -> np.ndarray:
    """Which channels are connected, bool[outputs, inputs]: at any density, from none to all."""
    density = rng.choice([0.0, 0.1, 0.25, 0.5, 0.75, 0.95, 1.0], p=[0.04, 0.2, 0.2, 0.2, 0.16, 0.1, 0.1])
    kind = rng.choice(["blocks", "inputs", "outputs", "hidden blocks"])
    if kind == "inputs":
        return np.broadcast_to(rng.random(inputs) < density, (outputs, inputs))
    if kind == "outputs":
        return np.broadcast_to(rng.random((outputs, 1)) < density, (outputs, inputs))
    across, down = GRANULARITIES[rng.integers(len(GRANULARITIES))]
    blocks = rng.random((-(-outputs // down), -(-inputs // across))) < density
    found = blocks.repeat(down, axis=0)[:outputs].repeat(across, axis=1)[:, :inputs]
    if kind == "hidden blocks":
        found = found[rng.permutation(outputs)][:, rng.permutation(inputs)]
    return found


def pruned(model: bytes, seed: int) -> bytes:
    """The model with connections off, and sometimes taps: in all int8 weights of convolutions and most of those of
    fully connected layers."""
    rng, proto = np.random.default_rng([seed, 0x59A]), onnx.load_from_string(model)
    for tensor in proto.graph.initializer:
        weights = numpy_helper.to_array(tensor)
        if weights.dtype != np.int8 or weights.ndim not in (2, 4) or (weights.ndim == 2 and rng.random() < 0.3):
            continue
        kept = connections(rng, *weights.shape[:2]).reshape(*weights.shape[:2], *[1] * (weights.ndim - 2))
        if weights.ndim == 4 and rng.random() < 0.3:
            kept = kept & (rng.random((1, 1, *weights.shape[2:])) < 0.7)
        tensor.CopyFrom(numpy_helper.from_array(weights * kept.astype(np.int8), tensor.name))
    return proto.SerializeToString()
