"""ResNets with bottlenecks, and chains of equal layers, quantised, with random weights: networks of any length.

    PYTHONPATH=cocotb_tests/support .venv/bin/python -m networks.generated.residual 50 FILE

writes ResNet-50 at 224x224x3 to a file.

Source: K. He et al., Deep Residual Learning for Image Recognition, table 1; the stride is that of the 3x3 convolution.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .writer import Limits, Writer

CLASSES = 1000
#: Blocks of each stage, by the name's number.
STAGES = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
#: How many times the channels of its 3x3 convolution a block's output has.
_EXPANSION = 4

#: Standard deviation of weights, and of a layer's results before ReLU, in codes.
_WEIGHT_SPREAD, _SPREAD = 40, 64
#: Scale of all activations.
_SCALE = 0.05


@dataclass(frozen=True)
class _Codes:
    """A tensor of codes, with the names of its scale and its zero point."""

    name: str
    scale: str
    zero: str
    shape: tuple[int, ...]


class _Residual(Writer):
    """Appends layers in QDQ form; each takes a tensor and returns one."""

    def begin(self, shape: tuple[int, ...]) -> _Codes:
        self.input_shape = shape
        return _Codes("x", *self.quantisation(_SCALE, 0), shape)

    def product(self, operator: str, x: _Codes, shape: tuple[int, ...], result: tuple[int, ...], **attributes) -> str:
        """A convolution or a Gemm with ``shape[0]`` output channels, before its activation."""
        channels, reach = shape[0], math.prod(shape[1:])
        weights = self.rng.normal(0, _WEIGHT_SPREAD, shape).clip(-127, 127).round().astype(np.int8)
        # Activations are about as wide as a layer's results.
        scales = (self.rng.uniform(0.7, 1.4, channels) / (_WEIGHT_SPREAD * math.sqrt(reach))).astype(np.float32)
        bias = self.rng.normal(0, _SPREAD / 4, channels) / scales
        names = [
            self.constant("w", weights),
            self.constant("w_scale", scales),
            self.constant("w_zero", np.zeros(channels, np.int8)),
        ]
        bias_names = [
            self.constant("bias", bias.round().astype(np.int32)),
            self.constant("bias_scale", scales * self.value(x.scale)),
            self.constant("bias_zero", np.zeros(channels, np.int32)),
        ]
        inputs = [
            self._float(x),
            self.node("DequantizeLinear", names, axis=0),
            self.node("DequantizeLinear", bias_names, axis=0),
        ]
        self.shape = result
        return self.node(operator, inputs, **attributes)

    def convolution(self, x: _Codes, channels: int, kernel: int = 1, stride: int = 1, *, relu: bool = True) -> _Codes:
        """A convolution that keeps the size but for its stride, with ReLU."""
        _, inputs, *sides = x.shape
        result = (1, channels, *(-(-side // stride) for side in sides))
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        y = self.product("Conv", x, (channels, inputs, kernel, kernel), result, **attributes)
        return self._codes(self.node("Relu", [y]) if relu else y, result, relu=relu)

    def bottleneck(self, x: _Codes, width: int, stride: int) -> _Codes:
        """A block: 1x1, 3x3 and 1x1 convolutions, and the sum with its input or a 1x1 convolution of that."""
        channels = _EXPANSION * width
        y = self.convolution(self.convolution(x, width), width, 3, stride)
        y = self.convolution(y, channels, relu=False)
        if x.shape[1] != channels:
            x = self.convolution(x, channels, 1, stride, relu=False)
        total = self.node("Add", [self._float(y), self._float(x)])
        return self._codes(self.node("Relu", [total]), y.shape, relu=True)

    def max_pool(self, x: _Codes) -> _Codes:
        """3x3, stride 2."""
        attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
        y = self.node("MaxPool", [self._float(x)], **attributes)
        shape = (*x.shape[:2], *(-(-side // 2) for side in x.shape[2:]))
        return _Codes(self.node("QuantizeLinear", [y, x.scale, x.zero]), x.scale, x.zero, shape)

    def classes(self, x: _Codes) -> _Codes:
        """The average of each channel, and a fully connected layer."""
        shape = (1, x.shape[1])
        average = self._codes(self.node("GlobalAveragePool", [self._float(x)]), (*shape, 1, 1), relu=True)
        flat = self._codes(self.node("Flatten", [self._float(average)]), shape, like=average)
        y = self.product("Gemm", flat, (CLASSES, shape[1]), (1, CLASSES), transB=1)
        return self._codes(y, (1, CLASSES))

    def model(self, y: _Codes) -> bytes:
        self.tensor = y.name
        return self.serialise()

    def _float(self, x: _Codes) -> str:
        return self.node("DequantizeLinear", [x.name, x.scale, x.zero])

    def _codes(self, y: str, shape: tuple[int, ...], *, relu: bool = False, like: _Codes | None = None) -> _Codes:
        ends = (like.scale, like.zero) if like else self.quantisation(_SCALE, -128 if relu else 0)
        return _Codes(self.node("QuantizeLinear", [y, *ends]), *ends, shape)


def resnet(number: int, *, side: int = 224, seed: int = 0) -> bytes:
    """The serialised ResNet-``number`` with int8 activations, on images of ``side`` rows and columns."""
    made = _made(seed)
    x = made.max_pool(made.convolution(made.begin((1, 3, side, side)), 64, 7, 2))
    for stage, blocks in enumerate(STAGES[number]):
        for block in range(blocks):
            x = made.bottleneck(x, 64 << stage, 2 if stage and not block else 1)
    return made.model(made.classes(x))


def chain(layers: int, *, channels: int = 32, side: int = 48, seed: int = 0) -> bytes:
    """The serialised model of so many equal 3x3 convolutions, one after the other.

    By default a feature map has 72 KiB, which is more than the feature memory of `ecp5-85k`.
    """
    made = _made(seed)
    x = made.begin((1, channels, side, side))
    for _ in range(layers):
        x = made.convolution(x, channels, 3)
    return made.model(x)


def _made(seed: int) -> _Residual:
    return _Residual(np.random.default_rng(seed), "qdq", False, Limits())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", type=int, choices=STAGES)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    given.file.write_bytes(resnet(given.number))
