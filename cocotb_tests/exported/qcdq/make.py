"""Exports the networks here with Brevitas' QCDQ export, as its user would; `make test` needs the files alone.

    pip install torch==2.13.0
    pip install -e .[brevitas]
    python cocotb_tests/exported/qcdq/make.py

The files are export_onnx_qcdq's own but for the stack traces in them, which name folders of the machine.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from brevitas import nn as qnn
from brevitas.export import export_onnx_qcdq
from brevitas.quant import (
    Int8ActPerTensorFixedPoint,
    Int8ActPerTensorFloat,
    Int8WeightPerTensorFixedPoint,
    Int8WeightPerTensorFloat,
    Int32Bias,
    Uint8ActPerTensorFixedPoint,
    Uint8ActPerTensorFloat,
)
from torch import Tensor, nn
from torch.nn import functional

FOLDER = Path(__file__).parent


class Layers:
    """The quantised layers of a network: scales are powers of two, or float32 as by default."""

    def __init__(self, bits: int, *, powers: bool):
        self._bits = bits
        self._signed = Int8ActPerTensorFixedPoint if powers else Int8ActPerTensorFloat
        self._unsigned = Uint8ActPerTensorFixedPoint if powers else Uint8ActPerTensorFloat
        self._weights = Int8WeightPerTensorFixedPoint if powers else Int8WeightPerTensorFloat

    def identity(self, *, is_last: bool = False) -> nn.Module:
        return qnn.QuantIdentity(act_quant=self._signed, bit_width=self._bits, return_quant_tensor=not is_last)

    def relu(self) -> nn.Module:
        return qnn.QuantReLU(act_quant=self._unsigned, bit_width=self._bits, return_quant_tensor=True)

    def convolution(self, inputs: int, outputs: int, kernel: int, **options) -> nn.Module:
        return qnn.QuantConv2d(inputs, outputs, kernel, **self._product(), **options)

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        return qnn.QuantLinear(inputs, outputs, **self._product())

    def _product(self) -> dict[str, object]:
        return {
            "bias": True,
            "bias_quant": Int32Bias,
            "weight_quant": self._weights,
            "weight_bit_width": self._bits,
        }


class LeNet(nn.Module):
    """That of Brevitas' README with fewer channels: two convolutions and three fully connected layers."""

    def __init__(self, layers: Layers):
        super().__init__()
        self.features = nn.Sequential(
            layers.identity(),
            layers.convolution(3, 6, 5),
            layers.relu(),
            nn.MaxPool2d(2),
            layers.convolution(6, 8, 3),
            layers.relu(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(
            layers.linear(8 * 4, 24), layers.relu(), layers.linear(24, 16), layers.relu(), layers.linear(16, 10)
        )

    def forward(self, image: Tensor) -> Tensor:
        x = self.features(image)
        return self.classify(x.reshape(x.shape[0], -1))


class Flattened(nn.Module):
    """Conv, Relu, pool, Flatten, Gemm; the last convolution is depthwise."""

    def __init__(self, layers: Layers, pool: nn.Module):
        super().__init__()
        self.features = nn.Sequential(
            layers.identity(),
            layers.convolution(3, 8, 3, padding=1),
            layers.relu(),
            layers.convolution(8, 8, 3, groups=8),
            layers.relu(),
            pool,
            layers.identity(),
        )
        self.classify, self.answer = layers.linear(8 * 9, 10), layers.identity(is_last=True)

    def forward(self, image: Tensor) -> Tensor:
        return self.answer(self.classify(self.features(image).flatten(1)))


class Residual(nn.Module):
    """A residual block; its sum reads one scale."""

    def __init__(self, layers: Layers):
        super().__init__()
        self.stem = nn.Sequential(layers.identity(), layers.convolution(3, 8, 3, padding=1), layers.relu())
        self.block = nn.Sequential(
            layers.convolution(8, 8, 3, padding=1), layers.relu(), layers.convolution(8, 8, 3, padding=1)
        )
        self.shared, self.active = layers.identity(), layers.relu()
        self.classify, self.answer = layers.linear(8 * 16, 10), layers.identity(is_last=True)

    def forward(self, image: Tensor) -> Tensor:
        x = self.shared(self.stem(image))
        x = self.active(x + self.shared(self.block(x)))
        return self.answer(self.classify(functional.max_pool2d(x, 2).flatten(1)))


def export(name: str, network: nn.Module, shape: tuple[int, ...]) -> None:
    """Export a network whose statistics are those of random images."""
    network.train()
    with torch.no_grad():
        for _ in range(20):
            network(torch.randn(64, *shape[1:]))
    network.eval()
    path = FOLDER / f"{name}.onnx"
    export_onnx_qcdq(network, torch.randn(*shape), str(path), dynamo=False)
    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    path.write_bytes(model.SerializeToString())


def main() -> None:
    torch.manual_seed(0)
    powers, default, few = Layers(8, powers=True), Layers(8, powers=False), Layers(3, powers=False)
    export("lenet", LeNet(powers), (1, 3, 16, 16))
    export("flattened", Flattened(powers, nn.MaxPool2d(2)), (1, 3, 8, 8))
    export("averaged", Flattened(powers, nn.AvgPool2d(2)), (1, 3, 8, 8))
    export("residual", Residual(Layers(4, powers=True)), (1, 3, 8, 8))
    export("few_bits", LeNet(few), (1, 3, 16, 16))
    export("default", Flattened(default, nn.MaxPool2d(2)), (1, 3, 8, 8))


if __name__ == "__main__":
    main()
