"""MobileNet v1 1.0 at 224x224x3, quantised, with random weights: a network far larger than `ecp5-85k`'s memories.

    PYTHONPATH=cocotb_tests/support .venv/bin/python -m networks.mobilenet FILE

writes it to a file.

Source: A. Howard et al., MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications, table 1.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from lutterfly.host.model.runtime import plain_session

IMAGE, CLASSES = (1, 3, 224, 224), 1000
#: Output channels and stride of the first convolution, then of each depthwise convolution with the pointwise one
#: after it.
BLOCKS = ((32, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
#: Convolutions, global average pooling, fully connected layer.
LAYERS = 1 + 2 * (len(BLOCKS) - 1) + 2
#: The paper says "569 million mult-adds" and "4.2 million parameters"; these are without biases and scales.
MACS, WEIGHTS = 568_740_352, 4_209_088

#: Standard deviation that every channel has before ReLU, in codes: one in a hundred results of a layer saturates.
_SPREAD = 100.0
_INPUT_SCALE = 0.02


@dataclass
class _Maker:
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
        part = model([node], {key: self.constants[key] for key in inputs[1:]}, self.tensor, self.shape, name)
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
        ends = self.quantisation(name, 1 / _SPREAD, -128)
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
        ends = self.quantisation(name, 2 / _SPREAD, 0)
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
    maker = _Maker(np.random.default_rng(seed))
    maker.start()
    (channels, stride), *pairs = BLOCKS
    maker.convolution("conv0", channels, 3, stride)
    for number, (outputs, stride) in enumerate(pairs[:blocks], 1):
        maker.convolution(f"depthwise{number}", maker.shape[1], 3, stride, depthwise=True)
        maker.convolution(f"pointwise{number}", outputs, 1)
    if blocks == len(pairs):
        maker.global_average("average")
        maker.fully_connected("classes", CLASSES)
    whole = model(maker.nodes, maker.constants, "image", IMAGE, maker.tensor, maker.shape)
    onnx.checker.check_model(whole)
    return whole.SerializeToString()


def model(
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
    Path(sys.argv[1]).write_bytes(mobilenet())
