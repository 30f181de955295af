"""Layers that multiply and accumulate: convolutions of all kinds, averages, padding and matrix products."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from ...golden.elements import CODE_BITS
from ...golden.numerics.convolution import MOST_CODE, Int32, Kernels, Tile, Totals, matrix_product, type_of_sums
from ...golden.numerics.fpc import FpcEpilogue, Stages
from ...golden.numerics.fpc_float import fast_pointwise_float
from ...golden.numerics.requant import requantise_float
from .geometry import ChannelRule, Int8, Shape, Tensor
from .layer import Finished


class ProductLayer(Finished):
    """Sums of products in windows, with a bias, requantised.

    A kind of product has fields or properties of these names.

    Attributes
    ----------
    weights : int8[output channels, kernel rows, kernel columns, input channels / groups]
    bias : int32[output channels]
    multiplier : float32[output channels]
        The factor from sum to code.
    groups : int
        Output channel o reads only the input channels of group ``o // (output channels / groups)``: with as many groups
        as input channels the product is depthwise.
    """

    weights: Int8
    bias: Int32
    multiplier: npt.NDArray[np.float32]
    groups: int

    #: The greatest magnitude of a code of its input.
    most_code: ClassVar[int] = MOST_CODE

    @cached_property
    def _kernels(self) -> dict[int, Kernels]:
        """Kernels by the zero point of the input, created as needed."""
        return {}

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        zero_point = tensors[self.input].zero_point
        return self._evaluated(values, tensors, zero_point=zero_point, border=zero_point)

    def _evaluated(
        self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor], *, zero_point: int, border: int
    ) -> dict[str, Int8]:
        """Requantise the sums of codes less a zero point, over padding of another code."""
        if zero_point not in self._kernels:
            kernels = Kernels(self.weights, self.bias, self.groups, most_code=self.most_code)
            self._kernels[zero_point] = kernels.without(zero_point)
        codes, window = values[self.input], self.window
        scales = self.scales(codes.shape[-3:-1])
        codes_of = functools.partial(self.requantised, scales=scales, zero_point=tensors[self.inner].zero_point)
        found = self._kernels[zero_point].apply(
            codes_of, codes, border=border, stride=window.stride, dilation=window.dilation, pads=window.pads
        )
        return self.finished(found, tensors)

    def scales(self, size: tuple[int, int]) -> npt.NDArray[np.float32]:
        """From sum to code, over an input of ``size`` rows and columns: float32[outputs, rows or 1, columns or 1]."""
        return self.multiplier[:, np.newaxis, np.newaxis]

    def requantised(self, sums: Totals, place: Tile, *, scales: npt.NDArray[np.float32], zero_point: int) -> Int8:
        """Codes with a zero point of the sums [outputs, rows, columns, samples] of a tile, which are written over."""
        whole = scales.shape[1:] == (1, 1)
        multiplier = scales[place[0]] if whole else scales[place]
        # There may be columns beyond those of the tile.
        taken = sums if whole else sums[:, :, : multiplier.shape[2]]
        limits = self.epilogue.low, self.epilogue.high
        return requantise_float(taken, multiplier[..., np.newaxis], zero_point, *limits, overwrite=True)

    def counts_border(self, code: int) -> bool:
        """Padding with the zero point adds nothing to a sum, whatever its code."""
        return True

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Depthwise products move with their inputs, those of one group are free; both only between tensors of
        codes."""
        if self.groups == source.shape[2] == len(self.weights) > 1:
            return ChannelRule.TIED
        is_free = self.groups == 1 and source.bits == target.bits == CODE_BITS
        return ChannelRule.FREE if is_free else ChannelRule.FIXED

    @property
    def connections(self) -> npt.NDArray[np.bool_]:
        return self.weights.any(axis=(1, 2))


# The depthwise product of unit weights, which averages and padding share.


