"""Train the demo network on scikit-learn's handwritten digits, quantise it, and write the files beside this script.

    pip install -e '.[train]' && python examples/train_digits.py

Takes half a minute. Seeded and single-threaded, so that the same versions on the same kind of processor write the same
bytes again; another processor may sum in another order and train slightly different weights.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime import quantization
from torch import nn
from torch.nn import functional

from lutterfly.examples.digits import as_input
from lutterfly.examples.train_loop import HELD_OUT, load, one_cycle, train_epoch

SEED = 1
EPOCHS = 80
BATCH = 32
OPSET = 18
FLOAT_ACCURACY = 0.975
QUANTISED_ACCURACY = 0.97
VARIANTS = (
    ("qdq", quantization.QuantFormat.QDQ, quantization.QuantType.QInt8),
    ("qop", quantization.QuantFormat.QOperator, quantization.QuantType.QInt8),
    ("uint8", quantization.QuantFormat.QOperator, quantization.QuantType.QUInt8),
)


class DigitsNet(nn.Module):
    """Three 3x3 convolutions, two max poolings and two fully connected layers: 418,112 multiply-accumulates an image.

    HardSwish and Tanh become transfer tables; Relu vanishes in the clamp of the quantised convolution. The weights fit
    the 16 KiB of the smallest preset.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 24, 3, padding=1)
        self.fc1 = nn.Linear(24 * 2 * 2, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Logits, float32[images, 10], of ``pixels``, float32[images, 1, 8, 8]."""
        x = functional.hardswish(self.conv1(pixels))
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv3(x)), 2)
        x = torch.tanh(self.fc1(torch.flatten(x, 1)))
        return self.fc2(x)


class Calibration(quantization.CalibrationDataReader):
    """Hand the training images to the calibrator, in batches."""

    def __init__(self, pixels: np.ndarray) -> None:
        self.batches = iter([{"pixels": batch} for batch in np.array_split(pixels, 10)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next batch, or None after the last."""
        return next(self.batches, None)


def train(pixels: np.ndarray, labels: np.ndarray) -> DigitsNet:
    """A trained network; every random number comes from ``SEED``."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    network = DigitsNet()
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    rate = one_cycle(optimiser, 4e-3, pixels, epochs=EPOCHS, batch=BATCH)
    for _ in range(EPOCHS):
        train_epoch(network, pixels, labels, optimiser, rate, batch=BATCH)
    return network.eval()


def export(network: DigitsNet, path: Path) -> None:
    """Write the float network as ONNX, with a symbolic batch axis and without the stack traces that torch puts in."""
    torch.onnx.export(
        network,
        (torch.zeros(2, 1, 8, 8),),
        path,
        dynamo=True,
        external_data=False,
        verbose=False,
        opset_version=OPSET,
        input_names=["pixels"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("images")},),
    )
    model = onnx.load(path)
    graph = model.graph
    for item in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        item.ClearField("metadata_props")
    onnx.save(model, path)


def quantise(
    source: Path, target: Path, pixels: np.ndarray, form: quantization.QuantFormat, activations: quantization.QuantType
) -> None:
    """Quantise activations per tensor, and weights to symmetric int8 per output channel."""
    quantization.quantize_static(
        source,
        target,
        Calibration(pixels),
        quant_format=form,
        per_channel=True,
        activation_type=activations,
        weight_type=quantization.QuantType.QInt8,
        extra_options={"ActivationSymmetric": False, "WeightSymmetric": True},
    )
    onnx.checker.check_model(target)


def accuracy(path: Path, pixels: np.ndarray, labels: np.ndarray) -> float:
    """Share of the images that the model in ``path`` classifies as labelled, in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"pixels": pixels})
    return float(np.mean(logits.argmax(axis=1) == labels))


def demand(name: str, value: float, least: float) -> None:
    """Print an accuracy, and stop if it is too low to ship."""
    print(f"{name:>12}: {100 * value:.2f} % of {HELD_OUT} held-out images")
    if value < least:
        raise SystemExit(f"{name} accuracy must be at least {least}, not {value:.4f}")


def main() -> None:
    """Write digits_test.npz and one ONNX file for each of VARIANTS."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder for the files")
    folder = parser.parse_args().output
    train_images, test_images, train_labels, test_labels = load()
    train_pixels, test_pixels = as_input(train_images), as_input(test_images)
    np.savez_compressed(folder / "digits_test.npz", images=test_images, labels=test_labels)
    with tempfile.TemporaryDirectory() as scratch:
        float_model = Path(scratch) / "digits.onnx"
        export(train(train_pixels, train_labels), float_model)
        demand("float", accuracy(float_model, test_pixels, test_labels), FLOAT_ACCURACY)
        for name, form, activations in VARIANTS:
            path = folder / f"digits_{name}.onnx"
            quantise(float_model, path, train_pixels, form, activations)
            demand(name, accuracy(path, test_pixels, test_labels), QUANTISED_ACCURACY)


if __name__ == "__main__":
    main()
