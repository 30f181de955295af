"""Convolution of int8 codes: the accumulators that ONNX Runtime's QLinearConv requantises."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from .planes import CACHED_NUMBERS, Codes, Int8, Pads, Pair, Phases, PlaneWindow, copied, from_planes, planes, tiles

Int32 = npt.NDArray[np.int32]
#: Sums, which are integers in any type.
Totals = npt.NDArray[np.int32 | np.int64 | np.float32 | np.float64]
#: The slices of output channels, rows and columns of a tile.
Tile = tuple[slice, slice, slice]

#: float32 holds every integer up to this one.
EXACT_IN_FLOAT32 = 1 << 24
#: The greatest magnitude of a code.
MOST_CODE = 128
#: Least number of columns of a matrix product.
_COLUMNS = 128
#: Sums of fewer products than this are computed as fast as pairs of them are separated, so that they are not paired.
_LEAST_PAIRED = 64


def convolve(
    codes: Int8,
    weights: Int8,
    bias: Int32,
    *,
    zero_point: int,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    groups: int = 1,
) -> Int32:
    """Convolve, with borders of the zero point.

    A fully connected layer is the convolution whose kernel covers the map, a depthwise one has a group for each channel
    of the input, and an average pooling is a depthwise convolution of unit weights.

    Parameters
    ----------
    codes : int8[..., height, width, channels]
        Codes of one map, or of several samples.
    weights : int8[output channels, kernel rows, kernel columns, channels / groups]
    bias : int32[output channels]
    zero_point : int
        Zero point of ``codes``.
    stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)
    groups : int
        Number of groups; the output channels of a group read only the input channels of the group.

    Returns
    -------
    int32[..., output rows, output columns, output channels]
        ``bias + sum((codes - zero_point) * weights)`` over the window, modulo 2**32.

    Raises
    ------
    TypeError
        If an array has another type.
    ValueError
        If shapes do not fit, the groups do not divide the channels, the kernel is larger than the map with its borders,
        or the zero point is not an int8 code.
    """
    kernels = Kernels(np.asarray(weights), np.asarray(bias), groups).without(zero_point)
    total = kernels.totals(np.asarray(codes), border=zero_point, stride=stride, dilation=dilation, pads=pads)
    return total.astype(np.int64).astype(np.int32)


class Kernels:
    """Weights with their bias, prepared once for the convolution of many maps.

    Parameters
    ----------
    weights : int8[output channels, kernel rows, kernel columns, channels / groups]
    bias : int32[output channels]
    groups : int
    most_code : int
        The greatest magnitude of a code that is convolved.

    Attributes
    ----------
    kind : type
        Type of totals: float32, float64 or, where they wrap, int32.

    Raises
    ------
    TypeError, ValueError
        As :func:`convolve`.
    """

    def __init__(self, weights: Int8, bias: Int32, groups: int = 1, *, most_code: int = MOST_CODE):
        _check_type(weights=(weights, np.int8), bias=(bias, np.int32))
        outputs, rows, columns, channels = weights.shape
        if groups < 1 or outputs % groups:
            raise ValueError(f"groups must divide the {outputs} output channels, not {groups}")
        if bias.shape != (outputs,):
            raise ValueError(f"bias must have the shape ({outputs},), not {bias.shape}")
        self.weights, self.bias, self.groups, self.most_code = weights, bias, groups, most_code
        self._kernel = rows, columns
        products = most_code * np.abs(weights, dtype=np.int32).sum(axis=(1, 2, 3), dtype=np.int64)
        most, greatest = int(products.max(initial=0)), int((products + np.abs(bias, dtype=np.int64)).max(initial=0))
        # Sums of products are at most ``most`` in magnitude, and at most ``greatest`` with the bias.
        self._kind = type_of_sums(most)
        self.kind = np.int32 if greatest >= 1 << 31 else type_of_sums(greatest)
        self._is_apart = channels == 1 < groups
        self._floats: Codes = weights.astype(self._kind)
        self._bias: Codes = bias.astype(self.kind).reshape(-1, 1, 1, 1)
        self._pair_unit = 0 if self._is_apart else _pair_unit(most, weights.shape, groups)
        self._matrices = self._floats.reshape(groups, outputs // groups, -1)
        if self._pair_unit:
            # The last of an odd number of outputs has no partner.
            first, second = self._matrices[0, : (outputs + 1) // 2], self._matrices[0, (outputs + 1) // 2 :]
            paired = first.copy()
            paired[: len(second)] += self._pair_unit * second
            self._matrices = paired[np.newaxis]

    def without(self, zero_point: int) -> Kernels:
        """Return kernels that subtract a zero point: their totals of codes are these kernels' totals of codes less the
        zero point, if the border has that code too."""
        if zero_point == 0:
            return self
        sums = self.weights.sum(axis=(1, 2, 3), dtype=np.int64)
        bias = (self.bias - zero_point * sums).astype(np.int32)
        return Kernels(self.weights, bias, self.groups, most_code=self.most_code)

    def totals(self, codes: Int8, *, border: int, stride: Pair, dilation: Pair, pads: Pads) -> Totals:
        """Return the final values of the accumulators for maps that are padded with a code.

        Parameters
        ----------
        codes : int8[..., height, width, channels]
        border : int
        stride, dilation : (vertical, horizontal)
        pads : (top, left, bottom, right)

        Returns
        -------
        float32, float64 or int32[..., output rows, output columns, output channels]
            ``bias + sum(codes * weights)`` over the window, modulo 2**32. Integers, whatever the type.

        Raises
        ------
        TypeError, ValueError
            As :func:`convolve`; also if a code is greater than ``most_code``.
        """
        return self.apply(
            lambda total, _: total, codes, self.kind, border=border, stride=stride, dilation=dilation, pads=pads
        )

    def apply(
        self,
        finish: Callable[[Totals, Tile], Codes],
        codes: Int8,
        kind: npt.DTypeLike = np.int8,
        *,
        border: int,
        stride: Pair,
        dilation: Pair,
        pads: Pads,
    ) -> Codes:
        """Apply a function to the totals (see :meth:`totals`) tile by tile, while they are in the processor's cache.

        ``finish`` makes an array of the type ``kind`` and the same shape of the totals [outputs, rows, columns,
        samples] of each tile, which it may write to; there may be more columns than the tile has.
        """
        _check_type(codes=(codes, np.int8))
        channels = self.weights.shape[-1] * self.groups
        if codes.shape[-1] != channels:
            raise ValueError(f"codes must have the {channels} channels of weights, not {codes.shape[-1]}")
        if self.most_code < MOST_CODE and codes.size and max(-int(codes.min()), int(codes.max())) > self.most_code:
            raise ValueError(
                f"codes must be between {-self.most_code} and {self.most_code}, not from {codes.min()} to {codes.max()}"
            )
        window = PlaneWindow.of(codes.shape[-3:-1], self._kernel, stride, dilation, pads, border)
        stack, outputs = planes(codes), len(self.weights)
        # Runs along a map are short where there are few windows.
        is_apart = self._is_apart and math.prod(window.size) >= math.prod(self._kernel)
        compute = self._apart if is_apart else self._by_matrices
        result = np.empty((outputs, *window.size, stack.shape[3]), kind)
        for place, sums in compute(stack, window):
            if self.kind is np.int32:
                total = sums.astype(np.int64).astype(np.int32)
            else:
                total = sums.astype(self.kind, copy=False)
            total += self._bias[place[0]]
            result[place] = finish(total, place)[:, :, : place[2].stop - place[2].start]
        return from_planes(result, codes.ndim)

    def _by_matrices(self, stack: Int8, window: PlaneWindow) -> Iterator[tuple[Tile, Totals]]:
        """Yield sums of tiles, by a matrix product for each group."""
        samples, (groups, matrix_rows, terms) = stack.shape[3], self._matrices.shape
        seen = window.seen(stack, groups)
        # A matrix product takes as many pixels as the cache has room for; the epilogue, with fewer numbers for each
        # pixel, takes more of them.
        at_once = max(CACHED_NUMBERS, _COLUMNS * groups * terms) // (groups * terms * samples)
        for down, along in tiles(window.size, max(CACHED_NUMBERS // (groups * matrix_rows * samples), at_once)):
            size = down.stop - down.start, along.stop - along.start
            total = np.empty((groups, matrix_rows, math.prod(size) * samples), self._kind)
            of_tile, end = seen[:, :, :, :, down, along], 0
            for part in tiles(size, at_once):
                taken = of_tile[:, :, :, :, *part]
                # Codes side by side in memory are converted directly; else it is cheaper to copy them as codes first.
                taken = taken if window.stride[1] == 1 else copied(taken)
                factors = taken.astype(self._kind, order="C").reshape(groups, terms, -1)
                start, end = end, end + factors.shape[2]
                matrix_product(self._matrices, factors, out=total[:, :, start:end])
            if self._pair_unit:
                total = _unpaired(total[0], self._pair_unit)[: len(self.weights)]
            yield (slice(0, len(self.weights)), down, along), total.reshape(-1, *size, samples)

    def _apart(self, stack: Int8, window: PlaneWindow) -> Iterator[tuple[Tile, Totals]]:
        """Yield sums of tiles where each group has one input channel, so that matrices would have a single column."""
        taps = self._floats.reshape(self.groups, -1, *self._kernel)
        outputs, size = taps.shape[1], taps.itemsize
        phases = Phases.of(window, stack.shape[3])
        alike = [(steps, taps[:, :, rows, columns], first) for rows, columns, first, steps in phases.alike]
        for channels, rows, runs in phases.parts(stack, self._kind):
            count, length = rows.stop - rows.start, phases.run(rows)
            total = np.empty((len(runs), outputs, count, *phases.row), self._kind)
            flat = total.reshape(len(runs), outputs, -1)
            # No window lies at these positions.
            flat[..., length:] = 0
            sums = flat[..., :length]
            for number, (steps, own, first) in enumerate(alike):
                seen = np.ndarray(
                    (len(runs), length, *own.shape[2:]),
                    self._kind,
                    runs,
                    phases.start(first, rows) * size,
                    (runs.strides[0], size, *(step * size for step in steps)),
                )
                if number:
                    sums += np.einsum("cpij,coij->cop", seen, own[channels])
                else:
                    np.einsum("cpij,coij->cop", seen, own[channels], out=sums)
            place = slice(channels.start * outputs, channels.stop * outputs), rows, slice(0, window.size[1])
            yield place, total.reshape(-1, count, *phases.row)


def type_of_sums(greatest: int) -> type[np.float32 | np.float64]:
    """Return the type that holds sums of integers up to ``greatest`` exactly, in whatever order BLAS adds them up.
    (float64 would round sums of more than 2**38 products of codes.)"""
    return np.float32 if greatest <= EXACT_IN_FLOAT32 else np.float64


def _pair_unit(greatest: int, shape: tuple[int, ...], groups: int) -> int:
    """Return the factor for the weights of a second output with which one sum holds both outputs; 0 if none is exact.

    The sum is ``first + unit * second``, of sums that are at most ``greatest``. The first one, below half a unit, does
    not reach the second.
    """
    unit = 1 << (2 * greatest).bit_length()
    is_worth_it = groups == 1 < shape[0] and math.prod(shape[1:]) >= _LEAST_PAIRED
    return unit if is_worth_it and greatest * (1 + unit) <= EXACT_IN_FLOAT32 else 0


def _unpaired(total: Codes, unit: int) -> Codes:
    """Return the sums [outputs, ...] of pairs [outputs / 2, ...], all first ones in front."""
    found = np.empty((2, *total.shape), total.dtype)
    np.multiply(total, total.dtype.type(1 / unit), out=found[1])
    np.rint(found[1], out=found[1])
    np.multiply(found[1], total.dtype.type(-unit), out=found[0])
    found[0] += total
    return found.reshape(-1, *total.shape[1:])


def _check_type(**arrays: tuple[Codes, type]) -> None:
    for name, (array, dtype) in arrays.items():
        if array.dtype != dtype:
            raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")


def matrix_product(left: Codes, right: Codes, out: Codes | None = None) -> Codes:
    """Multiply matrices whose sums the type holds exactly.

    Parameters
    ----------
    left : float[..., rows, terms]
        Integers.
    right : float[..., terms, columns]
        Integers.
    out : float[..., rows, columns] or None
        Array for the sums.

    Returns
    -------
    float[..., rows, columns]

    Raises
    ------
    FloatingPointError
        If a sum is not a finite number: no integers lead to it.
    """
    _touch_buffer()
    # BLAS also computes on vector lanes without an element, which hold arbitrary values. So the flag of an invalid
    # operation may be set though the sums are right (as in numpy issue 24067), and the sums themselves are checked.
    with np.errstate(invalid="ignore"):
        product = np.matmul(left, right, out=out)
    if not np.isfinite(product).all():
        raise FloatingPointError("a matrix product of integers is not finite: report this with the versions of numpy")
    return product


@functools.cache
def _touch_buffer() -> None:
    """Have OpenBLAS write to the whole buffer that it copies blocks of matrices to, once in a process.

    Its kernels fetch ahead, beyond what they have written. On a processor of AMD (family 23) this costs so much where
    pages of the buffer have never been touched that products take three times as long. Blocks have up to 320 rows.
    """
    np.ones((320, 400), np.float32) @ np.ones((400, 800), np.float32)


# Pooling of int8 codes.
#
# An average pooling is a depthwise convolution of unit weights (``golden/numerics/convolution.py``), requantised with
# :func:`average_multiplier`.
#
# Source: ONNX Runtime, MLAS, ``qlgavgpool.cpp``.


def pool_maximum(
    codes: Int8, *, kernel: Pair, stride: Pair = (1, 1), dilation: Pair = (1, 1), pads: Pads = (0, 0, 0, 0)
) -> Int8:
    """Take the greatest code of each window; borders never win.

    Parameters
    ----------
    codes : int8[..., height, width, channels]
        Codes of one map, or of several samples.
    kernel, stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)

    Returns
    -------
    int8[..., output rows, output columns, channels]
        ``max(codes[window])``, with borders of -128.

    Raises
    ------
    TypeError
        If ``codes`` is not int8.
    ValueError
        If the kernel is larger than the map with its borders, or a size is out of range.
    """
    codes = np.asarray(codes)
    if codes.dtype != np.int8:
        raise TypeError(f"codes must be int8, not {codes.dtype}")
    window, stack = PlaneWindow.of(codes.shape[-3:-1], kernel, stride, dilation, pads, -128), planes(codes)
    result = np.empty((len(stack), *window.size, stack.shape[3]), np.int8)
    phases = Phases.of(window, stack.shape[3])
    for channels, rows, runs in phases.parts(stack, np.int8):
        greatest = np.full((len(runs), rows.stop - rows.start, *phases.row), -128, np.int8)
        found = greatest.reshape(len(runs), -1)[:, : phases.run(rows)]
        for tap in np.ndindex(kernel):
            start = phases.start(tap, rows)
            np.maximum(found, runs[:, start : start + found.shape[1]], out=found)
        result[channels, rows] = greatest[:, :, : window.size[1]]
    return from_planes(result, codes.ndim)


def average_multiplier(input_scale: float, output_scale: float, elements: int) -> np.float32:
    """The scale from the sum of a window, less its zero points, to the code of its average.

    Parameters
    ----------
    input_scale, output_scale : float
        float32 values.
    elements : int
        Number of elements of a window.

    Returns
    -------
    float32
        ``input_scale / (output_scale * elements)``, rounded after each operation.
    """
    return np.float32(np.float32(input_scale) / np.float32(np.float32(output_scale) * np.float32(elements)))
