"""Networks in PyTorch as others define them, but small: what is trained, folded and exported in tests."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lutterfly.host.quantize import quantize


class InvertedResidual(nn.Module):
    """A block of MobileNetV2, in the form in which torchvision has it."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.is_residual = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *([convolution(inputs, hidden, 1)] if expansion != 1 else []),
            convolution(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.conv(values) if self.is_residual else self.conv(values)


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            convolution(3, 16, 3, stride=2),
            InvertedResidual(16, 16, 1, 1),
            InvertedResidual(16, 24, 2, 3),
            InvertedResidual(24, 24, 1, 3),
            convolution(24, 64, 1),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.features(images)
        pooled = nn.functional.adaptive_avg_pool2d(features, (1, 1))
        return self.classifier(torch.flatten(pooled, 1))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


def settle(model: nn.Module, images: torch.Tensor, *, least: float = -0.5) -> nn.Module:
    """Give batch normalisation factors from ``least`` to 2 and shifts, as training does, and let it meet images."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(least, 2)
                module.bias.normal_(std=0.5)
                module.momentum = 0.5
        for _ in range(6):
            model.train()(images)
    return model.eval()


# From a network in PyTorch to the int8 file: by PyTorch's exporters, as they are, and `quantize`.


def quantised(make: Callable[[], nn.Module], shape: tuple[int, ...], *, dynamo: bool, least: float = 0.5) -> bytes:
    """A network whose batch normalisation knows random images of a shape; ``least`` as :func:`settle` has it."""
    torch.manual_seed(1)
    images = torch.randn(16, *shape)
    model, target = settle(make(), images, least=least), io.BytesIO()
    torch.onnx.export(model, (images[:1],), target, input_names=["image"], dynamo=dynamo, verbose=False)
    return quantize(target.getvalue(), {"image": np.random.default_rng(1).normal(size=(16, *shape)).astype(np.float32)})


# Networks in PyTorch with layer normalisation: blocks of ConvNeXt.


class ConvNextBlock(nn.Module):
    """As in torchvision: a wide depthwise convolution, layer normalisation, two products of rows, a factor for each.

    Parameters
    ----------
    channels : int
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.rows = nn.Sequential(
            nn.LayerNorm(channels, eps=1e-6),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
        )
        self.factors = nn.Parameter(torch.rand(channels))
        nn.init.uniform_(self.rows[0].weight, 0.5, 1.5)
        nn.init.normal_(self.rows[0].bias)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        rows = self.rows(self.depthwise(maps).permute(0, 2, 3, 1)) * self.factors
        return maps + rows.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Patches, two blocks, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 20, 4, 4), nn.Linear(20, 10)
        self.blocks = nn.Sequential(ConvNextBlock(20), ConvNextBlock(20))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patches(images)).mean((2, 3)))


# Networks in PyTorch with products of two activations: squeeze and excite, gates, attention by channel.


class Excite(nn.Module):
    """Squeeze and excite: each channel by a factor that is computed of the averages of all.

    Parameters
    ----------
    channels : int
    gate : Module
        To numbers between 0 and 1.
    """

    def __init__(self, channels: int, gate: nn.Module) -> None:
        super().__init__()
        self.squeeze = nn.AdaptiveAvgPool2d(1)
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels // 4, 1), nn.ReLU(), nn.Conv2d(channels // 4, channels, 1)
        )
        self.gate = gate

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps * self.gate(self.body(self.squeeze(maps)))


class MobileNetV3(nn.Module):
    """A block of MobileNetV3 or EfficientNet, and a classifier.

    Parameters
    ----------
    activation, gate : Module
    """

    def __init__(self, activation: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), activation)
        self.block = nn.Sequential(
            *(nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24), activation),
            *(nn.Conv2d(24, 24, 3, 1, 1, groups=24), nn.BatchNorm2d(24), activation),
            Excite(24, gate),
            *(nn.Conv2d(24, 8, 1), nn.BatchNorm2d(8)),
        )
        self.head = nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.stem(images)
        return self.head((maps + self.block(maps)).mean((2, 3)))


