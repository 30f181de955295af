"""From float to fixed point: scales, zero points and shifts of fast pointwise convolutions, from observed ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from ...golden.numerics.fpc import MOST_EPILOGUE_SHIFT, MOST_INPUT_SHIFT, VALUE_BITS
from ..layers.fixed_point import FixedPoint, Ranges
from ..layers.layer import FastPointwiseConv2d

_CODES = 255
#: Headroom for weights that grow in further training in fixed point; beyond it values saturate.
_ROOM = 1.25


def calibrate(model: nn.Module, batches: Iterable[torch.Tensor]) -> list[str]:
    """Set every fast pointwise convolution of a model to fixed point.

    Parameters
    ----------
    model : nn.Module
        A model trained in float. Continue training afterwards, as the layers round from then on.
    batches : iterable of float tensors
        Typical inputs of the model.

    Returns
    -------
    list of str
        Names of the layers.

    Raises
    ------
    ValueError
        If there is no batch or no such layer, or values between stages do not fit 16 bits.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, FastPointwiseConv2d)}
    if not layers:
        raise ValueError("model must have a FastPointwiseConv2d, and has none")
    was_training = model.training
    for layer in layers.values():
        layer.fixed_point, layer.ranges = None, Ranges()
    model.eval()
    count = 0
    with torch.no_grad():
        for batch in batches:
            model(batch)
            count += 1
    model.train(was_training)
    if not count:
        raise ValueError("batches must be at least one, and are none")
    for name, layer in layers.items():
        layer.fixed_point, layer.ranges = fixed_point(name, layer, layer.ranges), None
    return list(layers)


def fixed_point(name: str, layer: FastPointwiseConv2d, ranges: Ranges) -> FixedPoint:
    """Return the settings of a layer with these observed ranges.

    The scale of its codes is that of its values times a power of two, where that is possible: its results need no
    multiplication then.

    Raises
    ------
    ValueError
        If its values do not fit 16 bits.
    """
    input_scale = _scale(ranges.input)
    input_zero = _zero_point(ranges.input, input_scale)
    room = (2 ** (VALUE_BITS - 1) - 1) / (_ROOM * max(ranges.peak / input_scale, 1))
    if room < 1:
        raise ValueError(
            f"{name}: values between stages must be at most {2 ** (VALUE_BITS - 1) - 1} steps of the input's scale, "
            f"not {_ROOM * ranges.peak / input_scale:.0f}; set more growth_shifts, or clamp the weights"
        )
    shift = min(math.floor(math.log2(room)), MOST_INPUT_SHIFT)
    needed = _scale(ranges.output)
    after = max(math.ceil(math.log2(needed / input_scale)), -shift)
    # The result's scale is the input's times 2**after, and a shift of input_shift + after bits.
    shift = min(shift, MOST_EPILOGUE_SHIFT - after)
    is_shift = shift >= 0 and bool((layer.gain == 1).all())
    output_scale = input_scale * 2.0**after if is_shift else needed
    output_zero = -128 if layer.relu else _zero_point(ranges.output, output_scale)
    return FixedPoint(input_scale, input_zero, max(shift, 0), output_scale, output_zero)


def _scale(limits: tuple[float, float]) -> float:
    """Return a float32 scale with which the codes reach from the least number to the greatest."""
    return float(np.float32(max(limits[1] - limits[0], 1e-6) / _CODES))


def _zero_point(limits: tuple[float, float], scale: float) -> int:
    """Return the code of zero, with equal margins below the least number and above the greatest."""
    middle = (limits[0] + limits[1]) / 2
    return min(max(round(-0.5 - middle / scale), -128), 127)
