"""Values, from the samples, of what a model normalises: how it is spelled depends on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx

from ..model.arrays import sample_count
from ..model.model_graph import expose, model_inputs
from ..model.runtime import plain_session

#: By a tensor, and the axes over which it is normalised.
NormalisedRows = Mapping[tuple[str, tuple[int, ...]], npt.NDArray[np.float32]]

#: Values of a tensor that are kept, unless single rows of all samples are more.
_MOST = 1 << 16


def normalised_rows(model: onnx.ModelProto, samples: Mapping[str, np.ndarray]) -> NormalisedRows:
    """Run a float model, and keep some rows of each tensor that it normalises.

    Parameters
    ----------
    model : ModelProto
        Its shapes are known.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.

    Returns
    -------
    mapping of (str, tuple of int) to float32[rows, values]
        Each row is normalised by itself.
    """
    wanted, count = _normalised(model), sample_count(samples)
    if not wanted:
        return {}
    given = {value.name for value in model_inputs(model)}
    names = sorted({name for name, _ in wanted} - given)
    session = plain_session(expose(model, names)) if names else None
    found = defaultdict(list)
    for index in range(count):
        values = {name: array[index : index + 1] for name, array in samples.items()}
        if session is not None:
            values |= dict(zip(names, session.run(names, values), strict=True))
        for name, axes in wanted:
            # The axes are the last ones.
            rows = values[name].reshape(*values[name].shape[: axes[0]], -1)
            rows = rows.reshape(-1, rows.shape[-1])
            step = max(rows.size * count // _MOST, 1)
            found[name, axes].append(rows[index % min(step, len(rows)) :: step])
    return {key: np.concatenate(parts) for key, parts in found.items()}


def _normalised(model: onnx.ModelProto) -> list[tuple[str, tuple[int, ...]]]:
    """Tensors that operators normalise, or that a mean may begin to normalise, each with the axes."""
    graph = model.graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.value_info)}
    squares = {node.output[0]: node.input[0] for node in graph.node if node.op_type in ("Mul", "Pow")}
    found: dict[tuple[str, tuple[int, ...]], None] = {}
    for node in graph.node:
        rank = ranks.get(node.input[0], 0) if node.input else 0
        if node.op_type in ("LayerNormalization", "RMSNormalization", "ReduceMean") and rank > 1:
            found[node.input[0], (rank - 1,)] = None
            # The mean of squares with which an RMS normalisation begins.
            if node.op_type == "ReduceMean" and ranks.get(squares.get(node.input[0], "")) == rank:
                found[squares[node.input[0]], (rank - 1,)] = None
        if node.op_type == "InstanceNormalization" and rank > 2:
            found[node.input[0], tuple(range(2, rank))] = None
    return [*found]
