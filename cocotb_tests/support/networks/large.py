"""Networks far larger than `ecp5-85k`'s memories, quantised, with random weights: ResNets, MobileNet v1, and chains.

    .venv/bin/python -m cocotb_tests.support.networks.large resnet50 FILE

writes ResNet-50 at 224x224x3 to a file; `resnet101` and `mobilenet` are the others.

Sources: K. He et al., Deep Residual Learning for Image Recognition, table 1, where the stride is that of the 3x3
convolution; A. Howard et al., MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications,
table 1.
"""

from __future__ import annotations

import argparse
import functools
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from cocotb_tests.support.networks.generated import Codes, Limits, Writer
from lutterfly.host.model.runtime import plain_session

CLASSES = 1000
#: Blocks of each stage, by the name's number.
STAGES = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
#: How many times the channels of its 3x3 convolution a block's output has.
_EXPANSION = 4

#: Standard deviation of weights, and of a layer's results before ReLU, in codes.
_WEIGHT_SPREAD, _RESULT_SPREAD = 40, 64
#: Scale of all activations.
_SCALE = 0.05


class _Residual(Writer):
    """Appends layers in QDQ form; each takes a tensor and returns one."""

    def begin(self, shape: tuple[int, ...]) -> Codes:
        self.input_shape = shape
        return Codes("x", *self.quantisation(_SCALE, 0), shape)

    def product(self, operator: str, x: Codes, shape: tuple[int, ...], result: tuple[int, ...], **attributes) -> str:
        """A convolution or a Gemm with ``shape[0]`` output channels, before its activation."""
        channels, reach = shape[0], math.prod(shape[1:])
        weights = self.rng.normal(0, _WEIGHT_SPREAD, shape).clip(-127, 127).round().astype(np.int8)
        # Activations are about as wide as a layer's results.
        scales = (self.rng.uniform(0.7, 1.4, channels) / (_WEIGHT_SPREAD * math.sqrt(reach))).astype(np.float32)
        bias = self.rng.normal(0, _RESULT_SPREAD / 4, channels) / scales
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

    def convolution(self, x: Codes, channels: int, kernel: int = 1, stride: int = 1, *, relu: bool = True) -> Codes:
        """A convolution that keeps the size but for its stride, with ReLU."""
        _, inputs, *sides = x.shape
        result = (1, channels, *(-(-side // stride) for side in sides))
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        y = self.product("Conv", x, (channels, inputs, kernel, kernel), result, **attributes)
        return self._codes(self.node("Relu", [y]) if relu else y, result, relu=relu)

    def bottleneck(self, x: Codes, width: int, stride: int) -> Codes:
        """A block: 1x1, 3x3 and 1x1 convolutions, and the sum with its input or a 1x1 convolution of that."""
        channels = _EXPANSION * width
        y = self.convolution(self.convolution(x, width), width, 3, stride)
        y = self.convolution(y, channels, relu=False)
        if x.shape[1] != channels:
            x = self.convolution(x, channels, 1, stride, relu=False)
        total = self.node("Add", [self._float(y), self._float(x)])
        return self._codes(self.node("Relu", [total]), y.shape, relu=True)

    def max_pool(self, x: Codes) -> Codes:
        """3x3, stride 2."""
        attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
        y = self.node("MaxPool", [self._float(x)], **attributes)
        shape = (*x.shape[:2], *(-(-side // 2) for side in x.shape[2:]))
        return Codes(self.node("QuantizeLinear", [y, x.scale, x.zero]), x.scale, x.zero, shape)

    def classes(self, x: Codes) -> Codes:
        """The average of each channel, and a fully connected layer."""
        shape = (1, x.shape[1])
        average = self._codes(self.node("GlobalAveragePool", [self._float(x)]), (*shape, 1, 1), relu=True)
        flat = self._codes(self.node("Flatten", [self._float(average)]), shape, like=average)
        y = self.product("Gemm", flat, (CLASSES, shape[1]), (1, CLASSES), transB=1)
        return self._codes(y, (1, CLASSES))

    def model(self, y: Codes) -> bytes:
        self.tensor = y.name
        return self.serialise()

    def _float(self, x: Codes) -> str:
        return self.node("DequantizeLinear", [x.name, x.scale, x.zero])

    def _codes(self, y: str, shape: tuple[int, ...], *, relu: bool = False, like: Codes | None = None) -> Codes:
        ends = (like.scale, like.zero) if like else self.quantisation(_SCALE, -128 if relu else 0)
        return Codes(self.node("QuantizeLinear", [y, *ends]), *ends, shape)


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


# MobileNet v1 1.0.

IMAGE = (1, 3, 224, 224)
#: Output channels and stride of the first convolution, then of each depthwise convolution with the pointwise one
#: after it.
BLOCKS = ((32, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
#: Convolutions, global average pooling, fully connected layer.
LAYERS = 1 + 2 * (len(BLOCKS) - 1) + 2
#: The paper says "569 million mult-adds" and "4.2 million parameters"; these are without biases and scales.
MACS, WEIGHTS = 568_740_352, 4_209_088

#: Standard deviation that every channel has before ReLU, in codes: one in a hundred results of a layer saturates.
_CHANNEL_SPREAD = 100.0
_INPUT_SCALE = 0.02


@dataclass
class _MobileNet:
    """Appends layers of QOperator form, and computes what each makes of a random image.

    The scales of a layer follow from that, channel by channel, as if batch normalisation had been folded into them:
    without it, signals fade or saturate after a few layers of random weights.
    """

    rng: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def start(self) -> None:
        self.tensor, self.shape = "image", IMAGE
        self.codes = self.rng.integers(-128, 128, IMAGE, np.int8)
        self.ends = self.quantisation("image", _INPUT_SCALE, 0)

    def quantisation(self, name: str, scale: float, zero_point: int) -> list[str]:
        self.constants |= {f"{name}_scale": np.float32(scale), f"{name}_zero": np.int8(zero_point)}
        return [f"{name}_scale", f"{name}_zero"]

    def append(self, operator: str, inputs: list[str], name: str, domain: str = "", **attributes) -> None:
        """Append a node, and run it."""
        node = helper.make_node(operator, inputs, [name], f"{name}_node", domain=domain, **attributes)
        part = model_of_codes([node], {key: self.constants[key] for key in inputs[1:]}, self.tensor, self.shape, name)
        (self.codes,) = plain_session(part).run(None, {self.tensor: self.codes})
        self.nodes.append(node)
        self.tensor, self.shape = name, self.codes.shape

    def convolution(self, name: str, channels: int, kernel: int, stride: int = 1, *, depthwise: bool = False) -> None:
        """A convolution with ReLU, padded as TensorFlow's "SAME"."""
        inputs = 1 if depthwise else self.shape[1]
        pad = kernel - stride if kernel > 1 else 0
        weights = self.rng.normal(0, 40, (channels, inputs, kernel, kernel)).clip(-127, 127).round().astype(np.int8)
        scale, zero = (float(self.constants[end]) for end in self.ends)
        attributes = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "group": channels if depthwise else 1,
            "pads": [pad // 2, pad // 2, pad - pad // 2, pad - pad // 2],
        }
        sums = _sums(self.codes - np.float32(zero), weights.astype(np.float32), attributes)
        deviations = sums.std(axis=(0, 2, 3)).clip(1)
        self.constants |= {
            f"{name}_weights": weights,
            f"{name}_weights_scale": (1 / (scale * deviations)).astype(np.float32),
            f"{name}_weights_zero": np.zeros(channels, np.int8),
            f"{name}_bias": (deviations * self.rng.normal(0, 0.3, channels) - sums.mean(axis=(0, 2, 3)))
            .round()
            .astype(np.int32),
        }
        ends = self.quantisation(name, 1 / _CHANNEL_SPREAD, -128)
        self.append(
            "QLinearConv",
            [
                self.tensor,
                *self.ends,
                f"{name}_weights",
                f"{name}_weights_scale",
                f"{name}_weights_zero",
                *ends,
                f"{name}_bias",
            ],
            name,
            **attributes,
        )
        self.ends = ends

    def global_average(self, name: str) -> None:
        """The average of every channel, its range stretched."""
        ends = self.quantisation(name, float(self.constants[self.ends[0]]) / 2, -128)
        self.append(
            "QLinearGlobalAveragePool", [self.tensor, *self.ends, *ends], name, "com.microsoft", channels_last=0
        )
        self.ends = ends
        self.append("Flatten", [self.tensor], f"{name}_flat")

    def fully_connected(self, name: str, outputs: int) -> None:
        weights = self.rng.normal(0, 40, (self.shape[1], outputs)).clip(-127, 127).round().astype(np.int8)
        scale, zero = (float(self.constants[end]) for end in self.ends)
        sums = (self.codes - np.float32(zero)) @ weights.astype(np.float32)
        self.constants |= {
            f"{name}_weights": weights,
            f"{name}_weights_scale": np.float32(1 / (scale * sums.std())),
            f"{name}_weights_zero": np.int8(0),
            f"{name}_bias": np.zeros(outputs, np.int32),
        }
        ends = self.quantisation(name, 2 / _CHANNEL_SPREAD, 0)
        self.append(
            "QGemm",
            [
                self.tensor,
                *self.ends,
                f"{name}_weights",
                f"{name}_weights_scale",
                f"{name}_weights_zero",
                f"{name}_bias",
                *ends,
            ],
            name,
            "com.microsoft",
        )
        self.ends = ends


def mobilenet(*, blocks: int = len(BLOCKS) - 1, seed: int = 0) -> bytes:
    """The serialised model, in QOperator form with int8 activations.

    Parameters
    ----------
    blocks : int
        So many pairs of depthwise and pointwise convolution; with all of them the classifier follows.
    seed : int
        Of the weights; a model with fewer blocks is the beginning of one with more.
    """
    maker = _MobileNet(np.random.default_rng(seed))
    maker.start()
    (channels, stride), *pairs = BLOCKS
    maker.convolution("conv0", channels, 3, stride)
    for number, (outputs, stride) in enumerate(pairs[:blocks], 1):
        maker.convolution(f"depthwise{number}", maker.shape[1], 3, stride, depthwise=True)
        maker.convolution(f"pointwise{number}", outputs, 1)
    if blocks == len(pairs):
        maker.global_average("average")
        maker.fully_connected("classes", CLASSES)
    whole = model_of_codes(maker.nodes, maker.constants, "image", IMAGE, maker.tensor, maker.shape)
    onnx.checker.check_model(whole)
    return whole.SerializeToString()


def model_of_codes(
    nodes: list[NodeProto],
    constants: dict[str, np.ndarray],
    source: str,
    shape: tuple[int, ...],
    target: str,
    target_shape: tuple[int, ...] | None = None,
) -> onnx.ModelProto:
    """A model from int8 codes to int8 codes."""
    graph = helper.make_graph(
        nodes,
        "mobilenet",
        [helper.make_tensor_value_info(source, onnx.TensorProto.INT8, shape)],
        [helper.make_tensor_value_info(target, onnx.TensorProto.INT8, target_shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _sums(codes: np.ndarray, weights: np.ndarray, attributes: dict) -> np.ndarray:
    """The float convolution of codes: its statistics need no exactness."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)]
    graph = helper.make_graph(
        nodes,
        "sums",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, codes.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (sums,) = plain_session(made).run(None, {"x": codes})
    return sums


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made = {f"resnet{number}": functools.partial(resnet, number) for number in STAGES} | {"mobilenet": mobilenet}
    parser.add_argument("network", choices=made)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    given.file.write_bytes(made[given.network]())
