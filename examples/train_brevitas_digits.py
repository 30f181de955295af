"""Train a binary digits network with Brevitas, export it as QONNX, and run it.

    pip install torch==2.13.0 && pip install -e .[brevitas,train]
    python examples/train_brevitas_digits.py

All weights are +1 and -1, and so are all activations but the pixels: three convolutions and two fully connected layers.
Prints, over five seeds, the mean and the spread of the accuracy on held-out images, in PyTorch and as the accelerator
computes it, which must be the same. Writes ``digits_brevitas.onnx``, the first seed's network. Everything is seeded and
single-threaded.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from brevitas import nn as qnn
from brevitas.export import export_qonnx
from brevitas.quant import (
    Int8ActPerTensorFixedPoint,
    SignedBinaryActPerTensorConst,
    SignedBinaryWeightPerTensorConst,
)
from torch import nn

from lutterfly.examples import digits
from lutterfly.examples.train_loop import load, one_cycle, train_epoch
from lutterfly.host.frontend import import_model
from lutterfly.host.model import reference

SEEDS = (1, 2, 3, 4, 5)
EPOCHS, BATCH, RATE = 60, 64, 5e-3
CHANNELS, FEATURES = 32, 64


class UnitWeight(SignedBinaryWeightPerTensorConst):
    """+1 and -1: batch normalisation makes any other scale superfluous, and sums of them are exact in float32."""

    scaling_const = 1.0


def signs(channels: int, norm: type[nn.Module] = nn.BatchNorm2d) -> nn.Sequential:
    """Batch normalisation and signs: one threshold for each channel on the accelerator."""
    return nn.Sequential(norm(channels), qnn.QuantIdentity(act_quant=SignedBinaryActPerTensorConst))


def network() -> nn.Sequential:
    """From 8x8 pixels to ten logits."""

    def convolution(inputs: int, outputs: int) -> nn.Module:
        return qnn.QuantConv2d(inputs, outputs, 3, padding=1, bias=False, weight_quant=UnitWeight)

    def connected(inputs: int, outputs: int) -> nn.Module:
        return qnn.QuantLinear(inputs, outputs, bias=False, weight_quant=UnitWeight)

    return nn.Sequential(
        qnn.QuantIdentity(act_quant=Int8ActPerTensorFixedPoint),
        convolution(1, CHANNELS),
        signs(CHANNELS),
        convolution(CHANNELS, CHANNELS),
        nn.MaxPool2d(2),
        signs(CHANNELS),
        convolution(CHANNELS, CHANNELS),
        nn.MaxPool2d(2),
        signs(CHANNELS),
        nn.Flatten(),
        connected(CHANNELS * 2 * 2, FEATURES),
        signs(FEATURES, nn.BatchNorm1d),
        connected(FEATURES, 10),
        nn.BatchNorm1d(10),
    )


def train(pixels: np.ndarray, labels: np.ndarray, seed: int) -> nn.Sequential:
    """A trained network; every random number comes from the seed."""
    torch.manual_seed(seed)
    model = network().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    rate = one_cycle(optimiser, RATE, pixels, epochs=EPOCHS, batch=BATCH)
    options = {"batch": BATCH, "label_smoothing": 0.0, "after_step": lambda: _clip_weights(model)}
    for _ in range(EPOCHS):
        train_epoch(model, pixels, labels, optimiser, rate, **options)
    return model.eval()


def _clip_weights(model: nn.Module) -> None:
    """Beyond -1 and 1 the straight-through gradient is 0."""
    for module in model.modules():
        if isinstance(module, (qnn.QuantConv2d, qnn.QuantLinear)):
            module.weight.data.clamp_(-1, 1)


def export(model: nn.Module, pixels: np.ndarray) -> bytes:
    """The QONNX file of a network, from ``pixels`` to ``logits``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.onnx"
        names = {"input_names": ["pixels"], "output_names": ["logits"]}
        export_qonnx(model, torch.from_numpy(pixels[:1]), str(path), dynamo=False, opset_version=17, **names)
        written = onnx.load(path)
    for node in written.graph.node:
        node.doc_string = ""
    return written.SerializeToString()


def answers(data: bytes, pixels: np.ndarray) -> np.ndarray:
    """The digits that the accelerator's network reads: its bytes are those of ONNX Runtime."""
    model = import_model(data).model
    return np.array([reference.run(model, {"pixels": image[None]})["logits"].argmax() for image in pixels])


def main() -> None:
    """Train, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder for digits_brevitas.onnx")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images, _, labels, _ = load()
    pixels = digits.as_input(images)
    held_out, wanted = digits.images(), digits.labels()
    found = []
    for seed in SEEDS:
        model = train(pixels, labels, seed)
        with torch.no_grad():
            read = model(torch.from_numpy(held_out)).numpy().argmax(axis=1)
        data = export(model, pixels)
        differing = int((answers(data, held_out) != read).sum())
        found.append(float(np.mean(read == wanted)))
        print(f"seed {seed}: {100 * found[-1]:.2f} %, {differing} answers differ from PyTorch's", flush=True)
        if seed == SEEDS[0]:
            (arguments.output / "digits_brevitas.onnx").write_bytes(data)
    print(f"{100 * statistics.mean(found):.2f} ± {100 * statistics.stdev(found):.2f} %")


if __name__ == "__main__":
    main()
