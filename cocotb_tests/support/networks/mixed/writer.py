"""Writes mixed networks: their operators have a form each, their weights may be off, and layers may be functions.

Each class adds to the one before it, so that the networks of earlier seeds stay what they are.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import onnx
from onnx import helper

from cocotb_tests.support.networks.binary_networks import random_layer, random_window
from cocotb_tests.support.networks.butterflies import random_epilogue, random_stages, rotating_stages
from cocotb_tests.support.networks.families.builder import OPSET, RESULT_RMS, Codes, Form, Net
from cocotb_tests.support.networks.pruning import connections
from cocotb_tests.support.networks.small_models import WIDE
from lutterfly.golden.config import Config
from lutterfly.golden.engines import MAXIMUM
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
        epilogue = random_epilogue(channels, seed, shift=int(rng.integers(2, 7)) if rng.integers(2) else None)
        if rng.integers(2):
            epilogue = dataclasses.replace(epilogue, low=-128, high=127)
        name = f"FastPointwiseConv_{len(self._functions)}"
        spatial = len(x.shape) - 1
        function = fpc_function.make_function(
            stages, epilogue, x.zero_point, spatial=spatial, name=name, opset=self.opset
        )
        return self._call(function, x, (channels, *x.shape[1:]), epilogue.zero_point, _FUNCTION_RMS)

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


# Writes mixed networks with tensors of 16-bit codes between those of 8 bits.

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


# Writes mixed networks in which elements move to other pixels.


class MovedNet(WideNet):
    """As :class:`WideNet`, with upsampling, depth to space and back, and crops, on codes or between float tensors."""

    extra_kinds: ClassVar[Mapping[str, int]] = {"nearest": 4, "depth": 4, "phases": 4, "space": 3, "crop": 3}

    def nearest(self, x: Codes, factors: tuple[int, int]) -> Codes:
        """Every pixel repeated, told by scales or by sizes."""
        shape = x.channels, x.shape[1] * factors[0], x.shape[2] * factors[1]
        scales = self._constant(np.array([1, 1, *factors], np.float32))
        modes = {"mode": "nearest"}
        if self.rng.integers(2):
            modes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if self.rng.integers(2):
            return self._on_codes("Resize", x, shape, "", scales, **modes)
        return self._on_codes("Resize", x, shape, "", "", self._constant(np.array([1, *shape], np.int64)), **modes)

    def depth_to_space(self, x: Codes, block: int) -> Codes:
        shape = x.channels // block**2, x.shape[1] * block, x.shape[2] * block
        mode = "DCR" if self.rng.integers(2) else "CRD"
        return self._on_codes("DepthToSpace", x, shape, blocksize=block, mode=mode)

    def space_to_depth(self, x: Codes, block: int) -> Codes:
        shape = x.channels * block**2, x.shape[1] // block, x.shape[2] // block
        return self._on_codes("SpaceToDepth", x, shape, blocksize=block)

    def crop(self, x: Codes, starts: tuple[int, int], ends: tuple[int, int]) -> Codes:
        """Rows and columns from ``starts`` to before ``ends``."""
        bounds = [self._constant(np.array(values, np.int64)) for values in (starts, ends, (2, 3))]
        shape = x.channels, *(end - start for start, end in zip(starts, ends, strict=True))
        return self._on_codes("Slice", replace(x), shape, *bounds)


# Writes mixed networks in which elements move along any axis.


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


# Writes mixed networks with products, differences and extremes of two activations.


class MultipliedNet(ArrangedNet):
    """As :class:`ArrangedNet`, with products of maps, and of a map and a vector over its channels; Sub, Max and Min."""

    extra_kinds: ClassVar[Mapping[str, int]] = {
        **ArrangedNet.extra_kinds,
        "product": 6,
        "excite": 6,
        "difference": 3,
        "extreme": 3,
    }

    def multiply(self, a: Codes, b: Codes, *, activation: str = "") -> Codes:
        return super().multiply(self._between(a), self._between(b), activation=activation)


# Writes mixed networks with matrix products of two activations, and vectors that are repeated for every pixel.


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
