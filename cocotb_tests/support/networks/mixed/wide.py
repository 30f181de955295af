"""Writes mixed networks with tensors of 16-bit codes between those of 8 bits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from onnx import helper

from cocotb_tests.support.networks.families.net_file import OPSET, Codes
from cocotb_tests.support.networks.wide_codes import WIDE
from lutterfly.golden.config import Config
from lutterfly.golden.engines import MAXIMUM

from .net import MixedNet

#: How QuantizeLinear of 16 bits is written: the operator set of the file, and the domain.
_WRITTEN = ((21, ""), (21, "com.microsoft"), (OPSET, "com.microsoft"))
#: Steps of 16-bit codes in steps of the 8-bit ones before them: fine, so fine that values are cut, so coarse that they
#: decide codes.
_STEPS = (1 / 256, 1 / 256, 1 / 180, 1 / 64, 1 / 500, 0.4, 3)
_ZEROS = (0, 0, 0, 77, 5000, -9000)
_BOUNDED = {"Tanh": 1 / 128, "Sigmoid": 1 / 256}
_FUNCTIONS = (*_BOUNDED, "LeakyRelu", "HardSwish", "Relu", "Elu")
#: Of the places that may have 16 bits, those that do.
_OFTEN = 0.3


class WideNet(MixedNet):
    """As :class:`MixedNet`, with 16 bits after products, before sums and averages, around what moves or chooses codes
    and functions of one, and at the ends of the file.

    Parameters
    ----------
    rng : Generator
    config : Config
        What has no engine for tables of their own has 16 bits only where a product's table holds them.
    """

    def __init__(self, rng: np.random.Generator, config: Config):
        super().__init__(rng)
        self.opset, self._domain = _WRITTEN[rng.integers(len(_WRITTEN))]
        self._has_tables = MAXIMUM in config.engines
        self._widened: dict[str, str] = {}

    def input(self, *shape: int, zero_point: int | None = None) -> Codes:
        if self.rng.random() > _OFTEN:
            return super().input(*shape, zero_point=zero_point)
        name, y = f"input_{len(self._inputs)}", self._other(Codes("", shape, self._any_scale(), 0, 74.0))
        *ends, kind = self._ends(float(y.scale))
        self._inputs.append(helper.make_tensor_value_info(name, kind, [self._batch, *shape]))
        return self._quantise(self._node("DequantizeLinear", [name, *ends], self._domain), y)

    def output(self, x: Codes) -> None:
        if self.rng.random() > _OFTEN:
            super().output(x)
            return
        *ends, kind = self._ends(float(x.scale))
        name = self._node("QuantizeLinear", [self._float(x), *ends], self._domain)
        self._outputs.append(helper.make_tensor_value_info(name, kind, [self._batch, *x.shape]))

    def add(self, a: Codes, b: Codes, *, activation: str = "", like: Codes | None = None) -> Codes:
        return super().add(self._between(a), self._between(b), activation=activation, like=like)

    def average(self, x: Codes, kernel: int = 3, *, stride: int = 1, padded: bool = False) -> Codes:
        return super().average(self._between(x), kernel, stride=stride, padded=padded)

    def global_average(self, x: Codes) -> Codes:
        return super().global_average(self._between(x))

    def _finish(self, y: Codes, activation: str) -> Codes:
        y = super()._finish(y, activation)
        return self._chain(y) if self.rng.random() < _OFTEN else y

    def _call(self, *function) -> Codes:
        return self._between(super()._call(*function))

    def _read(self, x: Codes) -> str:
        return self._wide_float(x) if self._may_widen() else self._float(x)

    def _write(self, name: str, y: Codes) -> Codes:
        return self._quantise(self._widen(name, float(y.scale)) if self._may_widen() else name, y)

    def _may_widen(self) -> bool:
        """Whether 16 bits stand where a table of their own may hold them."""
        return bool(self._has_tables and self.rng.random() < _OFTEN)

    def _between(self, x: Codes) -> Codes:
        """A tensor, or what a chain of its own makes of it."""
        return self._chain(x) if self._may_widen() else x

    def _chain(self, x: Codes) -> Codes:
        """Functions of one number, with 16 bits between them."""
        name, y = self._wide_float(x), self._other(x)
        for function in self.rng.choice(_FUNCTIONS, int(self.rng.integers(3))).tolist():
            name = self._node(function, [name])
            y = replace(y, scale=np.float32(_BOUNDED.get(function, y.scale)))
            if self.rng.random() < 1 - _OFTEN:
                name = self._widen(name, float(y.scale))
        return self._quantise(name, y)

    def _other(self, x: Codes) -> Codes:
        """A tensor like another, with another zero point."""
        zero_point = self._any_zero_point()
        return replace(x, zero_point=zero_point, rms=math.hypot(x.rms, zero_point - self.form.lowest - 128))

    def _wide_float(self, x: Codes) -> str:
        """What 16 bits leave of a tensor; several may read the same."""
        if x.name not in self._widened or self.rng.random() < 0.5:
            self._widened[x.name] = self._widen(self._float(x), float(x.scale))
        return self._widened[x.name]

    def _widen(self, name: str, scale: float) -> str:
        """A float tensor, quantised to 16 bits and dequantised; ``scale`` is that of 8 bits."""
        *ends, _ = self._ends(scale)
        return self._node(
            "DequantizeLinear", [self._node("QuantizeLinear", [name, *ends], self._domain), *ends], self._domain
        )

    def _ends(self, scale: float) -> tuple[str, str, int]:
        """Scale and zero point of 16-bit codes, and their type in ONNX."""
        dtype = np.dtype(WIDE[self.rng.integers(len(WIDE))])
        zero = int(self.rng.choice(_ZEROS)) + (1 << 15) * (dtype == np.uint16)
        step = np.float32(scale * self.rng.choice(_STEPS))
        return self._constant(step), self._constant(np.array(zero, dtype)), helper.np_dtype_to_tensor_dtype(dtype)
