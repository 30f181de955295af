"""Plan dimension folding by its source: kernel width and height move into the input channels of an aligned array.

Source: *Data processing apparatus and method for executing a neural network model*. The compiler's own planner is
:mod:`lutterfly.host.compiler.layout.borders`: its fetch reads words from any byte address, so that width needs no
split.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """A split of the folding multiple, and the convolution that it leads to. Pairs are (vertical, horizontal).

    Attributes
    ----------
    folds : tuple of int
        Kernel rows and kernel columns that become channels (nh, nw).
    kernel : tuple of int
        Size of the folded filter.
    stride : tuple of int
        Stride of the folded filter.
    padding : int
        Zeros added to each kernel plane of one input channel.
    saving : float
        Part of the multiply work that folding saves, ``1 - align(kh, nh) * align(kw, nw) / (nh * nw * kh * kw)``.
    """

    folds: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: int
    saving: float


def aligned_channels(channels: int, alignment: int) -> int:
    """Round ``channels`` up to the next of ``alignment``, ``alignment / 2``, ... 2, 1."""
    return min(alignment, 1 << (channels - 1).bit_length())


def folding_multiple(channels: int, alignment: int) -> int:
    """Return how many kernel elements fit side by side into ``alignment`` channels.

    Parameters
    ----------
    channels : int
        Input channels of the layer.
    alignment : int
        Input channels that the array takes at a time, a power of two.

    Returns
    -------
    int
        ``alignment / aligned_channels(channels)``; 1 means that folding is not worthwhile.

    Raises
    ------
    ValueError
        If the alignment is not a power of two.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"alignment must be a power of two, not {alignment}")
    return max(1, alignment // aligned_channels(channels, alignment))


def fold_split(kernel: tuple[int, int], stride: tuple[int, int], folds: tuple[int, int]) -> FoldPlan:
    """Compute the plan of a split, for kernel, stride and folds as (vertical, horizontal)."""
    aligned = tuple(-(-size // n) * n for size, n in zip(kernel, folds, strict=True))
    area, aligned_area = kernel[0] * kernel[1], aligned[0] * aligned[1]
    return FoldPlan(
        folds=folds,
        kernel=(aligned[0] // folds[0], aligned[1] // folds[1]),
        stride=(_folded(stride[0], folds[0]), _folded(stride[1], folds[1])),
        padding=aligned_area - area,
        saving=1 - aligned_area / (folds[0] * folds[1] * area),
    )


def _folded(stride: int, fold: int) -> int:
    return stride // fold if stride % fold == 0 else 1


def plan_fold(kernel: tuple[int, int], stride: tuple[int, int], channels: int, alignment: int) -> FoldPlan:
    """Choose how to split the folding multiple between height and width.

    Parameters
    ----------
    kernel, stride : tuple of int
        (vertical, horizontal).
    channels : int
        Input channels of the layer.
    alignment : int
        Input channels that the array takes at a time, a power of two.

    Returns
    -------
    FoldPlan
        Even for a start; in width no further than the stride, where the kernel strides, so that no column is stored
        twice, and the rest in height; then the split with the least padding of the kernel, the widest of equals.
    """
    multiple = folding_multiple(channels, alignment)
    splits = [(multiple // columns, columns) for columns in _powers(multiple)]
    if stride[1] > 1:
        # The effective multiple in x: beyond the stride, folded pixels overlap, so the height takes the rest.
        columns = max(columns for columns in _powers(multiple) if stride[1] % columns == 0)
        splits = [(multiple // columns, columns)]
    return min((fold_split(kernel, stride, split) for split in splits), key=lambda plan: (plan.padding, -plan.folds[1]))


def _powers(limit: int) -> list[int]:
    return [1 << bit for bit in range(limit.bit_length())]
