"""Networks in PyTorch that make maps larger, and a causal one over time, as large as users have them.

.venv/bin/python bench/user_networks.py enlarging:TransposedUNet enlarging:Detector
"""

from __future__ import annotations

import torch
from torch import nn

#: Channels of the levels of a U-Net and of a detector.
_LEVELS = (16, 32, 64, 128)


def convolution(
    inputs: int, outputs: int, size: int, stride: int = 1, activation: type[nn.Module] = nn.ReLU
) -> nn.Module:
    """A convolution that keeps the size, or divides it, with batch normalisation and an activation function."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs), activation()
    )


class _UNet(nn.Module):
    """Three levels down and up again, with a skip connection each; two classes for every pixel of an image of 96x96."""

    shape = (3, 96, 96)

    def __init__(self) -> None:
        super().__init__()
        pairs = list(zip((3, *_LEVELS), _LEVELS, strict=False))
        self.down = nn.ModuleList(self._double(inputs, outputs) for inputs, outputs in pairs)
        self.pool = nn.MaxPool2d(2)
        upwards = list(zip(_LEVELS[:0:-1], _LEVELS[-2::-1], strict=True))
        self.rise = nn.ModuleList(self.riser(inputs, outputs) for inputs, outputs in upwards)
        self.up = nn.ModuleList(self._double(2 * outputs, outputs) for _, outputs in upwards)
        self.last = nn.Conv2d(_LEVELS[0], 2, 1)

    @staticmethod
    def riser(inputs: int, outputs: int) -> nn.Module:
        """From a level to the size of the next one."""
        raise NotImplementedError

    @staticmethod
    def _double(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(convolution(inputs, outputs, 3), convolution(outputs, outputs, 3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values, skipped = images, []
        for level in self.down:
            values = level(self.pool(values) if skipped else values)
            skipped.append(values)
        skipped.pop()
        for rise, level in zip(self.rise, self.up, strict=True):
            values = level(torch.cat([skipped.pop(), rise(values)], dim=1))
        return self.last(values)


class TransposedUNet(_UNet):
    """A U-Net with Ronneberger's transposed convolutions of 2x2."""

    @staticmethod
    def riser(inputs: int, outputs: int) -> nn.Module:
        """A transposed convolution."""
        return nn.ConvTranspose2d(inputs, outputs, 2, 2)


class NearestUNet(_UNet):
    """Pixels are repeated, and a convolution follows."""

    @staticmethod
    def riser(inputs: int, outputs: int) -> nn.Module:
        """Nearest upsampling and a convolution."""
        return nn.Sequential(nn.Upsample(scale_factor=2), convolution(inputs, outputs, 3))


class BilinearUNet(_UNet):
    """Pixels are interpolated, and a pointwise convolution follows."""

    @staticmethod
    def riser(inputs: int, outputs: int) -> nn.Module:
        """Bilinear upsampling and a pointwise convolution."""
        return nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), convolution(inputs, outputs, 1))


