"""Interpolation and average pooling of any sizes as matrices along axes, which become convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from .axes import Step, axis_matrices, to_space
from .float_graph import FloatGraph, Rewriting, chained, depthwise

Matrix = npt.NDArray[np.float64]

#: Most pixels from one pixel as channels of a depthwise convolution; more are a matrix product along each axis.
_MOST_PHASES = 64
_EXACT = 1e-6


@dataclass(frozen=True)
class Periodic:
    """A matrix along an axis with periodic rows, shifted by a step.

    Attributes
    ----------
    kernel : float64[phases, taps]
        Weights of the rows of a period.
    step : int
        Shift of the rows from period to period, in elements.
    before, after : int
        Elements that the rows read before the first one, and after the last one.
    """

    kernel: Matrix
    step: int
    before: int
    after: int


def periodic(matrix: Matrix) -> Periodic | None:
    """Return the periodic form of a matrix [outputs, inputs] with the shortest period; None if there is none."""
    outputs, inputs = matrix.shape
    first, last = (int(np.flatnonzero(row)[0]) for row in (matrix[0], matrix[-1]))
    even = (last - first) // max(outputs - 1, 1)
    common = math.gcd(outputs, inputs)
    for phases, step in ((1, max(even, 1)), (outputs // common, inputs // common)):
        found = _repeated(matrix, phases, step)
        if found is not None:
            return found
    return None


def _repeated(matrix: Matrix, phases: int, step: int) -> Periodic | None:
    outputs, inputs = matrix.shape
    times = outputs // phases
    if times * phases != outputs:
        return None
    middle = times // 2
    rows = matrix[middle * phases : (middle + 1) * phases]
    taken = np.flatnonzero(rows.any(axis=0))
    start, taps = int(taken[0]) - middle * step, int(taken[-1] - taken[0]) + 1
    kernel = rows[:, taken[0] : taken[-1] + 1]
    rebuilt = np.zeros_like(matrix)
    for at, tap in np.ndindex(times, taps):
        element = min(max(at * step + start + tap, 0), inputs - 1)
        rebuilt[at * phases : (at + 1) * phases, element] += kernel[:, tap]
    end = (times - 1) * step + start + taps
    if np.abs(rebuilt - matrix).max() > _EXACT or -start > inputs or end > 2 * inputs:
        return None
    return Periodic(kernel, step, -start, end - inputs)


def resampled(graph: FloatGraph, name: str, source: str, matrices: list[Matrix]) -> list[Step]:
    """Return steps that multiply each axis of a feature map by a matrix [outputs, inputs]."""
    channels, *sizes = graph.spatial(source)
    forms = [periodic(matrix) for matrix in matrices]
    known = [form for form in forms if form is not None]
    if len(known) < len(forms) or math.prod(len(form.kernel) for form in known) > _MOST_PHASES:
        return [step for axis, matrix in enumerate(matrices) for step in _along(graph, name, axis, matrix, len(sizes))]
    steps: list[Step] = []
    # Elements before the first one are padding, or are left out if negative; likewise after the last one.
    ends = [(form.before, form.after) for form in known]
    widths = [max(before, 0) for before, _ in ends], [max(after, 0) for _, after in ends]
    if any(map(any, widths)):
        pads = np.array([0, 0, *widths[0], 0, 0, *widths[1]], np.int64)
        steps.append(("Pad", [graph.constant(f"{name}_border", pads)], {"mode": "edge"}))
    if any(min(pair) < 0 for pair in ends):
        bounds = (
            [max(-before, 0) for before, _ in ends],
            [size + max(before, 0) + after for size, (before, after) in zip(sizes, ends, strict=True)],
            [*range(2, 2 + len(sizes))],
        )
        named = zip(("starts", "ends", "axes"), bounds, strict=True)
        operands = [graph.constant(f"{name}_{each}", np.array(values, np.int64)) for each, values in named]
        steps.append(("Slice", operands, {}))
    weights = known[0].kernel
    for form in known[1:]:
        weights = np.einsum("ab,cd->acbd", weights, form.kernel).reshape(-1, weights.shape[1], form.kernel.shape[1])
    strides = [form.step for form in known]
    # All channels have the same weights for each phase.
    every = np.tile(weights, (channels, *[1] * (weights.ndim - 1)))
    steps.append(depthwise(graph, name, every, group=channels, strides=strides))
    block = [len(form.kernel) for form in known]
    pixels = [len(matrix) // phases for matrix, phases in zip(matrices, block, strict=True)]
    return [*steps, *to_space(graph, name, channels, block, pixels, phases_first=False)]


def _along(graph: FloatGraph, name: str, axis: int, matrix: Matrix, rank: int) -> list[Step]:
    """Return a matrix product along one axis, which is moved to the place of channels for a pointwise convolution."""
    if matrix.shape[0] == matrix.shape[1] and np.abs(matrix - np.eye(len(matrix))).max() < _EXACT:
        return []
    order = list(range(2 + rank))
    order[1], order[2 + axis] = order[2 + axis], order[1]
    swap: Step = ("Transpose", (), {"perm": order})
    weights = graph.constant(f"{name}_axis_{axis}", matrix.reshape(*matrix.shape, *[1] * rank))
    return [swap, ("Conv", [weights], {"kernel_shape": [1] * rank}), swap]


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    matrices = axis_matrices(graph, node)
    if matrices is None or all(_repeats(matrix) for matrix in matrices):
        return None
    return chained(node, resampled(graph, node.output[0], node.input[0], matrices))


def _repeats(matrix: Matrix) -> bool:
    """Return whether a matrix repeats every element so many times, which is exact without rewriting."""
    times, rest = divmod(*matrix.shape)
    return not rest and np.array_equal(matrix, np.repeat(np.eye(matrix.shape[1]), times, axis=0))


RESAMPLING = Rewriting(
    "interpolation as convolution with fixed weights",
    "Its weights are int8, so that they add up to one within half a percent, and its result has a scale of its own.",
    _spell,
    ("Resize",),
)
