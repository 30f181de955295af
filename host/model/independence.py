"""Whether the samples of a batch are independent of each other in a model, so that they may be run one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from .arrays import TensorInfo, contents, describe_model
from .model import Model
from .model_graph import computed_tensors, expose
from .runtime import RUNTIME_ERRORS, plain_session, random_tensors

_SAMPLES = 2


def mixing_node(model: Model) -> str:
    """Find what makes an output of a batch other than the outputs of its samples, one after the other.

    The model is run in ONNX Runtime on two batches that have their first sample in common.

    Parameters
    ----------
    model : Model

    Returns
    -------
    str
        Operator and name of the first node that mixes samples or leaves the batch out; the name of the output where it
        is a constant; empty if there is none, or ONNX Runtime does not run the model on several samples.
    """
    graph = model.proto.graph
    outputs = [value.name for value in graph.output]
    inputs = describe_model(model)[0]
    dynamic = {info.name for info in inputs}
    for node in graph.node:
        if dynamic & set(node.input):
            dynamic |= set(node.output)
    names = [name for name in computed_tensors(model.proto) if name in dynamic]
    names += [name for name in outputs if name not in names]
    # Random numbers differ in every inference, for a batch or without one.
    random = random_tensors(model.proto)
    names = [name for name in names if name not in random]
    if not names:
        return ""
    session = plain_session(expose(model.proto, names))
    try:
        alone, first, second = (session.run(names, feeds) for feeds in _feeds(inputs))
    except RUNTIME_ERRORS:
        return ""
    wrong = {
        name
        for name, values in zip(names, zip(alone, first, second, strict=True), strict=True)
        if not _is_independent(values)
    }
    if wrong.isdisjoint(outputs):
        return ""
    # Of the nodes on the way to a wrong output the earliest is the cause, unless a later one compensates.
    needed = wrong & set(outputs)
    found = f"output {next(name for name in outputs if name in wrong)!r}"
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= wrong & set(node.input)
            found = f"{node.op_type} {node.name!r}"
    return found


def _feeds(inputs: Sequence[TensorInfo]) -> Iterator[Mapping[str, np.ndarray]]:
    """One sample; the same and another; the same and a third."""
    generator = np.random.default_rng(0)
    samples = [{info.name: _random(info, generator) for info in inputs} for _ in range(3)]
    for chosen in ((0,), (0, 1), (0, 2)):
        yield {info.name: np.concatenate([samples[at][info.name] for at in chosen]) for info in inputs}


def _random(info: TensorInfo, generator: np.random.Generator) -> np.ndarray:
    shape = (1, *info.sample_shape)
    if info.dtype.kind in "iu":
        limits = np.iinfo(info.dtype)
        return generator.integers(limits.min, limits.max, shape, info.dtype, endpoint=True)
    return generator.normal(size=shape).astype(info.dtype)


def _is_independent(values: Sequence[np.ndarray | list]) -> bool:
    """Whether the first sample's part of a tensor is the same beside any other."""
    if not all(isinstance(value, np.ndarray) for value in values):
        # A sequence of tensors, or a map.
        return False
    alone, first, second = values
    if not alone.ndim or first.shape != (_SAMPLES * alone.shape[0], *alone.shape[1:]) or first.shape != second.shape:
        return False
    own = len(alone)
    return contents(first[:own]) == contents(second[:own])
