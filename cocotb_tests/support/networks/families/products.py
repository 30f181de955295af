"""Products of a network under construction, in the form that it has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto, helper

from .net_file import RESULT_RMS, Codes, NetFile

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
