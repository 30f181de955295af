"""Exports the networks here with PyTorch, as its user would; `make test` needs the files alone.

    pip install -e .[train]
    python cocotb_tests/exported/make.py

The files are torch.onnx.export's own but for the stack traces in them, which name folders of the machine.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

FOLDER = Path(__file__).parent
IMAGE = (1, 3, 8, 8)


def normalised(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Residual(nn.Module):
    """A residual block, and the average of the map."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.classify = normalised(3, 8, 3, 2), normalised(8, 8), nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        stem = self.stem(image)
        return self.classify(functional.adaptive_avg_pool2d(functional.relu(stem + self.block(stem)), 1).flatten(1))


class Dense(nn.Module):
    """Three layers of a DenseNet and its transition."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * at), nn.ReLU(), nn.Conv2d(8 + 4 * at, 4, 3, padding=1, bias=False))
            for at in range(3)
        )
        self.transition = nn.Sequential(nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1), nn.AvgPool2d(2))

    def forward(self, image: Tensor) -> Tensor:
        maps = self.stem(image)
        for layer in self.layers:
            maps = torch.cat([maps, layer(maps)], 1)
        return self.transition(maps)


class Viewed(nn.Module):
    """A view whose shape is computed from the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.classify = normalised(3, 8, 3, 2), nn.Linear(8 * 4 * 4, 10)

    def forward(self, image: Tensor) -> Tensor:
        maps = self.stem(image)
        return self.classify(maps.view(maps.size(0), -1))


class Series(nn.Module):
    """One-dimensional convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(4, 8, 5, 2, 2),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(8, 8, 3, padding=2, dilation=2),
            nn.ReLU(),
        )
        self.classify = nn.Linear(8, 3)

    def forward(self, series: Tensor) -> Tensor:
        return self.classify(self.layers(series).mean(-1))


class Inception(nn.Module):
    """Branches of other kernels side by side, and probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.three, self.pooled = normalised(3, 4, 1), normalised(3, 6), normalised(3, 4, 1)
        self.classify = nn.Linear(14, 5)

    def forward(self, image: Tensor) -> Tensor:
        pooled = self.pooled(functional.max_pool2d(image, 3, 1, 1))
        maps = torch.cat([self.one(image), self.three(image), pooled], 1)
        return self.classify(maps.mean([2, 3])).softmax(1)


def export(name: str, network: nn.Module, sample: Tensor, **options) -> None:
    """Export a network in evaluation with statistics that are not those of its birth."""
    network.eval()
    for module in network.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    path = FOLDER / f"{name}.onnx"
    torch.onnx.export(network, (sample,), path, **options)
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key != "pkg.torch.onnx.stack_trace"]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.doc_string = ""
    path.write_bytes(model.SerializeToString())


def main() -> None:
    torch.manual_seed(0)
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    channels_last = torch.randn(IMAGE).to(memory_format=torch.channels_last)
    export("residual_channels_last", Residual(), channels_last)
    export("residual", Residual(), torch.randn(2, *IMAGE[1:]), dynamic_shapes=dynamic)
    export("dense", Dense(), torch.randn(IMAGE))
    export(
        "viewed",
        Viewed(),
        torch.randn(IMAGE),
        dynamo=False,
        input_names=["image"],
        dynamic_axes={"image": {0: "batch"}},
    )
    export("series", Series(), torch.randn(1, 4, 32))
    export("inception", Inception(), torch.randn(2, *IMAGE[1:]), dynamic_shapes=dynamic)


if __name__ == "__main__":
    main()
