"""A fast pointwise convolution to train: in float, and in the accelerator's fixed point.

In fixed point the forward pass is exact, and gradients go straight through roundings.

Source: "Efficient inferencing with fast pointwise convolution", US application 16/571,760.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ...golden.numerics.butterfly import Direction, Pattern
from ...golden.numerics.fpc import FRACTION_BITS, FpcEpilogue, Stages
from .fixed_point import GREATEST, LEAST, FixedPoint, Ranges, default_growth, rotations, rounded, whole_weights, widened


class FastPointwiseConv2d(nn.Module):
    """The stages of a butterfly in place of a 1x1 ``Conv2d``.

    There are only sums and products between the stages: an activation there would break the one path from each input to
    each output. In float it is the convolution with :meth:`dense_weight`. With ``fixed_point`` set, see
    :func:`.calibrate`, its results are those of the accelerator, bit for bit, and gradients pass roundings unchanged.

    Parameters
    ----------
    in_channels, out_channels : int
    bias : bool
    relu : bool
        Whether a ReLU follows; in fixed point it is the least code, and costs nothing.
    direction : str
        "bottom-up" or "top-down".
    densities : iterable of str, optional
        "full", "cross" or "unit" for each stage. A "unit" stage alone maps both values of a pair to their sum: without
        a skip around it, half of the information is lost.
    skips : iterable of (int, int)
        The input of stage i is added to the output of stage j. From the first to the last stage, ``(0, n - 1)``, this
        helps deep networks to train.
    growth_shifts : sequence of int, optional
        0 or 1 for each stage: halve its results. By default every second stage does, so that the magnitude stays.

    Attributes
    ----------
    pattern : Pattern
    own, cross : ParameterDict
        Trained weights float32[width], by the number of their stage.
    gain : float32[out_channels]
        Factors of the outputs, positive, not trained: 1 until batch normalisation is folded in.
    fixed_point : FixedPoint or None
    ranges : Ranges or None
        Ranges, which are recorded while it is not None.

    Raises
    ------
    ValueError
        If densities, skips or shifts do not fit the stages.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        bias: bool = True,
        relu: bool = False,
        direction: str = Direction.BOTTOM_UP,
        densities: Iterable[str] | None = None,
        skips: Iterable[tuple[int, int]] = (),
        growth_shifts: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.pattern = Pattern.of(in_channels, out_channels, direction, densities, skips)
        self.relu = relu
        self.growth_shifts = tuple(default_growth(self.pattern) if growth_shifts is None else growth_shifts)
        own, cross = rotations(self.pattern, self.growth_shifts)
        self.own = nn.ParameterDict(
            {str(stage): own[stage] for stage, density in enumerate(self.pattern.densities) if density.trains_own}
        )
        self.cross = nn.ParameterDict(
            {str(stage): cross[stage] for stage, density in enumerate(self.pattern.densities) if density.trains_cross}
        )
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.register_buffer("gain", torch.ones(out_channels))
        indices = torch.arange(self.pattern.width)
        orders = torch.stack([indices ^ distance for distance in self.pattern.distances])
        self.register_buffer("orders", orders, persistent=False)
        self.fixed_point: FixedPoint | None = None
        self.ranges: Ranges | None = None
        # This refuses the same shifts as the integer version.
        self.stages(FixedPoint(1.0, 0, 0, 1.0, 0))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map float[batch, in_channels, height, width] to float[batch, out_channels, height, width].

        Raises
        ------
        TypeError
            If the values are not float32 in fixed point, which other types do not compute exactly.
        """
        if self.fixed_point is not None:
            return self._forward_fixed(values, self.fixed_point)
        result = functional.conv2d(values, self.dense_weight(), self.bias)
        result = functional.relu(result) if self.relu else result
        if self.ranges is not None:
            self._record(self.ranges, values, result)
        return result

    def dense_weight(self) -> torch.Tensor:
        """Return the weight of the equivalent float ``Conv2d``: float[out_channels, in_channels, 1, 1]."""
        identity = torch.eye(self.pattern.inputs, dtype=self.gain.dtype, device=self.gain.device)
        columns = self.mix(identity[:, :, None, None])[-1][:, : self.pattern.outputs]
        return columns.transpose(0, 1) * self.gain[:, None, None, None]

    def mix(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Return the input of each stage, and the output of the last: float[batch, width, height, width of the image]
        each."""
        null = self.pattern.width - self.pattern.inputs
        entering = [functional.pad(values, (0, 0, 0, 0, 0, null))]
        for stage in range(self.pattern.stages):
            own, cross = (self._weights(kind, stage) for kind in ("own", "cross"))
            total = own * entering[-1] + cross * entering[-1].index_select(1, self.orders[stage])
            result = total * 2.0 ** -self.growth_shifts[stage]
            entering.append(result + self._skipped(stage, entering))
        return entering

    def run_codes(self, codes: torch.Tensor) -> torch.Tensor:
        """Map codes to codes, as floats, exactly as ``golden.numerics.fpc.fast_pointwise``; needs ``fixed_point``."""
        settings = self.fixed_point
        null = self.pattern.width - self.pattern.inputs
        values = (codes - settings.input_zero_point) * 2.0**settings.input_shift
        entering = [functional.pad(values, (0, 0, 0, 0, 0, null))]
        for stage in range(self.pattern.stages):
            own, cross = (whole_weights(self._weights(kind, stage)) for kind in ("own", "cross"))
            total = own * entering[-1] + cross * entering[-1].index_select(1, self.orders[stage])
            result = rounded(total * 2.0 ** -(FRACTION_BITS + self.growth_shifts[stage]))
            entering.append((result + self._skipped(stage, entering)).clamp(LEAST, GREATEST))
        kept = entering[-1][:, : self.pattern.outputs]
        scaled = (kept + self._whole_bias(settings)[:, None, None]) * self._scale(settings)[:, None, None]
        low = settings.output_zero_point if self.relu else -128
        return (rounded(scaled) + settings.output_zero_point).clamp(low, 127)

    def stages(self, settings: FixedPoint) -> Stages:
        """Return the stages in integers."""
        weights = (
            tuple(self._integers(kind, stage) for stage in range(self.pattern.stages)) for kind in ("own", "cross")
        )
        return Stages(self.pattern, *weights, self.growth_shifts, settings.input_shift)

    def epilogue(self, settings: FixedPoint) -> FpcEpilogue:
        """Return the epilogue in integers."""
        bias = self._whole_bias(settings).detach().cpu().numpy().astype(np.int64)
        low = settings.output_zero_point if self.relu else -128
        return FpcEpilogue(bias, self._scale(settings).cpu().numpy(), settings.output_zero_point, low, 127)

    def _forward_fixed(self, values: torch.Tensor, settings: FixedPoint) -> torch.Tensor:
        if values.dtype != torch.float32:
            raise TypeError(f"values must be float32 in fixed point, not {str(values.dtype).removeprefix('torch.')}")
        # The divisor is a tensor: GPUs multiply with the reciprocal of a plain number, which rounds differently.
        scale = values.new_tensor(settings.input_scale)
        codes = (rounded(values / scale) + settings.input_zero_point).clamp(-128, 127)
        return (self.run_codes(codes) - settings.output_zero_point) * settings.output_scale

    def _integers(self, kind: str, stage: int) -> np.ndarray:
        weights = whole_weights(self._weights(kind, stage).detach()).reshape(-1)
        return weights.expand(self.pattern.width).cpu().numpy().astype(np.int64)

    def _weights(self, kind: str, stage: int) -> torch.Tensor:
        weights: nn.ParameterDict = getattr(self, kind)
        key = str(stage)
        return weights[key][:, None, None] if key in weights else torch.ones_like(self.gain[:1])[:, None, None]

    def _skipped(self, stage: int, entering: list[torch.Tensor]) -> torch.Tensor | float:
        return sum((entering[first] for first, last in self.pattern.skips if last == stage), start=0.0)

    def _whole_bias(self, settings: FixedPoint) -> torch.Tensor:
        bias = torch.zeros_like(self.gain) if self.bias is None else self.bias
        return rounded(bias / (self.gain * settings.unit)).clamp(LEAST, GREATEST)

    def _scale(self, settings: FixedPoint) -> torch.Tensor:
        return self.gain * (settings.unit / settings.output_scale)

    def _record(self, ranges: Ranges, values: torch.Tensor, result: torch.Tensor) -> None:
        with torch.no_grad():
            ranges.input = widened(ranges.input, values)
            ranges.output = widened(ranges.output, result)
            ranges.peak = max(ranges.peak, *(float(stage.abs().max()) for stage in self.mix(values)))

    def get_extra_state(self) -> tuple | None:
        """Return the fixed point, which ``state_dict`` stores with the weights."""
        return None if self.fixed_point is None else astuple(self.fixed_point)

    def set_extra_state(self, state: tuple | None) -> None:
        """Restore the fixed point."""
        self.fixed_point = None if state is None else FixedPoint(*state)

    def extra_repr(self) -> str:
        """Return the layer's parameters as text."""
        pattern = self.pattern
        densities = ", ".join(pattern.densities)
        return f"{pattern.inputs}, {pattern.outputs}, {pattern.direction}, densities=[{densities}]"