class _Bottleneck(nn.Module):
    def __init__(self, channels: int, is_residual: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(*(convolution(channels, channels, 3, activation=nn.SiLU) for _ in range(2)))
        self.is_residual = is_residual

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.body(values) if self.is_residual else self.body(values)


class _C2f(nn.Module):
    """Half of the channels pass a bottleneck; all that there was is joined."""

    def __init__(self, inputs: int, outputs: int, is_residual: bool) -> None:
        super().__init__()
        self.enter = convolution(inputs, outputs, 1, activation=nn.SiLU)
        self.inner = _Bottleneck(outputs // 2, is_residual)
        self.leave = convolution(outputs * 3 // 2, outputs, 1, activation=nn.SiLU)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        first, second = self.enter(values).chunk(2, 1)
        return self.leave(torch.cat([first, second, self.inner(second)], 1))


class Detector(nn.Module):
    """A detector in the form of YOLOv8 on images of 128x128: a backbone, a neck over three scales, and a head for
    each."""

    shape = (3, 128, 128)

    def __init__(self, outputs: int = 84) -> None:
        super().__init__()
        small, middle, large, most = _LEVELS
        self.stem = nn.Sequential(self._down(3, small), self._down(small, middle), _C2f(middle, middle, True))
        self.third = nn.Sequential(self._down(middle, large), _C2f(large, large, True))
        self.fourth = nn.Sequential(self._down(large, most), _C2f(most, most, True))
        self.fifth = nn.Sequential(self._down(most, most), _C2f(most, most, True))
        self.pooled, self.pool = convolution(4 * most, most, 1, activation=nn.SiLU), nn.MaxPool2d(5, 1, 2)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.rising = nn.ModuleList([_C2f(2 * most, most, False), _C2f(most + large, large, False)])
        self.strides = nn.ModuleList([self._down(large, large), self._down(most, most)])
        self.falling = nn.ModuleList([_C2f(large + most, most, False), _C2f(2 * most, most, False)])
        self.heads = nn.ModuleList(
            nn.Sequential(convolution(each, large, 3, activation=nn.SiLU), nn.Conv2d(large, outputs, 1))
            for each in (large, most, most)
        )

    @staticmethod
    def _down(inputs: int, outputs: int) -> nn.Module:
        return convolution(inputs, outputs, 3, stride=2, activation=nn.SiLU)

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Map images to what the network gives."""
        third = self.third(self.stem(images))
        fourth = self.fourth(third)
        pools = [self.fifth(fourth)]
        for _ in range(3):
            pools.append(self.pool(pools[-1]))
        fifth = self.pooled(torch.cat(pools, 1))
        fourth = self.rising[0](torch.cat([self.up(fifth), fourth], 1))
        third = self.rising[1](torch.cat([self.up(fourth), third], 1))
        fourth = self.falling[0](torch.cat([self.strides[0](third), fourth], 1))
        fifth = self.falling[1](torch.cat([self.strides[1](fourth), fifth], 1))
        return [head(values) for head, values in zip(self.heads, (third, fourth, fifth), strict=True)]


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.body(values)


class SuperResolution(nn.Module):
    """A network in the form of EDSR on images of 64x64: residual blocks without normalisation, a sub-pixel convolution,
    and layers after it."""

    shape = (3, 64, 64)

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(_Residual(channels) for _ in range(4)))
        self.rise = nn.Sequential(nn.Conv2d(channels, 4 * channels, 3, padding=1), nn.PixelShuffle(2), nn.ReLU())
        self.last = nn.Sequential(
            nn.Conv2d(channels, channels // 2, 3, padding=1), nn.ReLU(), nn.Conv2d(channels // 2, 3, 3, padding=1)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images to what the network gives."""
        first = self.first(images)
        return self.last(self.rise(first + self.blocks(first)))


class _Causal(nn.Module):
    """Two dilated convolutions; what they see of the future is cut off."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.cut = 2 * dilation
        self.convolutions = nn.ModuleList(
            nn.Conv1d(each, outputs, 3, padding=self.cut, dilation=dilation) for each in (inputs, outputs)
        )
        self.beside = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result = values
        for each in self.convolutions:
            result = torch.relu(each(result)[:, :, : -self.cut])
        return torch.relu(result + self.beside(values))


class CausalTemporal(nn.Module):
    """Bai's temporal network: dilations 1 to 16 over 256 steps of 40 values, classified by the last step."""

    shape = (40, 256)

    def __init__(self, channels: int = 64, classes: int = 12) -> None:
        super().__init__()
        self.body = nn.Sequential(*(_Causal(channels if at else 40, channels, 1 << at) for at in range(5)))
        self.last = nn.Linear(channels, classes)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map a series of values to scores of the classes."""
        return self.last(self.body(values)[:, :, -1])
