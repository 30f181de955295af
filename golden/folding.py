"""The source's fold planner: how kernel rows and columns move into the input channels of a channel-aligned array.

Source: *Data processing apparatus and method for executing a neural network model* (folding), paragraphs 85 to 145. The
compiler plans by other means, since the fetch reads words from any byte address; see ``host/compiler/folding.py``.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution on an array that takes ``aligned_inputs`` input and ``aligned_outputs`` output channels at a time.

    Attributes
    ----------
    outputs, inputs : int
        Channels (Co, Ci).
    kernel, stride : (vertical, horizontal)
    aligned_inputs, aligned_outputs : int
        Alignment of the channels (ACI, ACO); powers of two.
    """

    outputs: int
    inputs: int
    kernel: Pair
    stride: Pair
    aligned_inputs: int
    aligned_outputs: int = 1

    def __post_init__(self) -> None:
        for name in ("aligned_inputs", "aligned_outputs"):
            value = getattr(self, name)
            if value < 1 or value & value - 1:
                raise ValueError(f"{name} must be a power of two, not {value}")
        for name in ("outputs", "inputs", "kernel", "stride"):
            value = getattr(self, name)
            if min(value if isinstance(value, tuple) else (value,)) < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")

    @property
    def total_folds(self) -> int:
        """Folds that fill the alignment: ACI through the inputs rounded up to ACI/2, ACI/4 ...; 1 if none helps."""
        folds = 1
        while self.inputs * folds * 2 <= self.aligned_inputs:
            folds *= 2
        return folds

    def multiplications(self, positions: int) -> int:
        """What the array multiplies for ``positions`` output pixels (N * Ho * Wo), alignment included."""
        return (align(self.inputs, self.aligned_inputs) * align(self.outputs, self.aligned_outputs) * positions
                * math.prod(self.kernel))


@dataclass(frozen=True, slots=True)
class Fold:
    """A layer whose kernel is split into ``folds`` (nh, nw) of rows and columns."""

    layer: Layer
    folds: Pair

    @property
    def padded_kernel(self) -> Pair:
        """The kernel, with rows and columns of zeros so that the folds divide it (Kha, Kwa)."""
        return _pairwise(align, self.layer.kernel, self.folds)

    @property
    def zeros(self) -> int:
        """Zeros that were added to the kernel of one channel."""
        return math.prod(self.padded_kernel) - math.prod(self.layer.kernel)

    @property
    def effective(self) -> Pair:
        """Rows and columns that a step of one folded pixel advances by (Sy / Sy', Sx / Sx')."""
        return _pairwise(lambda stride, folds: folds if stride % folds == 0 else stride, self.layer.stride, self.folds)

    @property
    def overlap(self) -> Pair:
        """Rows and columns that neighbouring folded pixels share, and that are stored and read again."""
        return _pairwise(lambda folds, effective: max(folds - effective, 0), self.folds, self.effective)

    @property
    def folded(self) -> Layer:
        """The layer that gives the same numbers on the folded map."""
        kernel = _pairwise(int.__floordiv__, self.padded_kernel, self.folds)
        stride = _pairwise(int.__floordiv__, self.layer.stride, self.effective)
        return Layer(self.layer.outputs, self.layer.inputs * math.prod(self.folds), kernel, stride,
                     self.layer.aligned_inputs, self.layer.aligned_outputs)

    @property
    def saving(self) -> float:
        """Share of the multiplications that folding saves."""
        return 1 - self.folded.multiplications(1) / self.layer.multiplications(1)


def plan(layer: Layer) -> Fold:
    """Split the layer's total folds into rows and columns by the source's rules.

    In this order: the fewest zeros in the kernel (no more folds than the kernel allows); no overlap in the width (it is
    cheaper in the height, where runs are longer); an even split; more folds in the width, where a fold is a reshape.

    Returns
    -------
    Fold
        With ``nh * nw`` equal to :attr:`Layer.total_folds`.
    """
    exponent = layer.total_folds.bit_length() - 1
    candidates = [Fold(layer, (1 << exponent - width, 1 << width)) for width in range(exponent + 1)]
    even = 1 << (exponent + 1) // 2
    return min(candidates, key=lambda fold: (fold.zeros, fold.overlap[1] > 0, fold.folds[1] != even, -fold.folds[1]))


def align(value: int, unit: int) -> int:
    """The least multiple of ``unit`` that is not below ``value``."""
    return -(-value // unit) * unit


def _pairwise(function, first: Pair, second: Pair) -> Pair:
    return function(first[0], second[0]), function(first[1], second[1])
