"""Interpolation and average pooling of any sizes: along each axis a matrix, spelled as convolutions with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from .axes import Step, axis_matrices, to_space
from .float_graph import FloatGraph, Rewriting, chained, depthwise

Matrix = npt.NDArray[np.float64]

#: More pixels than these of one are no channels of a depthwise convolution, but a matrix product along each axis.
_MOST_PHASES = 64
_EXACT = 1e-6


@dataclass(frozen=True)
class Periodic:
    """A matrix along an axis whose rows repeat, further on; beyond the ends lies what is there.

    Attributes
    ----------
    kernel : float64[phases, taps]
        What each of the rows that repeat takes.
    step : int
        Elements from where they take it to where the next ones do.
    before, after : int
        Elements that are missing in front of the first, and behind the last.
    """

    kernel: Matrix
    step: int
    before: int
    after: int


def periodic(matrix: Matrix) -> Periodic | None:
    """The form that a matrix [outputs, inputs] has, if it has one: with the fewest rows that repeat."""
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
    """Steps that multiply each axis of a feature map with a matrix [outputs, inputs]."""
    channels, *sizes = graph.spatial(source)
    forms = [periodic(matrix) for matrix in matrices]
    known = [form for form in forms if form is not None]
    if len(known) < len(forms) or math.prod(len(form.kernel) for form in known) > _MOST_PHASES:
        return [step for axis, matrix in enumerate(matrices) for step in _along(graph, name, axis, matrix, len(sizes))]
    steps: list[Step] = []
    # What lies in front of the first element is a border, or, if it is not needed, left out; so behind the last.
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
    # Every channel has the same weights for each phase.
    every = np.tile(weights, (channels, *[1] * (weights.ndim - 1)))
    steps.append(depthwise(graph, name, every, group=channels, strides=strides))
    block = [len(form.kernel) for form in known]
    pixels = [len(matrix) // phases for matrix, phases in zip(matrices, block, strict=True)]
    return [*steps, *to_space(graph, name, channels, block, pixels, phases_first=False)]


def _along(graph: FloatGraph, name: str, axis: int, matrix: Matrix, rank: int) -> list[Step]:
    """A matrix product along one axis: the axis lies where channels do, for a pointwise convolution."""
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
    """Whether a matrix repeats every element so many times, which is exact as it is."""
    times, rest = divmod(*matrix.shape)
    return not rest and np.array_equal(matrix, np.repeat(np.eye(matrix.shape[1]), times, axis=0))


RESAMPLING = Rewriting(
    "interpolation as convolution with fixed weights",
    "Its weights are int8, so that they add up to one within half a percent, and its result has a scale of its own.",
    _spell,
    ("Resize",),
)
