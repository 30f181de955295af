"""Train digit networks with fast pointwise convolutions and their dense twin, quantise them, and compare.

    make test-train && .venv/bin/python examples/train_fpc_digits.py

Prints, over five seeds, the mean and the spread of the accuracy on held-out images, in float and as int8 in plain ONNX
Runtime, and the weights and multiplications of the pointwise layers. Writes ``digits_fpc.onnx``, the first seed's
bottom-up network. Everything is seeded and single-threaded.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from sklearn.model_selection import train_test_split
from torch import nn

from lutterfly.examples.digits import as_input
from lutterfly.examples.train_loop import load, one_cycle, train_epoch
from lutterfly.train import FastPointwiseConv2d, analyse, calibrate, export_onnx, parameter_groups, plot, propose

SEEDS = (1, 2, 3, 4, 5)
BATCH = 64
#: Channels of the first layers.
WIDTH = 64
#: Epochs in float, then in fixed point.
EPOCHS, TUNING_EPOCHS = 40, 8
#: Of a sensitivity analysis: one training tells stages apart no better than another seed does.
ANALYSIS_EPOCHS, ANALYSIS_SEEDS = 20, (1, 2, 3)
RATE, DECAY = 4e-3, 1e-2
#: How much accuracy a lighter list of densities may cost.
TOLERANCE = 0.005
#: Stages of the widest layer; a narrower one takes the first of them.
BOTTOM_UP = ("full", *["cross"] * 6)

#: Makes a pointwise layer and its ReLU for channels in and out.
Pointwise = Callable[[int, int], nn.Module]


def dense(inputs: int, outputs: int) -> nn.Module:
    """A dense pointwise layer, the baseline of the comparison."""
    convolution = nn.Conv2d(inputs, outputs, 1)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    nn.init.zeros_(convolution.bias)
    return nn.Sequential(convolution, nn.ReLU())


def fast(direction: str = "bottom-up", densities: Sequence[str] | None = None, *, has_skip: bool = False) -> Pointwise:
    """A fast pointwise convolution, perhaps with a skip from the first to the last stage."""

    def make(inputs: int, outputs: int) -> nn.Module:
        stages = (max(inputs, outputs) - 1).bit_length()
        return FastPointwiseConv2d(
            inputs,
            outputs,
            relu=True,
            direction=direction,
            densities=None if densities is None else densities[:stages],
            skips=[(0, stages - 1)] if has_skip else [],
        )

    return make


#: The lighter list is what the sensitivity analysis proposes.
VARIANTS: dict[str, Pointwise] = {
    "dense": dense,
    "fast, bottom-up": fast(),
    "fast, top-down": fast("top-down"),
    "fast, bottom-up, with a skip": fast(has_skip=True),
}


def network(pointwise: Pointwise, width: int = WIDTH) -> nn.Sequential:
    """Depthwise separable: ``width`` channels on 8x8, twice as many on 4x4 and 2x2."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        pointwise(width, width),
        nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1, groups=width),
        nn.ReLU(),
        pointwise(width, 2 * width),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width),
        nn.ReLU(),
        pointwise(2 * width, 2 * width),
        nn.Flatten(),
        nn.Linear(2 * width * 2 * 2, 10),
    )


def train(
    pointwise: Pointwise, pixels: np.ndarray, labels: np.ndarray, seed: int, epochs: int, width: int = WIDTH
) -> nn.Sequential:
    """A network trained in float; every random number comes from the seed."""
    torch.manual_seed(seed)
    model = network(pointwise, width)
    _fit(model, pixels, labels, epochs, RATE)
    return model.eval()


def tune(model: nn.Sequential, pixels: np.ndarray, labels: np.ndarray, seed: int) -> None:
    """Set fast pointwise convolutions to fixed point, and train on; without any, train on as long."""
    torch.manual_seed(seed)
    if any(isinstance(module, FastPointwiseConv2d) for module in model.modules()):
        calibrate(model, torch.from_numpy(pixels[:512]).split(BATCH))
    _fit(model, pixels, labels, TUNING_EPOCHS, RATE / 10)
    model.eval()


