"""Networks in PyTorch as others define them, but small: what is trained, folded and exported in tests."""

from __future__ import annotations

import torch
from torch import nn


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
