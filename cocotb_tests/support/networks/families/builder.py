"""Writes quantised ONNX networks operator by operator, in the forms that the frontend takes.

A network is described once, by calls such as ``net.conv(x, 16, 3)``; the form decides which operators stand in the
file. Scales follow from the spread that codes are expected to have, so that few results saturate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import helper

from .net_file import RESULT_RMS, Codes
from .products import Products


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
