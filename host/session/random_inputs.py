"""Random inputs of a model."""

from __future__ import annotations

import numpy as np

from ..graph import Graph
from .session import InferenceSession


def random_feeds(
    session: InferenceSession, graph: Graph, rng: np.random.Generator, samples: int = 1
) -> dict[str, np.ndarray]:
    """Random inputs, one after the other: every code of a quantised input, and the whole range of a float one."""
    feeds = {}
    for index, info in enumerate(session.get_inputs()):
        shape = (samples, *info.sample_shape)
        if info.dtype.kind in "iu":
            limits = np.iinfo(info.dtype)
            feeds[info.name] = rng.integers(limits.min, limits.max, shape, info.dtype, endpoint=True)
        else:
            tensor = graph.tensors[graph.inputs[min(index, len(graph.inputs) - 1)]]
            low, high = ((code - tensor.zero_point) * tensor.scale for code in (-128, 127))
            feeds[info.name] = rng.uniform(low, high, shape).astype(info.dtype)
    return feeds