@dataclass(frozen=True, eq=False)
class UnitProduct(ProductLayer):
    """The sum of each channel's own elements, scaled.

    Attributes
    ----------
    channels : int
    scale : float32
        The factor from sum to code, for all channels.
    offset : int
        The addend of each sum: 0 as in the model, where the input's zero point is not yet folded in.
    """

    channels: int = field(kw_only=True)
    scale: np.float32 = field(default=np.float32(1), kw_only=True)
    offset: int = field(default=0, kw_only=True)

    @property
    def weights(self) -> Int8:
        """int8[channels, kernel rows, kernel columns, 1], all 1."""
        return np.ones((self.channels, *self.window.kernel, 1), np.int8)

    @property
    def bias(self) -> Int32:
        """The offset for each channel, int32[channels]."""
        return np.full(self.channels, self.offset, np.int32)

    @property
    def multiplier(self) -> npt.NDArray[np.float32]:
        """The scale for each channel, float32[channels]."""
        return np.full(self.channels, self.scale, np.float32)

    @property
    def groups(self) -> int:
        return self.channels

    def normalised(self, zero_point: int) -> Self:
        """Every element of a window contributes the zero point once."""
        return dataclasses.replace(self, offset=self.offset - zero_point * math.prod(self.window.kernel))

    def of_channels(self, channels: range, source: Tensor) -> tuple[Self, range]:
        return dataclasses.replace(self, channels=len(channels)), channels


# Convolutions and fully connected layers.


