"""Layers that multiply and add up: convolutions of all kinds, averages, borders and matrix products."""

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
from ...golden.numerics.fpc import Finish, Stages
from ...golden.numerics.fpc_float import fast_pointwise_float
from ...golden.numerics.requant import requantise_float
from .geometry import ChannelRule, Int8, Shape, Tensor
from .layer import Finished


class Product(Finished):
    """Sums of products in windows, with a bias, requantised.

    A kind of product has fields or properties of these names.

    Attributes
    ----------
    weights : int8[output channels, kernel rows, kernel columns, input channels / groups]
    bias : int32[output channels]
    multiplier : float32[output channels]
        From sum to code.
    groups : int
        Output channel o reads the input channels of group ``o // (output channels / groups)`` alone: with as many
        groups as input channels the product is depthwise.
    """

    weights: Int8
    bias: Int32
    multiplier: npt.NDArray[np.float32]
    groups: int

    #: The greatest magnitude of a code of its input.
    most_code: ClassVar[int] = MOST_CODE

    @cached_property
    def _kernels(self) -> dict[int, Kernels]:
        """By the zero point of the input: as many as are needed."""
        return {}

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """The sums, requantised."""
        zero_point = tensors[self.input].zero_point
        return self._evaluated(values, tensors, zero_point=zero_point, border=zero_point)

    def _evaluated(
        self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor], *, zero_point: int, border: int
    ) -> dict[str, Int8]:
        """The sums of codes less a zero point, over a border of another code, requantised."""
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
        limits = self.finish.low, self.finish.high
        return requantise_float(taken, multiplier[..., np.newaxis], zero_point, *limits, overwrite=True)

    def counts_border(self, code: int) -> bool:
        """The zero point, whatever it is: it adds nothing to a sum."""
        return True

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Depthwise ones keep channels apart, and those of one group have weights that can move, both between codes."""
        if self.groups == source.shape[2] == len(self.weights) > 1:
            return ChannelRule.TIED
        is_free = self.groups == 1 and source.bits == target.bits == CODE_BITS
        return ChannelRule.FREE if is_free else ChannelRule.FIXED

    @property
    def connections(self) -> npt.NDArray[np.bool_]:
        """Where some weight is not zero."""
        return self.weights.any(axis=(1, 2))


# The depthwise product of unit weights: what an average and a border have in common.


@dataclass(frozen=True, eq=False)
class UnitProduct(Product):
    """The sum of each channel's own elements, scaled.

    Attributes
    ----------
    channels : int
    scale : float32
        From sum to code, of all channels.
    offset : int
        What is added to each sum: 0 as in the model, where the input's zero point is not yet folded in.
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
        """One for each channel."""
        return self.channels

    def normalised(self, zero_point: int) -> Self:
        """Every element of a window brings the zero point once."""
        return dataclasses.replace(self, offset=self.offset - zero_point * math.prod(self.window.kernel))

    def of_channels(self, channels: range, source: Tensor) -> tuple[Self, range]:
        """Every channel for itself."""
        return dataclasses.replace(self, channels=len(channels)), channels


# Convolutions and fully connected layers.