class Gated(nn.Module):
    """Two maps multiplied, as in gated convolutions; a border around the product."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.gates = convolution(3, 10, 3), nn.Conv2d(3, 10, 3, padding=1)
        self.last = convolution(10, 4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.values(images) * torch.sigmoid(self.gates(images)))


class Attention(nn.Module):
    """A map by a vector, with a border around the product; then the square of what comes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.excite = convolution(3, 20, 3, stride=2), Excite(20, nn.Sigmoid())
        self.last = nn.Conv2d(20, 6, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.last(self.excite(self.stem(images)))
        return maps * maps


# Networks in PyTorch that remember: of keywords, by the last state or the last output, and of every step.


class Recurrent(nn.Module):
    """An LSTM or a GRU, and one product behind it.

    Parameters
    ----------
    kind : type
        ``nn.LSTM`` or ``nn.GRU``.
    read : str
        What the product reads: ``last`` output, ``every`` output, or ``state`` of the last layer.
    layers : int
    bidirectional : bool
    """

    def __init__(self, kind: type[nn.RNNBase], read: str, *, layers: int = 1, bidirectional: bool = False) -> None:
        super().__init__()
        self.cell = kind(6, 10, layers, batch_first=True, bidirectional=bidirectional)
        self.read, self.head = read, nn.Linear(20 if bidirectional and read != "state" else 10, 5)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        found, state = self.cell(sequence)
        if self.read == "state":
            return self.head((state[0] if isinstance(state, tuple) else state)[-1])
        return self.head(found[:, -1] if self.read == "last" else found)


class Keywords(nn.Module):
    """Convolutions over time and frequency, then an LSTM over time, as keyword spotting has it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, (2, 2), 1), nn.BatchNorm2d(4), nn.ReLU())
        self.cell, self.head = nn.LSTM(4 * 4, 12, batch_first=True), nn.Linear(12, 5)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        maps = self.stem(spectrogram[:, None])
        found, _ = self.cell(maps.permute(0, 2, 1, 3).flatten(2))
        return self.head(found[:, -1])


class Frames(nn.Module):
    """An LSTM over the rows of an image, as many and as long as a keyword's frames are."""

    def __init__(self, inputs: int = 48, hidden: int = 64) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(inputs, hidden, batch_first=True), nn.Linear(hidden, 12)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found, _ = self.cell(images[:, 0])
        return self.head(found[:, -1])


# Networks in PyTorch that make maps larger: U-Nets, a detector's head, super-resolution, an autoencoder.


class UNet(nn.Module):
    """One level down and up again, with a skip connection.

    Parameters
    ----------
    up : Module
        From 16 channels at half the size to ``channels`` at the whole.
    channels : int
    """

    def __init__(self, up: nn.Module, channels: int) -> None:
        super().__init__()
        self.down, self.bottom = convolution(1, 8, 3), convolution(8, 16, 3)
        self.up, self.pool = up, nn.MaxPool2d(2)
        self.last = nn.Sequential(convolution(8 + channels, 8, 3), nn.Conv2d(8, 2, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        skipped = self.down(images)
        risen = self.up(self.bottom(self.pool(skipped)))
        return self.last(torch.cat([skipped, risen], dim=1))


class DetectorHead(nn.Module):
    """Two scales as in YOLO: the deeper one is upsampled and joined to the other, and each has an output."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = convolution(3, 16, 3, stride=2), convolution(16, 32, 3, stride=2)
        self.lateral, self.up = convolution(32, 16, 1), nn.Upsample(scale_factor=2)
        self.joined = convolution(32, 16, 3)
        self.heads = nn.ModuleList([nn.Conv2d(16, 9, 1), nn.Conv2d(32, 9, 1)])

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        large = self.stem(images)
        small = self.deep(large)
        joined = self.joined(torch.cat([self.up(self.lateral(small)), large], dim=1))
        return self.heads[0](joined), self.heads[1](small)


class SuperResolution(nn.Module):
    """Sub-pixel convolution inside, and one more layer behind it."""

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(convolution(1, 16, 3), nn.Conv2d(16, 8 * factor**2, 3, padding=1))
        self.rest = nn.Sequential(nn.PixelShuffle(factor), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.rest(self.body(images))


class Autoencoder(nn.Module):
    """Strides down, transposed convolutions with batch normalisation up, the last of them the output."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(convolution(1, 8, 3, stride=2), convolution(8, 16, 3, stride=2))
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 8, 4, 2, 1, groups=8),
            nn.Conv2d(8, 8, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 3, 1, 1),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(images))


# Networks in PyTorch that move bytes: ShuffleNetV2, a causal temporal network, space to depth, and single moves.


def shuffled(maps: torch.Tensor, groups: int) -> torch.Tensor:
    """The channel shuffle of ShuffleNet, as torchvision writes it."""
    batch, channels, height, width = maps.shape
    maps = maps.view(batch, groups, channels // groups, height, width)
    return maps.transpose(1, 2).contiguous().view(batch, channels, height, width)


def _pointwise(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def _depthwise(channels: int, stride: int) -> nn.Sequential:
    layer = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(channels))


class ShuffleUnit(nn.Module):
    """A unit of ShuffleNetV2; with a stride of 2 both halves are computed of all channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half, self.stride = outputs // 2, stride
        first = inputs if stride > 1 else half
        self.other = nn.Sequential(_depthwise(inputs, stride), _pointwise(inputs, half)) if stride > 1 else None
        self.branch = nn.Sequential(_pointwise(first, half), _depthwise(half, stride), _pointwise(half, half))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        if self.other is None:
            kept, taken = maps.chunk(2, dim=1)
        else:
            kept, taken = self.other(maps), maps
        return shuffled(torch.cat((kept, self.branch(taken)), dim=1), 2)


class ShuffleNet(nn.Module):
    """ShuffleNetV2; by default that of half the width, with 1000 classes.

    Parameters
    ----------
    stem : int
        Channels of the first layer.
    stages : tuple of (int, int)
        Channels and units of each stage.
    last : int
        Channels in front of the classifier.
    classes : int
    """

    def __init__(
        self,
        stem: int = 24,
        stages: tuple[tuple[int, int], ...] = ((48, 4), (96, 8), (192, 4)),
        last: int = 1024,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, stem, 3, stride=2), nn.MaxPool2d(3, 2, 1))
        units, inputs = [], stem
        for channels, count in stages:
            units += [ShuffleUnit(inputs, channels, 2), *(ShuffleUnit(channels, channels, 1) for _ in range(count - 1))]
            inputs = channels
        self.units, self.last, self.head = nn.Sequential(*units), _pointwise(inputs, last), nn.Linear(last, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.units(self.stem(images))).mean([2, 3]))


class Causal(nn.Module):
    """A temporal network: what a step gives depends on it and those before it; classes of the last one."""

    def __init__(self, inputs: int = 3, channels: int = 8, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(channels if at else inputs, channels, 3, dilation=2**at) for at in range(layers)
        )
        self.head = nn.Linear(channels, 4)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.layers):
            given = steps
            steps = functional.relu(layer(functional.pad(steps, (2 ** (at + 1), 0))))
            steps = steps + given if at else steps
        return self.head(steps[:, :, -1])


class Moved(nn.Module):
    """Some move of elements between two convolutions.

    Parameters
    ----------
    move : callable
        From 8 channels to ``channels``.
    channels : int
    """

    def __init__(self, move: Callable[[torch.Tensor], torch.Tensor], channels: int = 8) -> None:
        super().__init__()
        self.first, self.move = convolution(1, 8, 3), move
        self.last = nn.Sequential(convolution(channels, 8, 3), nn.Conv2d(8, 2, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.move(self.first(images)))


def windows(maps: torch.Tensor, size: int) -> torch.Tensor:
    """Windows of so many rows and columns, one after the other as channels."""
    batch, channels, height, width = maps.shape
    maps = maps.view(batch, channels, height // size, size, width // size, size)
    return maps.permute(0, 2, 4, 1, 3, 5).contiguous().view(batch, -1, size, size)
