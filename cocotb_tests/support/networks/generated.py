"""Random quantised ONNX models, built node by node: single layers and small chains, in both forms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from lutterfly.host.model.runtime import plain_session

# Quantised ONNX models in both forms, written node by node with onnx.helper.

FORMS = ("qop", "qdq")


@dataclass(frozen=True)
class Limits:
    """Bounds of what is generated, so that it fits a configuration.

    Attributes
    ----------
    channels, kernel, stride, dilation, pad : int
        Greatest values.
    side : int
        Greatest height and width of the input.
    map_bytes : int
        Greatest feature map, borders included.
    weight_bytes : int
        Most weights of a layer.
    macs : int
        Most multiply-accumulates of a layer.
    """

    channels: int = 40
    kernel: int = 7
    stride: int = 3
    dilation: int = 2
    pad: int = 3
    side: int = 16
    map_bytes: int = 16 << 10
    weight_bytes: int = 64 << 10
    macs: int = 2_000_000


#: Fits the preset `tiny`, chains included, with room for borders and for words that are not full.
TINY = Limits(side=10, map_bytes=1200, weight_bytes=3000, macs=150_000)


@dataclass(frozen=True)
class Generated:
    """A model and what it is made of."""

    model: bytes
    text: str
    input_shape: tuple[int, ...]
    input_type: np.dtype

    def feeds(self, seed: int) -> dict[str, np.ndarray]:
        """Random input: codes of any value, or floats in the range of the input's QuantizeLinear."""
        generator = np.random.default_rng(seed)
        if self.input_type == np.float32:
            return {"x": generator.uniform(-1.3, 1.3, self.input_shape).astype(np.float32)}
        limits = np.iinfo(self.input_type)
        return {"x": generator.integers(limits.min, limits.max + 1, self.input_shape, self.input_type)}


@dataclass(frozen=True)
class Codes:
    """A quantised tensor: its name, those of its scale and zero point, and its shape."""

    name: str
    scale: str
    zero: str
    shape: tuple[int, ...]