@dataclass(frozen=True, eq=False)
class Convolution(Product):
    """Convolution or fully connected layer (kernel 1x1 on a 1x1 map, or the whole map).

    Attributes
    ----------
    weights : int8[output channels, kernel rows, kernel columns, input channels / groups]
    bias : int32[output channels]
        As in the model: the input's zero point is not yet folded in.
    multiplier : float32[output channels]
        ``f32(f32(xs * ws) / ys)``.
    groups : int
        See :class:`.product.Product`.
    of_groups : int
        Groups of the model whose weights these are, with zeros between them; see :meth:`ungrouped`.
    """

    weights: Int8
    bias: Int32
    multiplier: npt.NDArray[np.float32]
    groups: int = 1
    of_groups: int = 1

    def kind(self, source: Shape, target: Shape) -> str:
        """By its groups, or whether one window is the whole map."""
        if self.groups > 1:
            return "depthwise" if self.groups == len(self.weights) else "grouped convolution"
        if self.of_groups > 1:
            return "grouped convolution"
        return "fully connected" if self._is_whole_map(source, target) else "convolution"

    def details(self, source: Shape, target: Shape) -> str:
        """The geometry, unless it follows of the map, and the groups."""
        count = self.groups * self.of_groups
        if count == 1 and self._is_whole_map(source, target):
            return ""
        groups = f", {count} groups" if 1 < count < len(self.weights) else ""
        return f" {self.window.text}{groups}"

    def _is_whole_map(self, source: Shape, target: Shape) -> bool:
        return self.window.kernel == source[:2] and target[:2] == (1, 1)

    def macs(self, target: Shape) -> int:
        """One for each weight that an element of the output takes.

        Without the elements of the window that no weight is for: they are there for other phases of a map. And without
        the zeros between groups.
        """
        unused = int(np.count_nonzero(~self.weights.any(axis=(0, 3))))
        outputs, _, _, inputs = self.weights.shape
        return target[0] * target[1] * (self.weights.size - unused * outputs * inputs) // self.of_groups

    def normalised(self, zero_point: int) -> Convolution:
        """What a zero point adds to each sum is subtracted from the bias.

        ``sum((x - zx) * w) + b = sum(x * w) + (b - zx * sum(w))``, modulo 2**32. Borders hold zx, so that this holds
        there too.
        """
        if zero_point == 0:
            return self
        sums = self.weights.astype(np.int64).sum(axis=(1, 2, 3))
        bias = (self.bias.astype(np.int64) - zero_point * sums).astype(np.int32)
        return dataclasses.replace(self, bias=bias)

    def of_channels(self, channels: range, source: Tensor) -> tuple[Convolution, range] | None:
        """Of one group all inputs are needed, of a depthwise one those of the outputs; other groups stay together."""
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
        """Where each group has as many of them."""
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
            finish=dataclasses.replace(self.finish, inner=inner if self.finish.inner else ""),
        )

    @property
    def takes_signs(self) -> bool:
        """A dense one does: the array that computes it packs what it gives."""
        return self.groups == 1

    def ungrouped(self, *, fill: bool = False) -> Convolution:
        """Of several groups one, unless each is a channel."""
        outputs, rows, columns, inputs = self.weights.shape
        if self.groups == 1 or (inputs == 1 and self.groups == outputs):
            return self
        weights = np.zeros((self.groups, outputs // self.groups, rows, columns, self.groups, inputs), np.int8)
        each = range(self.groups)
        weights[each, ..., each, :] = 1 if fill else self.weights.reshape(self.groups, -1, rows, columns, inputs)
        weights = weights.reshape(outputs, rows, columns, self.groups * inputs)
        return dataclasses.replace(self, weights=weights, groups=1, of_groups=self.groups)

    def reordered(self, outputs: npt.NDArray[np.int64], inputs: npt.NDArray[np.int64]) -> Convolution:
        """What belongs to an output moves with it, and with one group the weights of an input with that."""
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
        Where a border does not count: the scale by the elements of a window that lie in the input, see
        :meth:`.geometry.Window.counts`. Empty where all windows have one.
    """

    multipliers: Mapping[int, np.float32] = field(default_factory=dict, kw_only=True)

    def kind(self, source: Shape, target: Shape) -> str:
        """No convolution of the network's."""
        return "average pooling"

    def details(self, source: Shape, target: Shape) -> str:
        """The geometry."""
        return f" {self.window.text}"

    def scales(self, size: tuple[int, int]) -> npt.NDArray[np.float32]:
        """By the elements in the input, where a border does not count.

        A border holds the zero point, which adds nothing to a sum: only what that is divided by differs.
        """
        if not self.multipliers:
            return super().scales(size)
        counts = self.window.counts(*size)
        found = np.empty(counts.shape, np.float32)
        for count, multiplier in self.multipliers.items():
            found[counts == count] = multiplier
        return np.broadcast_to(found, (self.channels, *found.shape))

    def counts_border(self, code: int) -> bool:
        """Unless its border does not count."""
        return not self.multipliers


# Borders around maps.


@dataclass(frozen=True, eq=False)
class Pad(UnitProduct):
    """A border of the zero point, as wide as ``window.pads``: the sums of windows of one element."""

    adds_border: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        """No convolution of the network's."""
        return "border"


# Convolutions of binary tensors.


@dataclass(frozen=True, eq=False)
class BinaryConvolution(Convolution):
    """Convolution of a binary tensor with weights that are +1 and -1.

    Inner products are requantised like those of others: without a scale, a negative bias is a threshold.

    Attributes
    ----------
    pad : int
        What the border counts as: +1, -1, or 0 for nothing.
    """

    most_code: ClassVar[int] = 1

    pad: int = field(kw_only=True)

    def kind(self, source: Shape, target: Shape) -> str:
        """As a convolution, by its groups and its window."""
        return f"binary {super().kind(source, target)}"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Products of +1 and -1: the bytes of agreeing bits, see ``golden/numerics/binary.py``, in less time.

        What is no binary value, as a border of 0, counts as nothing.
        """
        return self._evaluated(values, tensors, zero_point=0, border=self.pad)

    def counts_border(self, code: int) -> bool:
        """Its border is no code."""
        return False

    @property
    def binary_border(self) -> int:
        """What the border counts as."""
        return self.pad

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Channels are bits of bytes, and no connection is off."""
        return ChannelRule.FIXED


# Fast pointwise convolutions.


@dataclass(frozen=True, eq=False)
class FastPointwise(Finished):
    """Pointwise convolution by the stages of a butterfly, requantised, see ``golden/numerics/fpc.py``.

    Attributes
    ----------
    stages : Stages
    bias : int16[outputs]
    scale : float32[outputs]
        From value to code.
    zero_point : int
        That the input's codes lose, as an int8 code.
    result_zero_point : int
        Of the codes that it requantises to, as an int8 code.
    """

    stages: Stages
    bias: npt.NDArray[np.int16]
    scale: npt.NDArray[np.float32]
    zero_point: int
    result_zero_point: int

    @cached_property
    def requantisation(self) -> Finish:
        """What makes codes of the values of the last stage."""
        return Finish(self.bias, self.scale, self.result_zero_point, self.finish.low, self.finish.high)

    def kind(self, source: Shape, target: Shape) -> str:
        """As its technique is called."""
        return "fast pointwise convolution"

    def details(self, source: Shape, target: Shape) -> str:
        """The stages."""
        return f", {self.stages.pattern.stages} stages"

    def macs(self, target: Shape) -> int:
        """One for each weight that is not multiplied with a null channel, and whose result is kept."""
        return target[0] * target[1] * self.stages.pattern.live_multiplications

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Each pixel through all stages."""
        result = fast_pointwise_float(values[self.input], self.zero_point, self.stages, self.requantisation)
        return self.finished(result, tensors)


# Matrix products of two activations: the weights of a convolution with a kernel of 1x1 are known at run time only.


@dataclass(frozen=True, eq=False)
class MatrixProduct(Finished):
    """Every pixel of the first input by a matrix whose elements are those of the second, requantised.

    Both have the zero point 0: what another one would add to a sum depends on the codes.

    Attributes
    ----------
    multiplier : float32
        ``f32(f32(xs * ws) / ys)``.
    order : int64[outputs, inputs]
        Which element of the second input each of the matrix is, counted from the first on.
    """

    weight_place: ClassVar[int] = 1

    multiplier: np.float32
    order: npt.NDArray[np.int64]

    def kind(self, source: Shape, target: Shape) -> str:
        """Of two activations."""
        return "matrix product"

    def details(self, source: Shape, target: Shape) -> str:
        """The matrix."""
        outputs, inputs = self.order.shape
        return f" by {outputs}x{inputs}"

    def macs(self, target: Shape) -> int:
        """One for each element of the matrix and each pixel."""
        return target[0] * target[1] * self.order.size

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """The sums, requantised."""
        codes, other = (values[name] for name in self.inputs)
        kind = type_of_sums(MOST_CODE**2 * self.order.shape[1])
        matrices = other.reshape(*other.shape[:-3], -1)[..., self.order].astype(kind)
        pixels = codes.reshape(*codes.shape[:-3], -1, codes.shape[-1]).astype(kind)
        sums = matrix_product(pixels, matrices.swapaxes(-1, -2)).reshape(*codes.shape[:-1], -1)
        zero_point = tensors[self.inner].zero_point
        limits = self.finish.low, self.finish.high
        return self.finished(requantise_float(sums, self.multiplier, zero_point, *limits, overwrite=True), tensors)
