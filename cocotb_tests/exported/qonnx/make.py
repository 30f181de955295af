"""Exports the binary networks here with Brevitas, as its user would; `make test` needs the files alone.

    pip install torch==2.13.0
    pip install -e .[brevitas]
    python cocotb_tests/exported/qonnx/make.py

The files are export_qonnx' own but for the stack traces in them, which name folders of the machine.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from brevitas import nn as qnn
from brevitas.export import export_qonnx
from brevitas.quant import (
    Int8ActPerTensorFixedPoint,
    Int8WeightPerTensorFixedPoint,
    SignedBinaryActPerTensorConst,
    SignedBinaryWeightPerTensorConst,
    Uint8ActPerTensorFixedPoint,
)
from torch import Tensor, nn

FOLDER = Path(__file__).parent


class UnitWeight(SignedBinaryWeightPerTensorConst):
    """Weights of +1 and -1."""

    scaling_const = 1.0


class MeanWeight(SignedBinaryWeightPerTensorConst):
    """Each channel times the mean magnitude of its weights, rounded to a power of two."""

    scaling_impl_type = "stats"
    scaling_stats_op = "ave"
    scaling_per_output_channel = True
    restrict_scaling_type = "power_of_two"


def signs() -> nn.Module:
    return qnn.QuantIdentity(act_quant=SignedBinaryActPerTensorConst)


def convolution(inputs: int, outputs: int, kernel: int = 3, weight_quant=UnitWeight, **options) -> nn.Module:
    return qnn.QuantConv2d(inputs, outputs, kernel, bias=False, weight_quant=weight_quant, **options)


class TensorNorm(nn.Module):
    """Batch normalisation with one mean and one variance for all channels."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor([0.75])), nn.Parameter(torch.tensor([0.1]))
        self.register_buffer("mean", torch.tensor([1.0]))
        self.register_buffer("variance", torch.tensor([16.0]))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / (self.variance + 1e-4).pow(0.5) * self.scale + self.shift


class Connected(nn.Module):
    """Fully connected, of binary images."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [signs(), nn.Dropout(0.2)]
        for inputs, outputs in ((64, 48), (48, 40)):
            layers += [
                qnn.QuantLinear(inputs, outputs, bias=inputs == 48, weight_quant=UnitWeight),
                nn.BatchNorm1d(outputs),
                signs(),
                nn.Dropout(0.2),
            ]
        layers += [qnn.QuantLinear(40, 10, bias=False, weight_quant=UnitWeight), TensorNorm()]
        self.layers = nn.Sequential(*layers)

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(2.0 * image.view(image.shape[0], -1) - torch.tensor([1.0]))


class Convolutional(nn.Module):
    """Convolutions of images of eight bits, pooling on either side of the batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            qnn.QuantIdentity(act_quant=Int8ActPerTensorFixedPoint),
            convolution(3, 16),
            nn.BatchNorm2d(16),
            signs(),
            convolution(16, 16, weight_quant=MeanWeight, padding=1),
            nn.BatchNorm2d(16),
            signs(),
            nn.MaxPool2d(2),
            convolution(16, 24, weight_quant=MeanWeight, padding=1),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(24),
            signs(),
        )
        self.classify = nn.Sequential(
            qnn.QuantLinear(24 * 9, 32, bias=False, weight_quant=UnitWeight),
            nn.BatchNorm1d(32),
            signs(),
            qnn.QuantLinear(32, 10, bias=False, weight_quant=UnitWeight),
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.classify(self.features(image).flatten(1))


class Residual(nn.Module):
    """Eight bits, a binary layer in a residual block, and eight bits again."""

    def __init__(self) -> None:
        super().__init__()
        self.image = qnn.QuantIdentity(act_quant=Int8ActPerTensorFixedPoint, return_quant_tensor=True)
        self.stem = qnn.QuantConv2d(3, 16, 3, padding=1, bias=False, weight_quant=Int8WeightPerTensorFixedPoint)
        self.active = qnn.QuantReLU(act_quant=Uint8ActPerTensorFixedPoint)
        self.centred, self.signs = nn.BatchNorm2d(16), signs()
        self.binary, self.normalised = convolution(16, 16, weight_quant=MeanWeight, padding=1), nn.BatchNorm2d(16)
        self.summand = qnn.QuantIdentity(act_quant=Int8ActPerTensorFixedPoint)
        self.total = qnn.QuantIdentity(act_quant=Int8ActPerTensorFixedPoint)
        self.pool = nn.MaxPool2d(2)
        self.classify = qnn.QuantLinear(16 * 16, 10, bias=False, weight_quant=Int8WeightPerTensorFixedPoint)
        self.answer = qnn.QuantIdentity(act_quant=Int8ActPerTensorFixedPoint)

    def forward(self, image: Tensor) -> Tensor:
        x = self.active(self.stem(self.image(image)))
        y = self.normalised(self.binary(self.signs(self.centred(x))))
        x = self.total(self.summand(x) + self.summand(y))
        return self.answer(self.classify(self.pool(x).flatten(1)))


def export(name: str, network: nn.Module, shape: tuple[int, ...], **options) -> None:
    """Export a network whose statistics are those of random images, with batch normalisations of either sign."""
    network.train()
    with torch.no_grad():
        for _ in range(20):
            network(torch.rand(64, *shape[1:]) * 2 - 1)
    network.eval()
    for module in network.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.weight.data.uniform_(0.3, 1.5)
            module.weight.data *= torch.sign(torch.randn_like(module.weight))
            module.bias.data.normal_(0, 0.3)
    path = FOLDER / f"{name}.onnx"
    export_qonnx(network, torch.rand(*shape), str(path), **options)
    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    path.unlink()
    path.with_suffix(".onnx.data").unlink(missing_ok=True)
    path.write_bytes(model.SerializeToString())


def main() -> None:
    torch.manual_seed(0)
    export("connected", Connected(), (1, 1, 8, 8), opset_version=13, dynamo=False)
    export("convolutional", Convolutional(), (1, 3, 14, 14))
    export("residual", Residual(), (1, 3, 8, 8))


if __name__ == "__main__":
    main()
