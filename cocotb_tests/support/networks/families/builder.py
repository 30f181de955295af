"""Writes quantised ONNX networks operator by operator, in the forms that the frontend takes.

A network is described once, by calls such as ``net.conv(x, 16, 3)``; the form decides which operators stand in the
file. Scales follow from the spread that codes are expected to have, so that few results saturate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.config import Config

# The file of a network under construction: tensors of codes, the nodes and constants between them, its ends.

OPSET = 17
#: Root mean square of the codes of results over their zero point.
RESULT_RMS = 42.0


@dataclass(frozen=True, slots=True)
class Form:
    """How quantisation is written down."""

    qdq: bool
    unsigned: bool
    per_channel: bool

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8 if self.unsigned else np.int8)

    @property
    def lowest(self) -> int:
        return 0 if self.unsigned else -128

    def __str__(self) -> str:
        words = ("QDQ" if self.qdq else "QOperator", self.dtype.name, "channel" if self.per_channel else "tensor")
        return f"{words[0]} {words[1]}, weights per {words[2]}"


@dataclass(frozen=True, slots=True)
class Codes:
    """A quantised tensor: ``shape`` without batch, channels first; ``rms`` of codes over the zero point, estimated."""

    name: str
    shape: tuple[int, ...]
    scale: np.float32
    zero_point: int
    rms: float

    @property
    def channels(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class NetFile:
    """A file under construction; methods take and return :class:`Codes`."""

    def __init__(self, form: Form, rng: np.random.Generator):
        self.form = form
        self.rng = rng
        self.opset = OPSET
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._dequantised: dict[str, str] = {}
        self._batch = int(rng.integers(2)) or "N"
        #: Of the products, as the network defines them.
        self.macs = 0

    # Inputs, outputs, file.

    def input(self, *shape: int, zero_point: int | None = None) -> Codes:
        """An input of codes, or of floats that the host quantises."""
        scale = self._any_scale()
        zero_point = self._any_zero_point() if zero_point is None else zero_point
        name, batch = f"input_{len(self._inputs)}", self._batch
        centre = self.form.lowest + 128 - zero_point
        x = Codes(name, shape, scale, zero_point, math.hypot(74.0, centre))
        if self.rng.random() < 0.5:
            kind = TensorProto.UINT8 if self.form.unsigned else TensorProto.INT8
            self._inputs.append(helper.make_tensor_value_info(name, kind, [batch, *shape]))
            return x
        if len(shape) == 3 and self.rng.random() < 0.3:
            # As frameworks with channels last export it.
            stored, order = (shape[1], shape[2], shape[0]), [0, 3, 1, 2]
            self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *stored]))
            return self._quantise(self._node("Transpose", [name], perm=order), x)
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *shape]))
        return self._quantise(name, x)

    def output(self, x: Codes) -> None:
        """Make a tensor an output, of codes or of floats."""
        if self.rng.random() < 0.5:
            name = self._node("Identity", [x.name])
            kind = TensorProto.UINT8 if self.form.unsigned else TensorProto.INT8
        else:
            name, kind = self._node("Identity", [self._float(x)]), TensorProto.FLOAT
        self._outputs.append(helper.make_tensor_value_info(name, kind, [self._batch, *x.shape]))

    def finish(self) -> bytes:
        """The file."""
        graph = helper.make_graph(self._nodes, "network", self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        version = helper.find_min_ir_version_for(opsets[:1])
        return helper.make_model(graph, opset_imports=opsets, ir_version=version).SerializeToString()

    # Parts of all operators.

    def _on_codes(self, kind: str, x: Codes, shape: Sequence[int], *more: str, **attributes) -> Codes:
        """An operator that leaves scale and zero point as they are."""
        y = replace(x, shape=tuple(shape))
        if self.form.qdq:
            return self._write(self._node(kind, [self._read(x), *more], **attributes), y)
        return replace(y, name=self._node(kind, [x.name, *more], **attributes))

    def _read(self, x: Codes) -> str:
        """What an operator reads that moves numbers, chooses among them, or is a function of one."""
        return self._float(x)

    def _write(self, name: str, y: Codes) -> Codes:
        """The result of such an operator as codes."""
        return self._quantise(name, y)

    def _float(self, x: Codes) -> str:
        if x.name not in self._dequantised:
            inputs = [x.name, self._constant(x.scale), self._code(x.zero_point)]
            self._dequantised[x.name] = self._node("DequantizeLinear", inputs)
        return self._dequantised[x.name]

    def _quantise(self, name: str, y: Codes) -> Codes:
        inputs = [name, self._constant(y.scale), self._code(y.zero_point)]
        return replace(y, name=self._node("QuantizeLinear", inputs))

    def _node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes) -> str:
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [f"{name}_output"], name=name, domain=domain, **attributes))
        return f"{name}_output"

    def _constant(self, value: np.ndarray | np.generic) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _code(self, value: int) -> str:
        return self._constant(np.array(value, self.form.dtype))

    def _any_scale(self) -> np.float32:
        return np.float32(2 ** self.rng.uniform(-8, -3))

    def _any_zero_point(self) -> int:
        """Near the middle mostly, and sometimes at a limit."""
        middle = self.form.lowest + 128
        if self.rng.random() < 0.1:
            return int(self.rng.choice([middle - 128, middle + 127]))
        return middle + int(self.rng.integers(-25, 26))


# Products of a network under construction, in the form that it has.

#: Root mean square of weights that are drawn evenly from -127 to 127.
_WEIGHT_RMS = 73.0


class Products(NetFile):
    """A file with convolutions and fully connected layers."""

    def conv(
        self,
        x: Codes,
        channels: int,
        kernel: int | Sequence[int] = 1,
        *,
        stride: int | Sequence[int] = 1,
        groups: int = 1,
        dilation: int = 1,
        padded: bool = True,
        activation: str = "",
        like: Codes | None = None,
    ) -> Codes:
        """A convolution with its activation; ``padded`` keeps the size at stride 1; ``like`` gives the scale."""
        rank = len(x.shape) - 1
        sides = tuple(kernel) if isinstance(kernel, Sequence) else (kernel,) * rank
        sides = tuple(min(side, size) if not padded else side for side, size in zip(sides, x.shape[1:], strict=True))
        reach = [(side - 1) * dilation for side in sides]
        if not padded and any(r >= size for r, size in zip(reach, x.shape[1:], strict=True)):
            dilation, reach = 1, [side - 1 for side in sides]
        ahead = [r // 2 if padded else 0 for r in reach]
        after = [r - a if padded else 0 for r, a in zip(reach, ahead, strict=True)]
        strides = tuple(stride) if isinstance(stride, Sequence) else (stride,) * rank
        spatial = [
            (size + a + b - r - 1) // s + 1
            for size, a, b, r, s in zip(x.shape[1:], ahead, after, reach, strides, strict=True)
        ]
        depth = x.channels // groups
        y, weights, scales = self._product(x, (channels, depth, *sides), (channels, *spatial), activation, like)
        self.macs += weights.size * math.prod(spatial)
        attributes = {
            "kernel_shape": sides,
            "strides": strides,
            "dilations": [dilation] * rank,
            "group": groups,
            "pads": [*ahead, *after],
        }
        return self._finish(self._write_product("Conv", x, weights, scales, y, activation, **attributes), activation)

    def dense(self, x: Codes, channels: int, *, activation: str = "", matmul: bool = False) -> Codes:
        """A fully connected layer on a flat tensor."""
        y, weights, scales = self._product(x, (channels, x.channels), (channels,), activation, None)
        self.macs += weights.size
        kind = "MatMul" if matmul else "Gemm"
        return self._finish(self._write_product(kind, x, weights, scales, y, activation), activation)

    def integer_product(self, kind: str, x: Codes, weights: np.ndarray) -> None:
        """A ConvInteger or MatMulInteger whose int32 sums are an output."""
        name = self._node(kind, [x.name, self._constant(weights), self._code(x.zero_point)])
        if kind == "MatMulInteger":
            shape = [weights.shape[1]]
        else:
            shape = [len(weights), *(x.shape[i] - weights.shape[i + 1] + 1 for i in (1, 2))]
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.INT32, [self._batch, *shape]))

    def _product(self, x, weight_shape, shape, activation, like):
        """Result, weights and their scales."""
        y = self._result(shape, activation, like)
        count = math.prod(weight_shape[1:])
        centre = float(y.scale) * RESULT_RMS / (math.sqrt(count) * x.rms * _WEIGHT_RMS * float(x.scale))
        channels = weight_shape[0]
        scales = np.full(channels, centre * 2 ** self.rng.uniform(-0.5, 0.5), np.float32)
        if self.form.per_channel:
            scales = (scales * 2 ** self.rng.uniform(-1, 1, channels)).astype(np.float32)
        return y, self.rng.integers(-127, 128, weight_shape, dtype=np.int8), scales

    def _result(self, shape: Sequence[int], activation: str, like: Codes | None) -> Codes:
        if activation in ("relu", "relu6"):
            # These vanish: what they cut has no code.
            scale = np.float32(0.0234) if activation == "relu6" else self._any_scale()
            return Codes("", tuple(shape), scale, self.form.lowest, RESULT_RMS)
        scale, zero_point = self._any_scale(), self._any_zero_point()
        if like is not None:
            scale, zero_point = like.scale, like.zero_point
        return Codes("", tuple(shape), scale, zero_point, RESULT_RMS)

    def _write_product(self, kind, x, weights, scales, y, activation, **attributes) -> Codes:
        stored = scales if self.form.per_channel else scales[:1].reshape(())
        weight_scales = stored if self.form.per_channel else np.broadcast_to(stored, scales.shape)
        bias_scale = (x.scale * weight_scales).astype(np.float32)
        has_bias = kind != "MatMul" and self.rng.random() < 0.8
        spread = RESULT_RMS * float(y.scale) / 2
        bias = np.clip(np.rint(self.rng.normal(0, spread, len(scales)) / bias_scale), -(1 << 24), 1 << 24)
        bias = bias.astype(np.int32)
        kernel, axis = (weights.T, 1) if kind == "MatMul" else (weights, 0)
        names = [self._constant(value) for value in (kernel, stored, np.zeros(stored.shape, np.int8))]
        if self.form.qdq:
            weight = self._node("DequantizeLinear", names, **({"axis": axis} if stored.ndim else {}))
            inputs = [self._float(x), weight]
            if has_bias:
                stored_bias = bias_scale if self.form.per_channel else bias_scale[:1].reshape(())
                inputs.append(
                    self._node(
                        "DequantizeLinear",
                        [self._constant(bias), self._constant(stored_bias)],
                        **({"axis": 0} if stored.ndim else {}),
                    )
                )
            if kind == "Gemm":
                attributes["transB"] = 1
            return self._quantise(self._activate(self._node(kind, inputs, **attributes), activation), y)
        after = [self._constant(y.scale), self._code(y.zero_point)]
        ahead = [x.name, self._constant(x.scale), self._code(x.zero_point), *names]
        biases = [self._constant(bias)] if has_bias else []
        if kind == "Gemm":
            name = self._node("QGemm", [*ahead, *(biases or [""]), *after], domain="com.microsoft", transB=1)
        elif kind == "MatMul":
            name = self._node("QLinearMatMul", [*ahead, *after])
        else:
            name = self._node("QLinearConv", [*ahead, *after, *biases], **attributes)
        return replace(y, name=name)

    def _activate(self, name: str, activation: str) -> str:
        if activation == "relu":
            return self._node("Relu", [name])
        if activation == "relu6":
            return self._node("Clip", [name, self._constant(np.float32(0)), self._constant(np.float32(6))])
        return name

    def _finish(self, y: Codes, activation: str) -> Codes:
        return y if activation in ("", "relu", "relu6") else self.pointwise(y, activation)


class Net(Products):
    """One network under construction; methods take and return :class:`Codes`."""

    # Pooling, sums, channels.

    def maximum(self, x: Codes, kernel: int, *, stride: int = 1, padded: bool = False, ceil: bool = False) -> Codes:
        """Max pooling on codes."""
        rank = len(x.shape) - 1
        kernel = min(kernel, *x.shape[1:])
        ahead, after = ((kernel - 1) // 2, kernel // 2) if padded else (0, 0)
        attributes = {
            "kernel_shape": [kernel] * rank,
            "strides": [stride] * rank,
            "pads": [ahead] * rank + [after] * rank,
            "ceil_mode": int(ceil),
        }
        free = [size + ahead + after - kernel for size in x.shape[1:]]
        counts = [(-(-f // stride) if ceil else f // stride) + 1 for f in free]
        # A window that begins after the map and its border does not count.
        spatial = [
            n - int(ceil and (n - 1) * stride >= size + ahead) for n, size in zip(counts, x.shape[1:], strict=True)
        ]
        return self._on_codes("MaxPool", x, (x.channels, *spatial), **attributes)

    def average(self, x: Codes, kernel: int = 3, *, stride: int = 1, padded: bool = False) -> Codes:
        """A windowed average whose bytes are a function of the sum; a border does not count."""
        rank, border = len(x.shape) - 1, kernel // 2 if padded else 0
        spatial = [(size + 2 * border - kernel) // stride + 1 for size in x.shape[1:]]
        attributes = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [border] * (2 * rank)}
        y = replace(x, shape=(x.channels, *spatial), rms=x.rms / kernel + 20)
        if padded:
            # No mean of 2, 3, 4, 6 or 9 codes lies between two codes then: float32 may round it as it likes.
            y = replace(y, scale=np.float32(x.scale * self.rng.choice([3, 5, 7]) / 4))
        return self._quantise(self._node("AveragePool", [self._float(x)], **attributes), y)

    def global_average(self, x: Codes) -> Codes:
        """The average of the whole map."""
        y = replace(x, shape=(x.channels, *[1] * (len(x.shape) - 1)), rms=30.0, scale=np.float32(x.scale / 2))
        y = replace(y, zero_point=self._any_zero_point())
        if self.form.qdq:
            return self._quantise(self._node("GlobalAveragePool", [self._float(x)]), y)
        inputs = [
            x.name,
            self._constant(x.scale),
            self._code(x.zero_point),
            self._constant(y.scale),
            self._code(y.zero_point),
        ]
        name = self._node("QLinearGlobalAveragePool", inputs, domain="com.microsoft", channels_last=0)
        return replace(y, name=name)

    def add(self, a: Codes, b: Codes, *, activation: str = "", like: Codes | None = None) -> Codes:
        """The sum of two tensors of one shape; ``like`` gives the scale."""
        spread = math.hypot(a.rms * float(a.scale), b.rms * float(b.scale))
        scale = np.float32(spread / RESULT_RMS * 2 ** self.rng.uniform(-0.5, 0.5))
        zero_point = self.form.lowest if activation == "relu" else self._any_zero_point()
        y = Codes("", a.shape, scale, zero_point, RESULT_RMS)
        if like is not None:
            y = replace(y, scale=like.scale, zero_point=like.zero_point)
        if self.form.qdq:
            total = self._node("Add", [self._float(a), self._float(b)])
            return self._quantise(self._activate(total, activation), y)
        inputs = [word for x in (a, b) for word in (x.name, self._constant(x.scale), self._code(x.zero_point))]
        inputs += [self._constant(y.scale), self._code(y.zero_point)]
        return replace(y, name=self._node("QLinearAdd", inputs, domain="com.microsoft"))

    def multiply(self, a: Codes, b: Codes, *, activation: str = "") -> Codes:
        """The product of two tensors, of one shape or of a map and a vector over its channels, whichever is first."""
        shape = max(a.shape, b.shape, key=math.prod)
        spread = a.rms * float(a.scale) * b.rms * float(b.scale)
        scale = np.float32(spread / RESULT_RMS * 2 ** self.rng.uniform(-0.5, 0.5))
        y = Codes("", shape, scale, self.form.lowest if activation == "relu" else self._any_zero_point(), RESULT_RMS)
        if self.form.qdq:
            product = self._node("Mul", [self._float(a), self._float(b)])
            return self._quantise(self._activate(product, activation), y)
        inputs = [word for x in (a, b) for word in (x.name, self._constant(x.scale), self._code(x.zero_point))]
        inputs += [self._constant(y.scale), self._code(y.zero_point)]
        return replace(y, name=self._node("QLinearMul", inputs, domain="com.microsoft"))

    def combine(self, kind: str, a: Codes, b: Codes, *, activation: str = "") -> Codes:
        """Sub, Max or Min of two tensors of one shape, which only QDQ form has."""
        spread = math.hypot(a.rms * float(a.scale), b.rms * float(b.scale))
        scale = np.float32(spread / RESULT_RMS * 2 ** self.rng.uniform(-0.5, 0.5))
        y = Codes("", a.shape, scale, self.form.lowest if activation == "relu" else self._any_zero_point(), RESULT_RMS)
        result = self._node(kind, [self._float(a), self._float(b)])
        return self._quantise(self._activate(result, activation), y)

    def concat(self, parts: Sequence[Codes]) -> Codes:
        """Channels side by side; with one scale for all of them they stay as they are."""
        first = max(parts, key=lambda part: float(part.scale) * part.rms)
        shape = (sum(part.channels for part in parts), *first.shape[1:])
        rms = max(30.0, *(part.rms * float(part.scale) / float(first.scale) for part in parts))
        y = replace(first, shape=shape, rms=rms)
        if self.form.qdq:
            return self._write(self._node("Concat", [self._read(part) for part in parts], axis=1), y)
        if len({(part.scale, part.zero_point) for part in parts}) == 1 and self.rng.random() < 0.5:
            return replace(y, name=self._node("Concat", [part.name for part in parts], axis=1))
        inputs = [self._constant(y.scale), self._code(y.zero_point)]
        for part in parts:
            inputs += [part.name, self._constant(part.scale), self._code(part.zero_point)]
        return replace(y, name=self._node("QLinearConcat", inputs, domain="com.microsoft", axis=1))

    def split(self, x: Codes, parts: int | Sequence[int]) -> list[Codes]:
        """Equal shares of the channels, or so many channels in each."""
        shares = [x.channels // parts] * parts if isinstance(parts, int) else [*parts]
        sizes = self._constant(np.array(shares, np.int64))
        source = self._read(x) if self.form.qdq else x.name
        names = [f"split_{len(self._nodes)}_{part}" for part in range(len(shares))]
        self._nodes.append(helper.make_node("Split", [source, sizes], names, name=f"split_{len(self._nodes)}", axis=1))
        pieces = [replace(x, name=name, shape=(share, *x.shape[1:])) for name, share in zip(names, shares, strict=True)]
        return [self._write(piece.name, piece) for piece in pieces] if self.form.qdq else pieces

    def slice(self, x: Codes, start: int, stop: int) -> Codes:
        """Channels ``start`` to ``stop - 1``."""
        bounds = [self._constant(np.array([value], np.int64)) for value in (start, stop, 1)]
        return self._on_codes("Slice", x, (stop - start, *x.shape[1:]), *bounds)

    def crop(self, x: Codes, start: int, stop: int) -> Codes:
        """Rows and columns ``start`` to ``stop - 1``."""
        axes = range(2, 1 + len(x.shape))
        bounds = [
            self._constant(np.array(values, np.int64)) for values in ([start] * len(axes), [stop] * len(axes), axes)
        ]
        return self._on_codes("Slice", x, (x.channels, *[stop - start] * len(axes)), *bounds)

    def upsample(self, x: Codes, factor: int) -> Codes:
        """Every pixel ``factor`` times along each axis."""
        spatial = x.shape[1:]
        scales = self._constant(np.float32([1, 1, *[factor] * len(spatial)]))
        given = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self._on_codes("Resize", x, (x.channels, *(factor * size for size in spatial)), "", scales, **given)

    def shuffle(self, x: Codes, groups: int) -> Codes:
        """The first channel of each group, then the second of each, as Reshape, Transpose and Reshape."""
        parts = (groups, x.channels // groups)
        split, joined = (
            self._constant(np.array(shape, np.int64)) for shape in ((0, *parts, *x.shape[1:]), (0, *x.shape))
        )
        x = self._on_codes("Reshape", x, x.shape, split)
        rank = 2 + len(x.shape)
        x = self._on_codes("Transpose", x, x.shape, perm=[0, 2, 1, *range(3, rank)])
        return self._on_codes("Reshape", x, x.shape, joined)

    def flatten(self, x: Codes) -> Codes:
        return self._on_codes("Flatten", x, (x.size,), axis=1)

    def pad(self, x: Codes, border: int) -> Codes:
        """A border of zeros."""
        rank = len(x.shape) - 1
        pads = np.array([0, 0, *[border] * rank] * 2, np.int64)
        y = replace(x, shape=(x.channels, *(size + 2 * border for size in x.shape[1:])))
        if self.form.qdq:
            zero = self._constant(np.float32(0))
            return self._write(self._node("Pad", [self._read(x), self._constant(pads), zero]), y)
        return replace(y, name=self._node("Pad", [x.name, self._constant(pads), self._code(x.zero_point)]))

    def pointwise(self, x: Codes, kind: str) -> Codes:
        """A function of one activation: a table."""
        ranges = {
            "Sigmoid": (1 / 256, self.form.lowest, 128.0),
            "HardSigmoid": (1 / 256, self.form.lowest, 128.0),
            "Tanh": (1 / 128, self.form.lowest + 128, 60.0),
        }
        scale, zero_point, rms = ranges.get(kind, (float(x.scale) * 0.8, self.form.lowest + 40, x.rms))
        if kind == "Relu":
            zero_point = self.form.lowest
        y = Codes("", x.shape, np.float32(scale), zero_point, rms)
        if kind in ("Sigmoid", "LeakyRelu") and not self.form.qdq:
            inputs = [
                x.name,
                self._constant(x.scale),
                self._code(x.zero_point),
                self._constant(y.scale),
                self._code(y.zero_point),
            ]
            return replace(y, name=self._node(f"QLinear{kind}", inputs, domain="com.microsoft"))
        return self._write(self._node(kind, [self._read(x)]), y)


# How large networks are: in proportion to the accelerator that they are for.


@dataclass(frozen=True)
class Scope:
    """Draws sizes for one accelerator."""

    config: Config
    rng: np.random.Generator

    def width(self) -> int:
        """Channels of a layer: about as many as the array has lanes, odd numbers too."""
        lanes = self.config.array.lanes
        return int(self.rng.choice([3, 4, 5, lanes // 2 + 1, lanes, lanes, lanes + 2, min(2 * lanes, 24)]))

    def side(self, *, large: float = 0.15) -> int:
        """Rows and columns of a map; with probability ``large`` one that fills much of the feature memory."""
        if self.rng.random() < large:
            return int(self.rng.choice([24, 30, 32, 40]))
        return int(self.rng.integers(4, 17))

    def holds(self, size_bytes: int) -> bool:
        """Whether the feature memory holds a tensor of this size as a whole, beside others."""
        return 2 * size_bytes <= self.config.memory.feature_bytes

    def depth(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def coin(self, probability: float = 0.5) -> bool:
        return bool(self.rng.random() < probability)

    def one_of(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]
