"""Fixed point of a fast pointwise convolution: its scales, its rotations, and rounding with straight-through
gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ...golden.numerics.butterfly import Density, Pattern
from ...golden.numerics.fpc import UNIT_WEIGHT, VALUE_BITS

LEAST, GREATEST = -(1 << VALUE_BITS - 1), (1 << VALUE_BITS - 1) - 1


@dataclass(frozen=True)
class FixedPoint:
    """The scales of a layer's codes and values.

    Attributes
    ----------
    input_scale, output_scale : float
        float32 values: ``real = (code - zero_point) * scale``.
    input_zero_point, output_zero_point : int
        int8 codes.
    input_shift : int
        Shift of the codes at the input of the stages.
    """

    input_scale: float
    input_zero_point: int
    input_shift: int
    output_scale: float
    output_zero_point: int

    @property
    def unit(self) -> float:
        """The least step of a value between stages."""
        return self.input_scale * 2.0**-self.input_shift


@dataclass
class Ranges:
    """Observed ranges of a layer: the least and the greatest number before and after it, and the greatest magnitude
    between its stages."""

    input: tuple[float, float] = (0.0, 0.0)
    output: tuple[float, float] = (0.0, 0.0)
    peak: float = 0.0


def default_growth(pattern: Pattern) -> list[int]:
    """Return the default growth shifts: two stages with weights around one double the magnitude."""
    return [stage % 2 for stage in range(pattern.stages)]


def rotations(pattern: Pattern, growth_shifts: Sequence[int]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return initial weights float32[width]: each pair is rotated, so that the matrix keeps all directions apart.

    Together they double the variance, as a convolution before a ReLU should, as far as their range allows.
    """
    indices = torch.arange(pattern.width)
    fixed = sum(density is not Density.FULL for density in pattern.densities)
    growth = 2.0 ** (fixed - 2 * sum(growth_shifts))
    free = pattern.stages - fixed
    wanted = 2 * pattern.width / pattern.inputs
    radius = min(math.sqrt(wanted / growth) ** (1 / free), 1.9) if free else 1.0
    own, cross = [], []
    for distance, density in zip(pattern.distances, pattern.densities, strict=True):
        pair = indices & ~distance
        sign = torch.where(indices & distance > 0, 1.0, -1.0)
        if density is Density.FULL:
            angle = (torch.rand(pattern.width) * 2 * math.pi)[pair]
            own.append(nn.Parameter(radius * torch.cos(angle)))
            cross.append(nn.Parameter(radius * torch.sin(angle) * sign))
        else:
            turned = (torch.randint(0, 2, (pattern.width,)) * 2.0 - 1)[pair]
            own.append(nn.Parameter(torch.ones(pattern.width)))
            cross.append(nn.Parameter(turned * sign + 0.1 * torch.randn(pattern.width)))
    return own, cross


def rounded(values: torch.Tensor) -> torch.Tensor:
    """Round halves to even; the gradient is that of the identity."""
    return values + (torch.round(values) - values).detach()


def whole_weights(weights: torch.Tensor) -> torch.Tensor:
    """Return weights in units of 1/64."""
    return rounded(weights * UNIT_WEIGHT).clamp(-128, 127)


def widened(known: tuple[float, float], values: torch.Tensor) -> tuple[float, float]:
    """Widen a range to contain these values."""
    return min(known[0], float(values.min())), max(known[1], float(values.max()))
