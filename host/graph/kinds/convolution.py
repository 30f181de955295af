"""Convolutions and fully connected layers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....golden.numerics.convolution import Int32
from ..tensor import Int8, Shape, Tensor
from .product import Product


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