@dataclass
class Writer:
    """A model that is being written; the current tensor is always one of codes.

    Attributes
    ----------
    form : str
        "qop" or "qdq".
    unsigned : bool
        uint8 activations.
    """

    rng: np.random.Generator
    form: str
    unsigned: bool
    limits: Limits
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    tensor: str = "x"
    input_shape: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    scale: str = ""
    zero: str = ""

    @property
    def dtype(self) -> np.dtype:
        """Type of the activations."""
        return np.dtype(np.uint8 if self.unsigned else np.int8)

    def name(self, kind: str) -> str:
        return f"{kind}_{len(self.nodes)}"

    def constant(self, kind: str, value) -> str:
        name = f"{kind}_{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str = "", domain: str = "", **attributes) -> str:
        name = self.name(operator)
        output = output or f"{name}_out"
        self.nodes.append(helper.make_node(operator, inputs, [output], name, domain=domain, **attributes))
        return output

    def quantisation(self, scale: float, zero_point: int | None = None) -> tuple[str, str]:
        """Constants for scale and zero point of a new tensor; the zero point is an int8 code, random by default."""
        if zero_point is None:
            zero_point = int(self.rng.choice([-128, 127, 0, int(self.rng.integers(-128, 128))]))
        code = np.array(zero_point + 128 if self.unsigned else zero_point, self.dtype)
        return self.constant("scale", np.float32(scale)), self.constant("zero", code)

    def value(self, name: str) -> np.ndarray:
        return self.constants[name]

    def start(self, shape: tuple[int, ...], scale: float = 0.02) -> None:
        self.input_shape = self.shape = shape
        self.scale, self.zero = self.quantisation(scale)

    def dequantised(self) -> str:
        return self.node("DequantizeLinear", [self.tensor, self.scale, self.zero])

    def quantise(self, tensor: str, scale: str, zero: str, shape: tuple[int, ...]) -> None:
        self.tensor = self.node("QuantizeLinear", [tensor, scale, zero])
        self.scale, self.zero, self.shape = scale, zero, shape

    def finish(self, *, float_ends: bool = False) -> Generated:
        """The model; with ``float_ends`` a QuantizeLinear in front, DequantizeLinear and Softmax after."""
        text = f"{self.form} {self.dtype}: {'; '.join(self.text)}"
        if not float_ends:
            return Generated(self.serialise(), text, self.input_shape, self.dtype)
        scale, zero = itertools.islice(self.constants, 2)
        self.tensor = self.node("Softmax", [self.dequantised()], axis=-1)
        for node in self.nodes:
            node.input[:] = ["x_codes" if name == "x" else name for name in node.input]
        self.nodes.insert(0, helper.make_node("QuantizeLinear", ["x", scale, zero], ["x_codes"], "quantise_input"))
        return Generated(self.serialise(input_type=np.float32), text, self.input_shape, np.dtype(np.float32))

    def serialise(
        self, outputs: Sequence[str] = (), *, input_type: type | np.dtype | None = None, opset: int = 20
    ) -> bytes:
        """The model with the given outputs, by default the current tensor, and the input ``x``."""
        outputs = outputs or [self.tensor]
        input_type = np.dtype(input_type or self.dtype)
        shape = ["batch", *self.input_shape[1:]]
        tensors = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(input_type), shape)

        def make(infos: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
            graph = helper.make_graph(self.nodes, "generated", [x], infos, tensors)
            return helper.make_model(graph, opset_imports=opsets, ir_version=10)

        session = plain_session(make([helper.make_empty_tensor_value_info(name) for name in outputs]))
        values = session.run(outputs, {"x": np.zeros(self.input_shape, input_type)})
        types = [helper.np_dtype_to_tensor_dtype(value.dtype) for value in values]
        model = make(
            [
                helper.make_tensor_value_info(name, item, ["batch", *value.shape[1:]])
                for name, item, value in zip(outputs, types, values, strict=True)
            ]
        )
        onnx.checker.check_model(model)
        return model.SerializeToString()


# Random layers, with geometry and activations of every kind.

#: Activations; some are written with several operators.
ACTIVATIONS = (
    "Relu",
    "Tanh",
    "Sigmoid",
    "HardSwish",
    "HardSigmoid",
    "LeakyRelu",
    "Elu",
    "Clip",
    "Erf",
    "Gelu",
    "Softplus",
    "HardSwish:x*HardSigmoid",
    "Swish",
    "Affine",
)

# Standard deviation of uniform int8 codes and weights, and of the results that scales aim at: a third of the range of
# codes saturates rarely.
_SPREAD = 74.0
_AIM = 40.0


class Maker(Writer):
    """Appends random layers to a model."""

    def weights(self, shape: tuple[int, ...], channel_axis: int, per_channel: bool) -> tuple[str, str, str, np.ndarray]:
        """Weights with scale and zero point; the scales of all channels."""
        channels = shape[channel_axis]
        weights = self.rng.integers(-128, 128, shape, np.int8)
        scales = (self.rng.uniform(0.3, 1.7, channels if per_channel else 1) * 0.01).astype(np.float32)
        if per_channel and channels > 2 and self.rng.random() < 0.2:
            scales[0] = np.float32(1e-30)  # a dead channel, as real networks have them
        stored = scales if per_channel else scales[0]
        zeros = np.zeros(channels, np.int8) if per_channel else np.int8(0)
        return self.constant("w", weights), self.constant("ws", stored), self.constant("wz", zeros), scales

    def product(
        self,
        operator: str,
        shape: tuple[int, ...],
        channel_axis: int,
        result: tuple[int, ...],
        *,
        bias: bool = True,
        relu: bool = False,
        **attributes,
    ) -> None:
        """Append a convolution or matrix product with weights of ``shape``."""
        per_channel = bool(self.rng.random() < 0.5)
        weight, weight_scale, weight_zero, scales = self.weights(shape, channel_axis, per_channel)
        channels = shape[channel_axis]
        reach = math.prod(shape) // channels
        spread = _SPREAD * _SPREAD * math.sqrt(reach)
        input_scale = self.value(self.scale)
        scale = float(input_scale) * 0.01 * spread / _AIM
        out_scale, out_zero = self.quantisation(scale, -128 if relu else None)
        values = self.rng.integers(int(-spread), int(spread) + 1, channels, np.int32)
        if self.form == "qop":
            bias_name = self.constant("bias", values) if bias else ""
            ends = [self.tensor, self.scale, self.zero, weight, weight_scale, weight_zero]
            if operator == "Gemm":
                ends += [bias_name, out_scale, out_zero]
                output = self.node("QGemm", ends, domain="com.microsoft", **attributes)
            else:
                ends += [out_scale, out_zero, *([bias_name] if bias and operator == "Conv" else [])]
                output = self.node(f"QLinear{operator}", ends, **attributes)
            self.tensor, self.scale, self.zero, self.shape = output, out_scale, out_zero, result
            return
        axis = {"axis": channel_axis} if per_channel else {}
        inputs = [self.dequantised(), self.node("DequantizeLinear", [weight, weight_scale, weight_zero], **axis)]
        if bias and operator != "MatMul":
            bias_scale = (input_scale * scales).astype(np.float32)
            stored = [
                self.constant("bias", values),
                self.constant("bs", bias_scale if per_channel else bias_scale[0]),
                self.constant("bz", np.zeros(channels, np.int32) if per_channel else np.int32(0)),
            ]
            inputs.append(self.node("DequantizeLinear", stored, **({"axis": 0} if per_channel else {})))
        output = self.node(operator, inputs, **attributes)
        if relu:
            output = self.node("Relu", [output])
        self.quantise(output, out_scale, out_zero, result)

    def convolution(self, *, spatial: int = 2) -> None:
        """A convolution of random geometry on the current map [1, channels, ...]."""
        rng, limits = self.rng, self.limits
        inputs, sides = self.shape[1], self.shape[2:]
        while True:
            auto = str(rng.choice(["NOTSET"] * 8 + ["SAME_UPPER", "SAME_LOWER", "VALID"]))
            outputs = int(rng.integers(1, limits.channels + 1))
            kernel = [int(rng.integers(1, limits.kernel + 1)) for _ in range(spatial)]
            stride = [int(rng.integers(1, limits.stride + 1)) for _ in range(spatial)]
            # ONNX Runtime has no dilation with SAME.
            most = 1 if auto.startswith("SAME") else limits.dilation
            dilation = [int(rng.integers(1, most + 1)) for _ in range(spatial)]
            extent = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
            pads = [
                int(rng.integers(0, limits.pad + 1)) if auto == "NOTSET" and rng.random() < 0.6 else 0
                for _ in range(2 * spatial)
            ]
            padded = [side + pads[i] + pads[spatial + i] for i, side in enumerate(sides)]
            out = [(p - e) // s + 1 for p, e, s in zip(padded, extent, stride, strict=True)]
            if auto.startswith("SAME"):
                out = [-(-side // s) for side, s in zip(sides, stride, strict=True)]
                padded = [side + e for side, e in zip(sides, extent, strict=True)]
            weights = outputs * inputs * math.prod(kernel)
            fits = min(out) > 0 and weights <= limits.weight_bytes and weights * math.prod(out) <= limits.macs
            if fits and max(inputs * math.prod(padded), outputs * math.prod(out)) <= limits.map_bytes:
                break
        attributes = {"kernel_shape": kernel, "strides": stride, "dilations": dilation}
        attributes |= {"pads": pads} if auto == "NOTSET" else {"auto_pad": auto}
        self.text.append(f"conv {'x'.join(map(str, self.shape[1:]))} -> {outputs}, {attributes}")
        bias, relu = rng.random() < 0.8, rng.random() < 0.3
        self.product("Conv", (outputs, inputs, *kernel), 0, (1, outputs, *out), bias=bias, relu=relu, **attributes)

    def fully_connected(self, outputs: int | None = None) -> None:
        """Flatten if need be, then Gemm or MatMul."""
        if len(self.shape) > 2:
            self.flatten()
        features = self.shape[1]
        room = max(1, min(self.limits.channels, self.limits.weight_bytes // features))
        outputs = int(self.rng.integers(1, room + 1)) if outputs is None else min(outputs, room)
        self.text.append(f"fully connected {features} -> {outputs}")
        if self.rng.random() < 0.3:
            self.product("MatMul", (features, outputs), 1, (1, outputs))
        elif self.rng.random() < 0.5:
            self.product("Gemm", (outputs, features), 0, (1, outputs), bias=bool(self.rng.random() < 0.8), transB=1)
        else:
            self.product("Gemm", (features, outputs), 1, (1, outputs), bias=bool(self.rng.random() < 0.8))

    def flatten(self) -> None:
        shape = (1, math.prod(self.shape[1:]))
        tensor = self.tensor if self.form == "qop" else self.dequantised()
        if self.rng.random() < 0.5:
            output = self.node("Flatten", [tensor])
        else:
            output = self.node("Reshape", [tensor, self.constant("shape", np.array([-1, shape[1]]))])
        if self.form == "qop":
            self.tensor, self.shape = output, shape
        else:
            self.quantise(output, self.scale, self.zero, shape)

    def max_pool(self, ceil_mode: int | None = None) -> None:
        """Max pooling of random geometry."""
        rng, sides = self.rng, self.shape[2:]
        kernel = [min(int(rng.integers(2, 4)), side) for side in sides]
        stride = [int(rng.integers(1, 4)) for _ in sides]
        dilation = [
            2 if 2 * (k - 1) < side and rng.random() < 0.2 else 1 for k, side in zip(kernel, sides, strict=True)
        ]
        extent = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        ceil_mode = int(rng.random() < 0.2) if ceil_mode is None else ceil_mode
        pads = [int(rng.integers(0, min(k, 3))) if rng.random() < 0.3 else 0 for k in [*kernel, *kernel]]
        out = _pooled(sides, extent, stride, pads, ceil_mode)
        if self.shape[1] * math.prod(out) > self.limits.map_bytes:
            pads = [0] * len(pads)
            out = _pooled(sides, extent, stride, pads, ceil_mode)
        self.text.append(f"max pool {kernel} / {stride}, pads {pads}, ceil_mode {ceil_mode}")
        self.pool(
            (*self.shape[:2], *out),
            kernel_shape=kernel,
            strides=stride,
            dilations=dilation,
            pads=pads,
            ceil_mode=ceil_mode,
        )

    def pool(self, result: tuple[int, ...], **attributes) -> None:
        """Append a max pooling."""
        if self.form == "qop":
            self.tensor, self.shape = self.node("MaxPool", [self.tensor], **attributes), result
        else:
            self.quantise(self.node("MaxPool", [self.dequantised()], **attributes), self.scale, self.zero, result)

    def activation(self, kind: str | None = None) -> None:
        """An activation between two quantised tensors."""
        kind = kind or str(self.rng.choice(ACTIVATIONS))
        self.text.append(kind)
        scale = float(self.value(self.scale))
        zero = int(self.value(self.zero)) - (128 if self.unsigned else 0)
        reach = scale * max(127 - zero, zero + 128)
        # Bounded functions fill the codes with their own range, the others with that of their input.
        bounded = {"Tanh": 1.0, "Sigmoid": 0.5, "HardSigmoid": 0.5, "Erf": 1.0}.get(kind)
        out_scale, out_zero = self.quantisation((bounded if bounded is not None else reach / 2) / 110)
        microsoft = {"Sigmoid": {}, "LeakyRelu": {"alpha": 0.1}}
        if self.form == "qop" and kind in microsoft and self.rng.random() < 0.5:
            ends = [self.tensor, self.scale, self.zero, out_scale, out_zero]
            self.tensor = self.node(f"QLinear{kind}", ends, domain="com.microsoft", **microsoft[kind])
            self.scale, self.zero = out_scale, out_zero
            return
        self.quantise(self.pointwise(self.dequantised(), kind), out_scale, out_zero, self.shape)

    def pointwise(self, tensor: str, kind: str) -> str:
        """The float operators of an activation."""
        if kind == "Clip":
            limits = [self.constant("limit", np.float32(value)) for value in (-0.4, 0.9)]
            return self.node("Clip", [tensor, *limits])
        if kind == "Swish":
            return self.node("Mul", [tensor, self.node("Sigmoid", [tensor])])
        if kind == "HardSwish:x*HardSigmoid":
            return self.node("Mul", [tensor, self.node("HardSigmoid", [tensor], alpha=1 / 6)])
        if kind == "Affine":
            for operator, value in (("Mul", 1.7), ("Div", 3.1), ("Add", [0.3]), ("Sub", 0.1)):
                tensor = self.node(operator, [tensor, self.constant("operand", np.float32(value))])
            return tensor
        attributes = {"LeakyRelu": {"alpha": 0.1}, "Elu": {"alpha": 0.7}}.get(kind, {})
        return self.node(kind, [tensor], **attributes)

    def begin_map(self, spatial: int = 2) -> None:
        """Start with a feature map of random size."""
        rng, limits = self.rng, self.limits
        while True:
            sides = [int(rng.integers(3, limits.side + 1)) for _ in range(spatial)]
            shape = (1, int(rng.integers(1, limits.channels + 1)), *sides)
            if math.prod(shape) <= limits.map_bytes // 3:
                break
        self.start(shape)

    def begin_vector(self) -> None:
        """Start with a vector of random length."""
        self.start((1, int(self.rng.integers(1, 16 * self.limits.channels))))


def _pooled(
    sides: Sequence[int], extent: Sequence[int], stride: Sequence[int], pads: Sequence[int], ceil_mode: int
) -> list[int]:
    """Size of the result of a pooling, as ONNX defines it."""
    out = []
    for i, side in enumerate(sides):
        steps = side + pads[i] + pads[len(sides) + i] - extent[i]
        size = (-(-steps // stride[i]) if ceil_mode else steps // stride[i]) + 1
        if ceil_mode and (size - 1) * stride[i] >= side + pads[i]:
            size -= 1  # no window begins in the border after
        out.append(size)
    return out


def layer(kind: str, seed: int, *, form: str = "qop", unsigned: bool = False, limits: Limits = TINY) -> Generated:
    """A model with one layer: "conv", "conv1d", "fc", "pool", "activation" or the name of an activation."""
    maker = Maker(np.random.default_rng([seed, *kind.encode()]), form, unsigned, limits)
    if kind == "fc":
        maker.begin_vector()
        maker.fully_connected()
    else:
        spatial = 1 if kind == "conv1d" else 2
        maker.begin_map(spatial)
        if kind.startswith("conv"):
            maker.convolution(spatial=spatial)
        elif kind == "pool":
            maker.max_pool()
        else:
            maker.activation(None if kind == "activation" else kind)
    return maker.finish()


def chain(
    seed: int, *, form: str = "qop", unsigned: bool = False, limits: Limits = TINY, float_ends: bool | None = None
) -> Generated:
    """A small network: convolution, perhaps an activation and max pooling, convolution, flatten, fully connected."""
    maker = Maker(np.random.default_rng([seed, 7]), form, unsigned, limits)
    rng = maker.rng
    maker.begin_map()
    maker.convolution()
    if rng.random() < 0.6:
        maker.activation()
    if rng.random() < 0.6 and min(maker.shape[2:]) > 1:
        maker.max_pool()
    maker.convolution()
    if rng.random() < 0.4:
        maker.activation()
    if rng.random() < 0.8:
        maker.fully_connected()
        if rng.random() < 0.5:
            maker.activation()
            maker.fully_connected(10)
    return maker.finish(float_ends=bool(rng.random() < 0.3) if float_ends is None else float_ends)
