"""Writes networks whose operators have a form each, whose weights may be off, and whose layers may be functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import onnx

from cocotb_tests.support.networks.binaries import random_layer, random_window
from cocotb_tests.support.networks.butterflies import random_finish, random_stages, rotating_stages
from cocotb_tests.support.networks.families.builder import Net
from cocotb_tests.support.networks.families.net_file import Codes, Form
from cocotb_tests.support.networks.pruning import connections
from lutterfly.golden.numerics.butterfly import Density, Pattern, count_stages
from lutterfly.golden.numerics.fpc import stages_on
from lutterfly.host.model.functions import binary_function, fpc_function
from lutterfly.host.model.functions.onnx_function import DOMAIN, add_function

#: Of codes over their zero point: what functions give, and signs.
_FUNCTION_RMS, _SIGN_RMS = 42.0, 1.0


class MixedNet(Net):
    """As :class:`Net`, of int8 codes, which functions want.

    Attributes
    ----------
    extra_kinds : dict of str to int
        Further kinds of layers that it writes, and how often each is to be drawn.
    """

    extra_kinds: ClassVar[Mapping[str, int]] = {}

    def __init__(self, rng: np.random.Generator):
        super().__init__(Form(qdq=False, unsigned=False, per_channel=False), rng)
        self._functions: list[onnx.FunctionProto] = []

    def draw_form(self) -> None:
        """Write what follows in another form."""
        self.form = Form(bool(self.rng.integers(2)), self.form.unsigned, bool(self.rng.integers(2)))

    def finish(self) -> bytes:
        """The file, with its functions."""
        model = onnx.load_from_string(super().finish())
        for function in self._functions:
            add_function(model, function)
        return model.SerializeToString()

    def maximum(self, x: Codes, kernel: int, *, stride: int = 1, padded: bool = False, ceil: bool = False) -> Codes:
        """Max pooling without ceil_mode: ONNX Runtime infers another shape for it than it computes, and then refuses
        what follows, as the form has it."""
        return super().maximum(x, kernel, stride=stride, padded=padded)

    def fast(self, x: Codes, channels: int, hardware: Pattern) -> Codes:
        """A fast pointwise convolution that the butterfly of some hardware has."""
        rng, seed = self.rng, int(self.rng.integers(1 << 20))
        pattern = _pattern(rng, x.channels, channels, hardware)
        stages = (random_stages if rng.integers(3) == 0 else rotating_stages)(pattern, seed)
        finish = random_finish(channels, seed, shift=int(rng.integers(2, 7)) if rng.integers(2) else None)
        if rng.integers(2):
            finish = dataclasses.replace(finish, low=-128, high=127)
        name = f"FastPointwiseConv_{len(self._functions)}"
        spatial = len(x.shape) - 1
        function = fpc_function.make_function(
            stages, finish, x.zero_point, spatial=spatial, name=name, opset=self.opset
        )
        return self._call(function, x, (channels, *x.shape[1:]), finish.zero_point, _FUNCTION_RMS)

    def binary(self, x: Codes, channels: int, *, codes: bool) -> Codes:
        """A binary layer on a map or a vector; its result is codes or signs."""
        rng, kernel, spatial, window = self.rng, (), (), {}
        if len(x.shape) > 1:
            kernel, window, spatial = random_window(rng, x.shape[1:])
        known = random_layer(rng, (channels, x.channels, *kernel), codes=codes) | window
        known["input_zero_point"] = int(rng.choice([x.zero_point, x.zero_point, rng.integers(-128, 128)]))
        if codes:
            zero_point = int(rng.integers(-30, 31))
            known |= {"zero_point": zero_point, "low": int(rng.choice([-128, zero_point])), "high": 120}
        name = f"{binary_function.NAME}_{len(self._functions)}"
        function = binary_function.make_function(**known, name=name, opset=self.opset)
        rms = _FUNCTION_RMS if codes else _SIGN_RMS
        return self._call(function, x, (channels, *spatial), known.get("zero_point", 0), rms)

    def gate(self, x: Codes, kind: str) -> Codes:
        """``x * f(x)``, quantised in between: hard swish and its like."""
        factor = self.pointwise(x, kind)
        y = dataclasses.replace(x, scale=np.float32(float(x.scale) * 0.7), zero_point=self._any_zero_point())
        operands = [x, factor] if self.rng.integers(2) else [factor, x]
        if self.form.qdq:
            return self._write(self._node("Mul", [self._read(operand) for operand in operands]), y)
        given = [(one.name, self._constant(one.scale), self._code(one.zero_point)) for one in operands]
        inputs = [*given[0], *given[1], self._constant(y.scale), self._code(y.zero_point)]
        return dataclasses.replace(y, name=self._node("QLinearMul", inputs, domain="com.microsoft"))

    def _call(self, function: onnx.FunctionProto, x: Codes, shape: Sequence[int], zero_point: int, rms: float) -> Codes:
        self._functions.append(function)
        name = self._node(function.name, [x.name], domain=DOMAIN)
        return Codes(name, tuple(shape), self._any_scale(), zero_point, rms)

    def _product(self, x, weight_shape, shape, activation, like):
        """Two layers in five have connections that are off."""
        y, weights, scales = super()._product(x, weight_shape, shape, activation, like)
        if self.rng.random() < 0.4:
            kept = connections(self.rng, *weight_shape[:2]).reshape(*weight_shape[:2], *[1] * (len(weight_shape) - 2))
            if len(weight_shape) > 2 and self.rng.random() < 0.3:
                kept = kept & (self.rng.random((1, 1, *weight_shape[2:])) < 0.7)
            weights = weights * kept.astype(np.int8)
        return y, weights, scales


def _pattern(rng: np.random.Generator, inputs: int, outputs: int, hardware: Pattern) -> Pattern:
    """That of the hardware's direction, or another that it has: weights left out, skips."""
    stages = count_stages(inputs, outputs)
    every = [(first, last) for last in range(stages) for first in range(last + 1)]
    for _ in range(4):
        densities = rng.choice(list(Density), stages).tolist() if rng.integers(2) else None
        skips = [skip for skip in every if rng.random() < 0.3][:2]
        pattern = Pattern.of(inputs, outputs, hardware.direction, densities, skips)
        try:
            stages_on(pattern, hardware)
        except ValueError:
            continue
        return pattern
    return Pattern.of(inputs, outputs, hardware.direction)