@dataclass(frozen=True, eq=False)
class Convolution(ProductLayer):
    """Convolution or fully connected layer (kernel 1x1 on a 1x1 map, or the whole map).

    Attributes
    ----------
    weights : int8[output channels, kernel rows, kernel columns, input channels / groups]
    bias : int32[output channels]
        The bias of the model: the input's zero point is not yet folded in.
    multiplier : float32[output channels]
        ``f32(f32(xs * ws) / ys)``.
    groups : int
        See :class:`.products.ProductLayer`.
    of_groups : int
        Groups of the model whose weights these are, with zeros elsewhere; see :meth:`ungrouped`.
    """

    weights: Int8
    bias: Int32
    multiplier: npt.NDArray[np.float32]
    groups: int = 1
    of_groups: int = 1

    def kind(self, source: Shape, target: Shape) -> str:
        if self.groups > 1:
            return "depthwise" if self.groups == len(self.weights) else "grouped convolution"
        if self.of_groups > 1:
            return "grouped convolution"
        return "fully connected" if self._is_whole_map(source, target) else "convolution"

    def details(self, source: Shape, target: Shape) -> str:
        count = self.groups * self.of_groups
        if count == 1 and self._is_whole_map(source, target):
            return ""
        groups = f", {count} groups" if 1 < count < len(self.weights) else ""
        return f" {self.window.text}{groups}"

    def _is_whole_map(self, source: Shape, target: Shape) -> bool:
        return self.window.kernel == source[:2] and target[:2] == (1, 1)

    def macs(self, target: Shape) -> int:
        """There is one for each weight that an element of the output uses.

        Elements of the window without a weight, which exist for other phases of a map, do not count, nor do the zeros
        between groups.
        """
        unused = int(np.count_nonzero(~self.weights.any(axis=(0, 3))))
        outputs, _, _, inputs = self.weights.shape
        return target[0] * target[1] * (self.weights.size - unused * outputs * inputs) // self.of_groups

    def normalised(self, zero_point: int) -> Convolution:
        """The bias is reduced by the zero point's contribution to each sum.

        ``sum((x - zx) * w) + b = sum(x * w) + (b - zx * sum(w))``, modulo 2**32. Padding is zx, so that this holds
        there too.
        """
        if zero_point == 0:
            return self
        sums = self.weights.astype(np.int64).sum(axis=(1, 2, 3))
        bias = (self.bias.astype(np.int64) - zero_point * sums).astype(np.int32)
        return dataclasses.replace(self, bias=bias)

    def of_channels(self, channels: range, source: Tensor) -> tuple[Convolution, range] | None:
        """One group needs all inputs, a depthwise convolution those of the outputs; other groups stay together."""
        is_depthwise = self.groups == len(self.weights) == source.shape[2]
        if self.groups > 1 and not is_depthwise:
            return None
        part = slice(channels.start, channels.stop)
        layer = dataclasses.replace(
            self,
            weights=self.weights[part],
            bias=self.bias[part],
            multiplier=self.multiplier[part],
            groups=len(channels) if self.groups > 1 else 1,
        )
        return layer, channels if self.groups > 1 else range(source.shape[2])

    def of_outputs(self, outputs: range, inner: str, output: str) -> Convolution | None:
        of_group = len(self.weights) // self.groups
        shares = {
            sum(first <= one < first + of_group for one in outputs) for first in range(0, len(self.weights), of_group)
        }
        if len(shares) > 1:
            return None
        part = slice(outputs.start, outputs.stop, outputs.step)
        return dataclasses.replace(
            self,
            output=output,
            weights=np.ascontiguousarray(self.weights[part]),
            bias=np.ascontiguousarray(self.bias[part]),
            multiplier=np.ascontiguousarray(self.multiplier[part]),
            epilogue=dataclasses.replace(self.epilogue, inner=inner if self.epilogue.inner else ""),
        )

    @property
    def takes_signs(self) -> bool:
        """A dense convolution does: the array that computes it packs its results."""
        return self.groups == 1

    def ungrouped(self, *, fill: bool = False) -> Convolution:
        outputs, rows, columns, inputs = self.weights.shape
        if self.groups == 1 or (inputs == 1 and self.groups == outputs):
            return self
        weights = np.zeros((self.groups, outputs // self.groups, rows, columns, self.groups, inputs), np.int8)
        each = range(self.groups)
        weights[each, ..., each, :] = 1 if fill else self.weights.reshape(self.groups, -1, rows, columns, inputs)
        weights = weights.reshape(outputs, rows, columns, self.groups * inputs)
        return dataclasses.replace(self, weights=weights, groups=1, of_groups=self.groups)

    def reordered(self, outputs: npt.NDArray[np.int64], inputs: npt.NDArray[np.int64]) -> Convolution:
        """Weights and bias of an output move with it; with one group, the weights of an input move with it."""
        weights = self.weights[outputs]
        return dataclasses.replace(
            self,
            weights=weights[..., inputs] if self.groups == 1 else weights,
            bias=self.bias[outputs],
            multiplier=self.multiplier[outputs],
        )


# Average pooling.


@dataclass(frozen=True, eq=False)
class AveragePool(UnitProduct):
    """Average pooling: sums of windows, scaled by ``f32(xs / f32(ys * n))``, n being the elements of a window.

    Attributes
    ----------
    multipliers : dict of int to float32
        Scale by the number of a window's elements within the input, see :meth:`.geometry.Window.counts`, where padding
        does not count. Empty if all windows have the same scale.
    """

    multipliers: Mapping[int, np.float32] = field(default_factory=dict, kw_only=True)

    def kind(self, source: Shape, target: Shape) -> str:
        return "average pooling"

    def details(self, source: Shape, target: Shape) -> str:
        return f" {self.window.text}"

    def scales(self, size: tuple[int, int]) -> npt.NDArray[np.float32]:
        """By the elements in the input, where a border does not count.

        Padding is the zero point, which adds nothing to a sum: only the divisor differs.
        """
        if not self.multipliers:
            return super().scales(size)
        counts = self.window.counts(*size)
        found = np.empty(counts.shape, np.float32)
        for count, multiplier in self.multipliers.items():
            found[counts == count] = multiplier
        return np.broadcast_to(found, (self.channels, *found.shape))

    def counts_border(self, code: int) -> bool:
        """It does, unless padding does not count in averages."""
        return not self.multipliers


# Padding of maps.


@dataclass(frozen=True, eq=False)
class Pad(UnitProduct):
    """Padding with the zero point, by ``window.pads``, computed as sums of windows of one element."""

    adds_border: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        return "border"


# Convolutions of binary tensors.


@dataclass(frozen=True, eq=False)
class BinaryConvolution(Convolution):
    """Convolution of a binary tensor with weights that are +1 and -1.

    Inner products are requantised like other sums: without a scale, a negative bias is a threshold.

    Attributes
    ----------
    pad : int
        The value of padding: +1, -1, or 0 for none.
    """

    most_code: ClassVar[int] = 1

    pad: int = field(kw_only=True)

    def kind(self, source: Shape, target: Shape) -> str:
        return f"binary {super().kind(source, target)}"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Products of +1 and -1 give the same bytes as counts of agreeing bits, see ``golden/numerics/binary.py``, in
        less time.

        Values other than +1 and -1, such as padding of 0, add nothing.
        """
        return self._evaluated(values, tensors, zero_point=0, border=self.pad)

    def counts_border(self, code: int) -> bool:
        """The padding is not a code."""
        return False

    @property
    def binary_border(self) -> int:
        """The layer's own padding."""
        return self.pad

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Channels are fixed, as they are bits of bytes."""
        return ChannelRule.FIXED


# Fast pointwise convolutions.


@dataclass(frozen=True, eq=False)
class FastPointwiseConvolution(Finished):
    """Pointwise convolution by the stages of a butterfly, requantised, see ``golden/numerics/fpc.py``.

    Attributes
    ----------
    stages : Stages
    bias : int16[outputs]
    scale : float32[outputs]
        The factor from value to code.
    zero_point : int
        The zero point that is subtracted from the input's codes, as an int8 code.
    result_zero_point : int
        The zero point of the results, as an int8 code.
    """

    stages: Stages
    bias: npt.NDArray[np.int16]
    scale: npt.NDArray[np.float32]
    zero_point: int
    result_zero_point: int

    @cached_property
    def requantisation(self) -> FpcEpilogue:
        """The requantisation of the last stage's values."""
        return FpcEpilogue(self.bias, self.scale, self.result_zero_point, self.epilogue.low, self.epilogue.high)

    def kind(self, source: Shape, target: Shape) -> str:
        return "fast pointwise convolution"

    def details(self, source: Shape, target: Shape) -> str:
        return f", {self.stages.pattern.stages} stages"

    def macs(self, target: Shape) -> int:
        """There is one for each weight that is not multiplied with a null channel and whose result is used."""
        return target[0] * target[1] * self.stages.pattern.live_multiplications

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        result = fast_pointwise_float(values[self.input], self.zero_point, self.stages, self.requantisation)
        return self.finished(result, tensors)


# Matrix products of two activations: 1x1 convolutions whose weights are known only at run time.


@dataclass(frozen=True, eq=False)
class MatrixProduct(Finished):
    """The product of every pixel of the first input and a matrix of the second input's elements, requantised.

    Both have the zero point 0: the contribution of another one to a sum would depend on the codes.

    Attributes
    ----------
    multiplier : float32
        ``f32(f32(xs * ws) / ys)``.
    order : int64[outputs, inputs]
        For each element of the matrix, the index of the second input's element.
    """

    weight_place: ClassVar[int] = 1

    multiplier: np.float32
    order: npt.NDArray[np.int64]

    def kind(self, source: Shape, target: Shape) -> str:
        return "matrix product"

    def details(self, source: Shape, target: Shape) -> str:
        outputs, inputs = self.order.shape
        return f" by {outputs}x{inputs}"

    def macs(self, target: Shape) -> int:
        """There is one for each element of the matrix and each pixel."""
        return target[0] * target[1] * self.order.size

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """The sums, requantised."""
        codes, other = (values[name] for name in self.inputs)
        kind = type_of_sums(MOST_CODE**2 * self.order.shape[1])
        matrices = other.reshape(*other.shape[:-3], -1)[..., self.order].astype(kind)
        pixels = codes.reshape(*codes.shape[:-3], -1, codes.shape[-1]).astype(kind)
        sums = matrix_product(pixels, matrices.swapaxes(-1, -2)).reshape(*codes.shape[:-1], -1)
        zero_point = tensors[self.inner].zero_point
        limits = self.epilogue.low, self.epilogue.high
        return self.finished(requantise_float(sums, self.multiplier, zero_point, *limits, overwrite=True), tensors)
