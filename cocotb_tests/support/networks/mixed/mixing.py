"""Writes mixed networks with matrix products of two activations, and vectors that are repeated for every pixel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from cocotb_tests.support.networks.families.net_file import RESULT_RMS, Codes

from .multiplied import MultipliedNet


class MixingNet(MultipliedNet):
    """As :class:`MultipliedNet`, with products of stacks of matrices, and sums, differences and extremes of a map and a
    vector."""

    extra_kinds: ClassVar[Mapping[str, int]] = {**MultipliedNet.extra_kinds, "matrices": 12, "spread": 4}

    def around_zero(self, x: Codes) -> Codes:
        """Codes of a tensor with the zero point 0, or 128 of uint8."""
        if x.zero_point == self.form.lowest + 128:
            return x
        return self._quantise(self._node("LeakyRelu", [self._float(x)]), replace(x, zero_point=self.form.lowest + 128))

    def matrices(self, a: Codes, b: Codes) -> Codes:
        """The product of two stacks of as many matrices, whose zero points are 0."""
        spread = a.rms * float(a.scale) * b.rms * float(b.scale) * math.sqrt(a.shape[2])
        scale = np.float32(spread / RESULT_RMS * 2 ** self.rng.uniform(-0.5, 0.5))
        shape = max(a.shape[0], b.shape[0]), a.shape[1], b.shape[2]
        y = Codes("", shape, scale, self._any_zero_point(), RESULT_RMS)
        if self.form.qdq:
            return self._quantise(self._node("MatMul", [self._float(a), self._float(b)]), y)
        inputs = [word for x in (a, b) for word in (x.name, self._constant(x.scale), self._code(x.zero_point))]
        return replace(
            y, name=self._node("QLinearMatMul", [*inputs, self._constant(y.scale), self._code(y.zero_point)])
        )