def _fit(model: nn.Sequential, pixels: np.ndarray, labels: np.ndarray, epochs: int, rate: float) -> None:
    model.train()
    optimiser = torch.optim.AdamW(parameter_groups(model, DECAY), lr=rate / 2)
    schedule = one_cycle(optimiser, rate, pixels, epochs=epochs, batch=BATCH)
    for _ in range(epochs):
        train_epoch(model, pixels, labels, optimiser, schedule, batch=BATCH)


def accuracy(model: nn.Module, pixels: np.ndarray, labels: np.ndarray) -> float:
    """Share of the images that a network classifies as labelled, in PyTorch."""
    with torch.no_grad():
        return float(np.mean(model.eval()(torch.from_numpy(pixels)).numpy().argmax(axis=1) == labels))


def runtime_accuracy(data: bytes, pixels: np.ndarray, labels: np.ndarray) -> float:
    """The same for an ONNX file, in plain ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"pixels": pixels})
    return float(np.mean(logits.argmax(axis=1) == labels))


def export(model: nn.Module, pixels: np.ndarray) -> bytes:
    """The quantised ONNX file of a network, from ``pixels`` to ``logits``."""
    return export_onnx(model, pixels[:256], input_name="pixels", output_name="logits")


@dataclass(frozen=True)
class Cost:
    """Of the pointwise layers: weights, and multiplications of an image."""

    weights: int
    multiplications: int


def cost(pointwise: Pointwise, width: int = WIDTH) -> Cost:
    """Count them."""
    weights = multiplications = 0
    for pixels, inputs, outputs in ((64, width, width), (16, width, 2 * width), (4, 2 * width, 2 * width)):
        layer = pointwise(inputs, outputs)
        if isinstance(layer, FastPointwiseConv2d):
            own = layer.pattern.live_multiplications
        else:
            own = sum(module.weight.numel() for module in layer.modules() if isinstance(module, nn.Conv2d))
        weights += own
        multiplications += pixels * own
    return Cost(weights, multiplications)


def spread(found: Sequence[float]) -> str:
    """Mean and standard deviation of accuracies."""
    return f"{100 * statistics.mean(found):.2f} ± {100 * statistics.stdev(found):.2f} %"


def lighter(pixels: np.ndarray, labels: np.ndarray, page: Path | None) -> list[str]:
    """The list of densities that a sensitivity analysis proposes, on training images alone."""
    fitted, judged, fitted_labels, judged_labels = train_test_split(
        pixels, labels, test_size=400, random_state=0, stratify=labels
    )

    def measure(densities: Sequence[str]) -> float:
        make = fast(densities=densities)
        models = [train(make, fitted, fitted_labels, seed, ANALYSIS_EPOCHS) for seed in ANALYSIS_SEEDS]
        found = statistics.mean(accuracy(model, judged, judged_labels) for model in models)
        print(f"  {', '.join(densities)}: {100 * found:.2f} %", flush=True)
        return found

    print("sensitivity analysis, on images that are held out of the training ones:", flush=True)
    pattern = FastPointwiseConv2d(128, 128, densities=BOTTOM_UP).pattern
    measured = analyse(pattern, measure)
    tried = propose(pattern, measured, measure, TOLERANCE)
    if page is not None:
        plot([*measured, *tried], page, tried[-1])
    return [str(density) for density in tried[-1].densities]


def main() -> None:
    """Train, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder for digits_fpc.onnx")
    parser.add_argument("--page", type=Path, help="write the plot of the sensitivity analysis here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_images, test_images, labels, test_labels = load()
    pixels, test_pixels = as_input(train_images), as_input(test_images)
    densities = lighter(pixels, labels, arguments.page)
    variants = VARIANTS | {f"fast, {', '.join(densities)}": fast(densities=densities)}
    print("| pointwise layers | weights | multiplications | float | int8 |\n|---|---|---|---|---|", flush=True)
    for name, pointwise in variants.items():
        floats, integers = [], []
        for seed in SEEDS:
            model = train(pointwise, pixels, labels, seed, EPOCHS)
            floats.append(accuracy(model, test_pixels, test_labels))
            tune(model, pixels, labels, seed)
            data = export(model, pixels)
            integers.append(runtime_accuracy(data, test_pixels, test_labels))
            if name == "fast, bottom-up" and seed == SEEDS[0]:
                (arguments.output / "digits_fpc.onnx").write_bytes(data)
        own = cost(pointwise)
        print(
            f"| {name} | {own.weights:,} | {own.multiplications:,} | {spread(floats)} | {spread(integers)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
