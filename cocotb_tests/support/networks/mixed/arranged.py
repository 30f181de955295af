"""Writes mixed networks in which elements move along any axis."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from onnx import helper

from cocotb_tests.support.networks.families.net_file import Codes

from .moved import MovedNet


class ArrangedNet(MovedNet):
    """As :class:`MovedNet`, with shuffles, transposes, reshapes, choices by indices, maps taken apart and joined along
    rows and columns, and borders of all modes."""

    extra_kinds: ClassVar[Mapping[str, int]] = MovedNet.extra_kinds | {
        "shuffle": 6,
        "turn": 3,
        "reshape": 3,
        "choose": 3,
        "halves": 3,
        "stack": 3,
        "surround": 3,
    }

    def shuffle(self, x: Codes, groups: int) -> Codes:
        """Channels of groups one by one, as ShuffleNet has them."""
        split = groups, x.channels // groups, *x.shape[1:]
        y = self.reshape(self.turn(self.reshape(x, split), (1, 0, 2, 3)), x.shape)
        return replace(y, shape=x.shape)

    def turn(self, x: Codes, axes: Sequence[int]) -> Codes:
        """Other axes in front."""
        shape = [x.shape[axis] for axis in axes]
        return self._on_codes("Transpose", x, shape, perm=[0, *(axis + 1 for axis in axes)])

    def reshape(self, x: Codes, shape: Sequence[int]) -> Codes:
        return self._on_codes("Reshape", x, shape, self._constant(np.array([0, *shape], np.int64)))

    def choose(self, x: Codes, axis: int, indices: Sequence[int]) -> Codes:
        """Channels, rows or columns by their numbers."""
        shape = (*x.shape[:axis], len(indices), *x.shape[axis + 1 :])
        return self._on_codes("Gather", x, shape, self._constant(np.array(indices, np.int64)), axis=axis + 1)

    def every(self, x: Codes, axis: int, step: int) -> Codes:
        """Every so-many-th, from the first on, or from the last back."""
        size = x.shape[axis]
        start, end = (0, size) if step > 0 else (-1, -size - 1)
        bounds = [self._constant(np.array([value], np.int64)) for value in (start, end, axis + 1, step)]
        shape = (*x.shape[:axis], -(-size // abs(step)), *x.shape[axis + 1 :])
        return self._on_codes("Slice", x, shape, *bounds)

    def halves(self, x: Codes, axis: int, first: int) -> list[Codes]:
        """What is before a row or column, and the rest."""
        sizes = first, x.shape[axis] - first
        source = self._read(x) if self.form.qdq else x.name
        names = [f"halves_{len(self._nodes)}_{part}" for part in range(2)]
        inputs = [source, self._constant(np.array(sizes, np.int64))]
        self._nodes.append(helper.make_node("Split", inputs, names, name=names[0], axis=axis + 1))
        shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]
        parts = [replace(x, name=name, shape=shape) for name, shape in zip(names, shapes, strict=True)]
        return [self._write(part.name, part) for part in parts] if self.form.qdq else parts

    def stack(self, parts: Sequence[Codes], axis: int) -> Codes:
        """Maps one behind the other along rows or columns."""
        first = max(parts, key=lambda part: float(part.scale) * part.rms)
        shape = (*first.shape[:axis], sum(part.shape[axis] for part in parts), *first.shape[axis + 1 :])
        y = replace(first, shape=shape)
        if self.form.qdq:
            return self._write(self._node("Concat", [self._read(part) for part in parts], axis=axis + 1), y)
        inputs = [self._constant(y.scale), self._code(y.zero_point)]
        inputs += itertools.chain.from_iterable(
            (part.name, self._constant(part.scale), self._code(part.zero_point)) for part in parts
        )
        return replace(y, name=self._node("QLinearConcat", inputs, domain="com.microsoft", axis=axis + 1))

    def surround(self, x: Codes, pads: Sequence[int], mode: str) -> Codes:
        """A border; of a constant one that is not zero."""
        top, left, bottom, right = pads
        shape = x.channels, x.shape[1] + top + bottom, x.shape[2] + left + right
        sizes = self._constant(np.array([0, 0, top, left, 0, 0, bottom, right], np.int64))
        if mode != "constant":
            return self._on_codes("Pad", x, shape, sizes, mode=mode)
        code = x.zero_point + (3 if x.zero_point < self.form.lowest + 128 else -3)
        value = self._constant(np.float32(2.5 * float(x.scale))) if self.form.qdq else self._code(code)
        return self._on_codes("Pad", x, shape, sizes, value)
